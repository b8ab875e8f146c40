//! What algorithms keep that count permits, without prepayment.

use super::script::{Event, Key};
use diana_core::{Algorithm, Cost, Patience};
use proptest::prelude::*;

type Verdict = Result<(), TestCaseError>;

/// A grant of `x + y` costs what a grant of `x` and then one of `y` cost, and is had exactly when they are.
pub(crate) fn adds_up<A: Algorithm>(algorithm: &A, script: &[Event], x: Cost, y: Cost, patience: Patience) -> Verdict {
    let key = Key::after(algorithm, script);
    let (mut together, mut apart) = (key.state.clone(), key.state);
    let sum = Cost::new(x.get() + y.get()).unwrap();
    let both = algorithm.take(&mut together, key.now, sum, patience).is_granted();
    let each = algorithm.take(&mut apart, key.now, x, patience).is_granted()
        && algorithm.take(&mut apart, key.now, y, patience).is_granted();
    prop_assert_eq!(both, each);
    if both {
        prop_assert_eq!(format!("{together:?}"), format!("{apart:?}"));
    }
    Ok(())
}

/// As much as remains is granted, and not one more.
pub(crate) fn remaining_is_exact<A: Algorithm>(algorithm: &A, script: &[Event], patience: Patience) -> Verdict {
    let key = Key::after(algorithm, script);
    let standing = algorithm.standing(&key.state, key.now);
    prop_assert!(standing.remaining <= standing.limit);
    let ask = |permits| algorithm.peek(&key.state, key.now, Cost::new(permits).unwrap(), patience).is_granted();
    if standing.remaining > 0 {
        prop_assert!(ask(standing.remaining), "{standing:?} is not to be had");
    }
    prop_assert!(!ask(standing.remaining + 1), "{standing:?}, and yet one more");
    Ok(())
}
