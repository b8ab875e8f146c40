//! Several limits for one request, decided as a `MemoryStore` decides them.

use crate::support::{ms, quota, secs};
use diana_core::{
    AcquireError, Answer, Ask, Change, Clock, Concurrency, Cost, DynAlgorithm, FixedWindow, Limit, LimitSet,
    LocalStore, ManualClock, MaxWait, MemoryStore, Retry, SlidingLog, Status, TokenBucket,
};
use proptest::prelude::*;

const KEYS: [&str; 3] = ["alice", "bob", "carol"];

/// 10 a second for all, and 2 for each account.
fn limits(clock: &ManualClock) -> LimitSet {
    let set = LimitSet::new().overall("everyone", quota("10/s")).per_key("each account", quota("2/s"));
    set.with_clock(clock.clone())
}

fn remaining<'a>(status: impl Iterator<Item = (&'a str, Status)>) -> Vec<(&'a str, u64)> {
    status.map(|(name, status)| (name, status.remaining)).collect()
}

#[test]
fn all_limits_are_charged_or_none_and_the_error_names_the_one_that_denied() {
    let clock = ManualClock::new();
    let limits = limits(&clock);
    let permit = limits.check("alice").unwrap();
    assert_eq!(remaining(permit.status()), [("everyone", 9), ("each account", 1)]);
    limits.check("alice").unwrap().waited();
    let denied = limits.check("alice").unwrap_err();
    assert_eq!((denied.limit(), denied.retry()), (Some("each account"), Some(Retry::After(ms(500)))));
    assert_eq!(denied.to_string(), "denied by `each account`, retry after 500ms");
    assert_eq!(remaining(limits.status("alice")), [("everyone", 8), ("each account", 0)]);

    for account in 0..4 {
        let _permit = limits.check_n(&format!("account {account}"), 2).unwrap();
    }
    let denied = limits.check("bob").unwrap_err();
    assert_eq!(denied.to_string(), "denied by `everyone`, retry after 100ms");
    assert_eq!(remaining(limits.status("bob")), [("everyone", 0), ("each account", 2)]);
}

#[test]
fn a_cost_is_charged_to_each_limit_and_one_above_a_capacity_is_denied_for_good() {
    let clock = ManualClock::new();
    let limits = limits(&clock);
    assert!(limits.check_n("alice", 2).is_ok());
    let denied = limits.check_n("bob", 3).unwrap_err();
    assert_eq!((denied.limit(), denied.retry()), (Some("each account"), Some(Retry::Never)));
    assert!(matches!(limits.check_n("bob", 0), Err(AcquireError::Cost(_))));
    limits.charge("bob", 4).unwrap();
    assert_eq!(remaining(limits.status("bob")), [("everyone", 4), ("each account", 0)]);
    assert_eq!(limits.check("bob").unwrap_err().retry(), Some(Retry::After(ms(1_500))));
    limits.reset("bob");
    assert_eq!(remaining(limits.status("bob")), [("everyone", 4), ("each account", 2)]);
}

#[test]
fn a_refund_restores_all_limits_and_dropping_a_permit_does_not() {
    let clock = ManualClock::new();
    let limits = limits(&clock);
    drop(limits.check_n("alice", 2).unwrap());
    assert_eq!(remaining(limits.status("alice")), [("everyone", 8), ("each account", 0)]);
    limits.check_n("bob", 2).unwrap().refund();
    assert_eq!(remaining(limits.status("bob")), [("everyone", 8), ("each account", 2)]);
}

#[test]
fn dropping_a_permit_releases_what_was_in_use_and_keeps_the_rate_charged() {
    let each = Concurrency::new(1).unwrap();
    let limits = LimitSet::new().overall("everyone", quota("5/h")).per_key("at a time", each);
    let limits = limits.with_clock(ManualClock::new());
    let permit = limits.check("alice").unwrap();
    let denied = limits.check("alice").unwrap_err();
    assert_eq!(denied.to_string(), "denied by `at a time`, retry when permits are released");
    drop(permit);
    assert_eq!(remaining(limits.status("alice")), [("everyone", 4), ("at a time", 1)]);
    limits.check("alice").unwrap().refund();
    assert_eq!(remaining(limits.status("alice")), [("everyone", 4), ("at a time", 1)]);
}

#[test]
fn a_wait_is_the_longest_of_all_limits_and_a_timeout_that_is_too_short_charges_none() {
    let clock = ManualClock::new();
    let limits = limits(&clock);
    drop(limits.check_n("alice", 2).unwrap());
    let denied = limits.blocking_acquire_timeout("alice", 1, ms(499)).unwrap_err();
    assert_eq!(denied.to_string(), "denied by `each account`, retry after 1ms");
    assert_eq!(clock.now(), Default::default());
    assert_eq!(limits.blocking_acquire_timeout("alice", 1, ms(500)).unwrap().waited(), ms(500));
    assert_eq!(limits.blocking_acquire("alice", 2).unwrap().waited(), secs(1));
}

