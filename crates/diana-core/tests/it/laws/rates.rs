//! The guarantees of the buckets, checked against integer counting.
//!
//! Both sides of `use ≤ burst + rate × t` are multiplied by the period, so that a rate of `permits / period` needs no
//! fraction: `use × period ≤ burst × period + permits × t`.
//!
//! A wait is returned in whole nanoseconds, rounded up, so a request proceeds up to a nanosecond later than accounted.
//! That nanosecond is allowed for a span that starts with a wait, and only for that.

use super::script::{Effect, Event, KeyRun, costs, honest_scripts};
use super::{min_intervals, quotas};
use diana_core::{Algorithm, LeakyBucket, MaxWait, MinInterval, Quota, Refund, Retry, TokenBucket};
use proptest::prelude::*;
use std::time::Duration;

/// A grant, at the time at which its request proceeds.
#[derive(Clone, Copy, Debug)]
struct Departure {
    nanos: u128,
    /// Up to this much later than accounted.
    late: u128,
    cost: u128,
}

/// The grants, and the refunds after them, each in order of time.
#[derive(Debug, Default)]
struct Account {
    departures: Vec<Departure>,
    refunds: Vec<Departure>,
}

/// Runs `script`. A request that is refunded while still waiting never proceeds, and is not counted.
fn account<A: Algorithm>(algorithm: &A, script: &[Event]) -> Account {
    let mut key = KeyRun::new(algorithm);
    let mut granted = Vec::new();
    let mut refunds = Vec::new();
    for event in script {
        let receipts = key.receipts.clone();
        match key.apply(event, &[]) {
            Effect::Answer(answer) => {
                if let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) {
                    let nanos = u128::from(key.now.as_nanos()) + wait.as_nanos();
                    let late = u128::from(!wait.is_zero());
                    granted.push((receipt, Departure { nanos, late, cost: receipt.cost().get().into() }));
                }
            }
            Effect::Refund(Refund::Returned) => {
                // The receipt that is missing now; equal ones are interchangeable.
                let count = |list: &[_], receipt| list.iter().filter(|r| **r == receipt).count();
                let used = receipts.iter().find(|r| count(&receipts, **r) > count(&key.receipts, **r)).unwrap();
                let index = granted.iter().position(|(receipt, _)| receipt == used).unwrap();
                let nanos = u128::from(key.now.as_nanos());
                if granted[index].1.nanos > nanos {
                    granted.remove(index);
                } else {
                    refunds.push(Departure { nanos, ..granted[index].1 });
                }
            }
            Effect::Refund(Refund::Void) | Effect::Nothing => {}
        }
    }
    let mut departures: Vec<_> = granted.into_iter().map(|(_, departure)| departure).collect();
    departures.sort_by_key(|departure| departure.nanos);
    Account { departures, refunds }
}

/// In every span `[s, e]` between two departures, `counted` of those in it cost at most `burst + rate × (e − s)` plus
/// the refunds within it.
fn holds_in_every_span(
    Account { departures, refunds }: &Account,
    quota: Quota,
    burst: u64,
    counted: fn(&[Departure]) -> &[Departure],
) -> Result<(), TestCaseError> {
    let (permits, period) = (u128::from(quota.permits()), quota.period().as_nanos());
    for first in 0..departures.len() {
        for last in first..departures.len() {
            let within = &departures[first..=last];
            let (start, end) = (departures[first].nanos, departures[last].nanos);
            let span = end - start + departures[first].late;
            let used: u128 = counted(within).iter().map(|departure| departure.cost).sum();
            let refunded = refunds.iter().filter(|refund| (start..=end).contains(&refund.nanos));
            let refunded: u128 = refunded.map(|refund| refund.cost).sum();
            prop_assert!(
                used * period <= (u128::from(burst) + refunded) * period + permits * span,
                "{used} in {span} ns, with a burst of {burst} and {refunded} refunded: {within:?}"
            );
        }
    }
    Ok(())
}

