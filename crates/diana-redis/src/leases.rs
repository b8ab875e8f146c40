//! Leases: blocks of permits that a busy key takes at once, to spend them in this process without a round trip.
//!
//! ```text
//!  asks      ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪
//!  blocks    ├──── spent locally ─────┤
//!                               ├────── the next one, fetched before the first is used up
//!  Redis   ▲                    ▲ reports the first, leases another
//! ```
//!
//! Leased permits count as used on Redis until the instance reports how many were spent, or the lease ends: so all
//! instances together never grant more than the limit, in any span (see scripts/token_bucket.lua). In this process a
//! block ends slightly earlier than on Redis, since its time counts from when it was requested.

mod key_blocks;

use crate::deny_cache::StateCache;
use crate::direct_store::{DirectStore, ParameterSource};
use crate::invalidation::{self, Invalidation};
use crate::limit_config_versions::LimitConfig;
use crate::link::{CallError, Counter};
use crate::options;
use crate::script_call::{Item, Op};
use crate::scripted_algorithm::{LeaseRequest, Leasing};
use diana_core::{Cost, Decision, Timestamp};
use key_blocks::{Block, IDLE, Pool, ReleasedBlocks};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The duration of a bucket's lease on Redis.
const LEASE_DURATION: Duration = Duration::from_secs(1);
/// Its duration in this process: clocks may differ in speed.
const LOCAL_LEASE_DURATION: Duration = Duration::from_millis(950);
/// The maximum number of keys whose request rate is tracked.
const MAX_KEYS: usize = 16_384;
/// How often unused blocks are released.
pub(crate) const RELEASE_EVERY: Duration = Duration::from_millis(250);

/// The blocks of all keys, by the names of their states.
#[derive(Debug)]
pub(crate) struct LeasePools {
    client: Arc<DirectStore>,
    size: options::Leases,
    /// The cache in which keys are invalidated when their blocks are released.
    deny_cache: Option<Arc<StateCache>>,
    pools: Mutex<HashMap<Vec<u8>, Pool>>,
}

/// A block to fetch.
#[derive(Debug)]
struct Fetch {
    item: Item,
    size: u64,
    /// When the need for it was detected: no later than it is requested.
    requested_at: Timestamp,
    /// The id of the pool that needs it.
    pool: u64,
}

impl LeasePools {
    pub(crate) fn new(
        client: &Arc<DirectStore>,
        size: options::Leases,
        deny_cache: Option<Arc<StateCache>>,
    ) -> Option<Arc<Self>> {
        let leases = || Arc::new(Self { client: Arc::clone(client), size, deny_cache, pools: Mutex::default() });
        (size != options::Leases::Off).then(leases)
    }

    /// Spends all of `items` from blocks, or none. Fetches the next blocks where these run low.
    pub(crate) fn spend(self: &Arc<Self>, items: &[Item], local_now: Timestamp) -> Option<Decision> {
        let mut pools = self.pools.lock();
        // Only blocks of the active parameters are used: blocks that were leased under others are released with the next
        // query to Redis.
        let has = |item: &Item| {
            let pool = pools.get_mut(&item.name).filter(|pool| Arc::ptr_eq(&pool.config, &item.config));
            pool.is_some_and(|pool| pool.has(item.ask.cost, local_now))
        };
        if items.is_empty() || !items.iter().all(has) {
            return None;
        }
        let spent = items.iter().map(|item| pools.get_mut(&item.name)?.spend(item.ask.cost, local_now));
        let decision = spent.collect::<Option<Vec<_>>>().map(Decision::new);
        self.record(&mut pools, items, local_now);
        self.client.runner.link.counters().count(Counter::SavedByLease);
        decision
    }

    /// Records that Redis is queried for `items`. Fetches blocks for busy keys.
    pub(crate) fn record_query(self: &Arc<Self>, items: &[Item], local_now: Timestamp) {
        self.record(&mut self.pools.lock(), items, local_now);
    }

