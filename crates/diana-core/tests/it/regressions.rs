//! Past bugs, each as the claim that is true since its fix.

use crate::support::{T0, ms, quota, secs};
use diana_core::{
    Ask, Clock, FixedWindow, KeyedLimiter, Limit, Limiter, LocalStore, ManualClock, MaxWait, MemoryStore, OnFull,
    RefillingBucket, Retry, SlidingLog, SlidingWindow, SmoothBursty, TableOptions, Timestamp, TokenBucket,
};

fn tiny(memory: usize, on_full: OnFull) -> TableOptions {
    TableOptions::default().memory(memory).on_full(on_full).shards(1)
}

/// Rings of 8 KB each under a bound of 64 KiB: idle ones must be dropped, whatever happens to keys without memory.
#[test]
fn idle_keys_with_heap_memory_are_dropped_at_the_memory_bound() {
    for on_full in [OnFull::Deny, OnFull::Allow, OnFull::Share] {
        let clock = ManualClock::at(T0);
        let rings = SlidingWindow::new(quota("5/s")).with_buckets(1_000).unwrap();
        let limiter = KeyedLimiter::<u64>::with_options(rings, tiny(64 << 10, on_full)).with_clock(clock.clone());
        for key in 0..100 {
            let _ = limiter.check(&key);
        }
        clock.advance(secs(1_000));
        let mut granted = 0;
        for key in 1_000..1_500 {
            granted += u64::from(limiter.check(&key).is_granted());
            clock.advance(ms(200)); // five are active at a time, and memory is enough for seven
        }
        assert!(granted >= 490, "{granted} of 500 under {on_full:?}");
        let burst = (0..100).filter(|_| limiter.check(&9).is_granted()).count();
        assert_eq!(burst, 5, "{on_full:?}");
    }
}

#[test]
fn a_wait_for_memory_is_granted_when_memory_is_free() {
    let clock = ManualClock::at(T0);
    let window = FixedWindow::new(quota("1/100ms"));
    let limiter = KeyedLimiter::<u64>::with_options(window, tiny(600, OnFull::Deny)).with_clock(clock.clone());
    for key in 0..100 {
        let _ = limiter.check(&key);
    }
    assert_eq!(limiter.check(&1_000).retry(), Some(Retry::After(ms(10))));
    assert!(limiter.blocking_acquire_timeout(&1_001, 1, secs(1)).is_ok());
    assert!(clock.now().since(T0) <= ms(110));
}

#[test]
fn a_peek_at_a_future_time_does_not_advance_the_clock() {
    let store = MemoryStore::new(TableOptions::default().shards(1));
    let limit = Limit::new("hourly", FixedWindow::new(quota("1/h")));
    let (alice, bob) = ([Ask::one(&limit, "alice")], [Ask::one(&limit, "bob")]);
    assert!(store.decide(&alice, T0, MaxWait::NONE).is_granted());
    for ahead in [T0 + secs(3_600), Timestamp::MAX] {
        let _ = store.peek(&bob, ahead, MaxWait::NONE);
        assert!(!store.decide(&alice, T0, MaxWait::NONE).is_granted());
    }
    assert!(store.decide(&alice, T0 + secs(3_600), MaxWait::NONE).is_granted());
}

#[test]
fn shared_counts_stay_within_the_memory_bound() {
    let clock = ManualClock::at(T0);
    let log = SlidingLog::new(quota("1000000/h"));
    let limiter = KeyedLimiter::<u64>::with_options(log, tiny(64 << 10, OnFull::Share)).with_clock(clock.clone());
    let mut granted = 0;
    for key in 0..50_000 {
        granted += usize::from(limiter.check(&key).is_granted());
        clock.advance(std::time::Duration::from_nanos(1));
        assert!(limiter.memory_used() <= 64 << 10, "{} bytes", limiter.memory_used());
    }
    // Each at its own time is an entry of 16 bytes in some log, so no more can have been recorded.
    assert!(granted * 16 <= 64 << 10, "{granted} were granted");
}

#[test]
fn setting_the_same_limit_again_keeps_the_debt() {
    let clock = ManualClock::at(T0);
    for text in ["10/s", "7/s burst 10"] {
        let (one, each) = (
            Limiter::new(quota(text)).with_clock(clock.clone()),
            KeyedLimiter::<str>::new(quota(text)).with_clock(clock.clone()),
        );
        one.charge(1_000).unwrap();
        each.charge("alice", 1_000).unwrap();
        let (debt, keyed_debt) = (one.status().reset, each.status("alice").reset);
        one.set(TokenBucket::new(quota(text)));
        each.set(TokenBucket::new(quota(text)));
        assert_eq!((one.status().reset, each.status("alice").reset), (debt, keyed_debt));
    }
}

