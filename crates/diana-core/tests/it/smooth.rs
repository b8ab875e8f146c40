//! Diana's own guarantees for the smooth limiters: retries, refunds, statuses, other parameters.

use crate::smooth_support::{SmoothTrial, at, bits, bursty, cost, ms, warming_up};
use diana_core::{
    Algorithm, Cost, InitialPermits, MaxWait, Outcome, Refund, Retry, SmoothBursty, SmoothState, SmoothWarmingUp,
    Timestamp,
};
use proptest::prelude::*;
use std::time::Duration;

mod retry {
    use super::*;

    #[test]
    fn is_exact_to_the_nanosecond() {
        let mut limiter = SmoothTrial::new(bursty(5.0));
        limiter.now = at(1_234_567);
        assert!(limiter.take(1, MaxWait::NONE).is_granted());
        // 0.006170 permits of the first millisecond were stored; the other 0.99383 take 198,766 micros from 1,234 on.
        let free = 200_000_000;
        limiter.now = at(1_234_999);
        let retry = Retry::After(Duration::from_nanos(free - 1_234_999));
        assert_eq!(limiter.take(1, MaxWait::NONE).retry(), Some(retry));
        limiter.now = at(free - 1);
        assert_eq!(limiter.take(1, MaxWait::NONE).retry(), Some(Retry::After(Duration::from_nanos(1))));
        limiter.now = at(free);
        assert!(limiter.take(1, MaxWait::NONE).is_granted());
    }

    #[test]
    fn is_shorter_by_the_max_wait_in_whole_microseconds() {
        let mut limiter = SmoothTrial::new(bursty(5.0));
        limiter.acquire(1);
        let max_wait = MaxWait::up_to(Duration::from_nanos(50_000_999));
        assert_eq!(limiter.take(1, max_wait).retry(), Some(Retry::After(ms(150))));
        limiter.sleep(ms(150));
        assert_eq!(limiter.take(1, max_wait).wait(), Some(ms(50)));
    }

    proptest! {
        #[test]
        fn is_granted_after_exactly_the_retry_time(
            rate in 0.01..5_000.0f64,
            warm_up in prop::option::of(1u64..5_000_000),
            asks in prop::collection::vec((0u64..2_000_000_000, 1u64..20, 0u64..500_000_000), 1..40),
        ) {
            match warm_up {
                Some(micros) => check(SmoothWarmingUp::new(rate, Duration::from_micros(micros)).unwrap(), &asks)?,
                None => check(bursty(rate), &asks)?,
            }
        }
    }

    fn check<A: Algorithm<State = SmoothState>>(limiter: A, asks: &[(u64, u64, u64)]) -> Result<(), TestCaseError> {
        let mut key = SmoothTrial::new(limiter);
        for &(pause, permits, max_wait) in asks {
            key.sleep(Duration::from_nanos(pause));
            let max_wait = MaxWait::up_to(Duration::from_nanos(max_wait));
            let before = bits(&key.state);
            match key.take(permits, max_wait) {
                Outcome::Granted { wait, .. } => prop_assert!(wait <= max_wait.as_duration()),
                Outcome::Denied { retry: Retry::After(retry) } => {
                    prop_assert_eq!(bits(&key.state), before, "a denial changes nothing");
                    let ask = |later| key.limiter.peek(&key.state, key.now + later, cost(permits), max_wait);
                    prop_assert!(ask(retry).is_granted());
                    prop_assert!(!ask(retry - Duration::from_nanos(1)).is_granted());
                }
                outcome @ Outcome::Denied { .. } => prop_assert!(false, "{outcome:?}"),
            }
        }
        Ok(())
    }
}

mod refund {
    use super::*;