    fn record(self: &Arc<Self>, pools: &mut HashMap<Vec<u8>, Pool>, items: &[Item], local_now: Timestamp) {
        for item in items {
            if let Some((pool, size)) = self.block_needed(pools, item, local_now) {
                let (leases, fetch) =
                    (Arc::clone(self), Fetch { item: item.clone(), size, requested_at: local_now, pool });
                self.client.runtime.spawn(async move { leases.fetch(fetch).await });
            }
        }
    }

    /// Records a request for `item`. Returns the pool that needs a block and the block's size, if one is needed.
    fn block_needed(
        self: &Arc<Self>,
        pools: &mut HashMap<Vec<u8>, Pool>,
        item: &Item,
        local_now: Timestamp,
    ) -> Option<(u64, u64)> {
        if item.config.algorithm.leasing() == Leasing::None {
            return None;
        }
        if !pools.contains_key(&item.name) {
            if pools.len() >= MAX_KEYS {
                return None;
            }
            pools.insert(item.name.clone(), Pool::new(&item.config, local_now));
        }
        let pool = pools.get_mut(&item.name)?;
        if !Arc::ptr_eq(&pool.config, &item.config) {
            // The limit has changed.
            let mut old = std::mem::replace(pool, Pool::new(&item.config, local_now));
            self.release_in_background(Arc::clone(&old.config), item.name.clone(), old.take_all(local_now), local_now);
        }
        pool.record(item.ask.cost, local_now);
        Some((pool.number, pool.size_to_fetch(self.size, local_now)?))
    }

    /// Refunds the permits that a decision of [`spend`](Self::spend) took to their blocks.
    pub(crate) fn refund(&self, items: &[Item], decision: &Decision) {
        let mut pools = self.pools.lock();
        for (item, answer) in items.iter().zip(decision.answers()) {
            if let (Some(pool), Some(receipt)) = (pools.get_mut(&item.name), answer.receipt()) {
                pool.refund(&receipt);
            }
        }
    }

    /// Drops the blocks of a key that was reset: Redis has dropped them too.
    pub(crate) fn drop_blocks(&self, name: &[u8]) {
        self.pools.lock().remove(name);
    }

    /// Returns the number of leased permits.
    pub(crate) fn leased(&self) -> u64 {
        self.pools.lock().values().map(Pool::remaining).sum()
    }

    async fn fetch(self: &Arc<Self>, Fetch { item, size, requested_at, pool }: Fetch) {
        let context = self.client.context(item.ask.local_now);
        let (block, status) = match item.config.algorithm.leasing() {
            Leasing::None => (None, None),
            Leasing::ByScript => {
                let ended =
                    self.pools.lock().get_mut(&item.name).map_or_else(Vec::new, |pool| std::mem::take(&mut pool.ended));
                let id = self.client.ticket();
                let sizes = [size, size / 4, size / 16].into_iter().filter(|size| *size > 0).collect::<Vec<_>>();
                let call = LeaseRequest { id, duration: LEASE_DURATION, ended: &ended, sizes: &sizes };
                match self.client.lease(&item.config, &item.name, &call, context).await {
                    Ok(Some((size, status))) => {
                        let until = requested_at + LOCAL_LEASE_DURATION;
                        let block = Block { id, size, remaining: size, until, requested_at, receipt: None };
                        ((size > 0).then_some(block), Some(status))
                    }
                    // Written under other parameters, or unreachable: the next request handles it.
                    Ok(None) | Err(_) => (None, None),
                }
            }
            Leasing::ByTaking => self.take_block(item.clone(), size, requested_at).await,
        };
        let block = match self.pools.lock().get_mut(&item.name).filter(|other| other.number == pool) {
            Some(pool) => {
                pool.add(block, status, requested_at);
                None
            }
            None => block,
        };
        // The block is no longer needed: the key was idle for long, was reset, or its limit has changed.
        let mut released = ReleasedBlocks::default();
        block.into_iter().for_each(|block| released.add(block));
        self.release_in_background(item.config, item.name, released, requested_at);
    }

