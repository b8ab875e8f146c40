//! The example's algorithm keeps the laws of `diana-core/tests/it/laws.rs`, and doubles its waits.

use super::example::backoff::Backoff;
use diana::algorithm::Algorithm;
use diana::{Cost, MaxWait, Outcome, Refund, Retry, Timestamp};
use proptest::prelude::*;
use script::{costs, extreme_scripts, max_waits, scripts};
use std::time::Duration;

#[path = "../../../../crates/diana-core/tests/it/laws/extremes.rs"]
mod extremes;
#[path = "../../../../crates/diana-core/tests/it/laws/general.rs"]
#[allow(dead_code, reason = "some laws are those of algorithms that count permits")]
mod general;
#[path = "../../../../crates/diana-core/tests/it/laws/script.rs"]
#[allow(dead_code, reason = "some scripts are for other laws")]
mod script;

fn backoff(first: u64, max: u64) -> Backoff {
    Backoff::new(Duration::from_secs(first), Duration::from_secs(max)).unwrap()
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    up_to(2_000_000_000)
}

/// Waits of up to so many nanoseconds, and short ones.
fn up_to(most: u64) -> impl Strategy<Value = Backoff> {
    let first = prop_oneof![1..12_u64, 1..most];
    let pair = first.prop_flat_map(move |first| (Just(first), prop_oneof![Just(first), first..=most.max(first)]));
    pair.prop_map(|(first, max)| Backoff::new(Duration::from_nanos(first), Duration::from_nanos(max)).unwrap())
}

proptest! {
    #[test]
    fn a_denial_changes_nothing_and_peek_equals_take(a in backoffs(), script in scripts()) {
        general::denial_and_peek(&a, &script)?;
    }

    #[test]
    fn the_retry_time_is_exact_to_the_nanosecond(
        a in backoffs(), script in scripts(), cost in costs(), max_wait in max_waits(),
    ) {
        general::retry_is_exact(&a, &script, cost, max_wait)?;
    }

    #[test]
    fn an_idle_key_answers_as_a_fresh_one(a in backoffs(), script in scripts(), probe in scripts()) {
        general::idle_equals_fresh(&a, &script, &probe)?;
    }

    #[test]
    fn a_saved_state_answers_as_before(a in backoffs(), script in scripts(), probe in scripts()) {
        general::saved_equals_original(&a, &script, &probe)?;
    }

    #[test]
    fn an_immediate_refund_undoes_a_grant(
        a in backoffs(), script in scripts(), cost in costs(), max_wait in max_waits(),
    ) {
        general::refund_undoes(&a, &script, cost, max_wait, &[])?;
    }

    #[test]
    fn nothing_overflows_for_any_time_and_cost(
        a in prop::collection::vec(up_to(u64::MAX), 1..4), script in extreme_scripts(),
    ) {
        extremes::never_overflows(&a, &script)?;
    }

    #[test]
    fn a_clock_that_steps_back_restores_nothing(
        a in backoffs(), script in scripts(), back in any::<u64>(), cost in costs(), max_wait in max_waits(),
    ) {
        extremes::stepping_back_restores_nothing(&a, &script, back, cost, max_wait)?;
    }
}

/// Takes one at each time in seconds; returns the seconds of each denial, 0 for a grant.
fn take(backoff: &Backoff, seconds: &[u64]) -> Vec<u64> {
    let mut state = backoff.fresh(Timestamp::EPOCH);
    let mut ask = |second| backoff.take(&mut state, Timestamp::from_secs(second), Cost::ONE, MaxWait::NONE);
    let denied_for = |outcome: Outcome| match outcome.retry() {
        None => 0,
        Some(Retry::After(wait)) => wait.as_secs(),
        Some(other) => panic!("{other:?}"),
    };
    seconds.iter().map(|second| denied_for(ask(*second))).collect()
}

#[test]
fn each_wait_is_twice_as_long_up_to_the_longest() {
    let seconds = [0, 0, 29, 30, 30, 89, 90, 90, 210, 210, 329, 330];
    //             +  30  1  +   60  1   +   120 +    120  1   +
    assert_eq!(take(&backoff(30, 120), &seconds), [0, 30, 1, 0, 60, 1, 0, 120, 0, 120, 1, 0]);
}

#[test]
fn a_key_that_pauses_for_the_longest_wait_begins_again() {
    // The second wait ends at 90; 120 seconds later the key is forgotten.
    assert_eq!(take(&backoff(30, 120), &[0, 30, 209, 209]), [0, 0, 0, 120]);
    assert_eq!(take(&backoff(30, 120), &[0, 30, 210, 210]), [0, 0, 0, 30]);
}

#[test]
fn a_refund_restores_the_wait_before_it_and_only_the_last_grant_can_be_refunded() {
    let backoff = backoff(30, 120);
    let mut state = backoff.fresh(Timestamp::EPOCH);
    let take = |state: &mut _, second| {
        backoff.take(state, Timestamp::from_secs(second), Cost::ONE, MaxWait::NONE).receipt().unwrap()
    };
    let first = take(&mut state, 0);
    let second = take(&mut state, 40);
    let now = Timestamp::from_secs(41);
    assert_eq!(backoff.refund(&mut state, now, &first), Refund::Void);
    assert_eq!(backoff.refund(&mut state, now, &second), Refund::Returned);
    assert_eq!(backoff.refund(&mut state, now, &second), Refund::Void);
    take(&mut state, 41);
    assert_eq!(backoff.status(&state, now).reset, Duration::from_secs(60));
}

#[test]
fn impossible_waits_can_not_be_constructed() {
    let new = |first, max| Backoff::new(Duration::from_secs(first), Duration::from_secs(max));
    assert_eq!((new(0, 1), new(2, 1)), (None, None));
}
