//! Refunds: of a grant, of a denial, and too late.

use super::decide::cost;
use crate::conformance::algorithm_cases::Case;
use crate::conformance::pair::{Comparison, Pair};
use crate::{Ask, MaxWait, Store};

/// Longer than any permit takes to be restored, in milliseconds.
pub(super) const TWO_DAYS: u32 = 2 * 24 * 3_600 * 1_000;

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
        // Adds usage that a refund could release by mistake.
        pair.decide(&one, MaxWait::NONE).await?;
        if both.is_granted() {
            pair.refund(&one, &both).await?;
        }
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    Ok(())
}
