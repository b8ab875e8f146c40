//! Laws for algorithms that count permits, without prepayment.

use super::script::{Event, Key};
use diana_core::{Algorithm, Cost, MaxWait};
use proptest::prelude::*;

type Verdict = Result<(), TestCaseError>;

/// A grant of `x + y` costs what a grant of `x` and then one of `y` cost, and is granted exactly when they are.
pub(crate) fn adds_up<A: Algorithm>(algorithm: &A, script: &[Event], x: Cost, y: Cost, max_wait: MaxWait) -> Verdict {
    let key = Key::after(algorithm, script);
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
pub(crate) fn remaining_is_exact<A: Algorithm>(algorithm: &A, script: &[Event], max_wait: MaxWait) -> Verdict {
    let key = Key::after(algorithm, script);
    let status = algorithm.status(&key.state, key.now);
    prop_assert!(status.remaining <= status.limit);
    let ask = |permits| algorithm.peek(&key.state, key.now, Cost::new(permits).unwrap(), max_wait).is_granted();
    if status.remaining > 0 {
        prop_assert!(ask(status.remaining), "{status:?} is not to be had");
    }
    prop_assert!(!ask(status.remaining + 1), "{status:?}, and yet one more");
    Ok(())
}
