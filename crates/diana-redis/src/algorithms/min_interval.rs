//! The minimum interval on Redis: `scripts/min_interval.lua`.

use super::gcra::{format_time, parse_time, push, push_never};
use crate::args::Args;
use crate::quota_text::{duration_from_text, duration_text};
use crate::rational_time::{END, Fractions, Time};
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{IntervalState, MinInterval, Receipt, Timestamp};

impl ScriptedAlgorithm for MinInterval {
    const MODULE: Module = Module {
        name: "min_interval",
        letter: 'i',
        source: include_str!("../../scripts/min_interval.lua"),
        libraries: &[Library::GCRA, Library::QUEUE],
    };

    fn unsupported_reason(&self) -> Option<String> {
        // Half of a script's number range is reserved for the clock.
        let is_too_long = interval(self).micros >= END / 2;
        is_too_long.then(|| format!("an interval of {:?} is longer than 140 years", self.interval()))
    }

    fn parameters(&self) -> String {
        duration_text(self.interval())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        Self::new(duration_from_text(text)?).ok()
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        self.charge_args(args, ask);
        args.push((ask.max_wait.as_nanos() / 1_000).min(END));
    }

    fn charge_args(&self, args: &mut Args, _asking: &AskArgs) {
        push(args, interval(self));
        args.push(fractions(self).denominator());
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        push(args, fractions(self).time(receipt.mark()));
        push(args, interval(self));
        push_never(args);
        args.push(fractions(self).denominator());
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<IntervalState> {
        state_at(self, Time { micros: numbers.whole(0)?, numerator: numbers.whole(1)? })
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<IntervalState> {
        state_at(self, parse_time(body, now)?)
    }

    fn write(&self, state: &IntervalState, now: Timestamp) -> StoredState {
        format_time(fractions(self).time_from(u128::from(state.next_free().as_nanos())), now)
    }

    fn divided(&self, instances: u64) -> Self {
        let longer = u32::try_from(instances.max(1)).ok().and_then(|instances| self.interval().checked_mul(instances));
        longer.and_then(|interval| Self::new(interval).ok()).unwrap_or_else(|| self.clone())
    }
}

/// Ticks are nanoseconds for this algorithm, a thousand to a microsecond, so every interval can be represented.
fn fractions(every: &MinInterval) -> Fractions {
    Fractions::new((nanos(every), 1)).unwrap_or_else(|| unreachable!("a thousand numerators fit"))
}

fn interval(every: &MinInterval) -> Time {
    fractions(every).time(u128::from(nanos(every)))
}

fn nanos(every: &MinInterval) -> u64 {
    u64::try_from(every.interval().as_nanos()).unwrap_or(u64::MAX)
}

fn state_at(every: &MinInterval, time: Time) -> Option<IntervalState> {
    let nanos = u64::try_from(fractions(every).ticks(time)).ok()?;
    Some(IntervalState::new(Timestamp::from_nanos(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn parameters_are_parsed_back() {
        for nanos in [1, 1_500, 200_000_000, u64::MAX] {
            let every = MinInterval::new(Duration::from_nanos(nanos)).unwrap();
            assert_eq!(MinInterval::from_parameters(&every.parameters()), Some(every));
        }
        for text in ["", "0s", "1", "-1s", "1s,"] {
            assert_eq!(MinInterval::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_written_to_the_nanosecond() {
        let every = MinInterval::new(Duration::from_nanos(1_500)).unwrap();
        let state = IntervalState::new(Timestamp::from_nanos(4_500));
        let StoredState { body, fresh_at } = every.write(&state, Timestamp::from_micros(1));
        assert_eq!((&body, fresh_at), (&Some(Body::Text("4 1 1".to_owned())), Some(5)));
        assert_eq!(every.read(&body.unwrap(), Timestamp::from_micros(1)), Some(state));
    }

    #[test]
    fn a_share_multiplies_the_interval() {
        let every = MinInterval::new(Duration::from_millis(200)).unwrap();
        assert_eq!(every.divided(3).interval(), Duration::from_millis(600));
        assert_eq!(every.divided(0), every);
    }
}
