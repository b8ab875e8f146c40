//! Requests that span keys, in opposite orders, during peeks and changes of limits.

use crate::{T0, check};
use diana_core::{
    Ask, Concurrency, FixedWindow, Limit, LocalStore, MaxWait, MemoryStore, Quota, TableOptions, TokenBucket, Total,
};
use shuttle::sync::Arc;
use shuttle::thread;

/// Two limits of different kinds with equal capacity, and a store.
#[derive(Clone)]
struct Case {
    store: Arc<MemoryStore>,
    bucket: Limit,
    total: Limit,
}

impl Case {
    fn new(permits: u64) -> Self {
        Self {
            store: Arc::new(MemoryStore::new(TableOptions::default().shards(4))),
            bucket: Limit::new("bucket", TokenBucket::new(Quota::per_hour(permits).unwrap())),
            total: Limit::new("total", Total::new(permits).unwrap()),
        }
    }

    fn forward(&self) -> [Ask<'_>; 3] {
        [Ask::one(&self.bucket, "alice"), Ask::one(&self.total, "bob"), Ask::one(&self.total, "carol")]
    }

    fn reversed(&self) -> [Ask<'_>; 3] {
        let [a, b, c] = self.forward();
        [c, b, a]
    }

    fn used(&self) -> Vec<u64> {
        let peeked = self.store.peek(&self.forward(), T0, MaxWait::NONE);
        peeked.answers().iter().map(|answer| answer.status().limit - answer.status().remaining).collect()
    }
}

#[test]
fn overlapping_requests_in_opposite_orders_are_atomic() {
    check(|| {
        let case = Case::new(3);
        let takers = [false, true, false].map(|reversed| {
            let case = case.clone();
            thread::spawn(move || {
                let asks = if reversed { case.reversed() } else { case.forward() };
                (0..2).filter(|_| case.store.decide(&asks, T0, MaxWait::NONE).is_granted()).count()
            })
        });
        let reader = {
            let case = case.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let used = case.used();
                    assert!(used.iter().all(|one| *one == used[0]), "a partial request is visible: {used:?}");
                }
            })
        };
        let granted: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        reader.join().unwrap();
        assert_eq!((granted, case.used()), (3, vec![3, 3, 3]));
    });
}

#[test]
fn refunds_are_atomic() {
    check(|| {
        let case = Case::new(1);
        let takers = [false, true].map(|reversed| {
            let case = case.clone();
            thread::spawn(move || {
                let asks = if reversed { case.reversed() } else { case.forward() };
                let decision = case.store.decide(&asks, T0, MaxWait::NONE);
                case.store.refund(&asks, &decision, T0);
                decision.is_granted()
            })
        });
        let granted = takers.map(|taker| taker.join().unwrap());
        assert!(granted.contains(&true));
        assert_eq!(case.used(), [0, 0, 0]);
    });
}

#[test]
fn a_change_of_a_limit_loses_no_grant() {
    check(|| {
        let case = Case::new(3);
        let versions = [
            case.bucket.clone(),
            case.bucket.changed_to(TokenBucket::new(Quota::per_minute(3).unwrap())),
            case.bucket.changed_to(Total::new(9).unwrap()).changed_to(FixedWindow::new(Quota::per_hour(3).unwrap())),
        ];
        let latest = versions[2].clone();
        let takers = versions.map(|version| {
            let case = case.clone();
            thread::spawn(move || {
                let asks = [Ask::one(&version, "alice"), Ask::one(&case.total, "bob")];
                (0..2).filter(|_| case.store.decide(&asks, T0, MaxWait::NONE).is_granted()).count()
            })
        });
        let granted: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(granted, 3);
        let peeked = case.store.peek(&[Ask::one(&latest, "alice")], T0, MaxWait::NONE);
        assert_eq!(peeked.answers()[0].status().remaining, 0);
    });
}

#[test]
fn a_concurrent_reclaim_drops_no_usage() {
    check(|| {
        let case = Case::new(2);
        let in_flight = Limit::new("in flight", Concurrency::new(1).unwrap());
        let taker = {
            let (case, in_flight) = (case.clone(), in_flight.clone());
            thread::spawn(move || {
                let asks = [Ask::one(&in_flight, "alice"), Ask::one(&case.bucket, "bob")];
                let decision = case.store.decide(&asks, T0, MaxWait::NONE);
                assert!(decision.is_granted());
                case.store.refund(&asks[..1], &decision, T0);
            })
        };
        let sweeper = {
            let case = case.clone();
            thread::spawn(move || {
                case.store.reclaim(T0);
                case.store.len()
            })
        };
        taker.join().unwrap();
        assert!(sweeper.join().unwrap() <= 2);
        let asks = [Ask::one(&in_flight, "alice"), Ask::one(&case.bucket, "bob")];
        let peeked = case.store.peek(&asks, T0, MaxWait::NONE);
        assert_eq!(peeked.answers().iter().map(|answer| answer.status().remaining).collect::<Vec<_>>(), [1, 1]);
    });
}