/// The two-number bucket of the textbooks, with tokens counted in fractions of `1 / period`.
struct Textbook {
    quota: Quota,
    parts: u128,
    filled_at: u64,
}

impl Textbook {
    fn new(quota: Quota, now: u64) -> Self {
        Self { quota, parts: u128::from(quota.burst()) * quota.period().as_nanos(), filled_at: now }
    }

    /// Returns whether `cost` is granted, and the retry if it is not.
    fn take(&mut self, now: u64, cost: u64) -> Result<(), Retry> {
        let (permits, period) = (u128::from(self.quota.permits()), self.quota.period().as_nanos());
        let full = u128::from(self.quota.burst()) * period;
        self.parts = full.min(self.parts + permits * u128::from(now - self.filled_at));
        self.filled_at = now;
        let price = u128::from(cost) * period;
        if price > full {
            return Err(Retry::Never);
        }
        match self.parts.checked_sub(price) {
            Some(rest) => self.parts = rest,
            None => {
                let nanos = (price - self.parts).div_ceil(permits);
                return Err(Retry::After(Duration::from_nanos(nanos.try_into().unwrap())));
            }
        }
        Ok(())
    }

    fn remaining(&self) -> u128 {
        self.parts / self.quota.period().as_nanos()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_token_bucket_grants_at_most_burst_and_rate_in_any_span(quota in quotas(), script in honest_scripts()) {
        let account = account(&TokenBucket::new(quota), &script);
        holds_in_every_span(&account, quota, quota.burst(), |all| all)?;
    }

    #[test]
    fn a_token_bucket_decides_as_the_textbook_does(
        quota in quotas(),
        asks in prop::collection::vec((prop_oneof![0..20_u64, 0..1_500_000_000_u64], costs()), 1..60),
    ) {
        let bucket = TokenBucket::new(quota);
        let mut key = KeyRun::new(&bucket);
        let mut textbook = Textbook::new(quota, key.now.as_nanos());
        for (wait, cost) in asks {
            key.apply(&Event::Wait(wait), &[]);
            let answer = bucket.answer(&mut key.state, key.now, cost, MaxWait::NONE);
            prop_assert_eq!(answer.retry(), textbook.take(key.now.as_nanos(), cost.get()).err());
            prop_assert_eq!(u128::from(answer.status().remaining), textbook.remaining());
        }
    }

    /// Among those that proceed from `s` to `e`, all but the last cost at most `delay + rate × (e − s)`; without a
    /// delay that means that the next one proceeds no sooner than the cost of the one before it, in intervals.
    #[test]
    fn a_leaky_bucket_spaces_requests_evenly(
        quota in quotas(), queue in 0..8_u64, delay in prop_oneof![Just(0), 0..5_u64], script in honest_scripts(),
    ) {
        let account = account(&LeakyBucket::new(quota).with_queue(queue).with_delay(delay), &script);
        holds_in_every_span(&account, quota, delay, |all| &all[..all.len() - 1])?;
    }

    /// With `nodelay` it is a token bucket whose burst is the queue plus one.
    #[test]
    fn a_leaky_bucket_without_delay_is_a_token_bucket(
        quota in quotas(), queue in 0..8_u64, script in honest_scripts(),
    ) {
        let account = account(&LeakyBucket::new(quota).with_queue(queue).without_delay(), &script);
        holds_in_every_span(&account, quota, queue + 1, |all| all)?;
    }

    #[test]
    fn a_minimum_interval_lies_between_any_two_grants(every in min_intervals(), script in honest_scripts()) {
        let Account { departures, refunds } = account::<MinInterval>(&every, &script);
        let refunded = |pair: &&[Departure]| refunds.iter().any(|r| (pair[0].nanos..=pair[1].nanos).contains(&r.nanos));
        for pair in departures.windows(2).filter(|pair| !refunded(pair)) {
            prop_assert!(pair[1].nanos - pair[0].nanos >= every.interval().as_nanos(), "{pair:?}");
        }
    }
}
