//! Changes of a key without a decision: charges, resets, and time, which restores permits and never goes back.

use super::decide::cost;
use super::refund::TWO_DAYS;
use crate::conformance::algorithm_cases::Case;
use crate::conformance::pair::{Comparison, Pair};
use crate::{Ask, MaxWait, Store, Timestamp};

pub(super) async fn charge_exceeds_limit<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for permits in [1, 2, 20] {
        pair.charge(Ask::new(&limit, "x", cost(permits))).await?;
        pair.compare_status(&limit, &[b"x", b"y"]).await?;
    }
    for _ in 0..12 {
        pair.wait(450);
        pair.decide(&[Ask::one(&limit, "x")], MaxWait::NONE).await?;
    }
    Ok(())
}

pub(super) async fn reset_restores_key<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    let keys: [&[u8]; 2] = [b"x", b"y"];
    for key in keys {
        pair.exhaust(&limit, key).await?;
    }
    pair.charge(Ask::new(&limit, "x", cost(50))).await?;
    pair.reset(&limit, b"x").await?;
    pair.compare_status(&limit, &keys).await?;
    pair.exhaust(&limit, b"x").await?;
    // A key that was never seen.
    pair.reset(&limit, b"z").await?;
    pair.compare_status(&limit, &[b"x", b"y", b"z"]).await
}

pub(super) async fn idle_key_is_fresh<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for wait in [100, 1_000, 2_000, 5_000, TWO_DAYS] {
        pair.exhaust(&limit, b"x").await?;
        pair.wait(wait);
        // Other keys are used meanwhile, and a store may drop states.
        for other in 0..20_u8 {
            pair.decide(&[Ask::one(&limit, &[other])], MaxWait::NONE).await?;
        }
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    pair.exhaust(&limit, b"x").await?;
    Ok(())
}

/// The answer at an earlier time is specific to each store; it must only not grant more than before.
pub(super) async fn time_never_goes_back<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    let one = [Ask::one(&limit, "x")];
    pair.wait(10_000);
    pair.exhaust(&limit, b"x").await?;
    for back in [1, 150, 900, 5_000] {
        let nanos =
            pair.now.as_nanos().saturating_sub(u64::try_from(pair.options.unit().as_nanos()).unwrap_or(0) * back);
        let earlier = Timestamp::from_nanos(nanos);
        let operation = format!("decide one for \"x\", which is used up, as of {earlier:?}");
        let answer = pair.store.decide(&one, earlier, MaxWait::NONE).await;
        let decision = pair.check_error(|| operation.clone(), answer)?;
        pair.expect(!decision.is_granted(), operation, "denied", decision.answers())?;
        let operation = format!("peek after an ask as of {earlier:?}");
        let answer = pair.store.peek(&one, pair.now, MaxWait::NONE).await;
        let decision = pair.check_error(|| operation.clone(), answer)?;
        pair.expect(!decision.is_granted(), operation, "denied", decision.answers())?;
    }
    Ok(())
}
