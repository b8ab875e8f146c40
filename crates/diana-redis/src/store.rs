//! The store that users hold.

use crate::link::{CallError, Link};
use crate::options::Options;
use crate::remote::{Moment, Remote};
use crate::request::Op;
use diana_core::{Ask, Decision, Limit, Patience, Store, StoreError, Timestamp};
use std::sync::Arc;

/// Counts that many processes share, on Redis.
#[derive(Clone, Debug)]
pub struct RedisStore {
    remote: Arc<Remote>,
}

impl RedisStore {
    /// Connects to the Redis at `url`.
    pub async fn connect(url: &str, options: Options) -> Result<Self, redis::RedisError> {
        let link = Link::open(url, options.timeout).await?;
        Ok(Self { remote: Arc::new(Remote::new(link, &options.prefix, options.times, 0)) })
    }

    async fn ask(&self, op: Op, asks: &[Ask<'_>], now: Timestamp, patience: Patience) -> Result<Decision, StoreError> {
        let (mut items, places) = self.remote.items(asks, now, patience)?;
        let decision = self.remote.ask(op, &mut items, Moment { now }).await.map_err(failed)?;
        Ok(Decision::new(places.iter().filter_map(|place| decision.answers().get(*place).copied())))
    }
}

fn failed(error: CallError) -> StoreError {
    StoreError::Unreachable { store: "redis".to_owned(), reason: error.to_string() }
}

impl Store for RedisStore {
    async fn decide(&self, asks: &[Ask<'_>], now: Timestamp, patience: Patience) -> Result<Decision, StoreError> {
        self.ask(Op::Take, asks, now, patience).await
    }

    async fn peek(&self, asks: &[Ask<'_>], now: Timestamp, patience: Patience) -> Result<Decision, StoreError> {
        self.ask(Op::Peek, asks, now, patience).await
    }

    async fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        if !decision.is_granted() {
            return Ok(());
        }
        let mut items = Vec::new();
        for (index, (ask, answer)) in asks.iter().zip(decision.answers()).enumerate() {
            let charged = !asks.iter().take(index).any(|other| other.same_count(ask));
            if let Some(receipt) = answer.receipt().filter(|_| charged) {
                let plan = self.remote.plans.find(ask.limit, now)?;
                let name = plan.keys.name(ask.key);
                items.push((plan, name, receipt));
            }
        }
        self.remote.refund(&mut items, Moment { now }).await.map_err(failed)
    }

    async fn charge(&self, ask: Ask<'_>, now: Timestamp) -> Result<(), StoreError> {
        let (mut items, _) = self.remote.items(&[ask], now, Patience::NONE)?;
        let Some(item) = items.first_mut() else { return Ok(()) };
        self.remote.charge(item, Moment { now }).await.map_err(failed)
    }

    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        self.remote.reset(limit, key, now).await.map_err(failed)
    }
}
