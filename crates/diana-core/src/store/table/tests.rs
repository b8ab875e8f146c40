//! A table is a map from keys to the algorithm's states, regardless of its size, its age and its changes.

use super::super::budget::Budget;
use super::limit_change::MAX_PAST;
use super::{OnFull, Table};
use crate::sync::Arc;
use crate::{
    Algorithm, Cost, FixedWindow, MaxWait, Quota, Receipt, SlidingLog, SlidingWindow, Timestamp, TokenBucket, Total,
};
use std::collections::BTreeMap;
use std::time::Duration;

const AMPLE: usize = 1 << 30;
const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

/// SplitMix64: hashes that look like hashes, and numbers for scripts.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn five_a_second() -> Quota {
    Quota::per_second(5).unwrap()
}

fn table<A: Algorithm>(algorithm: A, on_full: OnFull, max_bytes: usize) -> (Table<A>, Arc<Budget>) {
    let budget = Arc::new(Budget::new(max_bytes));
    (Table::new(algorithm, on_full, Arc::clone(&budget)), budget)
}

impl<A: Algorithm> Table<A> {
    /// Panics if the accounting is wrong or a key is not found in its segment.
    fn assert_consistent(&mut self) {
        let (mut len, mut bytes) = (0, 0);
        let mut hashes = Vec::new();
        for (index, segment) in self.segments.iter_mut().enumerate() {
            len += segment.len() as usize;
            bytes += segment.bytes();
            for (hash, state) in segment.iter_mut() {
                bytes += self.algorithm.heap_bytes(state);
                hashes.push((hash, index));
            }
        }
        bytes += self.cells.iter().flatten().map(|cell| self.algorithm.heap_bytes(cell)).sum::<usize>();
        assert_eq!(self.len, len, "keys");
        assert_eq!(self.bytes, bytes, "bytes");
        for (hash, index) in hashes {
            assert_eq!(self.index(hash), index, "the directory points to another segment");
        }
    }

    fn take_one(&mut self, hash: u64, now: Timestamp) -> bool {
        self.take(hash, now, Cost::ONE, MaxWait::NONE).is_granted()
    }
}

/// A random sequence of operations on `keys` keys, compared with a map of states that drops nothing.
fn behaves_as_a_map<A: Algorithm>(algorithm: &A, keys: u64, steps: u64) {
    let (mut table, budget) = table(algorithm.clone(), OnFull::Share, AMPLE);
    let mut model: BTreeMap<u64, A::State> = BTreeMap::new();
    let mut receipts: Vec<(u64, Receipt, Receipt)> = Vec::new();
    let mut now = T0;
    for step in 0..steps {
        let random = mix(step ^ 0xabcd_0000);
        let hash = mix(random % keys);
        let state = model.entry(hash).or_insert_with(|| algorithm.fresh(now));
        let cost = Cost::new(1 + (random >> 20) % 3).unwrap();
        match (random >> 40) % 40 {
            0 => table.reclaim(now),
            1 | 2 => {
                table.charge(hash, now, cost);
                algorithm.charge(state, now, cost);
            }
            3 => {
                table.reset(hash, now);
                *state = algorithm.fresh(now);
            }
            4..=8 if !receipts.is_empty() => {
                let index = usize::try_from(random >> 8).unwrap() % receipts.len();
                let (hash, actual, expected) = receipts.swap_remove(index);
                let state = model.get_mut(&hash).unwrap();
                // A dropped state cannot be refunded, and need not be.
                let is_dropped = algorithm.is_fresh(state, now);
                let (actual, expected) = (table.refund(hash, now, &actual), algorithm.refund(state, now, &expected));
                assert!(actual == expected || is_dropped, "step {step}: found {actual:?}, expected {expected:?}");
            }
            9 | 10 => now = now + ms((random >> 50) % 400),
            11..=15 => {
                let peeked = table.peek(hash, now, cost, MaxWait::FOREVER);
                assert_eq!(peeked.outcome, algorithm.peek(state, now, cost, MaxWait::FOREVER), "step {step}");
                assert_eq!(peeked.status(), algorithm.status(state, now), "step {step}");
            }
            _ => {
                let max_wait = if random & 4096 == 0 { MaxWait::NONE } else { MaxWait::up_to(ms(100)) };
                let actual = table.take(hash, now, cost, max_wait);
                let expected = algorithm.answer(state, now, cost, max_wait);
                assert_eq!(actual, expected, "step {step}");
                receipts.extend(actual.receipt().zip(expected.receipt()).map(|(a, b)| (hash, a, b)));
            }
        }
        if step % 1_000 == 0 {
            table.assert_consistent();
            assert_eq!(budget.used(), table.bytes);
        }
    }
    table.assert_consistent();
    drop(table);
    assert_eq!(budget.used(), 0);
}

