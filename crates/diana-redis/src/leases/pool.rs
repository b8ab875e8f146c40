//! The blocks of one key, and how busy it is.

use crate::limit_config::LimitConfig;
use crate::options;
use crate::scripted::{Leasing, Over};
use diana_core::{Answer, Cost, Outcome, Receipt, Status, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Over how long the use of a key is measured, and for about how long a block should do.
const PERIOD: Duration = Duration::from_millis(100);
/// How many requests in a period make a key busy, where blocks are sized by use.
const BUSY: u64 = 10;
/// A key that was not asked for within this time is not busy, and gives its blocks back.
pub(super) const IDLE: Duration = Duration::from_millis(500);
/// How long to wait before asking again for a block that was not to be had.
const AGAIN: Duration = Duration::from_millis(50);
/// The most leases that wait to be reported; those beyond end by themselves.
const MOST_OVER: usize = 64;

/// The blocks of one key.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: Arc<LimitConfig>,
    /// The oldest first.
    pub(super) blocks: VecDeque<Block>,
    /// Blocks that are spent, and that Redis has not been told of.
    pub(super) over: Vec<Over>,
    pub(super) last_asked: Timestamp,
    /// Where the key stood when Redis was last asked.
    status: Option<Status>,
    use_of_key: Use,
    fetching: bool,
    not_before: Timestamp,
    /// No other pool has this number, so that a block which was asked for by one does not come to another.
    pub(super) number: u64,
}

/// Permits that may be spent without asking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) id: u128,
    pub(super) size: u64,
    pub(super) left: u64,
    pub(super) until: Timestamp,
    /// When it was asked for.
    pub(super) asked: Timestamp,
    /// If it was taken like a request, the receipt for what is not spent.
    pub(super) receipt: Option<Receipt>,
}

/// What goes back to Redis: leases that are over, and receipts for what was not spent.
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

/// How much of a key is used, in permits a period.
#[derive(Debug)]
struct Use {
    since: Timestamp,
    permits: u64,
    asks: u64,
    /// What it came to in the period before.
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

    /// Whether a block has `cost` left.
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
        // What others hold is not known here, and what came back since is not either.
        let remaining = status.remaining.saturating_add(self.left()).min(status.limit);
        let receipt = Receipt::new(cost, now).with_mark(id);
        Some(Answer { outcome: Outcome::granted(receipt), status: Status { remaining, ..status } })
    }

    /// Puts `cost` back into the block that it came from, if that is still there.
    pub(super) fn put_back(&mut self, receipt: &Receipt) {
        if let Some(block) = self.blocks.iter_mut().find(|block| block.id == receipt.mark()) {
            block.left = (block.left + receipt.cost().get()).min(block.size);
        } else if let Some(over) = self.over.iter_mut().find(|over| over.id == receipt.mark()) {
            over.spent = over.spent.saturating_sub(receipt.cost().get());
        }
    }

    /// Notes that the key was asked for.
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

    /// How large a block to fetch now, if one is wanted. Whoever is told fetches it.
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
                // The better of two periods, of which one has just begun.
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

    /// Takes in what was fetched: a block, or none, in which case it is not asked for again at once.
    pub(super) fn fetched(&mut self, block: Option<Block>, status: Option<Status>, now: Timestamp) {
        self.fetching = false;
        self.status = status.or(self.status);
        match block {
            Some(block) => self.blocks.push_back(block),
            None => self.not_before = now + AGAIN,
        }
    }

    /// All permits that are left.
    pub(super) fn left(&self) -> u64 {
        self.blocks.iter().map(|block| block.left).sum()
    }

    /// Takes everything out, to give it back.
    pub(super) fn empty(&mut self, now: Timestamp) -> GivenBack {
        self.drop_ended(now);
        let mut given = GivenBack { over: std::mem::take(&mut self.over), receipts: Vec::new() };
        self.blocks.drain(..).for_each(|block| given.add(block));
        given
    }

    /// Takes out what was taken like a request and has been held for `most`: nothing else would end it before its window does.
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

    /// Redis counts a lease that has ended as spent; there is nothing to tell.
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
