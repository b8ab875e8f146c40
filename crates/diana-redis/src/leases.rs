//! Leases: blocks of permits that a busy key takes at once, to spend them in this process without a round trip.
//!
//! ```text
//!  asks      ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪
//!  blocks    ├────── spent here ──────┤
//!                               ├────── the next one, fetched before the first is used up
//!  Redis   ▲                    ▲ "the first is spent, and I want another"
//! ```
//!
//! Leased permits count as used on Redis until the instance reports how many were spent, or the lease ends: so all
//! instances together never grant more than the limit, in any span (see scripts/token_bucket.lua). In this process a
//! block ends slightly earlier than on Redis, since its time counts from when it was requested.

mod pool;

use crate::client::{Client, Under};
use crate::deny_cache::DenyCache;
use crate::invalidation::{self, Invalidation};
use crate::limit_config::LimitConfig;
use crate::link::{CallError, Counted};
use crate::options;
use crate::request::{Item, Op};
use crate::scripted::{LeaseCall, Leasing};
use diana_core::{Cost, Decision, Timestamp};
use parking_lot::Mutex;
use pool::{Block, GivenBack, IDLE, Pool};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The duration of a bucket's lease on Redis.
const LASTS: Duration = Duration::from_secs(1);
/// Its duration in this process: clocks may differ in speed.
const LASTS_HERE: Duration = Duration::from_millis(950);
/// The maximum number of keys whose request rate is tracked.
const MOST_KEYS: usize = 16_384;
/// How often unused blocks are released.
pub(crate) const TIDY_EVERY: Duration = Duration::from_millis(250);

/// The blocks of all keys, by the names of their states.
#[derive(Debug)]
pub(crate) struct Leases {
    client: Arc<Client>,
    size: options::Leases,
    /// The cache in which keys are invalidated when their blocks are released.
    deny_cache: Option<Arc<DenyCache>>,
    pools: Mutex<HashMap<Vec<u8>, Pool>>,
}

/// A block to fetch.
#[derive(Debug)]
struct Fetch {
    item: Item,
    size: u64,
    /// When the need for it was detected: no later than it is requested.
    asked: Timestamp,
    /// The id of the pool that needs it.
    pool: u64,
}

impl Leases {
    pub(crate) fn new(
        client: &Arc<Client>,
        size: options::Leases,
        deny_cache: Option<Arc<DenyCache>>,
    ) -> Option<Arc<Self>> {
        let leases = || Arc::new(Self { client: Arc::clone(client), size, deny_cache, pools: Mutex::default() });
        (size != options::Leases::Off).then(leases)
    }

    /// Spends all of `items` from blocks, or none. Fetches the next blocks where these run low.
    pub(crate) fn spend(self: &Arc<Self>, items: &[Item], here: Timestamp) -> Option<Decision> {
        let mut pools = self.pools.lock();
        // Only under the active parameters: blocks that were leased under others are released with the next query to
        // Redis.
        let has = |item: &Item| {
            let pool = pools.get_mut(&item.name).filter(|pool| Arc::ptr_eq(&pool.config, &item.config));
            pool.is_some_and(|pool| pool.has(item.asking.cost, here))
        };
        if items.is_empty() || !items.iter().all(has) {
            return None;
        }
        let spent = items.iter().map(|item| pools.get_mut(&item.name)?.spend(item.asking.cost, here));
        let decision = spent.collect::<Option<Vec<_>>>().map(Decision::new);
        self.asked(&mut pools, items, here);
        self.client.runner.link.counters().count(Counted::ByLease);
        decision
    }

    /// Records that Redis is queried for `items`. Fetches blocks for busy keys.
    pub(crate) fn note(self: &Arc<Self>, items: &[Item], here: Timestamp) {
        self.asked(&mut self.pools.lock(), items, here);
    }

    fn asked(self: &Arc<Self>, pools: &mut HashMap<Vec<u8>, Pool>, items: &[Item], here: Timestamp) {
        for item in items {
            if let Some((pool, size)) = self.wanted(pools, item, here) {
                let (leases, fetch) = (Arc::clone(self), Fetch { item: item.clone(), size, asked: here, pool });
                self.client.runtime.spawn(async move { leases.fetch(fetch).await });
            }
        }
    }

    /// Records a request for `item`. Returns the pool that needs a block and the block's size, if one is needed.
    fn wanted(
        self: &Arc<Self>,
        pools: &mut HashMap<Vec<u8>, Pool>,
        item: &Item,
        here: Timestamp,
    ) -> Option<(u64, u64)> {
        if item.config.erased.leasing() == Leasing::None {
            return None;
        }
        if !pools.contains_key(&item.name) {
            if pools.len() >= MOST_KEYS {
                return None;
            }
            pools.insert(item.name.clone(), Pool::new(&item.config, here));
        }
        let pool = pools.get_mut(&item.name)?;
        if !Arc::ptr_eq(&pool.config, &item.config) {
            // The limit has changed.
            let mut old = std::mem::replace(pool, Pool::new(&item.config, here));
            self.return_in_background(Arc::clone(&old.config), item.name.clone(), old.empty(here), here);
        }
        pool.asked(item.asking.cost, here);
        Some((pool.number, pool.wants(self.size, here)?))
    }

    /// Puts the permits that a decision of [`spend`](Self::spend) took back into their blocks.
    pub(crate) fn put_back(&self, items: &[Item], decision: &Decision) {
        let mut pools = self.pools.lock();
        for (item, answer) in items.iter().zip(decision.answers()) {
            if let (Some(pool), Some(receipt)) = (pools.get_mut(&item.name), answer.receipt()) {
                pool.put_back(&receipt);
            }
        }
    }

