//! Replays the answers of redis-cell to `CL.THROTTLE`.
//!
//! Scenarios of the classes `ordinary`, `reconfigured` and `edge` must match in every step. In those of `odd` and `fault`
//! redis-cell wraps around, reports wrong numbers or dies: where Diana's answer differs there, it is a *deviation*, and
//! `cell_deviations.txt` lists all of them.

use super::store::{ScenarioStore, Stop};
use super::{Mismatch, Replay};
use diana_core::{ClThrottle, Limit, TimeDebt, Timestamp};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// 2026-01-01T00:00:00Z, from which the times of steps count.
const START: u64 = 1_767_225_600_000_000_000;

/// Replays one scenario. Returns an error if its format is unknown.
pub(crate) fn replay(scenario: &Value, store: &ScenarioStore<'_>) -> Result<Replay, String> {
    let class = scenario.get("class").and_then(Value::as_str).ok_or("missing field `class`")?;
    let steps = scenario.get("steps").and_then(Value::as_array).ok_or("missing field `steps`")?;
    let limit = Limit::new("cl.throttle", TimeDebt);
    let mut replay = Replay::default();
    for (index, step) in steps.iter().enumerate() {
        let answer = match answer(step, &limit, store) {
            Ok(answer) => answer,
            Err(Stop::Unsupported(reason)) => {
                replay.skipped = Some((reason, steps.len() - index));
                break;
            }
            Err(Stop::Problem(problem)) => return Err(format!("step {index}: {problem}")),
        };
        replay.steps += 1;
        let reply = step.get("reply").ok_or_else(|| format!("step {index}: missing field `reply`"))?;
        if answer == *reply {
            continue;
        }
        let mismatch = Mismatch { step: Some(index), expected: reply.to_string(), actual: answer.to_string() };
        match class {
            "odd" | "fault" => replay.deviations.push(mismatch),
            _ => replay.mismatches.push(mismatch),
        }
    }
    Ok(replay)
}

/// Diana's answer to one step, in the format of `reply`.
fn answer(step: &Value, limit: &Limit, store: &ScenarioStore<'_>) -> Result<Value, Stop> {
    let at = step.get("at_ns").and_then(Value::as_u64).ok_or("missing field `at_ns`")?;
    let argv = step.get("argv").and_then(Value::as_array).ok_or("missing field `argv`")?;
    let argv = argv.iter().map(argument).collect::<Option<Vec<_>>>().ok_or("invalid field `argv`")?;
    let (key, args) = match &argv[..] {
        [_command, key, args @ ..] => (&key[..], args),
        // Without a key there are too few arguments as well.
        _ => (&b""[..], &[][..]),
    };
    match ClThrottle::from_args(args) {
        Ok(call) => {
            let answer = store.cl_throttle(limit, key, &call, Timestamp::from_nanos(START + at))?;
            Ok(json!(answer.to_integers()))
        }
        Err(error) => Ok(json!({ "error": format!("Cell error: Store error: {error}") })),
    }
}

/// The bytes of an argument: a text, or `{"hex": ".."}`.
fn argument(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let hex = value.get("hex")?.as_str()?;
    (0..hex.len()).step_by(2).map(|start| u8::from_str_radix(hex.get(start..start + 2)?, 16).ok()).collect()
}
