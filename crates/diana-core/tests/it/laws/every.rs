//! The laws of every algorithm, as documented in [`Algorithm`].

use super::script::{Event, Key};
use diana_core::{Algorithm, Cost, MaxWait, Outcome, Refund, Retry, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

type Verdict = Result<(), TestCaseError>;

/// A denial leaves the state unchanged, peek answers as take would, and a state grows as predicted.
pub(crate) fn refusal_and_peek<A: Algorithm>(algorithm: &A, script: &[Event]) -> Verdict {
    let mut key = Key::new(algorithm);
    for event in script {
        if let Event::Take(cost, max_wait) = event {
            let before = format!("{:?}", key.state);
            let peeked = algorithm.peek(&key.state, key.now, *cost, *max_wait);
            prop_assert_eq!(&before, &format!("{:?}", key.state), "peek changed the state");
            let held = algorithm.heap_bytes(&key.state) + algorithm.heap_growth(&key.state, key.now);
            let taken = algorithm.take(&mut key.state, key.now, *cost, *max_wait);
            prop_assert_eq!(taken, peeked);
            match taken {
                Outcome::Granted { wait, receipt } => {
                    prop_assert!(wait <= max_wait.as_duration(), "waits longer than its maximum wait");
                    prop_assert_eq!((receipt.cost(), receipt.at()), (*cost, key.now));
                    prop_assert_eq!(algorithm.heap_bytes(&key.state), held, "grows otherwise than it said");
                    key.receipts.push(receipt);
                }
                Outcome::Denied { .. } => prop_assert_eq!(&before, &format!("{:?}", key.state)),
            }
        } else {
            key.happens(event, &[]);
        }
    }
    Ok(())
}

/// After `Retry::After(d)` the same ask is granted exactly `d` later, and not one nanosecond before.
pub(crate) fn retry_is_exact<A: Algorithm>(algorithm: &A, script: &[Event], cost: Cost, max_wait: MaxWait) -> Verdict {
    let mut key = Key::after(algorithm, script);
    // A few more asks, so that something is denied.
    for _ in 0..12 {
        let denied = algorithm.take(&mut key.state, key.now, cost, max_wait).retry();
        let Some(Retry::After(wait)) = denied else { continue };
        let nanos = u64::try_from(wait.as_nanos()).unwrap();
        prop_assert!(nanos > 0, "denied, but to be retried at once");
        let due = key.now.as_nanos().checked_add(nanos);
        prop_assert!(due.is_some(), "to be retried after {wait:?}, when no clock shows it");
        let Some(due) = due else { continue };
        let ask = |at| algorithm.peek(&key.state, Timestamp::from_nanos(at), cost, max_wait).is_granted();
        prop_assert!(ask(due), "denied again after {wait:?}");
        prop_assert!(!ask(due - 1), "granted a nanosecond before {wait:?}");
        prop_assert!(!ask(key.now.as_nanos() + nanos / 2), "granted after half of {wait:?}");
        return Ok(());
    }
    Ok(())
}

/// A state that is fresh answers every ask as a new one does, so it may be dropped.
pub(crate) fn idle_equals_fresh<A: Algorithm>(algorithm: &A, script: &[Event], probe: &[Event]) -> Verdict {
    let mut idle = Key::after(algorithm, script);
    for receipt in std::mem::take(&mut idle.receipts) {
        let _ = algorithm.refund(&mut idle.state, idle.now, &receipt);
    }
    // Some algorithms are idle when they reset, some later, and some never.
    let resets = idle.reset();
    for max_wait in [Duration::ZERO, resets, resets * 2, Duration::from_secs(864_000)] {
        idle.now = idle.now + max_wait;
        if algorithm.is_fresh(&idle.state, idle.now) {
            let fresh = Key::fresh_at(algorithm, idle.now);
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
) -> Verdict {
    let mut before = Key::after(algorithm, script);
    before.receipts.clear();
    let mut after = Key { state: before.state.clone(), receipts: Vec::new(), ..before };
    let outcome = algorithm.take(&mut after.state, after.now, cost, max_wait);
    if let Some(receipt) = outcome.receipt() {
        prop_assert_eq!(algorithm.refund(&mut after.state, after.now, &receipt), Refund::Returned);
    }
    same_answers(before, after, probe)
}

/// The two keys give the same answers to `probe`.
fn same_answers<A: Algorithm>(mut one: Key<'_, A>, mut other: Key<'_, A>, probe: &[Event]) -> Verdict {
    let status = |key: &Key<'_, A>| key.algorithm.status(&key.state, key.now);
    prop_assert_eq!(status(&one), status(&other));
    for event in probe {
        prop_assert_eq!(one.happens(event, &[]), other.happens(event, &[]));
        prop_assert_eq!(status(&one), status(&other));
    }
    Ok(())
}
