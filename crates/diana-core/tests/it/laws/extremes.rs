//! Laws at the first and last timestamps, with the largest costs, and when the clock jumps.

use super::script::{Effect, Event, KeyRun};
use diana_core::{Algorithm, Cost, MaxWait, Retry, Timestamp};
use proptest::prelude::*;

type TestResult = Result<(), TestCaseError>;

/// Nothing panics or overflows, a denial changes nothing and has no retry past the last timestamp, and no more remains
/// than the limit, for any script.
pub(crate) fn never_overflows<A: Algorithm>(algorithms: &[A], script: &[Event]) -> TestResult {
    let mut key = KeyRun::new(&algorithms[0]);
    for event in script {
        let before = format!("{:?}", key.state);
        let effect = key.apply(event, algorithms);
        if let Effect::Answer(answer) = effect
            && !answer.is_granted()
        {
            prop_assert_eq!(before, format!("{:?}", key.state));
            if let Some(Retry::After(wait)) = answer.retry() {
                let due = u128::from(key.now.as_nanos()) + wait.as_nanos();
                prop_assert!(due <= u64::MAX.into(), "the retry after {wait:?} is past the last timestamp");
            }
        }
        let status = key.algorithm.status(&key.state, key.now);
        prop_assert!(status.remaining <= status.limit);
        let _ = key.algorithm.is_fresh(&key.state, key.now);
        let _ = key.algorithm.heap_bytes(&key.state);
        let _ = key.algorithm.occupied(u64::MAX, key.now);
    }
    Ok(())
}

/// An ask at an earlier time gets no more than one now, and leaves no more remaining.
pub(crate) fn stepping_back_restores_nothing<A: Algorithm>(
    algorithm: &A,
    script: &[Event],
    back: u64,
    cost: Cost,
    max_wait: MaxWait,
) -> TestResult {
    let mut key = KeyRun::after(algorithm, script);
    // So that the state has seen this time.
    let _ = algorithm.take(&mut key.state, key.now, Cost::ONE, MaxWait::NONE);
    let earlier = Timestamp::from_nanos(key.now.as_nanos() - back % key.now.as_nanos());
    let remaining = |state: &A::State, at| algorithm.status(state, at).remaining;
    let before = remaining(&key.state, key.now);
    prop_assert!(remaining(&key.state, earlier) <= before, "more remains at an earlier time");
    if algorithm.peek(&key.state, earlier, cost, MaxWait::NONE).is_granted() {
        prop_assert!(algorithm.peek(&key.state, key.now, cost, MaxWait::NONE).is_granted());
    }
    let _ = algorithm.take(&mut key.state, earlier, cost, max_wait);
    prop_assert!(remaining(&key.state, key.now) <= before, "an ask at an earlier time restored permits");
    Ok(())
}
