//! The blocks of one key, and its request rate.

use crate::limit_config::LimitConfig;
use crate::options;
use crate::scripted::{Leasing, Over};
use diana_core::{Answer, Cost, Outcome, Receipt, Status, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The period over which the use of a key is measured, and about how long a block should last.
const PERIOD: Duration = Duration::from_millis(100);
/// The number of requests per period that makes a key busy, where blocks are sized by use.
const BUSY: u64 = 10;
/// A key without a request within this time is idle, and releases its blocks.
pub(super) const IDLE: Duration = Duration::from_millis(500);
/// The delay before another block is requested after one was denied.
const AGAIN: Duration = Duration::from_millis(50);
/// The maximum number of ended leases to report; further ones expire on Redis.
const MOST_OVER: usize = 64;

/// The blocks of one key.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: Arc<LimitConfig>,
    /// The oldest first.
    pub(super) blocks: VecDeque<Block>,
    /// Spent blocks that are not reported to Redis yet.
    pub(super) over: Vec<Over>,
    pub(super) last_asked: Timestamp,
    /// The status of the key in Redis's last reply.
    status: Option<Status>,
    use_of_key: Use,
    fetching: bool,
    not_before: Timestamp,
    /// Unique among pools, so that a block that one pool requested is not added to another.
    pub(super) number: u64,
}

/// Permits that may be spent without a round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) id: u128,
    pub(super) size: u64,
    pub(super) left: u64,
    pub(super) until: Timestamp,
    /// When it was requested.
    pub(super) asked: Timestamp,
    /// If it was taken like a request, the receipt for the unspent permits.
    pub(super) receipt: Option<Receipt>,
}

/// What to report to Redis: ended leases, and receipts for unspent permits.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    pub(super) over: Vec<Over>,
    pub(super) receipts: Vec<Receipt>,
}

impl GivenBack {
    pub(super) fn add(&mut self, block: Block) {
        match block.receipt {
            None => self.over.push(Over { id: block.id, spent: block.size - block.left }),
            Some(receipt) => self.receipts.extend(
                Cost::new(block.left).ok().map(|left| Receipt::new(left, receipt.at()).with_mark(receipt.mark())),
            ),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.over.is_empty() && self.receipts.is_empty()
    }
}

/// The use of a key, in permits per period.
#[derive(Debug)]
struct Use {
    since: Timestamp,
    permits: u64,
    asks: u64,
    /// The permits and asks of the previous period.
    before: (u64, u64),
}

impl Pool {
    pub(super) fn new(config: &Arc<LimitConfig>, now: Timestamp) -> Self {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: POOLS.fetch_add(1, Ordering::Relaxed),
            config: Arc::clone(config),
            blocks: VecDeque::new(),
            over: Vec::new(),
            last_asked: now,
            status: None,
            use_of_key: Use { since: now, permits: 0, asks: 0, before: (0, 0) },
            fetching: false,
            not_before: now,
        }
    }

    /// Returns `true` if a block has `cost` left.
    pub(super) fn has(&mut self, cost: Cost, now: Timestamp) -> bool {
        self.drop_ended(now);
        self.blocks.iter().any(|block| block.left >= cost.get())
    }

    /// Spends `cost` from a block.
    pub(super) fn spend(&mut self, cost: Cost, now: Timestamp) -> Option<Answer> {
        let status = self.status?;
        let place = self.blocks.iter().position(|block| block.left >= cost.get() && now < block.until)?;
        let block = self.blocks.get_mut(place)?;
        block.left -= cost.get();
        let (id, is_spent) = (block.id, block.left == 0);
        if is_spent {
            self.retire(place);
        }
        // The blocks of other instances, and permits refilled since, are unknown.
        let remaining = status.remaining.saturating_add(self.left()).min(status.limit);
        let receipt = Receipt::new(cost, now).with_mark(id);
        Some(Answer { outcome: Outcome::granted(receipt), status: Status { remaining, ..status } })
    }

