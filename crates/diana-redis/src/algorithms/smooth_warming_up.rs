//! Smooth warming up on Redis: `scripts/smooth_warming_up.lua`.

use crate::algorithms::guava;
use crate::args::Args;
use crate::quota_text::{duration_from_text, duration_text};
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{Receipt, SmoothState, SmoothWarmingUp, Timestamp};

impl ScriptedAlgorithm for SmoothWarmingUp {
    const MODULE: Module = Module {
        name: "smooth_warming_up",
        letter: 'u',
        source: include_str!("../../scripts/smooth_warming_up.lua"),
        libraries: &[Library::GUAVA],
    };

    fn unsupported_reason(&self) -> Option<String> {
        guava::unsupported_reason(self.in_micros())
    }

    fn parameters(&self) -> String {
        let (rate, warm_up) = (self.in_micros().nominal_rate(), duration_text(self.warm_up()));
        format!("{rate:?}*{warm_up}*{:?}", self.cold_factor())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (rate, rest) = text.split_once('*')?;
        let (warm_up, cold_factor) = rest.split_once('*')?;
        let limiter = Self::new(rate.parse().ok()?, duration_from_text(warm_up)?).ok()?;
        limiter.with_cold_factor(cold_factor.parse().ok()?).ok()
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
    use std::time::Duration;

    #[test]
    fn parameters_are_parsed_back() {
        for (rate, micros, cold_factor) in [(5.0, 2_000_000, 3.0), (1.0 / 3.0, 1, 0.1), (1e9, 86_400_000_000, 1.0)] {
            let limiter = SmoothWarmingUp::new(rate, Duration::from_micros(micros)).unwrap();
            let limiter = limiter.with_cold_factor(cold_factor).unwrap();
            assert_eq!(SmoothWarmingUp::from_parameters(&limiter.parameters()), Some(limiter));
            assert_eq!(limiter.unsupported_reason(), None);
        }
        for text in ["", "5.0", "5.0*2s", "5.0*0s*3", "5.0*2s*0", "5.0*2*3"] {
            assert_eq!(SmoothWarmingUp::from_parameters(text), None, "{text}");
        }
    }
}
