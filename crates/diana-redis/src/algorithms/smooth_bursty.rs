//! Smooth bursty on Redis: `scripts/smooth_bursty.lua`.

use crate::algorithms::guava;
use crate::args::Args;
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{InitialPermits, Receipt, SmoothBursty, SmoothState, Timestamp};

impl ScriptedAlgorithm for SmoothBursty {
    const MODULE: Module = Module {
        name: "smooth_bursty",
        letter: 'b',
        source: include_str!("../../scripts/smooth_bursty.lua"),
        libraries: &[Library::GUAVA],
    };

    fn unsupported_reason(&self) -> Option<String> {
        match self.initial_permits() {
            InitialPermits::Empty => {
                Some("an idle key that starts empty never equals a new one; use `starts: full`".to_owned())
            }
            InitialPermits::Full => guava::unsupported_reason(self.in_micros()),
            _ => Some("only `starts: full` is supported".to_owned()),
        }
    }

    fn parameters(&self) -> String {
        format!("{:?}*{:?}", self.in_micros().nominal_rate(), self.saved_seconds())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (rate, saved_seconds) = text.split_once('*')?;
        let limiter = Self::new(rate.parse().ok()?).ok()?.with_saved_seconds(saved_seconds.parse().ok()?).ok()?;
        Some(limiter.with_initial_permits(InitialPermits::Full))
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        guava::take_args(self.in_micros(), args, ask);
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        guava::take_args(self.in_micros(), args, ask);
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        guava::refund_args(self.in_micros(), args, receipt);
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<SmoothState> {
        guava::parse_state(numbers)
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<SmoothState> {
        guava::read(body, now)
    }

    fn write(&self, state: &SmoothState, now: Timestamp) -> StoredState {
        guava::write(self, state, now)
    }

    fn migrate(&self, old: &Self, body: &Body, now: Timestamp) -> Option<StoredState> {
        guava::migrate(self, old, body, now)
    }

    fn stored_after_change(&self, old: &Self, stored: Option<f64>, at: Timestamp) -> Option<f64> {
        Some(guava::stored_after_change(self.in_micros(), old.in_micros(), stored, at))
    }

    fn divided(&self, instances: u64) -> Self {
        self.with_rate(guava::divided_rate(self.in_micros(), instances)).unwrap_or(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_back() {
        for (rate, saved_seconds) in [(5.0, 1.0), (1.0 / 3.0, 2.5), (1e-7, 0.0), (1e20, 1e3)] {
            let limiter = SmoothBursty::new(rate).unwrap().with_saved_seconds(saved_seconds).unwrap();
            let limiter = limiter.with_initial_permits(InitialPermits::Full);
            assert_eq!(SmoothBursty::from_parameters(&limiter.parameters()), Some(limiter));
        }
        for text in ["", "5.0", "5.0*", "0*1", "NaN*1", "5*-1"] {
            assert_eq!(SmoothBursty::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn an_unsupported_limiter_has_a_reason() {
        let guava = SmoothBursty::new(5.0).unwrap();
        assert!(guava.unsupported_reason().unwrap().contains("use `starts: full`"));
        assert_eq!(guava.with_initial_permits(InitialPermits::Full).unsupported_reason(), None);
        let endless = guava.with_rate(f64::INFINITY).unwrap().with_initial_permits(InitialPermits::Full);
        assert!(endless.unsupported_reason().unwrap().contains("needs no shared count"));
        let slow = guava.with_rate(1e-320).unwrap().with_initial_permits(InitialPermits::Full);
        assert!(slow.unsupported_reason().unwrap().contains("140 years"));
    }
}
