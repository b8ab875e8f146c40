//! Requests that ask several limits at once.

use super::decide::cost;
use crate::conformance::algorithm_cases::Case;
use crate::conformance::pair::{Comparison, Pair, describe_asks};
use crate::conformance::script::Script;
use crate::{Ask, Decision, Limit, MaxWait, Store, StoreError};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

type DecideFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send + 'a>>;

pub(super) async fn all_or_nothing<S: Store>(pair: &mut Pair<S>, cases: &[Case]) -> Comparison {
    let limits = limits(cases);
    let all = limits.iter().map(|limit| Ask::one(limit, "x")).collect::<Vec<_>>();
    let both = pair.decide(&all, MaxWait::NONE).await?;
    pair.refund(&all, &both).await?;
    // Each limit in turn denies, first in the request and last, for this key and for another.
    for (blocked, limit) in limits.iter().enumerate() {
        for other in &limits {
            pair.reset(other, b"x").await?;
        }
        let other = &limits[(blocked + 1) % limits.len()];
        pair.exhaust(limit, b"z").await?;
        for mut asks in [
            vec![Ask::one(limit, "z"), Ask::one(other, "x")],
            vec![Ask::one(limit, "z"), Ask::one(other, "x"), Ask::one(other, "y"), Ask::new(limit, "x", cost(2))],
            limits.iter().map(|other| Ask::one(other, if other.id() == limit.id() { "z" } else { "x" })).collect(),
        ] {
            pair.decide(&asks, MaxWait::NONE).await?;
            asks.reverse();
            pair.decide(&asks, MaxWait::NONE).await?;
        }
        for other in &limits {
            pair.compare_status(other, &[b"x", b"y", b"z"]).await?;
        }
    }
    Ok(())
}

pub(super) async fn random_script<S: Store>(pair: &mut Pair<S>, cases: &[Case]) -> Comparison {
    let limits = limits(cases);
    Script { limits: &limits, keys: &[b"x", b"y"], max_asks: 4 }.run(pair).await
}

/// Requests over two keys, in both orders, all in flight at once. They are identical, so their order does not matter:
/// as many must be granted as in sequence.
pub(super) async fn concurrent<S: Store>(pair: &mut Pair<S>, cases: &[Case]) -> Comparison {
    const REQUESTS: usize = 24;
    let limits = limits(cases);
    for (limit, other) in limits.iter().zip(limits.iter().cycle().skip(1)) {
        for both in [limit, other] {
            pair.reset(both, b"x").await?;
            pair.reset(both, b"y").await?;
        }
        let forward = [Ask::one(limit, "x"), Ask::one(other, "y")];
        let backward = [forward[1], forward[0]];
        let expected =
            (0..REQUESTS).filter(|_| pair.model.decide(&forward, pair.now, MaxWait::NONE).is_granted()).count();
        let requests = (0..REQUESTS)
            .map(|index| if index.is_multiple_of(2) { &forward } else { &backward })
            .map(|asks| -> DecideFuture<'_> { Box::pin(pair.store.decide(asks, pair.now, MaxWait::NONE)) })
            .collect();
        let operation = || format!("decide {} {REQUESTS} times at once", describe_asks(&forward));
        let mut granted = 0;
        for decision in poll_all(requests).await {
            granted += usize::from(pair.check_error(operation, decision)?.is_granted());
        }
        pair.expect(granted == expected, operation(), format!("{expected} granted"), format!("{granted} granted"))?;
        pair.compare_status(limit, &[b"x"]).await?;
        pair.compare_status(other, &[b"y"]).await?;
    }
    Ok(())
}

/// Polls all of them in turn until all are ready.
async fn poll_all(mut requests: Vec<DecideFuture<'_>>) -> Vec<Result<Decision, StoreError>> {
    let mut decided = Vec::new();
    poll_fn(|context| {
        requests.retain_mut(|request| match request.as_mut().poll(context) {
            Poll::Ready(decision) => {
                decided.push(decision);
                false
            }
            Poll::Pending => true,
        });
        if requests.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    decided
}

fn limits(cases: &[Case]) -> Vec<Limit> {
    cases.iter().map(|case| case.limit("a")).collect()
}
