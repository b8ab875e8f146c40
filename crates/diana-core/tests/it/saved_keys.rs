//! Keys that are saved by one store and loaded by another.

use crate::support::{T0, quota};
use diana_core::{
    Ask, Concurrency, FixedWindow, InvalidSavedKeys, Limit, LocalStore, MaxWait, MemoryStore, SlidingLog, Status,
    TableOptions, Timestamp, TokenBucket, Total,
};
use std::time::Duration;

/// A store that identifies keys as `store` does.
fn successor(store: &MemoryStore) -> MemoryStore {
    MemoryStore::new(TableOptions::default().hash_secret(store.hash_secret()))
}

fn status(store: &MemoryStore, limit: &Limit, key: &str, now: Timestamp) -> Status {
    store.peek(&[Ask::one(limit, key)], now, MaxWait::NONE).answers()[0].status()
}

fn take(store: &MemoryStore, limit: &Limit, key: &str, now: Timestamp) -> bool {
    store.decide(&[Ask::one(limit, key)], now, MaxWait::NONE).is_granted()
}

/// Loads into `to`, as `loaded`, what `from` has saved of `limit`.
fn transfer(from: &MemoryStore, limit: &Limit, to: &MemoryStore, loaded: &Limit, now: Timestamp) -> usize {
    let pieces = from.save(limit, now, now);
    pieces.map(|piece| to.load(loaded, &limit.parameters(), &piece, now).unwrap()).sum()
}

#[test]
fn every_key_of_a_large_table_has_the_same_status_in_the_next_process() {
    let limits = [
        Limit::new("packed", TokenBucket::new(quota("10/h"))),
        Limit::new("wide", TokenBucket::new(quota("10/7h"))),
        Limit::new("window", FixedWindow::new(quota("10/d"))),
        Limit::new("log", SlidingLog::new(quota("10/h"))),
        Limit::new("total", Total::new(10).unwrap()),
    ];
    let store = MemoryStore::default();
    let now = |key: u64| T0 + Duration::from_nanos(key * 1_001);
    for key in 0..20_000 {
        for limit in &limits {
            for _ in 0..key % 3 {
                assert!(take(&store, limit, &format!("key {key}"), now(key)));
            }
        }
    }
    let (later, next) = (T0 + Duration::from_secs(100), successor(&store));
    for limit in &limits {
        // As a new process would create it: the identity of a limit is not saved.
        let same = match limit.name() {
            "packed" => Limit::new("packed", TokenBucket::new(quota("10/h"))),
            "wide" => Limit::new("wide", TokenBucket::new(quota("10/7h"))),
            "window" => Limit::new("window", FixedWindow::new(quota("10/d"))),
            "log" => Limit::new("log", SlidingLog::new(quota("10/h"))),
            _ => Limit::new("total", Total::new(10).unwrap()),
        };
        assert_eq!(transfer(&store, limit, &next, &same, later), 13_333, "{limit:?}");
        for key in 0..20_000 {
            let key = format!("key {key}");
            assert_eq!(status(&next, &same, &key, later), status(&store, limit, &key, later), "{limit:?}, {key}");
        }
    }
}

#[test]
fn only_keys_that_are_still_in_use_are_saved() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", TokenBucket::new(quota("10/10s"))));
    for _ in 0..5 {
        assert!(take(&store, &limit, "much", T0));
    }
    assert!(take(&store, &limit, "little", T0));
    let keys = |after| store.save(&limit, T0, T0 + Duration::from_secs(after)).map(|piece| piece.len()).sum::<usize>();
    assert_eq!([keys(0), keys(1), keys(4), keys(5)], [8, 4, 4, 0]);
}

#[test]
fn a_limit_that_has_changed_keeps_the_permits_in_use() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", TokenBucket::new(quota("10/d"))));
    for _ in 0..4 {
        assert!(take(&store, &limit, "alice", T0));
    }
    for (changed, expected) in [
        (Limit::new("each", TokenBucket::new(quota("100/d"))), 96),
        (Limit::new("each", FixedWindow::new(quota("5/d"))), 1),
        (Limit::new("each", SlidingLog::new(quota("3/d"))), 0),
    ] {
        let next = successor(&store);
        assert_eq!(transfer(&store, &limit, &next, &changed, T0), 1);
        assert_eq!(status(&next, &changed, "alice", T0).remaining, expected, "{changed:?}");
    }
}

#[test]
fn permits_of_running_requests_are_not_saved() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", Concurrency::new(3).unwrap()));
    assert!(take(&store, &limit, "alice", T0));
    assert_eq!(store.save(&limit, T0, T0).count(), 0);
}

#[test]
fn a_key_that_is_in_use_already_stays_as_it_is() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", Total::new(10).unwrap()));
    assert!(take(&store, &limit, "alice", T0));
    let next = successor(&store);
    for _ in 0..3 {
        assert!(take(&next, &limit, "alice", T0));
    }
    transfer(&store, &limit, &next, &limit, T0);
    assert_eq!(status(&next, &limit, "alice", T0).remaining, 7);
}

#[test]
fn a_key_without_memory_is_counted_with_others() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", Total::new(10).unwrap()));
    for key in 0..100_000 {
        assert!(take(&store, &limit, &format!("{key}"), T0));
    }
    let small = MemoryStore::new(TableOptions::default().memory(64 << 10).hash_secret(store.hash_secret()));
    transfer(&store, &limit, &small, &limit, T0);
    assert!(small.memory_used() <= 64 << 10);
    for key in 0..100_000 {
        assert!(status(&small, &limit, &format!("{key}"), T0).remaining < 10, "{key} was forgotten");
    }
}

#[test]
fn words_that_are_not_keys_are_rejected() {
    let (store, limit) = (MemoryStore::default(), Limit::new("each", Total::new(10).unwrap()));
    for words in [&[1][..], &[1, 2], &[0, 2, 0], &[1, 2, 1], &[1, 2, 2, 3], &[1, 2, 2, 3, 4], &[1, 2, u64::MAX - 1]] {
        assert_eq!(store.load(&limit, &limit.parameters(), words, T0), Err(InvalidSavedKeys), "{words:?}");
    }
    assert!(store.is_empty());
}