#[test]
fn agrees_with_a_map_of_states_under_every_kind_of_state() {
    behaves_as_a_map(&TokenBucket::new(five_a_second()), 3_000, 60_000);
    behaves_as_a_map(&TokenBucket::new(Quota::per_second(3).unwrap()), 40, 20_000);
    behaves_as_a_map(&FixedWindow::new(five_a_second()), 3_000, 60_000);
    behaves_as_a_map(&SlidingWindow::new(five_a_second()), 2_000, 30_000);
    behaves_as_a_map(&SlidingLog::new(five_a_second()), 2_000, 30_000);
    behaves_as_a_map(&Total::new(20).unwrap(), 2_000, 30_000);
}

#[test]
fn keeps_every_key_through_all_sizes_up_to_200_000() {
    let (mut table, budget) = table(TokenBucket::new(Quota::per_hour(2).unwrap()), OnFull::Deny, AMPLE);
    let mut checked = 1;
    for key in 0..200_000 {
        assert!(table.take_one(mix(key), T0));
        if table.len() == checked {
            table.assert_consistent();
            assert_eq!(table.len() as u64, key + 1);
            checked = checked * 3 / 2 + 1;
        }
    }
    table.assert_consistent();
    for key in 0..200_000 {
        assert!(table.take_one(mix(key), T0), "key {key} has one remaining");
        assert!(!table.take_one(mix(key), T0), "the usage of key {key} was lost");
    }
    let bytes = budget.used() as f64 / 200_000.0;
    let entry = (size_of::<u64>() + size_of::<<TokenBucket as Algorithm>::State>()) as f64;
    assert!(bytes < entry * 1.5, "{bytes} bytes a key, of {entry}");
}

#[test]
fn full_keys_are_dropped_while_new_keys_are_inserted() {
    const OLD: u64 = 50_000;
    let (mut table, budget) = table(TokenBucket::new(five_a_second()), OnFull::Share, AMPLE);
    (0..OLD).for_each(|key| assert!(table.take_one(mix(key), T0)));
    let max = budget.used();
    // Each new key pays for checking four old ones; the table has no other states to drop.
    let later = T0 + ms(10_000);
    let mut new = 0;
    while table.len() as u64 > new {
        new += 1;
        assert!(table.take_one(mix(OLD + new), later));
        assert!(new <= OLD / 2, "{} old keys were not dropped", table.len() as u64 - new);
    }
    table.assert_consistent();
    assert!(budget.used() < max, "{} bytes for {new} keys", budget.used());
}

#[test]
fn reclaim_drops_all_idle_keys() {
    let (mut table, budget) = table(SlidingLog::new(five_a_second()), OnFull::Share, AMPLE);
    (0..10_000).for_each(|key| assert!(table.take_one(mix(key), T0)));
    table.reclaim(T0);
    assert_eq!(table.len(), 10_000);
    table.reclaim(T0 + ms(1_000));
    table.assert_consistent();
    assert_eq!((table.len(), budget.used()), (0, 0));
}

