//! Limits that change while keys are in use.
//!
//! Stores may migrate a key when the limit changes or when the key is next asked for; so every key is asked for at the
//! exact time of the change, where both are the same.

use crate::conformance::kinds::{Kind, Size};
use crate::conformance::pair::{Pair, Verdict};
use crate::{Ask, Limit, MaxWait, Store};

const KEYS: [&[u8]; 4] = [b"unused", b"used once", b"used twice", b"used up"];

pub(super) async fn lowered<S: Store>(pair: &mut Pair<S>, kind: &Kind) -> Verdict {
    changed(pair, kind, &[Size::Lower, Size::Plain]).await
}

pub(super) async fn raised<S: Store>(pair: &mut Pair<S>, kind: &Kind) -> Verdict {
    changed(pair, kind, &[Size::Higher, Size::Plain, Size::Higher]).await
}

async fn changed<S: Store>(pair: &mut Pair<S>, kind: &Kind, sizes: &[Size]) -> Verdict {
    let mut limit = kind.limit("a");
    use_some(pair, &limit).await?;
    for size in sizes {
        pair.wait(30);
        limit = kind.changed(&limit, *size);
        go_on(pair, &limit).await?;
    }
    Ok(())
}

pub(super) async fn old_version<S: Store>(pair: &mut Pair<S>, kind: &Kind) -> Verdict {
    let old = kind.limit("a");
    use_some(pair, &old).await?;
    let new = kind.changed(&old, Size::Lower);
    go_on(pair, &new).await?;
    pair.wait(700);
    // One caller still uses the old version.
    for key in KEYS {
        pair.decide(&[Ask::one(&old, key)], MaxWait::NONE).await?;
        pair.look(&new, &[key]).await?;
    }
    Ok(())
}

/// Each algorithm becomes the next one, and back. Whether two variants of one algorithm migrate more than the permits
/// in use is specific to each store.
pub(super) async fn other_algorithm<S: Store>(pair: &mut Pair<S>, kinds: &[Kind]) -> Verdict {
    let pairs = kinds.iter().zip(kinds.iter().cycle().skip(1));
    for (from, to) in pairs.filter(|(from, to)| from.name() != to.name()) {
        let limit = from.limit("a");
        use_some(pair, &limit).await?;
        let limit = to.changed(&limit, Size::Plain);
        go_on(pair, &limit).await?;
        let limit = from.changed(&limit, Size::Lower);
        go_on(pair, &limit).await?;
    }
    Ok(())
}

async fn use_some<S: Store>(pair: &mut Pair<S>, limit: &Limit) -> Verdict {
    let [_, once, twice, up] = KEYS;
    for key in [once, twice, twice] {
        pair.decide(&[Ask::one(limit, key)], MaxWait::NONE).await?;
    }
    pair.exhaust(limit, up).await?;
    Ok(())
}

async fn go_on<S: Store>(pair: &mut Pair<S>, limit: &Limit) -> Verdict {
    pair.look(limit, &KEYS).await?;
    for _ in 0..3 {
        for key in KEYS {
            pair.decide(&[Ask::one(limit, key)], MaxWait::NONE).await?;
        }
        pair.wait(150);
    }
    Ok(())
}