    /// Puts `cost` back into its block, if that still exists.
    pub(super) fn put_back(&mut self, receipt: &Receipt) {
        if let Some(block) = self.blocks.iter_mut().find(|block| block.id == receipt.mark()) {
            block.left = (block.left + receipt.cost().get()).min(block.size);
        } else if let Some(over) = self.over.iter_mut().find(|over| over.id == receipt.mark()) {
            over.spent = over.spent.saturating_sub(receipt.cost().get());
        }
    }

    /// Records a request for the key.
    pub(super) fn asked(&mut self, cost: Cost, now: Timestamp) {
        self.last_asked = self.last_asked.max(now);
        let passed = now.since(self.use_of_key.since);
        if passed >= PERIOD {
            let is_next = passed < PERIOD * 2;
            let before = if is_next { (self.use_of_key.permits, self.use_of_key.asks) } else { (0, 0) };
            self.use_of_key = Use { since: now, permits: 0, asks: 0, before };
        }
        self.use_of_key.permits = self.use_of_key.permits.saturating_add(cost.get());
        self.use_of_key.asks += 1;
    }

    /// Returns the size of the block to fetch now, if one is needed. The caller must fetch it.
    pub(super) fn wants(&mut self, leases: options::Leases, now: Timestamp) -> Option<u64> {
        if self.fetching || now < self.not_before {
            return None;
        }
        let size = match leases {
            options::Leases::Off => return None,
            options::Leases::Of(size) => {
                let is_busy = self.use_of_key.asks + self.use_of_key.before.1 > 1 || !self.blocks.is_empty();
                if is_busy { size } else { return None }
            }
            options::Leases::Auto => {
                // The maximum of two periods, since the current one has just begun.
                let (permits, asks) = self.use_of_key.before;
                let (permits, asks) = (permits.max(self.use_of_key.permits), asks.max(self.use_of_key.asks));
                if asks >= BUSY { permits } else { return None }
            }
        };
        if self.left() > size / 4 {
            return None;
        }
        self.fetching = true;
        Some(size)
    }

    /// Adds a fetched block. If there is none, the next attempt is delayed.
    pub(super) fn fetched(&mut self, block: Option<Block>, status: Option<Status>, now: Timestamp) {
        self.fetching = false;
        self.status = status.or(self.status);
        match block {
            Some(block) => self.blocks.push_back(block),
            None => self.not_before = now + AGAIN,
        }
    }

    /// Returns all permits that are left.
    pub(super) fn left(&self) -> u64 {
        self.blocks.iter().map(|block| block.left).sum()
    }

    /// Removes all blocks, to release them.
    pub(super) fn empty(&mut self, now: Timestamp) -> GivenBack {
        self.drop_ended(now);
        let mut given = GivenBack { over: std::mem::take(&mut self.over), receipts: Vec::new() };
        self.blocks.drain(..).for_each(|block| given.add(block));
        given
    }

    /// Removes blocks that were taken like a request and have been held for `most`: otherwise they would last until the
    /// end of their window.
    pub(super) fn held_too_long(&mut self, most: Duration, now: Timestamp) -> GivenBack {
        let mut given = GivenBack::default();
        self.blocks.retain(|block| {
            let stays = block.receipt.is_none() || now.since(block.asked) < most;
            if !stays {
                given.add(*block);
            }
            stays
        });
        given
    }

    /// Redis counts an expired lease as spent, so it need not be reported.
    fn drop_ended(&mut self, now: Timestamp) {
        self.blocks.retain(|block| now < block.until);
    }

    fn retire(&mut self, place: usize) {
        let Some(block) = self.blocks.remove(place) else { return };
        let is_told = self.config.erased.leasing() == Leasing::ByScript;
        if is_told && self.over.len() < MOST_OVER {
            self.over.push(Over { id: block.id, spent: block.size });
        }
    }
}
