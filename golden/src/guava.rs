//! Replays runs of Guava 31.1's RateLimiter on Diana's smooth limiters.
//!
//! The clock is simulated, in microseconds, and only a scenario's own steps and waits advance it. It may reach Java's
//! last microsecond, which a `Timestamp` can't represent, so every step uses [`SmoothRate`] directly. As far as a store
//! supports such a limiter and the time, the store is queried as well ([`on_store`]), and its answers are the
//! ones that are compared.
//!
//! # Guava's own bugs
//! Diana does not copy these, and a scenario with one of them counts as matching if Diana avoids it:
//!
//! | bug | cause | Diana |
//! |---|---|---|
//! | the store is NaN, and every request is granted | a warm-up of zero; a burst of zero or infinity at an infinite rate | rejects the arguments |
//! | the store is infinite, and all or no requests are granted | a new rate at which the store times its new maximum overflows a double | fills the store |
//! | a price wraps below zero, and the next request is granted | the price of an ask does not fit into a `long` | saturates at the last microsecond: the next request is denied |
//!
//! A warm-up of zero is harmless as long as the limiter is never idle, and some recorded runs are like that. Whether it
//! will be idle is unknown when it is created, so Diana always rejects it, and that counts as matching too.

use super::store::{ScenarioStore, Stop};
use super::{Mismatch, Replay};
use diana_core::{Cost, InvalidSmooth, SmoothBursty, SmoothRate, SmoothState, SmoothWarmingUp};
use on_store::LimiterOnStore;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

mod on_store;

/// The last microsecond: Java's `Long.MAX_VALUE`.
const END: u64 = i64::MAX.unsigned_abs();

/// A limiter of either kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limiter {
    Bursty(SmoothBursty),
    WarmingUp(SmoothWarmingUp),
}

/// A limiter, its state, and the clock.
struct Run<'a> {
    limiter: Limiter,
    state: SmoothState,
    clock: u64,
    validity: Validity,
    /// The same limiter on a store, or why the store is no longer used.
    on_store: Result<LimiterOnStore<'a>, String>,
}

/// Whether the recorded answers are still valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validity {
    Valid,
    /// A price has wrapped in Guava: from then on every request should be denied, and the record contains grants.
    Wrapped,
    /// A rate was set at which Guava's store is not finite any more: nothing is compared after it.
    Finished,
}

/// The answer of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Waited(u64),
    Denied,
    Rate(Double),
    InvalidArgument,
}

/// A double that equals another with the same bits; all NaNs are equal, as in Java's `doubleToLongBits`.
#[derive(Clone, Copy)]
struct Double(f64);

pub(crate) fn replay(scenario: &Value, store: &ScenarioStore<'_>) -> Result<Replay, String> {
    let ops = scenario.get("ops").and_then(Value::as_array).ok_or("invalid `ops`: expected a list")?;
    let mut replay = Replay { steps: ops.len(), ..Replay::default() };
    let limiter = match Limiter::new(scenario)? {
        Ok(limiter) => limiter,
        Err(error) if is_bug_of_guava(&error) => return Ok(replay),
        Err(error) => {
            replay.mismatches.push(Mismatch {
                step: None,
                expected: "a limiter".to_owned(),
                actual: format!("an error: {error}"),
            });
            return Ok(replay);
        }
    };
    let clock = micros(scenario, "start_clock")?;
    let on_store = unless_problem(LimiterOnStore::new(store, limiter, clock))?;
    let mut run = Run { limiter, state: limiter.smooth().fresh(clock), clock, validity: Validity::Valid, on_store };
    for (step, op) in ops.iter().enumerate() {
        let mismatch = run.step(op).map_err(|problem| format!("step {step}: {problem}"))?;
        if let (Err(reason), ScenarioStore::Redis(..)) = (&run.on_store, store) {
            replay.skipped = Some((reason.clone(), ops.len() - step));
            replay.steps = step;
            return Ok(replay);
        }
        replay.mismatches.extend(mismatch.map(|(expected, actual)| Mismatch { step: Some(step), expected, actual }));
    }
    let end = scenario.get("final").ok_or("missing field `final`")?;
    replay.mismatches.extend(run.end(end)?.map(|(expected, actual)| Mismatch { step: None, expected, actual }));
    Ok(replay)
}

/// The expected and the actual value, if they differ.
type Difference = Option<(String, String)>;

/// An unsupported limiter is not a problem, but a reason to continue without the store.
fn unless_problem<T>(result: Result<T, Stop>) -> Result<Result<T, String>, String> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Unsupported(reason)) => Ok(Err(reason)),
        Err(Stop::Problem(problem)) => Err(problem),
    }
}

