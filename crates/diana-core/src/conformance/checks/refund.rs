//! Restoring permits: by refund, by reset, by time; and charges, the opposite.

use super::decide::cost;
use crate::conformance::cases::Case;
use crate::conformance::pair::{Comparison, Pair};
use crate::{Ask, MaxWait, Store, Timestamp};

/// Longer than any permit takes to be restored, in milliseconds.
const TWO_DAYS: u32 = 2 * 24 * 3_600 * 1_000;

pub(super) async fn refund_restores<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for (permits, max_wait) in [(1, MaxWait::NONE), (2, MaxWait::NONE), (1, MaxWait::FOREVER)] {
        let ask = [Ask::new(&limit, "x", cost(permits))];
        let both = pair.decide(&ask, max_wait).await?;
        pair.wait(10);
        pair.refund(&ask, &both).await?;
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    // Of several grants, refunds the last one and then one in the middle.
    let one = [Ask::one(&limit, "x")];
    let mut grants = Vec::new();
    for _ in 0..4 {
        grants.push(pair.decide(&one, MaxWait::FOREVER).await?);
    }
    for index in [3, 1] {
        pair.refund(&one, &grants[index]).await?;
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    pair.exhaust(&limit, b"x").await?;
    Ok(())
}

pub(super) async fn refund_of_a_denial<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let (limit, other) = (case.limit("a"), case.limit("b"));
    pair.exhaust(&limit, b"x").await?;
    pair.decide(&[Ask::one(&other, "x")], MaxWait::NONE).await?;
    // The other limit would have granted, and its answer is granted, but nothing was charged.
    let asks = [Ask::one(&other, "x"), Ask::one(&limit, "x")];
    let both = pair.decide(&asks, MaxWait::NONE).await?;
    pair.refund(&asks, &both).await?;
    pair.compare_status(&limit, &[b"x"]).await?;
    pair.compare_status(&other, &[b"x"]).await
}

pub(super) async fn late_refund<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    let one = [Ask::one(&limit, "x")];
    for wait in [150, 400, 1_100, TWO_DAYS] {
        let both = pair.decide(&one, MaxWait::NONE).await?;
        pair.wait(wait);
        // So that there is usage that a refund could release by mistake.
        pair.decide(&one, MaxWait::NONE).await?;
        if both.is_granted() {
            pair.refund(&one, &both).await?;
        }
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    Ok(())
}

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
        let nanos = pair.now.as_nanos().saturating_sub(u64::try_from(pair.setup.unit().as_nanos()).unwrap_or(0) * back);
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