    /// Drops the blocks of a key that was reset: Redis has dropped them too.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.pools.lock().remove(name);
    }

    /// Returns the number of leased permits.
    pub(crate) fn held(&self) -> u64 {
        self.pools.lock().values().map(Pool::left).sum()
    }

    async fn fetch(self: &Arc<Self>, Fetch { item, size, asked, pool }: Fetch) {
        let moment = self.client.moment(item.asking.about);
        let (block, status) = match item.config.erased.leasing() {
            Leasing::None => (None, None),
            Leasing::ByScript => {
                let over =
                    self.pools.lock().get_mut(&item.name).map_or_else(Vec::new, |pool| std::mem::take(&mut pool.over));
                let id = self.client.ticket();
                let sizes = [size, size / 4, size / 16].into_iter().filter(|size| *size > 0).collect::<Vec<_>>();
                let call = LeaseCall { id, lasts: LASTS, over: &over, sizes: &sizes };
                match self.client.lease(&item.config, &item.name, &call, moment).await {
                    Ok(Some((size, status))) => {
                        let until = asked + LASTS_HERE;
                        let block = Block { id, size, left: size, until, asked, receipt: None };
                        ((size > 0).then_some(block), Some(status))
                    }
                    // Written under other parameters, or unreachable: the next request handles it.
                    Ok(None) | Err(_) => (None, None),
                }
            }
            Leasing::ByTaking => self.take_block(item.clone(), size, asked).await,
        };
        let block = match self.pools.lock().get_mut(&item.name).filter(|other| other.number == pool) {
            Some(pool) => {
                pool.fetched(block, status, asked);
                None
            }
            None => block,
        };
        // The block is no longer needed: the key was idle for long, was reset, or its limit has changed.
        let mut given = GivenBack::default();
        block.into_iter().for_each(|block| given.add(block));
        self.return_in_background(item.config, item.name, given, asked);
    }

    /// Takes a block like a request.
    async fn take_block(
        &self,
        mut item: Item,
        size: u64,
        asked: Timestamp,
    ) -> (Option<Block>, Option<diana_core::Status>) {
        let moment = self.client.moment(item.asking.about);
        // At most half of the remaining permits, so that one instance never takes all of them.
        let Ok(seen) = self.client.ask(Op::Peek, std::slice::from_mut(&mut item), moment).await else {
            return (None, None);
        };
        let remaining = seen.first().map_or(0, |answer| answer.status.remaining);
        let Ok(cost) = Cost::new(size.min(remaining / 2)) else { return (None, None) };
        item.asking.cost = cost;
        item.asking.ticket = self.client.ticket();
        let Ok(taken) = self.client.ask(Op::Take, std::slice::from_mut(&mut item), moment).await else {
            return (None, None);
        };
        let Some(answer) = taken.first() else { return (None, None) };
        let block = answer.receipt().map(|receipt| Block {
            id: item.asking.ticket,
            size: cost.get(),
            left: cost.get(),
            asked,
            // A total is not refilled by time, so it has no window.
            until: if answer.status.reset.is_zero() { Timestamp::MAX } else { asked + answer.status.reset },
            receipt: Some(receipt),
        });
        (block, Some(answer.status))
    }

    /// Releases the blocks of idle keys, or of all keys, and those that were held for too long.
    pub(crate) async fn tidy(&self, which: Which) {
        let here = self.client.runner.link.now();
        let mut given = Vec::new();
        self.pools.lock().retain(|name, pool| {
            let stays = which == Which::Idle && here.since(pool.last_asked) < IDLE;
            let back = if stays { pool.held_too_long(LASTS, here) } else { pool.empty(here) };
            if !back.is_empty() {
                given.push((Arc::clone(&pool.config), name.clone(), back));
            }
            stays
        });
        for (config, name, back) in given {
            self.give_back(&config, &name, &back, here).await;
        }
    }

    /// Releases permits in the background.
    fn return_in_background(
        self: &Arc<Self>,
        config: Arc<LimitConfig>,
        name: Vec<u8>,
        back: GivenBack,
        now: Timestamp,
    ) {
        if !back.is_empty() {
            let leases = Arc::clone(self);
            self.client.runtime.spawn(async move { leases.give_back(&config, &name, &back, now).await });
        }
    }

    async fn give_back(&self, config: &Arc<LimitConfig>, name: &[u8], back: &GivenBack, now: Timestamp) {
        let moment = self.client.moment(now);
        let told = async {
            if !back.over.is_empty() {
                let call = LeaseCall { id: 0, lasts: LASTS, over: &back.over, sizes: &[] };
                self.client.lease(config, name, &call, moment).await?;
            }
            let receipts = back.receipts.iter().map(|receipt| (Arc::clone(config), name.to_vec(), *receipt));
            let mut receipts = receipts.collect::<Vec<_>>();
            if !receipts.is_empty() {
                self.client.hand_in(Op::Refund, &mut receipts, Under::Ours, moment).await?;
            }
            Ok::<_, CallError>(())
        };
        if let Err(error) = told.await {
            tracing::debug!(%error, "a lease could not be given back; it ends by itself");
            return;
        }
        if let Some(deny_cache) = &self.deny_cache {
            deny_cache.forget(name);
        }
        invalidation::tell(&self.client, Invalidation::Refunded, std::iter::once(name.to_vec()));
    }
}

/// Which keys release their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Keys without recent requests.
    Idle,
    All,
}
