//! The blocks of one key, and its request rate.

use crate::limit_config_versions::LimitConfig;
use crate::options;
use crate::scripted_algorithm::{EndedLease, Leasing};
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
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The maximum number of ended leases to report; further ones expire on Redis.
const MAX_ENDED: usize = 64;

/// The blocks of one key.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: Arc<LimitConfig>,
    /// The oldest first.
    pub(super) blocks: VecDeque<Block>,
    /// Spent blocks that are not reported to Redis yet.
    pub(super) ended: Vec<EndedLease>,
    pub(super) last_request: Timestamp,
    /// The status of the key in Redis's last reply.
    status: Option<Status>,
    usage: Usage,
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
    pub(super) remaining: u64,
    pub(super) until: Timestamp,
    /// When it was requested.
    pub(super) requested_at: Timestamp,
    /// The receipt for the unspent permits, if the block was taken like a request.
    pub(super) receipt: Option<Receipt>,
}

/// Blocks to release: ended leases to report to Redis, and receipts for unspent permits.
#[derive(Debug, Default)]
pub(super) struct ReleasedBlocks {
    pub(super) ended: Vec<EndedLease>,
    pub(super) receipts: Vec<Receipt>,
}

impl ReleasedBlocks {
    pub(super) fn add(&mut self, block: Block) {
        match block.receipt {
            None => self.ended.push(EndedLease { id: block.id, spent: block.size - block.remaining }),
            Some(receipt) => self.receipts.extend(
                Cost::new(block.remaining)
                    .ok()
                    .map(|remaining| Receipt::new(remaining, receipt.at()).with_mark(receipt.mark())),
            ),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.receipts.is_empty()
    }
}

/// The use of a key, in permits per period.
#[derive(Debug)]
struct Usage {
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
            ended: Vec::new(),
            last_request: now,
            status: None,
            usage: Usage { since: now, permits: 0, asks: 0, before: (0, 0) },
            fetching: false,
            not_before: now,
        }
    }

    /// Returns `true` if a block has `cost` remaining.
    pub(super) fn has(&mut self, cost: Cost, now: Timestamp) -> bool {
        self.drop_ended(now);
        self.blocks.iter().any(|block| block.remaining >= cost.get())
    }

    /// Spends `cost` from a block.
    pub(super) fn spend(&mut self, cost: Cost, now: Timestamp) -> Option<Answer> {
        let status = self.status?;
        let index = self.blocks.iter().position(|block| block.remaining >= cost.get() && now < block.until)?;
        let block = self.blocks.get_mut(index)?;
        block.remaining -= cost.get();
        let (id, is_spent) = (block.id, block.remaining == 0);
        if is_spent {
            self.retire(index);
        }
        // The blocks of other instances, and permits refilled since, are unknown.
        let remaining = status.remaining.saturating_add(self.remaining()).min(status.limit);
        let receipt = Receipt::new(cost, now).with_mark(id);
        Some(Answer::new(Outcome::granted(receipt), Status { remaining, ..status }))
    }

    /// Refunds a receipt to its block, if that still exists.
    pub(super) fn refund(&mut self, receipt: &Receipt) {
        if let Some(block) = self.blocks.iter_mut().find(|block| block.id == receipt.mark()) {
            block.remaining = (block.remaining + receipt.cost().get()).min(block.size);
        } else if let Some(ended) = self.ended.iter_mut().find(|ended| ended.id == receipt.mark()) {
            ended.spent = ended.spent.saturating_sub(receipt.cost().get());
        }
    }

    /// Records a request for the key.
    pub(super) fn record(&mut self, cost: Cost, now: Timestamp) {
        self.last_request = self.last_request.max(now);
        let passed = now.since(self.usage.since);
        if passed >= PERIOD {
            let is_next = passed < PERIOD * 2;
            let before = if is_next { (self.usage.permits, self.usage.asks) } else { (0, 0) };
            self.usage = Usage { since: now, permits: 0, asks: 0, before };
        }
        self.usage.permits = self.usage.permits.saturating_add(cost.get());
        self.usage.asks += 1;
    }

    /// Returns the size of the block to fetch now, if one is needed. The caller must fetch it.
    pub(super) fn size_to_fetch(&mut self, leases: options::Leases, now: Timestamp) -> Option<u64> {
        if self.fetching || now < self.not_before {
            return None;
        }
        let size = match leases {
            options::Leases::Off => return None,
            options::Leases::Of(size) => {
                let is_busy = self.usage.asks + self.usage.before.1 > 1 || !self.blocks.is_empty();
                if is_busy { size } else { return None }
            }
            options::Leases::Auto => {
                // The maximum of two periods, since the current one has just begun.
                let (permits, asks) = self.usage.before;
                let (permits, asks) = (permits.max(self.usage.permits), asks.max(self.usage.asks));
                if asks >= BUSY { permits } else { return None }
            }
        };
        if self.remaining() > size / 4 {
            return None;
        }
        self.fetching = true;
        Some(size)
    }

    /// Adds a fetched block. If there is none, the next attempt is delayed.
    pub(super) fn add(&mut self, block: Option<Block>, status: Option<Status>, now: Timestamp) {
        self.fetching = false;
        self.status = status.or(self.status);
        match block {
            Some(block) => self.blocks.push_back(block),
            None => self.not_before = now + RETRY_DELAY,
        }
    }

    /// Returns the remaining permits of all blocks.
    pub(super) fn remaining(&self) -> u64 {
        self.blocks.iter().map(|block| block.remaining).sum()
    }

    /// Removes all blocks, to release them.
    pub(super) fn take_all(&mut self, now: Timestamp) -> ReleasedBlocks {
        self.drop_ended(now);
        let mut released = ReleasedBlocks { ended: std::mem::take(&mut self.ended), receipts: Vec::new() };
        self.blocks.drain(..).for_each(|block| released.add(block));
        released
    }

    /// Removes blocks that were taken like a request and have been held for `max_age`: otherwise they would last until
    /// the end of their window.
    pub(super) fn take_older_than(&mut self, max_age: Duration, now: Timestamp) -> ReleasedBlocks {
        let mut released = ReleasedBlocks::default();
        self.blocks.retain(|block| {
            let is_kept = block.receipt.is_none() || now.since(block.requested_at) < max_age;
            if !is_kept {
                released.add(*block);
            }
            is_kept
        });
        released
    }

    /// Redis counts an expired lease as spent, so it need not be reported.
    fn drop_ended(&mut self, now: Timestamp) {
        self.blocks.retain(|block| now < block.until);
    }

    fn retire(&mut self, index: usize) {
        let Some(block) = self.blocks.remove(index) else { return };
        let is_reported = self.config.algorithm.leasing() == Leasing::ByScript;
        if is_reported && self.ended.len() < MAX_ENDED {
            self.ended.push(EndedLease { id: block.id, spent: block.size });
        }
    }
}
