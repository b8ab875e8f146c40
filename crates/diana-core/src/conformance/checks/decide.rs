//! Decisions: what each key is granted, and that keys do not affect each other.

use crate::conformance::algorithm_cases::Case;
use crate::conformance::pair::{Comparison, Pair};
use crate::conformance::script::Script;
use crate::{Ask, Cost, MaxWait, Store};

pub(super) fn cost(permits: u64) -> Cost {
    Cost::new(permits).unwrap_or(Cost::MAX)
}

pub(super) async fn random_script<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limits = [case.limit("a"), case.limit("b")];
    Script { limits: &limits, keys: &[b"x", b"y", b"z"], max_asks: 1 }.run(pair).await
}

pub(super) async fn denial_changes_nothing<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    pair.exhaust(&limit, b"x").await?;
    for _ in 0..20 {
        pair.decide(&[Ask::one(&limit, "x")], MaxWait::NONE).await?;
        pair.decide(&[Ask::new(&limit, "x", cost(3))], MaxWait::NONE).await?;
    }
    // If a denial was charged, the key is granted later than the algorithm expects.
    for _ in 0..8 {
        pair.wait(125);
        pair.compare_status(&limit, &[b"x"]).await?;
    }
    Ok(())
}

pub(super) async fn peek_changes_nothing<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for permits in [1, 2, 1, 4, 30, 1, 1, 1, 1] {
        let ask = [Ask::new(&limit, "x", cost(permits))];
        for max_wait in [MaxWait::NONE, MaxWait::FOREVER, MaxWait::NONE] {
            pair.peek(&ask, max_wait).await?;
        }
        pair.decide(&ask, MaxWait::NONE).await?;
        pair.wait(50);
    }
    Ok(())
}

pub(super) async fn same_count_twice<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    let twice = [Ask::one(&limit, "x"), Ask::new(&limit, "x", cost(2)), Ask::one(&limit, "y"), Ask::one(&limit, "x")];
    pair.peek(&twice, MaxWait::NONE).await?;
    let both = pair.decide(&twice, MaxWait::NONE).await?;
    pair.compare_status(&limit, &[b"x", b"y"]).await?;
    pair.refund(&twice, &both).await?;
    pair.compare_status(&limit, &[b"x", b"y"]).await?;
    for _ in 0..6 {
        pair.decide(&twice, MaxWait::NONE).await?;
    }
    pair.compare_status(&limit, &[b"x", b"y"]).await
}

pub(super) async fn keys_are_separate<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    let (long, longer) = ([b'k'; 1024], [b'k'; 1025]);
    let keys: [&[u8]; 19] = [
        b"x",
        b"",
        b"\0",
        b"\0\0",
        b"\n",
        b"\r\n",
        b" ",
        b"x ",
        b"X",
        b"{x}",
        b"{}",
        b"a:b",
        b"a",
        b"\xff",
        b"\xfe",
        b"\xc3\x28",
        "\u{e9}".as_bytes(),
        &long,
        &longer,
    ];
    for key in keys {
        // Later keys have an unused count.
        pair.compare_status(&limit, &[key]).await?;
        pair.exhaust(&limit, key).await?;
    }
    pair.compare_status(&limit, &keys).await
}

pub(super) async fn equal_limits_are_separate<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limits = [case.limit("a"), case.limit("b")];
    pair.exhaust(&limits[0], b"x").await?;
    pair.compare_status(&limits[1], &[b"x"]).await?;
    pair.exhaust(&limits[1], b"x").await?;
    pair.reset(&limits[1], b"x").await?;
    pair.compare_status(&limits[0], &[b"x"]).await?;
    pair.compare_status(&limits[1], &[b"x"]).await
}

pub(super) async fn temporary_and_permanent_denials<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for permits in 1..40 {
        for max_wait in [MaxWait::NONE, MaxWait::up_to(pair.options.unit() * 700), MaxWait::FOREVER] {
            pair.peek(&[Ask::new(&limit, "x", cost(permits))], max_wait).await?;
        }
    }
    pair.exhaust(&limit, b"x").await?;
    for permits in 1..40 {
        pair.decide(&[Ask::new(&limit, "x", cost(permits))], MaxWait::NONE).await?;
    }
    Ok(())
}

pub(super) async fn extreme_costs<S: Store>(pair: &mut Pair<S>, case: &Case) -> Comparison {
    let limit = case.limit("a");
    for permits in [u64::from(u32::MAX), cost(u64::MAX).get() - 1, cost(u64::MAX).get()] {
        let ask = [Ask::new(&limit, "x", cost(permits))];
        pair.peek(&ask, MaxWait::NONE).await?;
        pair.peek(&ask, MaxWait::FOREVER).await?;
        pair.decide(&ask, MaxWait::NONE).await?;
        pair.compare_status(&limit, &[b"x", b"y"]).await?;
    }
    pair.exhaust(&limit, b"y").await?;
    pair.decide(&[Ask::new(&limit, "y", Cost::MAX)], MaxWait::NONE).await?;
    pair.compare_status(&limit, &[b"y"]).await?;
    // Decades of debt are still counted exactly.
    pair.charge(Ask::new(&limit, "y", cost(1_000_000_000))).await?;
    pair.compare_status(&limit, &[b"y"]).await?;
    // Past the last timestamp stores may round, as long as they stay there.
    for _ in 0..3 {
        pair.charge(Ask::new(&limit, "y", Cost::MAX)).await?;
        let answer = pair.store.decide(&[Ask::one(&limit, "y")], pair.now, MaxWait::NONE).await;
        let operation = "decide one for \"y\" after charges of the largest cost";
        let decision = pair.check_error(|| operation.to_owned(), answer)?;
        pair.expect(!decision.is_granted(), operation, "denied", decision.answers())?;
    }
    Ok(())
}
