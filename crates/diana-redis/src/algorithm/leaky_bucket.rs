//! The leaky bucket on Redis: `scripts/leaky_bucket.lua`.

use super::gcra::{divided_rate, fractions, push, push_never, read_moment, ticks_of, why_not, write_moment};
use crate::args::Args;
use crate::parameters::{quota_from_text, quota_text};
use crate::rational_time::Time;
use crate::scripted::{Asking, Body, Numbers, Scripted, Written};
use crate::scripts::{Library, Module};
use diana_core::{LeakyBucket, LeakyBucketState, Receipt, Timestamp};

/// The parameters' text for a queue in which requests don't wait.
const NODELAY: &str = "nodelay";

impl Scripted for LeakyBucket {
    const MODULE: Module = Module {
        name: "leaky_bucket",
        letter: 'l',
        source: include_str!("../../scripts/leaky_bucket.lua"),
        libraries: &[Library::GCRA, Library::QUEUE],
    };

    fn why_not(&self) -> Option<String> {
        why_not(&self.quota(), room(self))
    }

    /// `quota,queue,delay`.
    fn parameters(&self) -> String {
        let delay = self.undelayed().map_or_else(|| NODELAY.to_owned(), |permits| permits.to_string());
        format!("{},{},{delay}", quota_text(&self.quota()), self.queue_length())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (quota, rest) = text.split_once(',')?;
        let (queue, delay) = rest.split_once(',')?;
        let line = Self::new(quota_from_text(quota)?).with_queue(queue.parse().ok()?);
        Some(if delay == NODELAY { line.without_delay() } else { line.with_delay(delay.parse().ok()?) })
    }

    fn take_args(&self, args: &mut Args, asking: &Asking) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, asking.cost.get())));
        args.push(fractions.denominator());
        if asking.cost.get() > room(self) {
            push_never(args);
        } else {
            push(args, fractions.time(ticks_of(&quota, room(self))));
        }
        let max_wait = fractions.of_nanos(asking.max_wait.as_nanos());
        push(args, fractions.time(grace(self).saturating_add(max_wait)));
    }

    fn charge_args(&self, args: &mut Args, asking: &Asking) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, asking.cost.get())));
        args.push(fractions.denominator());
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(receipt.mark()));
        push(args, fractions.time(ticks_of(&quota, receipt.cost().get())));
        // The last request waits if its turn begins later than `grace` from now, and it holds at least one permit.
        push(args, fractions.time(grace(self).saturating_add(ticks_of(&quota, 1))));
        args.push(fractions.denominator());
    }

    fn seen(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<LeakyBucketState> {
        let time = Time { micros: numbers.whole(0)?, numerator: numbers.whole(1)? };
        Some(LeakyBucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<LeakyBucketState> {
        read_moment(body, now).map(|time| LeakyBucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    fn write(&self, state: &LeakyBucketState, now: Timestamp) -> Written {
        write_moment(fractions(&self.quota()).time_from(state.ticks()), now)
    }

    fn divided(&self, instances: u64) -> Self {
        let instances = instances.max(1);
        // The capacity is divided, so that all shares together don't exceed it.
        let line =
            Self::new(divided_rate(&self.quota(), instances)).with_queue((room(self) / instances).saturating_sub(1));
        match self.undelayed() {
            Some(permits) => line.with_delay(permits / instances),
            None => line.without_delay(),
        }
    }
}

/// Returns the capacity of the bucket: one permit that is being served, and the queued ones.
fn room(line: &LeakyBucket) -> u64 {
    line.queue_length() + 1
}

/// Returns how long before its turn a request may proceed, in ticks.
fn grace(line: &LeakyBucket) -> u128 {
    ticks_of(&line.quota(), line.undelayed().unwrap_or_else(|| room(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_back() {
        let line = LeakyBucket::new("3/s burst 7".parse().unwrap()).with_queue(4);
        assert_eq!(line.parameters(), "3/1s*7,4,0");
        for line in [line.clone(), line.clone().with_delay(2), line.clone().with_delay(u64::MAX), line.without_delay()]
        {
            assert_eq!(LeakyBucket::from_parameters(&line.parameters()), Some(line));
        }
        for text in ["", "3/1s*7", "3/1s*7,4", "3/1s*7,4,", "3/1s*7,-1,0", "3/1s*7,4,no", "3/1s*7,4,0,0"] {
            assert_eq!(LeakyBucket::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn shares_hold_no_more_than_the_whole() {
        let line = LeakyBucket::new("10/s".parse().unwrap()).with_queue(4).with_delay(2);
        let share = line.divided(2);
        assert_eq!((share.queue_length(), share.undelayed()), (1, Some(1)));
        assert_eq!(share.quota().interval(), (200_000_000, 1));
        // At least the one that is being served.
        assert_eq!(
            line.without_delay().divided(100),
            LeakyBucket::new("10/100s burst 1".parse().unwrap()).without_delay()
        );
    }

    #[test]
    fn a_line_of_centuries_is_not_kept() {
        let line = LeakyBucket::new("1/day".parse().unwrap());
        assert_eq!(line.why_not(), None);
        assert!(line.with_queue(100_000).why_not().is_some());
    }
}