    /// Takes a block like a request.
    async fn take_block(
        &self,
        mut item: Item,
        size: u64,
        requested_at: Timestamp,
    ) -> (Option<Block>, Option<diana_core::Status>) {
        let context = self.client.context(item.ask.local_now);
        // At most half of the remaining permits, so that one instance never takes all of them.
        let Ok(answers) = self.client.ask(Op::Peek, std::slice::from_mut(&mut item), context).await else {
            return (None, None);
        };
        let remaining = answers.first().map_or(0, |answer| answer.status().remaining);
        let Ok(cost) = Cost::new(size.min(remaining / 2)) else { return (None, None) };
        item.ask.cost = cost;
        item.ask.ticket = self.client.ticket();
        let Ok(taken) = self.client.ask(Op::Take, std::slice::from_mut(&mut item), context).await else {
            return (None, None);
        };
        let Some(answer) = taken.first() else { return (None, None) };
        let block = answer.receipt().map(|receipt| Block {
            id: item.ask.ticket,
            size: cost.get(),
            remaining: cost.get(),
            requested_at,
            // A total is not refilled by time, so it has no window.
            until: if answer.status().reset.is_zero() { Timestamp::MAX } else { requested_at + answer.status().reset },
            receipt: Some(receipt),
        });
        (block, Some(answer.status()))
    }

    /// Releases the blocks of idle keys, or of all keys, and those that were held for too long.
    pub(crate) async fn release_blocks(&self, scope: ReleaseScope) {
        let local_now = self.client.runner.link.now();
        let mut released = Vec::new();
        self.pools.lock().retain(|name, pool| {
            let is_kept = scope == ReleaseScope::Idle && local_now.since(pool.last_request) < IDLE;
            let blocks =
                if is_kept { pool.take_older_than(LEASE_DURATION, local_now) } else { pool.take_all(local_now) };
            if !blocks.is_empty() {
                released.push((Arc::clone(&pool.config), name.clone(), blocks));
            }
            is_kept
        });
        for (config, name, blocks) in released {
            self.release(&config, &name, &blocks, local_now).await;
        }
    }

    /// Releases permits in the background.
    fn release_in_background(
        self: &Arc<Self>,
        config: Arc<LimitConfig>,
        name: Vec<u8>,
        blocks: ReleasedBlocks,
        now: Timestamp,
    ) {
        if !blocks.is_empty() {
            let leases = Arc::clone(self);
            self.client.runtime.spawn(async move { leases.release(&config, &name, &blocks, now).await });
        }
    }

    async fn release(&self, config: &Arc<LimitConfig>, name: &[u8], blocks: &ReleasedBlocks, now: Timestamp) {
        let context = self.client.context(now);
        let reported = async {
            if !blocks.ended.is_empty() {
                let call = LeaseRequest { id: 0, duration: LEASE_DURATION, ended: &blocks.ended, sizes: &[] };
                self.client.lease(config, name, &call, context).await?;
            }
            let receipts = blocks.receipts.iter().map(|receipt| (Arc::clone(config), name.to_vec(), *receipt));
            let mut receipts = receipts.collect::<Vec<_>>();
            if !receipts.is_empty() {
                self.client.apply_receipts(Op::Refund, &mut receipts, ParameterSource::Own, context).await?;
            }
            Ok::<_, CallError>(())
        };
        if let Err(error) = reported.await {
            tracing::debug!(%error, "leased permits could not be released; they are released when the lease ends");
            return;
        }
        if let Some(deny_cache) = &self.deny_cache {
            deny_cache.invalidate(name);
        }
        invalidation::publish(&self.client, Invalidation::Refunded, std::iter::once(name.to_vec()));
    }
}

/// Which keys release their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseScope {
    /// Keys without recent requests.
    Idle,
    All,
}
