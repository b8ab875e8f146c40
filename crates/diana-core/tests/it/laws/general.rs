//! The laws of every algorithm, as documented in [`Algorithm`], and those of algorithms that count permits without
//! prepayment.

use super::script::{Event, KeyRun};
use diana_core::{Algorithm, Cost, MaxWait, Outcome, Refund, Retry, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

type TestResult = Result<(), TestCaseError>;

/// A denial leaves the state unchanged, peek answers as take would, and a state grows as predicted.
pub(crate) fn denial_and_peek<A: Algorithm>(algorithm: &A, script: &[Event]) -> TestResult {
    let mut key = KeyRun::new(algorithm);
    for event in script {
        if let Event::Take(cost, max_wait) = event {
            let before = format!("{:?}", key.state);
            let peeked = algorithm.peek(&key.state, key.now, *cost, *max_wait);
            prop_assert_eq!(&before, &format!("{:?}", key.state), "peek changed the state");
            let expected_heap = algorithm.heap_bytes(&key.state) + algorithm.heap_growth(&key.state, key.now);
            let taken = algorithm.take(&mut key.state, key.now, *cost, *max_wait);
            prop_assert_eq!(taken, peeked);
            match taken {
                Outcome::Granted { wait, receipt } => {
                    prop_assert!(wait <= max_wait.as_duration(), "waits longer than its maximum wait");
                    prop_assert_eq!((receipt.cost(), receipt.at()), (*cost, key.now));
                    prop_assert_eq!(
                        algorithm.heap_bytes(&key.state),
                        expected_heap,
                        "grows by other than `heap_growth`"
                    );
                    key.receipts.push(receipt);
                }
                Outcome::Denied { .. } => prop_assert_eq!(&before, &format!("{:?}", key.state)),
            }
        } else {
            key.apply(event, &[]);
        }
    }
    Ok(())
}

/// After `Retry::After(d)` the same ask is granted exactly `d` later, and not one nanosecond before.
pub(crate) fn retry_is_exact<A: Algorithm>(
    algorithm: &A,
    script: &[Event],
    cost: Cost,
    max_wait: MaxWait,
) -> TestResult {
    let mut key = KeyRun::after(algorithm, script);
    // A few more asks, so that something is denied.
    for _ in 0..12 {
        let denied = algorithm.take(&mut key.state, key.now, cost, max_wait).retry();
        let Some(Retry::After(wait)) = denied else { continue };
        let nanos = u64::try_from(wait.as_nanos()).unwrap();
        prop_assert!(nanos > 0, "a denial must have a retry time above 0");
        let due = key.now.as_nanos().checked_add(nanos);
        prop_assert!(due.is_some(), "the retry after {wait:?} is past the last timestamp");
        let Some(due) = due else { continue };
        let ask = |at| algorithm.peek(&key.state, Timestamp::from_nanos(at), cost, max_wait).is_granted();
        prop_assert!(ask(due), "denied again after {wait:?}");
        prop_assert!(!ask(due - 1), "granted a nanosecond before {wait:?}");
        prop_assert!(!ask(key.now.as_nanos() + nanos / 2), "granted after half of {wait:?}");
        return Ok(());
    }
    Ok(())
}

/// A state that was encoded and decoded gives the same answers. Every algorithm here whose usage outlives the process has
/// an encoding, which is no other state's.
pub(crate) fn saved_equals_original<A: Algorithm>(algorithm: &A, script: &[Event], probe: &[Event]) -> TestResult {
    let original = KeyRun::after(algorithm, script);
    let mut words = vec![7];
    let is_encoded = algorithm.encode(&original.state, &mut words);
    prop_assert_eq!(is_encoded, algorithm.outlives_process());
    prop_assert_eq!(words[0], 7, "words before the state were changed");
    if is_encoded {
        let state = algorithm.decode(&words[1..]);
        prop_assert!(state.is_some());
        let Some(state) = state else { return Ok(()) };
        let (now, receipts) = (original.now, original.receipts.clone());
        same_answers(original, KeyRun { algorithm, state, now, receipts }, probe)?;
        words.push(1);
        prop_assert!(algorithm.decode(&words[1..]).is_none(), "one more word is accepted");
    }
    Ok(())
}

/// A state that is fresh answers every ask as a new one does, so it may be dropped.
pub(crate) fn idle_equals_fresh<A: Algorithm>(algorithm: &A, script: &[Event], probe: &[Event]) -> TestResult {
    let mut idle = KeyRun::after(algorithm, script);
    for receipt in std::mem::take(&mut idle.receipts) {
        let _ = algorithm.refund(&mut idle.state, idle.now, &receipt);
    }
    // Some algorithms are idle when they reset, some later, and some never.
    let resets = idle.reset();
    for max_wait in [Duration::ZERO, resets, resets * 2, Duration::from_secs(864_000)] {
        idle.now = idle.now + max_wait;
        if algorithm.is_fresh(&idle.state, idle.now) {
            let fresh = KeyRun::fresh_at(algorithm, idle.now);
            return same_answers(idle, fresh, probe);
        }
    }
    Ok(())
}

/// A grant that is refunded immediately has no effect.
pub(crate) fn refund_undoes<A: Algorithm>(
    algorithm: &A,
    script: &[Event],
    cost: Cost,
    max_wait: MaxWait,
    probe: &[Event],
) -> TestResult {
    let mut before = KeyRun::after(algorithm, script);
    before.receipts.clear();
    let mut after = KeyRun { state: before.state.clone(), receipts: Vec::new(), ..before };
    let outcome = algorithm.take(&mut after.state, after.now, cost, max_wait);
    if let Some(receipt) = outcome.receipt() {
        prop_assert_eq!(algorithm.refund(&mut after.state, after.now, &receipt), Refund::Returned);
    }
    same_answers(before, after, probe)
}

/// The two keys give the same answers to `probe`.
fn same_answers<A: Algorithm>(mut one: KeyRun<'_, A>, mut other: KeyRun<'_, A>, probe: &[Event]) -> TestResult {
    let status = |key: &KeyRun<'_, A>| key.algorithm.status(&key.state, key.now);
    prop_assert_eq!(status(&one), status(&other));
    for event in probe {
        prop_assert_eq!(one.apply(event, &[]), other.apply(event, &[]));
        prop_assert_eq!(status(&one), status(&other));
    }
    Ok(())
}

/// Nothing is denied if the limit is used up, and only if more is in use than that.
pub(crate) fn zero_is_denied_over_the_limit<A: Algorithm>(algorithm: &A, script: &[Event]) -> TestResult {
    let mut key = KeyRun::after(algorithm, script);
    let (state, now) = (&mut key.state, key.now);
    let is_granted = |state: &A::State| algorithm.peek(state, now, Cost::ZERO, MaxWait::NONE).is_granted();
    if let Ok(remaining) = Cost::new(algorithm.status(state, now).remaining) {
        prop_assert!(is_granted(state), "denied with {:?} left", remaining);
        prop_assume!(algorithm.take(state, now, remaining, MaxWait::FOREVER).is_granted());
        prop_assert!(is_granted(state), "denied when used up");
    }
    algorithm.charge(state, now, Cost::ONE);
    prop_assert!(!is_granted(state), "granted over the limit");
    Ok(())
}

/// A grant of `x + y` costs what a grant of `x` and then one of `y` cost, and is granted exactly when they are.
pub(crate) fn adds_up<A: Algorithm>(
    algorithm: &A,
    script: &[Event],
    x: Cost,
    y: Cost,
    max_wait: MaxWait,
) -> TestResult {
    let key = KeyRun::after(algorithm, script);
    let (mut together, mut apart) = (key.state.clone(), key.state);
    let sum = Cost::new(x.get() + y.get()).unwrap();
    let both = algorithm.take(&mut together, key.now, sum, max_wait).is_granted();
    let each = algorithm.take(&mut apart, key.now, x, max_wait).is_granted()
        && algorithm.take(&mut apart, key.now, y, max_wait).is_granted();
    prop_assert_eq!(both, each);
    if both {
        prop_assert_eq!(format!("{together:?}"), format!("{apart:?}"));
    }
    Ok(())
}

/// The remaining permits are granted, and not one more.
pub(crate) fn remaining_is_exact<A: Algorithm>(algorithm: &A, script: &[Event], max_wait: MaxWait) -> TestResult {
    let key = KeyRun::after(algorithm, script);
    let status = algorithm.status(&key.state, key.now);
    prop_assert!(status.remaining <= status.limit);
    let ask = |permits| algorithm.peek(&key.state, key.now, Cost::new(permits).unwrap(), max_wait).is_granted();
    if status.remaining > 0 {
        prop_assert!(ask(status.remaining), "{status:?} must be granted");
    }
    prop_assert!(!ask(status.remaining + 1), "{status:?}, but one more was granted");
    Ok(())
}