#[test]
fn memory_stays_within_the_bound_at_any_time() {
    const MAX_BYTES: usize = 50_000;
    for on_full in [OnFull::Share, OnFull::Deny, OnFull::Allow] {
        let (mut table, budget) = table(TokenBucket::new(five_a_second()), on_full, MAX_BYTES);
        for key in 0..40_000 {
            // From time to time all keys are full again at once.
            let now = T0 + ms(key / 10_000 * 5_000);
            let _ = table.take_one(mix(key), now);
            assert!(budget.used() <= MAX_BYTES, "{} bytes at key {key}", budget.used());
        }
        table.assert_consistent();
        assert!(table.len() > 500, "too few keys: {}", table.len());
    }
}

/// A state's growth is known only afterwards, so during the ask the bound may be exceeded by one growth.
#[test]
fn memory_stays_within_the_bound_for_logs_and_rings() {
    const MAX_BYTES: usize = 100_000;
    for on_full in [OnFull::Share, OnFull::Deny, OnFull::Allow] {
        let (mut logs, budget) = table(SlidingLog::new(Quota::per_second(64).unwrap()), on_full, MAX_BYTES);
        for ask in 0..100_000 {
            let granted = logs.take_one(mix(mix(ask) % 2_000), T0 + ms(ask / 4_000));
            assert!(budget.used() <= MAX_BYTES, "{} bytes at ask {ask}", budget.used());
            assert!(granted || on_full != OnFull::Allow);
        }
        logs.assert_consistent();
    }

    let (mut rings, budget) = table(SlidingWindow::new(five_a_second()), OnFull::Deny, MAX_BYTES);
    for ask in 0..20_000 {
        let _ = rings.take_one(mix(ask), T0 + ms(ask / 100));
        assert!(budget.used() <= MAX_BYTES, "{} bytes at ask {ask}", budget.used());
    }
    rings.assert_consistent();
}

#[test]
fn full_keys_are_dropped_while_new_keys_share_cells() {
    let (mut table, budget) = table(TokenBucket::new(five_a_second()), OnFull::Share, 60_000);
    (0..10_000).for_each(|key| {
        let _ = table.take_one(mix(key), T0);
    });
    let (later, dead) = (T0 + ms(1_000), table.len());
    assert!(dead > 1_000 && budget.used() > 40_000);
    // At this rate, no cell becomes full again.
    for key in 10_000..20_000 {
        let _ = table.take_one(mix(key), later);
    }
    table.assert_consistent();
    let stored = table.len();
    table.reclaim(later);
    assert_eq!(stored, table.len(), "some of {dead} idle keys were not dropped");
}

#[test]
fn a_full_table_frees_memory_from_other_segments() {
    /// The bit that distinguishes the first two segments.
    const SIDE: u64 = 1 << super::DIRECTORY_SHIFT;
    let (mut table, _) = table(TokenBucket::new(five_a_second()), OnFull::Deny, 100_000);
    let sides = (0..10_000).map(|key| (mix(key) | SIDE, mix(key) & !SIDE));
    let stored: Vec<_> = sides.filter(|sides| <[_; 2]>::from(*sides).map(|hash| table.take_one(hash, T0))[0]).collect();
    assert!(stored.len() < 10_000 && table.segments.len() > 1);
    // On one side no entry can be dropped, and new keys map to it; on the other all entries can.
    let later = T0 + ms(1_000);
    stored.iter().for_each(|(busy, _)| assert!(table.take_one(*busy, later)));
    let denied = (10_000..20_000).take_while(|key| !table.take_one(mix(*key) | SIDE, later)).count();
    assert!(denied <= 1_024, "{denied} were denied because of idle keys");
}

