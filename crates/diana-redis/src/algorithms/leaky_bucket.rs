//! The leaky bucket on Redis: `scripts/leaky_bucket.lua`.

use super::gcra::{divided_rate, format_time, fractions, parse_time, push, push_never, ticks_of, unsupported_reason};
use crate::args::Args;
use crate::quota_text::{quota_from_text, quota_text};
use crate::rational_time::Time;
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{LeakyBucket, LeakyBucketState, Receipt, Timestamp};

/// The parameters' text for a queue in which requests don't wait.
const NODELAY: &str = "nodelay";

impl ScriptedAlgorithm for LeakyBucket {
    const MODULE: Module = Module {
        name: "leaky_bucket",
        letter: 'l',
        source: include_str!("../../scripts/leaky_bucket.lua"),
        libraries: &[Library::GCRA, Library::QUEUE],
    };

    fn unsupported_reason(&self) -> Option<String> {
        unsupported_reason(&self.quota(), capacity(self))
    }

    /// Returns `quota,queue,delay`.
    fn parameters(&self) -> String {
        let delay = self.undelayed().map_or_else(|| NODELAY.to_owned(), |permits| permits.to_string());
        format!("{},{},{delay}", quota_text(&self.quota()), self.queue_length())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (quota, rest) = text.split_once(',')?;
        let (queue, delay) = rest.split_once(',')?;
        let bucket = Self::new(quota_from_text(quota)?).with_queue(queue.parse().ok()?);
        Some(if delay == NODELAY { bucket.without_delay() } else { bucket.with_delay(delay.parse().ok()?) })
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, ask.cost.get())));
        args.push(fractions.denominator());
        if ask.cost.get() > capacity(self) {
            push_never(args);
        } else {
            push(args, fractions.time(ticks_of(&quota, capacity(self))));
        }
        let max_wait = fractions.of_nanos(ask.max_wait.as_nanos());
        push(args, fractions.time(grace(self).saturating_add(max_wait)));
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, ask.cost.get())));
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

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<LeakyBucketState> {
        let time = Time { micros: numbers.whole(0)?, numerator: numbers.whole(1)? };
        Some(LeakyBucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<LeakyBucketState> {
        parse_time(body, now).map(|time| LeakyBucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    fn write(&self, state: &LeakyBucketState, now: Timestamp) -> StoredState {
        format_time(fractions(&self.quota()).time_from(state.ticks()), now)
    }

    fn divided(&self, instances: u64) -> Self {
        let instances = instances.max(1);
        // The capacity is divided, so that all shares together don't exceed it.
        let bucket = Self::new(divided_rate(&self.quota(), instances))
            .with_queue((capacity(self) / instances).saturating_sub(1));
        match self.undelayed() {
            Some(permits) => bucket.with_delay(permits / instances),
            None => bucket.without_delay(),
        }
    }
}

/// Returns the capacity of the bucket: one permit that is being served, and the queued ones.
fn capacity(bucket: &LeakyBucket) -> u64 {
    bucket.queue_length() + 1
}

/// Returns how long before its turn a request may proceed, in ticks.
fn grace(bucket: &LeakyBucket) -> u128 {
    ticks_of(&bucket.quota(), bucket.undelayed().unwrap_or_else(|| capacity(bucket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_back() {
        let bucket = LeakyBucket::new("3/s burst 7".parse().unwrap()).with_queue(4);
        assert_eq!(bucket.parameters(), "3/1s*7,4,0");
        for bucket in
            [bucket.clone(), bucket.clone().with_delay(2), bucket.clone().with_delay(u64::MAX), bucket.without_delay()]
        {
            assert_eq!(LeakyBucket::from_parameters(&bucket.parameters()), Some(bucket));
        }
        for text in ["", "3/1s*7", "3/1s*7,4", "3/1s*7,4,", "3/1s*7,-1,0", "3/1s*7,4,no", "3/1s*7,4,0,0"] {
            assert_eq!(LeakyBucket::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn shares_do_not_exceed_the_whole() {
        let bucket = LeakyBucket::new("10/s".parse().unwrap()).with_queue(4).with_delay(2);
        let share = bucket.divided(2);
        assert_eq!((share.queue_length(), share.undelayed()), (1, Some(1)));
        assert_eq!(share.quota().interval(), (200_000_000, 1));
        // At least the one that is being served.
        assert_eq!(
            bucket.without_delay().divided(100),
            LeakyBucket::new("10/100s burst 1".parse().unwrap()).without_delay()
        );
    }

    #[test]
    fn a_queue_of_centuries_is_not_supported() {
        let bucket = LeakyBucket::new("1/day".parse().unwrap());
        assert_eq!(bucket.unsupported_reason(), None);
        assert!(bucket.with_queue(100_000).unsupported_reason().is_some());
    }
}