impl Run<'_> {
    /// Runs one step, and compares its answer and the clock after it.
    fn step(&mut self, op: &Value) -> Result<Difference, String> {
        let (before, recorded_clock) = (self.validity, micros(op, "clock")?);
        let (expected, actual) = (Answer::recorded(op)?, self.perform(op)?);
        if let Answer::Waited(micros) = actual {
            self.clock = self.clock.saturating_add(micros).min(END);
        }
        let is_ask = matches!(expected, Answer::Waited(_) | Answer::Denied);
        let difference = match before {
            Validity::Valid if self.validity == Validity::Finished => None,
            Validity::Valid => {
                let differs = expected != actual || recorded_clock != self.clock;
                differs.then(|| (format!("{expected} at {recorded_clock}"), format!("{actual} at {}", self.clock)))
            }
            Validity::Wrapped if is_ask => {
                let was_granted = actual != Answer::Denied && self.clock < END;
                was_granted
                    .then(|| ("no grant before the last microsecond".to_owned(), format!("{actual} at {}", self.clock)))
            }
            Validity::Wrapped | Validity::Finished => None,
        };
        self.clock = recorded_clock; // one mismatch is reported once, and not with every later step
        Ok(difference)
    }

    fn perform(&mut self, op: &Value) -> Result<Answer, String> {
        let smooth = *self.limiter.smooth();
        match name(op)? {
            "advance" => {
                self.clock = self.clock.saturating_add(micros(op, "micros")?).min(END);
                Ok(Answer::Done)
            }
            "acquire" => self.ask(op, END),
            // A negative timeout is zero.
            "try_acquire" => self.ask(op, u64::try_from(integer(op, "timeout_micros")?).unwrap_or(0)),
            "set_rate" => match self.limiter.with_rate(double(op, "rate")?) {
                Ok(limiter) => {
                    if overflows(&smooth, limiter.smooth(), smooth.settled(self.state, self.clock)) {
                        self.validity = Validity::Finished;
                    }
                    limiter.smooth().set_rate(&mut self.state, &smooth, self.clock);
                    self.limiter = limiter;
                    let clock = self.clock;
                    self.apply_to_store(|limiter_on_store| limiter_on_store.set_rate(limiter, clock))?;
                    Ok(Answer::Done)
                }
                Err(error) => {
                    if is_bug_of_guava(&error) {
                        self.validity = Validity::Finished;
                    }
                    Ok(Answer::InvalidArgument)
                }
            },
            "get_rate" => Ok(Answer::Rate(Double(smooth.rate()))),
            other => Err(format!("unknown op `{other}`")),
        }
    }

    fn ask(&mut self, op: &Value, timeout: u64) -> Result<Answer, String> {
        // A negative number of permits can't be represented.
        let permits = u64::try_from(integer(op, "permits")?).unwrap_or(0);
        let Ok(cost) = Cost::new(permits) else { return Ok(Answer::InvalidArgument) };
        let smooth = self.limiter.smooth();
        let price = smooth.price(&self.state, self.clock, cost);
        let wait = smooth.try_acquire(&mut self.state, self.clock, cost, timeout);
        if wait.is_some() && price.checked_micros().is_none() {
            self.validity = Validity::Wrapped;
        }
        let (clock, until) = (self.clock, self.state.next_free_micros());
        let store_wait = self.apply_to_store(|limiter| limiter.ask(clock, until, cost, timeout))?;
        Ok(store_wait.unwrap_or(wait).map_or(Answer::Denied, Answer::Waited))
    }

    /// Applies `act` to the limiter on the store, if it is still used.
    fn apply_to_store<T>(
        &mut self,
        act: impl FnOnce(&mut LimiterOnStore<'_>) -> Result<T, Stop>,
    ) -> Result<Option<T>, String> {
        let Ok(limiter) = &mut self.on_store else { return Ok(None) };
        match unless_problem(act(limiter))? {
            Ok(done) => Ok(Some(done)),
            Err(reason) => {
                self.on_store = Err(reason);
                Ok(None)
            }
        }
    }

    /// Compares the final state.
    fn end(&self, end: &Value) -> Result<Difference, String> {
        if self.validity != Validity::Valid {
            return Ok(None);
        }
        let smooth = self.limiter.smooth();
        let show = |clock, next_free, [stored, max, interval]: [f64; 3]| {
            let (stored, max, interval) = (Double(stored), Double(max), Double(interval));
            format!("clock {clock}, next free {next_free}, stored {stored}, max {max}, interval {interval}")
        };
        let expected = show(
            micros(end, "clock")?,
            micros(end, "next_free_micros")?,
            [double(end, "stored_permits")?, double(end, "max_permits")?, double(end, "stable_interval_micros")?],
        );
        let actual = show(
            self.clock,
            self.state.next_free_micros(),
            [self.state.stored_permits(), smooth.max_permits(), smooth.stable_interval_micros()],
        );
        // Formatted with their bits, doubles that differ have different texts.
        if expected != actual {
            return Ok(Some((expected, actual)));
        }
        let Ok(limiter) = &self.on_store else { return Ok(None) };
        match limiter.end(self.clock, self.state) {
            Ok(difference) => Ok(difference),
            Err(Stop::Unsupported(_)) => Ok(None),
            Err(Stop::Problem(problem)) => Err(problem),
        }
    }
}