#[test]
fn a_changed_limit_migrates_all_segments() {
    let size = |permits| FixedWindow::new(Quota::per_second(permits).unwrap());
    let (mut table, _) = table(size(10), OnFull::Share, AMPLE);
    // Key k uses k mod 10.
    for key in 0..20_000 {
        (0..key % 10).for_each(|_| assert!(table.take_one(mix(key), T0)));
    }
    // More changes than are kept, with a few keys asked for in between, so that segments are of every version.
    for (change, permits) in (11..11 + 3 * MAX_PAST as u64).enumerate() {
        table.change(size(permits), T0);
        for key in (0..20).map(|n| mix(change as u64 * 20 + n) % 20_000) {
            let status = table.peek(mix(key), T0, Cost::ONE, MaxWait::NONE).status();
            assert_eq!((status.limit, status.remaining), (permits, permits - key % 10), "key {key}");
        }
    }
    table.change(size(4), T0);
    for key in 0..20_000 {
        let status = table.peek(mix(key), T0, Cost::ONE, MaxWait::NONE).status();
        assert_eq!((status.limit, status.remaining), (4, 4_u64.saturating_sub(key % 10)), "key {key}");
    }
    table.assert_consistent();
}

#[test]
fn accounting_is_exact_when_a_change_resizes_states() {
    let buckets = |n| SlidingWindow::new(five_a_second()).with_buckets(n).unwrap();
    let (mut table, budget) = table(buckets(10), OnFull::Share, AMPLE);
    (0..2_000).for_each(|key| assert!(table.take_one(mix(key), T0)));
    for n in [2, 50, 1, 20, 5, 8, 3] {
        table.change(buckets(n), T0);
        // Some of the keys are touched, and some are dropped.
        for key in 0..500 {
            let _ = table.take_one(mix(key), T0);
            table.reset(mix(key + 1_000), T0);
        }
        table.assert_consistent();
        assert_eq!(budget.used(), table.bytes);
    }
    table.reclaim(T0 + ms(60_000));
    assert_eq!((table.len(), budget.used()), (0, 0));
}

#[test]
fn an_earlier_time_restores_nothing() {
    let (mut table, _) = table(FixedWindow::new(five_a_second()), OnFull::Share, AMPLE);
    assert_eq!((0..9).filter(|_| table.take_one(7, T0)).count(), 5);
    for back in [1, 999, 1_000, 3_600_000] {
        let earlier = Timestamp::from_nanos(T0.as_nanos() - back * 1_000_000);
        assert!(!table.take_one(7, earlier), "{back} ms back");
        assert!(!table.take_one(7, T0));
    }
    // A change to another kind of table at an earlier time restores nothing either.
    let usage = table.drain(Timestamp::EPOCH);
    let (mut other, _) = super::tests::table(TokenBucket::new(five_a_second()), OnFull::Share, AMPLE);
    other.adopt(usage, Timestamp::EPOCH);
    assert!(!other.take_one(7, T0));
    assert!(!other.take_one(7, Timestamp::from_secs(3)));
}

#[test]
fn migrated_usage_without_memory_shares_cells_and_is_clamped() {
    let (mut small, _) = table(Total::new(1_000).unwrap(), OnFull::Share, AMPLE);
    for key in 0..500 {
        assert!(small.take(mix(key), T0, Cost::new(900).unwrap(), MaxWait::NONE).is_granted());
    }
    let usage = small.drain(T0);
    let (mut full, budget) = table(TokenBucket::new(five_a_second()), OnFull::Deny, 0);
    full.adopt(usage, T0);
    assert_eq!((full.len(), budget.used()), (0, 0));
    assert!((0..500).all(|key| !full.take_one(mix(key), T0)), "usage was lost");
    // No key owes more than the limit, so a second later all cells are full again.
    let later = T0 + ms(1_000);
    assert!((0..500).all(|key| full.peek(mix(key), later, Cost::ONE, MaxWait::NONE).status().limit == 5));
    assert!((0..super::CELLS as u64).all(|cell| full.cell_in_use(cell << super::DIRECTORY_SHIFT, later).is_none()));
}