    #[test]
    fn restores_the_store_and_the_time() {
        let mut key = SmoothTrial::new(warming_up(5.0, 1, 3.0));
        key.acquire(2);
        let before = bits(&key.state);
        let receipt = key.take(7, MaxWait::FOREVER).receipt().unwrap();
        assert_ne!(bits(&key.state), before);
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &receipt), Refund::Returned);
        assert_eq!(bits(&key.state), before);
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &receipt), Refund::Void, "a second refund is void");
    }

    #[test]
    fn is_void_after_another_grant() {
        let mut key = SmoothTrial::new(bursty(5.0));
        let first = key.take(1, MaxWait::FOREVER).receipt().unwrap();
        let second = key.take(1, MaxWait::FOREVER).receipt().unwrap();
        let before = bits(&key.state);
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &first), Refund::Void);
        assert_eq!(bits(&key.state), before);
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &second), Refund::Returned);
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &first), Refund::Returned, "now it is the last grant");
        assert_eq!(bits(&key.state), bits(&key.limiter.fresh(Timestamp::EPOCH)));
    }

    #[test]
    fn is_void_once_time_has_restored_all_of_it() {
        let mut key = SmoothTrial::new(bursty(5.0).with_initial_permits(InitialPermits::Full));
        let receipt = key.take(5, MaxWait::NONE).receipt().unwrap();
        key.sleep(Duration::from_nanos(999_999_999));
        let mut early = key.state;
        assert_eq!(key.limiter.refund(&mut early, key.now, &receipt), Refund::Returned);
        key.sleep(Duration::from_nanos(1));
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &receipt), Refund::Void);
    }

    #[test]
    fn is_void_under_other_parameters() {
        let mut key = SmoothTrial::new(bursty(2.0));
        assert!(key.take(20, MaxWait::FOREVER).is_granted());
        let receipt = key.take(1, MaxWait::FOREVER).receipt().unwrap();
        key.set_rate(bursty(1.0));
        // At the new rate it would refund a second, half of which belongs to another request.
        assert_eq!(key.limiter.refund(&mut key.state, key.now, &receipt), Refund::Void);
    }
}

mod status {
    use super::*;

    #[test]
    fn has_the_store_the_debt_and_the_reset() {
        let mut key = SmoothTrial::new(bursty(5.0).with_initial_permits(InitialPermits::Full));
        let mut status = |permits: u64, pause| {
            let _ = key.take(permits, MaxWait::NONE);
            key.sleep(pause);
            let status = key.limiter.status(&key.state, key.now);
            (status.limit, status.remaining, status.reset)
        };
        assert_eq!(status(2, ms(0)), (5, 3, ms(400)));
        assert_eq!(status(3, ms(0)), (5, 1, ms(1_000)), "nothing is stored, but one more is granted immediately");
        assert_eq!(status(1, ms(0)), (5, 0, ms(1_200)), "the debt of that grant");
        assert_eq!(status(1, ms(199)), (5, 0, ms(1_001)), "a denial changes nothing");
        assert_eq!(status(1, ms(1_001)), (5, 5, ms(0)));
    }

    #[test]
    fn has_a_limit_of_one_without_a_store_and_the_maximum_at_an_infinite_rate() {
        let fresh = |limiter: SmoothBursty| limiter.status(&limiter.fresh(Timestamp::EPOCH), Timestamp::EPOCH);
        let none = fresh(bursty(5.0).with_saved_seconds(0.0).unwrap());
        assert_eq!((none.limit, none.remaining, none.reset), (1, 1, ms(0)));
        let all = fresh(bursty(f64::INFINITY));
        assert_eq!((all.limit, all.remaining, all.reset), (Cost::MAX.get(), Cost::MAX.get(), ms(0)));
    }

    #[test]
    fn a_key_that_starts_empty_is_fresh_only_initially() {
        let limiter = bursty(5.0);
        let state = limiter.fresh(at(1_000));
        assert!(limiter.is_fresh(&state, at(1_999)), "the same microsecond");
        assert!(!limiter.is_fresh(&state, at(2_000)), "five millionths of a permit are stored");
        let storeless = limiter.with_saved_seconds(0.0).unwrap();
        assert!(storeless.is_fresh(&state, at(1 << 60)), "without a store, idle time changes nothing");
    }

    proptest! {
        #[test]
        fn after_the_reset_the_key_is_fresh(rate in 0.01..5_000.0f64, permits in 1u64..100, start in 0u64..1 << 50) {
            check(&bursty(rate).with_initial_permits(InitialPermits::Full), permits, at(start))?;
            check(&warming_up(rate, 3, 3.0), permits, at(start))?;
        }
    }

    fn check<A>(limiter: &A, permits: u64, start: Timestamp) -> Result<(), TestCaseError>
    where
        A: Algorithm<State = SmoothState>,
    {
        let mut state = limiter.fresh(start);
        prop_assert!(limiter.is_fresh(&state, start));
        limiter.charge(&mut state, start, cost(permits));
        prop_assert!(!limiter.is_fresh(&state, start));
        let full = start + limiter.status(&state, start).reset;
        prop_assert!(limiter.is_fresh(&state, full));
        let later = full + ms(7);
        let ask = |mut state| limiter.take(&mut state, later, cost(permits), MaxWait::FOREVER);
        prop_assert_eq!(ask(state), ask(limiter.fresh(later)), "receipts included");
        Ok(())
    }
}