#[test]
fn limits_that_cannot_reserve_are_waited_for_in_a_queue() {
    let clock = ManualClock::new();
    let limits = LimitSet::new()
        .overall("everyone", FixedWindow::new(quota("3/s")))
        .per_key("each account", SlidingLog::new(quota("1/500ms")));
    let limits = limits.with_clock(clock.clone());
    let waited = |account| limits.blocking_acquire(account, 1).unwrap().waited();
    assert_eq!([waited("alice"), waited("alice"), waited("bob")], [ms(0), ms(500), ms(0)]);
    // The window is used up now, and the next one begins at 1 s, as alice's log allows her the next.
    assert_eq!([waited("alice"), waited("bob"), waited("carol")], [ms(500), ms(0), ms(0)]);
    let denied = limits.blocking_acquire_timeout("dave", 1, ms(999)).unwrap_err();
    assert_eq!(denied.to_string(), "denied by `everyone`, retry after 1s");
    assert_eq!(waited("dave"), secs(1));
}

#[cfg(feature = "async")]
mod futures {
    use super::*;
    use diana_core::TokioClock;
    use std::sync::Arc;
    use tokio::time::{Instant, advance, timeout};

    #[tokio::test(start_paused = true)]
    async fn a_future_waits_and_dropping_it_refunds_all_limits() {
        let limits = LimitSet::new().overall("everyone", quota("10/s")).per_key("each account", quota("2/s"));
        let limits = limits.with_clock(TokioClock::new());
        drop(limits.check_n("alice", 2).unwrap());
        assert!(timeout(ms(400), limits.acquire("alice", 1)).await.is_err());
        assert_eq!(remaining(limits.status("bob")), [("everyone", 10), ("each account", 2)]);
        assert_eq!(limits.acquire("alice", 1).await.unwrap().waited(), ms(100));
        let denied = limits.acquire_timeout("alice", 1, ms(499)).await.unwrap_err();
        assert_eq!(denied.limit(), Some("each account"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_permit_wakes_a_waiter_of_another_key_if_all_keys_share_the_limit() {
        let limits = LimitSet::new().overall("at a time", Concurrency::new(1).unwrap()).per_key("each", quota("9/s"));
        let limits = Arc::new(limits.with_clock(TokioClock::new()));
        let began = Instant::now();
        let permit = limits.acquire("alice", 1).await.unwrap();
        let waiter = tokio::spawn({
            let limits = Arc::clone(&limits);
            async move { limits.acquire("bob", 1).await.map(|permit| permit.waited()) }
        });
        tokio::task::yield_now().await;
        advance(ms(30)).await;
        // Requests of the same key that do not wait stay behind the one that does.
        assert_eq!(limits.check("bob").unwrap_err().limit(), Some("at a time"));
        drop(permit);
        assert_eq!(waiter.await.unwrap().unwrap(), ms(30));
        assert_eq!(began.elapsed(), ms(30));
        assert!(limits.check("alice").is_ok());
    }
}

fn algorithms() -> [DynAlgorithm; 4] {
    [
        TokenBucket::new(quota("20/s")).into(),
        FixedWindow::new(quota("9/s")).into(),
        quota("5/s burst 7").into(),
        SlidingLog::new(quota("4/s")).into(),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Check(usize, u64),
    Refund(usize, u64),
    Charge(usize, u64),
    Reset(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    prop_oneof![
        3 => (0..400_u64).prop_map(Step::Advance),
        6 => (key.clone(), 1..4_u64).prop_map(|(key, cost)| Step::Check(key, cost)),
        2 => (key.clone(), 1..4_u64).prop_map(|(key, cost)| Step::Refund(key, cost)),
        1 => (key.clone(), 1..4_u64).prop_map(|(key, cost)| Step::Charge(key, cost)),
        1 => key.prop_map(Step::Reset),
    ]
}

proptest! {
    #[test]
    fn a_set_decides_as_a_memory_store_does(steps in prop::collection::vec(steps(), 1..60)) {
        let clock = ManualClock::new();
        let [one, two, three, four] = algorithms();
        let set = LimitSet::new().overall("1", one).per_key("2", two).per_key("3", three).overall("4", four);
        let set = set.with_clock(clock.clone());
        let (store, limits) = (MemoryStore::default(), algorithms().map(|algorithm| Limit::new("", algorithm)));
        for step in steps {
            let asks = |key: usize, cost: u64| {
                let keys = ["", KEYS[key], KEYS[key], ""];
                let asks = limits.iter().zip(keys).map(|(limit, key)| Ask::new(limit, key, Cost::new(cost).unwrap()));
                asks.collect::<Vec<_>>()
            };
            let now = clock.now();
            match step {
                Step::Advance(by) => clock.advance(ms(by)),
                Step::Check(key, cost) | Step::Refund(key, cost) => {
                    let expected = LocalStore::decide(&store, &asks(key, cost), now, MaxWait::NONE);
                    let status = expected.answers().iter().map(Answer::status);
                    match set.check_n(KEYS[key], cost) {
                        Ok(permit) => {
                            prop_assert!(expected.is_granted());
                            prop_assert!(permit.status().map(|(_, status)| status).eq(status));
                            if matches!(step, Step::Refund(..)) {
                                permit.refund();
                                LocalStore::refund(&store, &asks(key, cost), &expected, now);
                            }
                        }
                        Err(denied) => {
                            prop_assert_eq!(denied.retry(), expected.retry());
                            let binding = expected.binding().map(|index| (index + 1).to_string());
                            prop_assert_eq!(denied.limit(), binding.as_deref());
                        }
                    }
                }
                Step::Charge(key, cost) => {
                    set.charge(KEYS[key], cost).unwrap();
                    store.change(&asks(key, cost), now, Change::Charge);
                }
                Step::Reset(key) => {
                    set.reset(KEYS[key]);
                    store.change(&asks(key, 1)[1..3], now, Change::Reset);
                }
            }
        }
    }
}
