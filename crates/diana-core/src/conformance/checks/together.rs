//! Requests that ask several limits at once.

use super::asking::cost;
use crate::conformance::kinds::Kind;
use crate::conformance::pair::{Pair, Verdict, describe};
use crate::conformance::script::Script;
use crate::{Ask, Decision, Limit, MaxWait, Store, StoreError};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

type DecideFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send + 'a>>;

pub(super) async fn all_or_nothing<S: Store>(pair: &mut Pair<S>, kinds: &[Kind]) -> Verdict {
    let limits = limits(kinds);
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
            pair.look(other, &[b"x", b"y", b"z"]).await?;
        }
    }
    Ok(())
}

pub(super) async fn random_script<S: Store>(pair: &mut Pair<S>, kinds: &[Kind]) -> Verdict {
    let limits = limits(kinds);
    Script { limits: &limits, keys: &[b"x", b"y"], at_once: 4 }.play(pair).await
}

/// Requests over two keys, in both orders, all in flight at once. They are identical, so their order does not matter:
/// as many must be granted as in sequence.
pub(super) async fn interleaved<S: Store>(pair: &mut Pair<S>, kinds: &[Kind]) -> Verdict {
    const REQUESTS: usize = 24;
    let limits = limits(kinds);
    for (limit, other) in limits.iter().zip(limits.iter().cycle().skip(1)) {
        for both in [limit, other] {
            pair.reset(both, b"x").await?;
            pair.reset(both, b"y").await?;
        }
        let there = [Ask::one(limit, "x"), Ask::one(other, "y")];
        let back = [there[1], there[0]];
        let expected =
            (0..REQUESTS).filter(|_| pair.model.decide(&there, pair.now, MaxWait::NONE).is_granted()).count();
        let requests = (0..REQUESTS)
            .map(|nth| if nth.is_multiple_of(2) { &there } else { &back })
            .map(|asks| -> DecideFuture<'_> { Box::pin(pair.store.decide(asks, pair.now, MaxWait::NONE)) })
            .collect();
        let asked = || format!("decide {} {REQUESTS} times at once", describe(&there));
        let mut granted = 0;
        for decision in all_at_once(requests).await {
            granted += usize::from(pair.done(asked, decision)?.is_granted());
        }
        pair.expect(granted == expected, asked(), format!("{expected} granted"), format!("{granted} granted"))?;
        pair.look(limit, &[b"x"]).await?;
        pair.look(other, &[b"y"]).await?;
    }
    Ok(())
}

/// Polls all of them in turn until all are ready.
async fn all_at_once(mut requests: Vec<DecideFuture<'_>>) -> Vec<Result<Decision, StoreError>> {
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

fn limits(kinds: &[Kind]) -> Vec<Limit> {
    kinds.iter().map(|kind| kind.limit("a")).collect()
}