impl Limiter {
    fn new(scenario: &Value) -> Result<Result<Self, InvalidSmooth>, String> {
        let rate = double(scenario, "rate")?;
        match scenario.get("kind").and_then(Value::as_str) {
            Some("smooth_bursty") => {
                let seconds = double(scenario, "max_burst_seconds")?;
                let limiter = SmoothBursty::new(rate).and_then(|limiter| limiter.with_saved_seconds(seconds));
                Ok(limiter.map(Self::Bursty))
            }
            Some("smooth_warming_up") => {
                let warm_up = Duration::from_micros(micros(scenario, "warmup_micros")?);
                let cold_factor = double(scenario, "cold_factor")?;
                let limiter = SmoothWarmingUp::new(rate, warm_up);
                Ok(limiter.and_then(|limiter| limiter.with_cold_factor(cold_factor)).map(Self::WarmingUp))
            }
            other => Err(format!("unknown kind {other:?}")),
        }
    }

    fn with_rate(self, rate: f64) -> Result<Self, InvalidSmooth> {
        match self {
            Self::Bursty(limiter) => limiter.with_rate(rate).map(Self::Bursty),
            Self::WarmingUp(limiter) => limiter.with_rate(rate).map(Self::WarmingUp),
        }
    }

    fn smooth(&self) -> &SmoothRate {
        match self {
            Self::Bursty(limiter) => limiter.in_micros(),
            Self::WarmingUp(limiter) => limiter.in_micros(),
        }
    }
}

/// Returns `true` if Guava accepts these arguments, and then grants every request.
fn is_bug_of_guava(error: &InvalidSmooth) -> bool {
    match error {
        InvalidSmooth::WarmUp(warm_up) => warm_up.is_zero(),
        InvalidSmooth::Store { .. } => true,
        _ => false,
    }
}

/// Returns `true` if `setRate` leaves an infinite store in Guava where the new maximum is finite.
fn overflows(old: &SmoothRate, new: &SmoothRate, settled: SmoothState) -> bool {
    let scales = old.max_permits().is_finite() && new.max_permits().is_finite();
    scales && (settled.stored_permits() * new.max_permits()).is_infinite()
}

impl Answer {
    fn recorded(op: &Value) -> Result<Self, String> {
        if op.get("error").is_some() {
            return Ok(Self::InvalidArgument);
        }
        match name(op)? {
            "acquire" => Ok(Self::Waited(micros(op, "slept_micros")?)),
            "try_acquire" => match op.get("ok").and_then(Value::as_bool) {
                Some(true) => Ok(Self::Waited(micros(op, "slept_micros")?)),
                Some(false) => Ok(Self::Denied),
                None => Err("invalid `ok`: expected true or false".to_owned()),
            },
            "get_rate" => Ok(Self::Rate(Double(double(op, "rate")?))),
            _ => Ok(Self::Done),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Waited(micros) => write!(f, "granted after {micros}"),
            Self::Denied => f.write_str("denied"),
            Self::Rate(rate) => write!(f, "rate {rate}"),
            Self::InvalidArgument => f.write_str("an invalid argument"),
        }
    }
}

impl Double {
    fn bits(self) -> u64 {
        if self.0.is_nan() { f64::NAN.to_bits() } else { self.0.to_bits() }
    }
}

impl PartialEq for Double {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Double {}

impl fmt::Display for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:016x})", self.0, self.bits())
    }
}

fn name(op: &Value) -> Result<&str, String> {
    op.get("op").and_then(Value::as_str).ok_or_else(|| "invalid `op`: expected a name".to_owned())
}

fn integer(object: &Value, field: &str) -> Result<i64, String> {
    object.get(field).and_then(Value::as_i64).ok_or_else(|| format!("invalid `{field}`: expected a whole number"))
}

fn micros(object: &Value, field: &str) -> Result<u64, String> {
    u64::try_from(integer(object, field)?).map_err(|_| format!("invalid `{field}`: must not be negative"))
}

/// Returns the double in `field`: from its bits if they are recorded, else from the number or its name.
fn double(object: &Value, field: &str) -> Result<f64, String> {
    let problem = || format!("invalid `{field}`: expected a number");
    if let Some(bits) = object.get(format!("{field}_bits")).and_then(Value::as_str) {
        return u64::from_str_radix(bits, 16).map(f64::from_bits).map_err(|_| problem());
    }
    match object.get(field) {
        Some(Value::String(name)) => name.parse().map_err(|_| problem()),
        Some(value) => value.as_f64().ok_or_else(problem),
        None => Err(format!("missing field `{field}`")),
    }
}

#[cfg(test)]
mod tests;
