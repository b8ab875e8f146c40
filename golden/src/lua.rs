//! Replays the reference Lua scripts on Diana's algorithms, on a store.
//!
//! A step contains the script's input (`keys`, `argv`, `now_ms`), its answer on Redis (`reply`), and the intended
//! answer (`intended`). The scripts have bugs, so:
//!
//! ```text
//!  step     0 ──────────────── first_divergence ─────────▶ end
//!  decision │◀─── as `reply` ────▶│
//!  answer   │◀──────── as `intended`, every field ──────────▶│
//! ```
//!
//! [`scripts`] maps each script to Diana's terms; [`values`] parses its arguments.

use super::store::{ScenarioStore, Stop};
use super::{Mismatch, Replay};
use scripts::{Answer, Script};
use serde_json::Value;

mod rules;
mod scripts;
#[cfg(test)]
mod tests;
mod values;

/// One call of a script, as recorded.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    step: &'a Value,
    params: &'a Value,
}

/// Replays one scenario. Returns an error if its format is unknown.
pub(crate) fn replay(scenario: &Value, store: &ScenarioStore<'_>) -> Result<Replay, String> {
    let name = scenario.get("script").and_then(Value::as_str).unwrap_or_default();
    let mut script = Script::named(name)?;
    let steps = scenario.get("steps").and_then(Value::as_array).ok_or("missing field `steps`")?;
    let first_divergence = scenario.get("first_divergence").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let params = scenario.get("params").unwrap_or(&Value::Null);
    let mut replay = Replay::default();
    for (index, step) in steps.iter().enumerate() {
        let answer = match script.call(Call { step, params }, store) {
            Ok(answer) => answer,
            Err(Stop::Unsupported(reason)) => {
                replay.skipped = Some((reason, steps.len() - index));
                break;
            }
            Err(Stop::Problem(problem)) => return Err(format!("step {index}: {problem}")),
        };
        replay.steps += 1;
        let mut report = |label: &str, expected: &Value| {
            let (expected, actual) = (format!("{label} {expected}"), answer.to_string());
            replay.mismatches.push(Mismatch { step: Some(index), expected, actual });
        };
        if let Some(intended) = step.get("intended").filter(|intended| !is_intended(&script, &answer, intended)) {
            report("intended", intended);
        }
        let before_divergence = u64::try_from(index).is_ok_and(|index| index < first_divergence);
        if let Some(reply) = step.get("reply").filter(|_| before_divergence) {
            // An error reply is not a decision.
            if script.decision(reply).is_some_and(|granted| granted != grants(&script, &answer)) {
                report("the decision of", reply);
            }
        }
    }
    Ok(replay)
}

fn is_intended(script: &Script, answer: &Answer, intended: &Value) -> bool {
    match answer {
        Answer::Reply(reply) => values::are_equal(reply, intended),
        Answer::Rejected => script.decision(intended) != Some(true),
    }
}

fn grants(script: &Script, answer: &Answer) -> bool {
    match answer {
        Answer::Reply(reply) => script.decision(reply) == Some(true),
        Answer::Rejected => false,
    }
}
