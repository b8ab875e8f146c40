//! Limits that change while keys are in use.
//!
//! Stores may migrate a key when the limit changes or when the key is next asked for; so every key is asked for at the
//! exact time of the change, where both are the same.

use crate::conformance::algorithm_cases::{Case, Strictness};
use crate::conformance::pair::{Comparison, Pair};
use crate::{Ask, Limit, MaxWait, Store};

const KEYS: [&[u8]; 4] = [b"unused", b"used once", b"used twice", b"used up"];

pub(super) async fn lowered<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    changed(pair, case, &[Strictness::Lower, Strictness::Plain]).await
}

pub(super) async fn raised<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    changed(pair, case, &[Strictness::Higher, Strictness::Plain, Strictness::Higher]).await
}

async fn changed<S: Store>(pair: &mut Pair<S>, case: &Case, levels: &[Strictness]) -> Comparison {
    let mut limit = case.limit("a");
    use_some(pair, &limit).await?;
    for level in levels {
        pair.wait(30);
        limit = case.changed(&limit, *level);
        use_and_compare(pair, &limit).await?;
    }
    Ok(())
}

pub(super) async fn old_version<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let old = case.limit("a");
    use_some(pair, &old).await?;
    let new = case.changed(&old, Strictness::Lower);
    use_and_compare(pair, &new).await?;
    pair.wait(700);
    // One caller still uses the old version.
    for key in KEYS {
        pair.decide(&[Ask::one(&old, key)], MaxWait::NONE).await?;
        pair.compare_status(&new, &[key]).await?;
    }
    Ok(())
}

/// Changes each algorithm to the next one, and back. Whether two variants of one algorithm migrate more than the permits
/// in use is specific to each store.
pub(super) async fn other_algorithm<S: Store>(pair: &mut Pair<S>, cases: &[Case]) -> Comparison {
    let pairs = cases.iter().zip(cases.iter().cycle().skip(1));
    for (from, to) in pairs.filter(|(from, to)| from.name() != to.name()) {
        let limit = from.limit("a");
        use_some(pair, &limit).await?;
        let limit = to.changed(&limit, Strictness::Plain);
        use_and_compare(pair, &limit).await?;
        let limit = from.changed(&limit, Strictness::Lower);
        use_and_compare(pair, &limit).await?;
    }
    Ok(())
}

async fn use_some<S: Store>(pair: &mut Pair<S>, limit: &Limit) -> Comparison {
    let [_, once, twice, up] = KEYS;
    for key in [once, twice, twice] {
        pair.decide(&[Ask::one(limit, key)], MaxWait::NONE).await?;
    }
    pair.exhaust(limit, up).await?;
    Ok(())
}

async fn use_and_compare<S: Store>(pair: &mut Pair<S>, limit: &Limit) -> Comparison {
    pair.compare_status(limit, &KEYS).await?;
    for _ in 0..3 {
        for key in KEYS {
            pair.decide(&[Ask::one(limit, key)], MaxWait::NONE).await?;
        }
        pair.wait(150);
    }
    Ok(())
}
