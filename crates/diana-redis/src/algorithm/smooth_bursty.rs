//! Smooth bursty on Redis: `scripts/smooth_bursty.lua`.

use crate::algorithm::guava;
use crate::args::Args;
use crate::scripted::{Asking, Body, Numbers, Scripted, Written};
use crate::scripts::{Library, Module};
use diana_core::{InitialPermits, Receipt, SmoothBursty, SmoothState, Timestamp};

impl Scripted for SmoothBursty {
    const MODULE: Module = Module {
        name: "smooth_bursty",
        letter: 'b',
        source: include_str!("../../scripts/smooth_bursty.lua"),
        libraries: &[Library::GUAVA],
    };

    fn why_not(&self) -> Option<String> {
        match self.initial_permits() {
            InitialPermits::Empty => {
                Some("an idle key that starts empty would never be as good as new; use starts: full".to_owned())
            }
            InitialPermits::Full => guava::why_not(self.in_micros()),
        }
    }

    fn parameters(&self) -> String {
        format!("{:?}*{:?}", self.in_micros().rate_given(), self.burst_seconds())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (rate, burst_seconds) = text.split_once('*')?;
        let limiter = Self::new(rate.parse().ok()?).ok()?.with_burst_seconds(burst_seconds.parse().ok()?).ok()?;
        Some(limiter.with_initial_permits(InitialPermits::Full))
    }

    fn take_args(&self, args: &mut Args, asking: &Asking) {
        guava::take_args(self.in_micros(), args, asking);
    }

    fn charge_args(&self, args: &mut Args, asking: &Asking) {
        guava::take_args(self.in_micros(), args, asking);
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        guava::refund_args(self.in_micros(), args, receipt);
    }

    fn seen(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<SmoothState> {
        guava::seen(numbers)
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<SmoothState> {
        guava::read(body, now)
    }

    fn write(&self, state: &SmoothState, now: Timestamp) -> Written {
        guava::write(self, state, now)
    }

    fn carried(&self, old: &Self, body: &Body, now: Timestamp) -> Option<Written> {
        guava::carried(self, old, body, now)
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
    fn what_is_written_is_read() {
        for (rate, burst_seconds) in [(5.0, 1.0), (1.0 / 3.0, 2.5), (1e-7, 0.0), (1e20, 1e3)] {
            let limiter = SmoothBursty::new(rate).unwrap().with_burst_seconds(burst_seconds).unwrap();
            let limiter = limiter.with_initial_permits(InitialPermits::Full);
            assert_eq!(SmoothBursty::from_parameters(&limiter.parameters()), Some(limiter));
        }
        for text in ["", "5.0", "5.0*", "0*1", "NaN*1", "5*-1"] {
            assert_eq!(SmoothBursty::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_kept_says_why() {
        let guava = SmoothBursty::new(5.0).unwrap();
        assert!(guava.why_not().unwrap().contains("use starts: full"));
        assert_eq!(guava.with_initial_permits(InitialPermits::Full).why_not(), None);
        let endless = guava.with_rate(f64::INFINITY).unwrap().with_initial_permits(InitialPermits::Full);
        assert!(endless.why_not().unwrap().contains("needs no shared count"));
        let slow = guava.with_rate(1e-320).unwrap().with_initial_permits(InitialPermits::Full);
        assert!(slow.why_not().unwrap().contains("140 years"));
    }
}
