//! Smooth bursty on Redis: `scripts/smooth_bursty.lua`.

use crate::algorithm::smooth;
use crate::args::Args;
use crate::module::{Library, Module};
use crate::scripted::{Asking, Body, Numbers, Scripted, Written};
use diana_core::{Receipt, SmoothBursty, SmoothState, Starts, Timestamp};

impl Scripted for SmoothBursty {
    const MODULE: Module = Module {
        name: "smooth_bursty",
        letter: 'b',
        source: include_str!("../../scripts/smooth_bursty.lua"),
        libraries: &[Library::SMOOTH],
    };

    fn why_not(&self) -> Option<String> {
        match self.starts() {
            Starts::Empty => {
                Some("an idle key that starts empty would never be as good as new; use starts: full".to_owned())
            }
            Starts::Full => smooth::why_not(self.in_micros()),
        }
    }

    fn parameters(&self) -> String {
        format!("{:?}*{:?}", self.in_micros().rate_given(), self.burst_seconds())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (rate, burst_seconds) = text.split_once('*')?;
        let limiter = Self::new(rate.parse().ok()?).ok()?.with_burst_seconds(burst_seconds.parse().ok()?).ok()?;
        Some(limiter.starting(Starts::Full))
    }

    fn take_args(&self, args: &mut Args, asking: &Asking) {
        smooth::take_args(self.in_micros(), args, asking);
    }

    fn charge_args(&self, args: &mut Args, asking: &Asking) {
        smooth::take_args(self.in_micros(), args, asking);
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        smooth::refund_args(self.in_micros(), args, receipt);
    }

    fn seen(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<SmoothState> {
        smooth::seen(numbers)
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<SmoothState> {
        smooth::read(body, now)
    }

    fn write(&self, state: &SmoothState, now: Timestamp) -> Written {
        smooth::write(self, state, now)
    }

    fn carried(&self, old: &Self, body: &Body, now: Timestamp) -> Option<Written> {
        smooth::carried(self, old, body, now)
    }

    fn stored_after_change(&self, old: &Self, stored: Option<f64>, at: Timestamp) -> Option<f64> {
        Some(smooth::stored_after_change(self.in_micros(), old.in_micros(), stored, at))
    }

    fn divided(&self, instances: u64) -> Self {
        self.with_rate(smooth::divided_rate(self.in_micros(), instances)).unwrap_or(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (rate, burst_seconds) in [(5.0, 1.0), (1.0 / 3.0, 2.5), (1e-7, 0.0), (1e20, 1e3)] {
            let limiter = SmoothBursty::new(rate).unwrap().with_burst_seconds(burst_seconds).unwrap();
            let limiter = limiter.starting(Starts::Full);
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
        assert_eq!(guava.starting(Starts::Full).why_not(), None);
        let endless = guava.with_rate(f64::INFINITY).unwrap().starting(Starts::Full);
        assert!(endless.why_not().unwrap().contains("needs no shared count"));
        let slow = guava.with_rate(1e-320).unwrap().starting(Starts::Full);
        assert!(slow.why_not().unwrap().contains("140 years"));
    }
}