mod rescale {
    use super::*;

    #[test]
    fn keeps_the_debt_in_time_and_the_share_of_the_store() {
        let mut key = SmoothTrial::new(bursty(10.0));
        key.sleep(ms(500)); // half of the store
        key.set_rate(bursty(20.0));
        assert_eq!(key.state.stored_permits().to_bits(), 10.0f64.to_bits());
        assert_eq!(key.acquire_each(&[10, 20]), [0, 0]);
        key.set_rate(bursty(1.0));
        assert_eq!(key.acquire_each(&[1, 1]), [1_000_000, 1_000_000], "20 permits at 20/s, then 1/s");
    }

    /// Recorded from Guava (golden/guava_changed_rate.jsonl): the scaled full store differs slightly from its maximum.
    #[test]
    fn scales_a_full_store_as_guava_does() {
        let changed_after = |pause| {
            let limiter = SmoothWarmingUp::new(1.6, Duration::from_micros(1_082)).unwrap();
            let mut key = SmoothTrial::new(limiter.with_cold_factor(6.048).unwrap());
            key.acquire(1);
            key.sleep(Duration::from_secs(100));
            key.set_rate(key.limiter.with_rate(0.89066).unwrap());
            key.sleep(Duration::from_micros(pause));
            key.acquire_each(&[1, 2, 1])
        };
        assert_eq!(changed_after(0), [0, 1_123_536, 2_245_525]);
        assert_eq!(changed_after(1), [0, 1_123_537, 2_245_525], "a microsecond later it is full");
    }

    #[test]
    fn never_creates_an_infinite_store() {
        let mut key = SmoothTrial::new(bursty(1e200).with_initial_permits(InitialPermits::Full));
        key.set_rate(bursty(1e199).with_initial_permits(InitialPermits::Full));
        assert_eq!(key.state.stored_permits().to_bits(), 1e199f64.to_bits(), "although the product overflows");
    }
}

proptest! {
    #[test]
    fn nothing_overflows_for_any_parameters(
        rate in prop::num::f64::POSITIVE,
        other in prop::num::f64::POSITIVE,
        burst in prop::num::f64::POSITIVE | prop::num::f64::ZERO,
        warm_up in any::<u64>(),
        cold_factor in prop::num::f64::POSITIVE,
        asks in prop::collection::vec((any::<u64>(), 1..=Cost::MAX.get(), any::<u64>()), 1..20),
    ) {
        if let (Ok(one), Ok(two)) = (bursty(rate).with_saved_seconds(burst), bursty(other).with_saved_seconds(burst)) {
            check_extremes(one, two, &asks)?;
        }
        let warming_up = |rate| SmoothWarmingUp::new(rate, Duration::from_micros(warm_up))?.with_cold_factor(cold_factor);
        if let (Ok(one), Ok(two)) = (warming_up(rate), warming_up(other)) {
            check_extremes(one, two, &asks)?;
        }
    }
}

fn check_extremes<A>(limiter: A, mut other: A, asks: &[(u64, u64, u64)]) -> Result<(), TestCaseError>
where
    A: Algorithm<State = SmoothState>,
{
    let mut key = SmoothTrial::new(limiter);
    for (index, &(now, permits, max_wait)) in asks.iter().enumerate() {
        key.now = at(now);
        let before = key.state.next_free_micros();
        let outcome = key.take(permits, MaxWait::up_to(Duration::from_nanos(max_wait)));
        prop_assert!(key.state.next_free_micros() >= before, "`next_free` must not move back");
        let status = key.limiter.status(&key.state, key.now);
        prop_assert!(status.remaining <= status.limit);
        if let (Some(receipt), 0) = (outcome.receipt(), index % 3) {
            let _ = key.limiter.refund(&mut key.state, key.now, &receipt);
        }
        if index % 4 == 3 {
            other.rescale(&mut key.state, &key.limiter, key.now);
            std::mem::swap(&mut key.limiter, &mut other);
        }
        prop_assert!(key.state.next_free_micros() <= i64::MAX.unsigned_abs());
        // An infinite store, like Guava's, only if no request waits.
        let limit = key.limiter.status(&key.state, key.now).limit;
        prop_assert!(key.state.stored_permits().is_finite() || limit == Cost::MAX.get());
    }
    Ok(())
}
