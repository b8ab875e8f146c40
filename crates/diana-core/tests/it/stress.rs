//! Real threads on one limit, one key, and keys in opposite orders: every grant is counted, and no thread hangs.
//!
//! The clock is stopped, or set manually, so the numbers are exact on any machine. Interleavings between single
//! instructions are covered by loom and shuttle; these tests run at full speed.

use crate::support::{T0, quota};
use diana_core::{
    Ask, Clock, Concurrency, Cost, FixedWindow, KeyedLimiter, Limit, Limiter, LocalStore, ManualClock, MaxWait,
    MemoryStore, Quota, SlidingLog, SlidingWindow, TableOptions, Timestamp, TokenBucket, Total,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const THREADS: u64 = 8;

/// Runs `work` on every thread, and returns the sum of its results.
fn run_on_all_threads(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    thread::scope(|scope| {
        let work = &work;
        let threads = (0..THREADS).map(|number| scope.spawn(move || work(number))).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// How many of `asks` checks are granted.
fn grants(limiter: &Limiter, asks: u64) -> u64 {
    (0..asks).filter(|_| limiter.check().is_granted()).count() as u64
}

#[test]
fn a_limiter_grants_exactly_its_permits() {
    const PERMITS: u64 = 200_000;
    let hour = Quota::per_hour(PERMITS).unwrap();
    for (path, limiter) in [
        ("the atomic word", Limiter::new(hour)),
        (
            "a token bucket with fractions",
            Limiter::new(Quota::per_hour(PERMITS - 1).unwrap().with_burst(PERMITS).unwrap()),
        ),
        ("a lock", Limiter::with_algorithm(FixedWindow::new(hour))),
    ] {
        let limiter = limiter.with_clock(ManualClock::at(T0));
        assert_eq!(run_on_all_threads(|_| grants(&limiter, PERMITS / 4)), PERMITS, "{path}");
        assert_eq!(limiter.status().remaining, 0);
    }
}

#[test]
fn refunds_and_grants_balance() {
    const PERMITS: u64 = 20;
    let limiter = Limiter::new(Quota::per_hour(PERMITS).unwrap()).with_clock(ManualClock::at(T0));
    let in_use = AtomicU64::new(0);
    run_on_all_threads(|_| {
        for _ in 0..50_000 {
            if let Some(receipt) = limiter.check().receipt() {
                assert!(in_use.fetch_add(1, Ordering::SeqCst) < PERMITS, "more permits in use than the limit");
                in_use.fetch_sub(1, Ordering::SeqCst);
                limiter.refund(&receipt);
            }
        }
        0
    });
    assert_eq!(limiter.status().remaining, PERMITS);
}

#[test]
fn no_grant_is_lost_when_the_limit_changes() {
    const PERMITS: u64 = 100_000;
    let limiter = Limiter::new(Quota::per_hour(PERMITS).unwrap()).with_clock(ManualClock::at(T0));
    let over = AtomicBool::new(false);
    let granted = thread::scope(|scope| {
        scope.spawn(|| {
            // Fast to fast, fast to slow, slow to slow, slow to fast: equal capacity, so the usage is migrated exactly.
            while !over.load(Ordering::Acquire) {
                limiter.set(TokenBucket::new(Quota::per_hour(PERMITS).unwrap()));
                limiter.set(TokenBucket::new(Quota::per_minute(PERMITS).unwrap()));
                limiter.set(FixedWindow::new(Quota::per_hour(PERMITS).unwrap()));
                limiter.set(Total::new(PERMITS).unwrap());
            }
        });
        let granted = run_on_all_threads(|_| grants(&limiter, PERMITS / 4));
        over.store(true, Ordering::Release);
        granted
    });
    assert_eq!(granted, PERMITS);
}

#[test]
fn every_key_gets_exactly_its_permits() {
    const PERMITS: u64 = 50_000;
    let limiter = KeyedLimiter::<u64>::new(Quota::per_hour(PERMITS).unwrap()).with_clock(ManualClock::at(T0));
    let granted = run_on_all_threads(|_| (0..PERMITS / 4).filter(|_| limiter.check(&7).is_granted()).count() as u64);
    assert_eq!(granted, PERMITS);
    // And with many keys that make the table grow meanwhile.
    let granted = run_on_all_threads(|number| {
        let mine = (0..20_000).filter(|key| limiter.check(&(1_000 + key)).is_granted()).count() as u64;
        assert_eq!(mine, 20_000, "thread {number}");
        (0..PERMITS / 4).filter(|_| limiter.check(&8).is_granted()).count() as u64
    });
    assert_eq!(granted, PERMITS);
    assert!((0..20_000).all(|key| limiter.status(&(1_000 + key)).remaining == PERMITS - THREADS));
}

#[test]
fn requests_over_keys_in_opposite_orders_are_atomic_and_never_deadlock() {
    const PERMITS: u64 = 20_000;
    let store = MemoryStore::new(TableOptions::default().shards(16));
    let limits = [
        Limit::new("bucket", TokenBucket::new(Quota::per_hour(PERMITS).unwrap())),
        Limit::new("window", FixedWindow::new(Quota::per_hour(PERMITS).unwrap())),
        Limit::new("ring", SlidingWindow::new(Quota::per_hour(PERMITS).unwrap())),
        Limit::new("log", SlidingLog::new(Quota::per_hour(PERMITS).unwrap())),
    ];
    let keys = ["north", "east", "south", "west", "up", "down"];
    // Every request asks for one permit of every limit, for one key each; so all limits together grant the same sums.
    let granted = run_on_all_threads(|number| {
        let mut granted = 0;
        for round in 0..PERMITS / 2 {
            let key_at = |index: u64| keys[usize::try_from(index % 6).unwrap()];
            let mut asks: Vec<_> =
                limits.iter().zip(0..).map(|(limit, index)| Ask::one(limit, key_at(round + index))).collect();
            if number.is_multiple_of(2) {
                asks.reverse();
            }
            let decision = store.decide(&asks, T0, MaxWait::NONE);
            granted += u64::from(decision.is_granted());
            // Some are refunded, and asked for again.
            if round % 16 == 0 && decision.is_granted() {
                store.refund(&asks, &decision, T0);
                granted -= 1;
            }
        }
        granted
    });
    for limit in &limits {
        let used = |key: &&str| {
            let status = store.peek(&[Ask::one(limit, *key)], T0, MaxWait::NONE).answers()[0].status();
            status.limit - status.remaining
        };
        assert_eq!(keys.iter().map(used).sum::<u64>(), granted, "{limit:?}");
    }
}

#[test]
fn a_store_counts_exactly_while_its_limit_changes() {
    const PERMITS: u64 = 50_000;
    let store = MemoryStore::new(TableOptions::default().shards(4));
    let plain = Limit::new("each-account", TokenBucket::new(Quota::per_hour(PERMITS).unwrap()));
    let mut versions = vec![plain];
    for change in 0..200 {
        let quota = Quota::per_hour(PERMITS).unwrap();
        let last = versions.last().unwrap();
        versions.push(match change % 3 {
            0 => last.changed_to(FixedWindow::new(quota)),
            1 => last.changed_to(FixedWindow::new(Quota::per_minute(PERMITS).unwrap())),
            _ => last.changed_to(TokenBucket::new(quota)),
        });
    }
    let granted = run_on_all_threads(|_| {
        // Threads see a change at different times.
        let version = |ask: u64| &versions[usize::try_from(ask / 64).unwrap() % versions.len()];
        (0..PERMITS / 4)
            .filter(|ask| {
                let asks = [Ask::one(version(*ask), "alice"), Ask::new(version(*ask), "bob", Cost::ONE)];
                store.decide(&asks, T0, MaxWait::NONE).is_granted()
            })
            .count() as u64
    });
    assert_eq!(granted, PERMITS);
}

#[test]
fn every_queued_request_is_granted() {
    const ROUNDS: u64 = 300;
    let limiter = KeyedLimiter::<str>::with_algorithm(Concurrency::new(2).unwrap())
        .with_max_waiting(usize::try_from(THREADS).unwrap());
    let in_flight = AtomicU64::new(0);
    let served = run_on_all_threads(|_| {
        for _ in 0..ROUNDS {
            let grant = limiter.blocking_acquire("key", 1).unwrap();
            assert!(in_flight.fetch_add(1, Ordering::SeqCst) < 2, "more than two in flight");
            thread::yield_now();
            in_flight.fetch_sub(1, Ordering::SeqCst);
            limiter.refund("key", &grant.receipt);
        }
        ROUNDS
    });
    assert_eq!(served, THREADS * ROUNDS);
    assert_eq!(limiter.status("key").remaining, 2);
}

/// A clock that a timed wait advances to its end, and a wait for a wake-up does not. ([`ManualClock`] would be advanced
/// to the last timestamp by the second in the queue, which has no timeout.)
#[derive(Clone, Debug)]
struct WindowClock(Arc<AtomicU64>);

impl Clock for WindowClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn park(&self, timeout: Duration) {
        if timeout > Duration::from_secs(3600) {
            return thread::park();
        }
        self.0.fetch_max((self.now() + timeout).as_nanos(), Ordering::SeqCst);
    }
}

#[test]
fn queued_requests_are_granted_window_by_window() {
    let clock = WindowClock(Arc::new(AtomicU64::new(T0.as_nanos())));
    let limiter = Limiter::with_algorithm(FixedWindow::new(quota("10/s"))).with_clock(clock);
    let by_second = (0..10_000).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let served = run_on_all_threads(|_| {
        for _ in 0..100 {
            let receipt = limiter.blocking_acquire(1).unwrap().receipt;
            let second = usize::try_from(receipt.at().since(T0).as_secs()).unwrap();
            by_second[second].fetch_add(1, Ordering::SeqCst);
        }
        100
    });
    assert_eq!(served, THREADS * 100);
    assert!(by_second.iter().all(|count| count.load(Ordering::SeqCst) <= 10), "{by_second:?}");
    assert_eq!(limiter.waiting(), 0);
}