/// A sliding log that records when its state is copied or taken from.
#[derive(Clone, Debug, PartialEq)]
struct Watched(SlidingLog);

#[derive(Debug, Default)]
struct WatchedState(crate::SlidingLogState);

thread_local! {
    static COPIES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    static TAKES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Clone for WatchedState {
    fn clone(&self) -> Self {
        COPIES.set(COPIES.get() + 1);
        Self(self.0.clone())
    }
}

impl Algorithm for Watched {
    type State = WatchedState;

    fn fresh(&self, now: Timestamp) -> WatchedState {
        WatchedState(self.0.fresh(now))
    }
    fn take(&self, state: &mut WatchedState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> crate::Outcome {
        TAKES.set(TAKES.get() + 1);
        self.0.take(&mut state.0, now, cost, max_wait)
    }
    fn peek(&self, state: &WatchedState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> crate::Outcome {
        self.0.peek(&state.0, now, cost, max_wait)
    }
    fn status(&self, state: &WatchedState, now: Timestamp) -> crate::Status {
        self.0.status(&state.0, now)
    }
    fn charge(&self, state: &mut WatchedState, now: Timestamp, cost: Cost) {
        self.0.charge(&mut state.0, now, cost);
    }
    fn refund(&self, state: &mut WatchedState, now: Timestamp, receipt: &Receipt) -> crate::Refund {
        self.0.refund(&mut state.0, now, receipt)
    }
    fn is_fresh(&self, state: &WatchedState, now: Timestamp) -> bool {
        self.0.is_fresh(&state.0, now)
    }
    fn rescale(&self, state: &mut WatchedState, old: &Self, now: Timestamp) {
        self.0.rescale(&mut state.0, &old.0, now);
    }
    fn wait_mode(&self) -> crate::WaitMode {
        self.0.wait_mode()
    }
    fn heap_bytes(&self, state: &WatchedState) -> usize {
        self.0.heap_bytes(&state.0)
    }
    fn heap_growth(&self, state: &WatchedState, now: Timestamp) -> usize {
        self.0.heap_growth(&state.0, now)
    }
}

/// With two million entries, each copy of a log takes milliseconds; a client can cause any number of denials.
#[test]
fn a_denial_without_memory_neither_copies_nor_moves_a_log() {
    for on_full in [OnFull::Share, OnFull::Deny, OnFull::Allow] {
        let log = Watched(SlidingLog::new(Quota::new(1_000_000, Duration::from_secs(3_600)).unwrap()));
        let (mut table, budget) = table(log, on_full, 64 << 10);
        let (hash, mut now) = (mix(1), T0);
        let mut last = 0;
        // Until the memory stops growing: then the log has no free slot, and there is no memory for a larger one.
        while TAKES.replace(0) > 0 || last == 0 {
            now = now + ms(1);
            last += 1;
            let _ = table.take(hash, now, Cost::ONE, MaxWait::NONE);
        }
        assert!(last > 2_000, "{last}");
        let (used, before) = (budget.used(), table.peek(hash, now, Cost::ONE, MaxWait::NONE).status());
        COPIES.set(0);
        for _ in 0..100 {
            now = now + ms(1);
            let answer = table.take(hash, now, Cost::ONE, MaxWait::NONE);
            assert_eq!(answer.is_granted(), on_full == OnFull::Allow);
            assert_eq!(table.peek(hash, now, Cost::ONE, MaxWait::NONE).is_granted(), answer.is_granted());
        }
        assert_eq!((COPIES.get(), TAKES.get(), budget.used()), (0, 0, used));
        table.assert_consistent();
        // Expired entries free their slots: the log continues in its existing slots.
        now = now + Duration::from_secs(3_600);
        assert!(table.take_one(hash, now));
        let after = table.peek(hash, now, Cost::ONE, MaxWait::NONE).status();
        assert!(after.remaining > before.remaining && budget.used() == used);
    }
}