#[test]
fn a_change_applies_at_its_own_time_and_not_at_the_next_use() {
    let clock = ManualClock::at(T0);
    let (one, each) = (
        Limiter::new(quota("10/s")).with_clock(clock.clone()),
        KeyedLimiter::new(quota("10/s")).with_clock(clock.clone()),
    );
    let (first, second) = (one.check_n(10).unwrap(), each.check_n("alice", 10).unwrap());
    assert!(first.is_granted() && second.is_granted());
    for (text, wait) in [("10/day", 1), ("10/s burst 20", 1), ("5/s", 2), ("10/day", 5)] {
        one.set(TokenBucket::new(quota(text)));
        each.set(TokenBucket::new(quota(text)));
        clock.advance(ms(wait * 100));
    }
    assert_eq!(one.status(), each.status("alice"));
}

/// Memory for two logs is missing in the middle of a request whose other limits store the time of the last ask.
#[test]
fn a_request_without_memory_changes_no_state() {
    for memory in (800..6_000).step_by(61) {
        let (store, twin) = (MemoryStore::new(tiny(memory, OnFull::Deny)), MemoryStore::default());
        let refilling = Limit::new("refilling", RefillingBucket::new(quota("2/s burst 9")));
        let smooth = Limit::new("smooth", SmoothBursty::new(3.7).unwrap());
        let log = Limit::new("log", SlidingLog::new(quota("5/h")));
        for n in 0..60 {
            let now = T0 + ms(n * 137);
            let (a, b) = (format!("a{n}"), format!("b{n}"));
            let asks = [Ask::one(&refilling, "x"), Ask::one(&smooth, "x"), Ask::one(&log, &a), Ask::one(&log, &b)];
            let decision = store.decide(&asks, now, MaxWait::NONE);
            if decision.is_granted() {
                assert!(twin.decide(&asks, now, MaxWait::NONE).is_granted());
            }
            for known in [&refilling, &smooth] {
                let ask = [Ask::one(known, "x")];
                let (actual, expected) = (store.peek(&ask, now, MaxWait::NONE), twin.peek(&ask, now, MaxWait::NONE));
                // A request that got no memory at all is denied for that reason alone.
                if actual.is_granted() == expected.is_granted() {
                    assert_eq!(
                        actual.answers()[0].status(),
                        expected.answers()[0].status(),
                        "{memory} bytes, request {n}"
                    );
                }
            }
        }
    }
}

#[test]
fn another_clock_resets_the_limiter() {
    let limiter = KeyedLimiter::new(quota("1/s"));
    assert!(limiter.check("alice").is_granted());
    let clock = ManualClock::new();
    let limiter = limiter.with_clock(clock.clone());
    assert!(limiter.check("alice").is_granted());
    assert!(!limiter.check("alice").is_granted());
    clock.advance(secs(1));
    assert!(limiter.check("alice").is_granted());
}

/// At the memory bound every request scans for states to drop, but not a peek at a future time: more could go by then.
#[test]
fn a_peek_at_a_future_time_drops_nothing_when_memory_is_short() {
    let limit = Limit::new("hourly", SlidingLog::new(quota("1/h")));
    let keys: Vec<_> = (0..500).map(|n| format!("k{n}")).collect();
    for memory in (4_000..20_000).step_by(397) {
        let store = MemoryStore::new(tiny(memory, OnFull::Share));
        let ask = |key: &String| store.decide(&[Ask::one(&limit, key)], T0, MaxWait::NONE).is_granted();
        keys.iter().for_each(|key| _ = ask(key));
        for key in &keys {
            let _ = store.peek(&[Ask::one(&limit, key)], T0 + secs(7_200), MaxWait::NONE);
        }
        assert_eq!(keys.iter().filter(|key| ask(key)).count(), 0, "{memory} bytes");
    }
}

#[test]
fn a_peek_at_a_changed_limit_does_not_advance_the_clock() {
    let limit = Limit::new("hourly", FixedWindow::new(quota("1/h")));
    for changed in [limit.changed_to(FixedWindow::new(quota("2/h"))), limit.changed_to(SlidingLog::new(quota("2/h")))] {
        let store = MemoryStore::new(TableOptions::default().shards(1));
        assert!(store.decide(&[Ask::one(&limit, "alice")], T0, MaxWait::NONE).is_granted());
        let _ = store.peek(&[Ask::one(&changed, "bob")], Timestamp::MAX, MaxWait::NONE);
        let carol = [Ask::one(&changed, "carol")];
        assert!(store.decide(&carol, T0, MaxWait::NONE).is_granted());
        assert!(store.decide(&carol, T0, MaxWait::NONE).is_granted());
        let retry = store.decide(&carol, T0, MaxWait::NONE).retry();
        assert!(matches!(retry, Some(Retry::After(wait)) if wait <= secs(3_600)), "{retry:?}");
    }
}
