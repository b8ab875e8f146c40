//! Converts the scripts' arguments to Diana's types, and back.
//!
//! Each script has its own time unit: seconds, milliseconds, or that of its caller. Only proportions matter to a limit,
//! so one unit, whichever it is, is converted to a microsecond. Then a timestamp of sixteen digits fits (bug B07) and
//! so do three decimals (bug B11).

use super::Call;
use diana_core::{Quota, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

/// Nanoseconds per unit of a script's time.
const UNIT: f64 = 1_000.0;
const UNIT_NANOS: i64 = 1_000;

impl<'a> Call<'a> {
    /// Returns the argument at `index`, or the scenario's parameter of that name.
    pub(super) fn arg(&self, index: usize, name: &str) -> Option<&'a Value> {
        let argument = self.step.get("argv").and_then(|argv| argv.get(index));
        argument.or_else(|| self.params.get(name)).filter(|value| !value.is_null())
    }

    /// The same, for a required argument.
    pub(super) fn need(&self, index: usize, name: &str) -> Result<&'a Value, String> {
        self.arg(index, name).ok_or_else(|| format!("missing argv[{index}] or parameter `{name}`"))
    }

    /// Returns the key of the call.
    pub(super) fn key(&self) -> String {
        self.step.get("keys").and_then(|keys| keys.get(0)).map(text).unwrap_or_default()
    }

    /// Returns the script's own `now`, or the wall clock in milliseconds if it has none.
    pub(super) fn now(&self, index: Option<usize>) -> Result<Timestamp, String> {
        let argument = index.and_then(|index| self.arg(index, "now"));
        let now = argument.or_else(|| self.step.get("now_ms")).ok_or("missing `now` or `now_ms`")?;
        Ok(Timestamp::from_nanos(u64::try_from(nanos(now)?).unwrap_or(0)))
    }
}

/// Returns a string unchanged, anything else as JSON.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses a whole number from a number or text; a fraction is rounded down, as in the scripts' comparisons.
pub(super) fn count(value: &Value) -> Result<i64, String> {
    let written = text(value);
    written.parse().or_else(|_| decimal(&written).map(|number| rounded(number.floor())))
}

/// Converts a time in the script's unit to Diana's nanoseconds.
pub(super) fn nanos(value: &Value) -> Result<i64, String> {
    let written = text(value);
    match written.parse::<i64>() {
        Ok(whole) => Ok(whole.saturating_mul(UNIT_NANOS)),
        Err(_) => decimal(&written).map(|number| rounded((number * UNIT).round())),
    }
}

/// Converts a limit to a quota; `None` if Diana rejects it (zero permits per window, or a window of zero length).
pub(super) fn quota(limit: i64, period_nanos: i64) -> Option<Quota> {
    let period = Duration::from_nanos(u64::try_from(period_nanos).ok()?);
    Quota::new(u64::try_from(limit).ok()?, period).ok()
}

/// Converts a duration to the script's unit.
pub(super) fn units(time: Duration) -> Value {
    let nanos = time.as_nanos();
    match u64::try_from(nanos) {
        Ok(nanos) if nanos.is_multiple_of(UNIT_NANOS.unsigned_abs()) => json!(nanos / UNIT_NANOS.unsigned_abs()),
        _ => json!(time.as_secs_f64() * 1e9 / UNIT),
    }
}

/// Returns `true` if two replies are equal, where 1 equals 1.0.
pub(super) fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (Value::Number(x), Value::Number(y)) => a == b || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

fn decimal(written: &str) -> Result<f64, String> {
    written.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| format!("invalid number `{written}`"))
}

#[allow(clippy::cast_possible_truncation, reason = "a cast of a float saturates, and it has no fraction")]
fn rounded(number: f64) -> i64 {
    number as i64
}
