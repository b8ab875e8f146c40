//! All interleavings of threads that take and a thread that changes the limit, memory orders included.
//!
//! Run by `cargo xtask test` with `--cfg loom`.

use super::AtomicBucket;
use crate::algorithm::token_bucket::PackedBucket;
use crate::{Algorithm, Cost, MaxWait, Timestamp};
use loom::sync::Arc;
use loom::thread;

const NOW: Timestamp = Timestamp::from_nanos(1_000);

/// Takes one permit: 1 if granted, else 0.
fn take(bucket: &AtomicBucket) -> u64 {
    let taken = bucket.update(|b, state| b.take(state, NOW, Cost::ONE, MaxWait::NONE).is_granted());
    u64::from(taken.unwrap_or(false))
}

/// Takes one permit of a bucket that has some: 1 if granted, 0 if the bucket was closed, and never denied.
fn take_if_open(bucket: &AtomicBucket) -> u64 {
    let taken = bucket.update(|b, state| b.take(state, NOW, Cost::ONE, MaxWait::NONE).is_granted());
    assert_ne!(taken, Some(false));
    u64::from(taken.is_some())
}

fn remaining(bucket: &AtomicBucket) -> Option<u64> {
    bucket.update(|b, state| b.status(state, NOW).remaining)
}

#[test]
fn two_threads_never_take_more_than_the_limit() {
    loom::model(|| {
        let bucket = Arc::new(AtomicBucket::open_with(&PackedBucket::from_parameters(100, 2)));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || take(&bucket) + take(&bucket))
            })
            .collect();
        let granted: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(granted, 2);
        assert_eq!(remaining(&bucket), Some(0));
    });
}

/// A bucket whose word stays the same when it changes, so that only the mask distinguishes the generations.
fn changed_once(bucket: &PackedBucket) -> Arc<AtomicBucket> {
    let atomic = AtomicBucket::open_with(bucket);
    assert!(atomic.change(bucket, NOW));
    Arc::new(atomic)
}

fn debt(bucket: &AtomicBucket) -> Option<u128> {
    bucket.update(|b, state| b.status(state, NOW).reset.as_nanos())
}

#[test]
fn a_grant_before_a_change_is_migrated_and_one_after_it_uses_the_new_price() {
    loom::model(|| {
        let bucket = changed_once(&PackedBucket::from_parameters(100, 3));
        let taker = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || take_if_open(&bucket))
        };
        assert!(bucket.change(&PackedBucket::from_parameters(7_000, 2), NOW));
        let granted = taker.join().unwrap();
        // In either order, each grant is owed at the new price, and nothing else is.
        assert_eq!(debt(&bucket), Some(u128::from(granted) * 7_000));
    });
}

#[test]
fn a_stale_grant_is_rejected_after_a_second_change() {
    // Two changes have too many interleavings to check all; up to three preemptions reproduce every known bug.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let bucket = changed_once(&PackedBucket::from_parameters(100, 2));
        let taker = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || take_if_open(&bucket))
        };
        bucket.change(&PackedBucket::from_parameters(7_000, 2), NOW);
        bucket.change(&PackedBucket::from_parameters(30, 2), NOW);
        let granted = taker.join().unwrap();
        assert_eq!(debt(&bucket), Some(u128::from(granted) * 30));
    });
}

#[test]
fn closing_returns_every_grant() {
    loom::model(|| {
        let bucket = Arc::new(AtomicBucket::open_with(&PackedBucket::from_parameters(100, 4)));
        let taker = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || take(&bucket))
        };
        let (parameters, full_at) = bucket.close().unwrap();
        let granted = taker.join().unwrap();
        assert_eq!(parameters.status(&full_at, NOW).remaining, 4 - granted);
        assert_eq!(take(&bucket), 0);
    });
}
