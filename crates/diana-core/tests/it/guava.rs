//! Guava's smooth limiters, as transcripts: the reference listings, Guava's own tests, and its bugs avoided.
//!
//! `cargo xtask golden golden/guava_*.jsonl` replays 24,000 recorded answers; these are the cases to read.

use crate::smooth_support::{SmoothTrial, bursty, ms, secs, warming_up};
use diana_core::{Algorithm, Cost, InvalidSmooth, MaxWait, Outcome, SmoothBursty, SmoothWarmingUp};
use proptest::prelude::*;
use std::time::Duration;

mod reference_listings {
    use super::*;

    /// The ideal waits are Guava's on a stopped clock; the printed ones come from real runs.
    fn check(printed: &[f64], ideal: &[u64], actual: &[u64]) {
        assert_eq!(actual, ideal);
        assert_eq!(printed.len(), actual.len());
        for (printed, &actual) in printed.iter().zip(actual) {
            assert!((printed - actual as f64 / 1e6).abs() <= 0.003, "printed {printed} s, got {actual} micros");
        }
    }

    #[test]
    fn bursty_1_even_rate() {
        let waits = SmoothTrial::new(bursty(5.0)).acquire_each(&[1; 7]);
        let printed = [0.0, 0.19948, 0.198_852, 0.199_784, 0.199_809, 0.199_774, 0.199_799];
        check(&printed, &[0, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000], &waits);
    }

    #[test]
    fn bursty_2_next_request_pays() {
        let waits = SmoothTrial::new(bursty(5.0)).acquire_each(&[5, 1, 1]);
        check(&[0.0, 0.999_481, 0.197_737], &[0, 1_000_000, 200_000], &waits);
    }

    #[test]
    fn bursty_3_one_second_stored_and_one_prepaid() {
        let mut limiter = SmoothTrial::new(bursty(2.0));
        let mut waits = limiter.acquire_each(&[1]);
        limiter.sleep(secs(5));
        waits.extend(limiter.acquire_each(&[1; 4]));
        check(&[0.0, 0.0, 0.0, 0.0, 0.49965], &[0, 0, 0, 0, 500_000], &waits);
    }

    #[test]
    fn warming_up_1_cold_then_warm_then_half_cold() {
        let mut limiter = SmoothTrial::new(warming_up(5.0, 1, 3.0));
        let waits = limiter.acquire_each(&[1; 6]);
        let printed = [0.0, 0.519_855, 0.359_091, 0.219_833, 0.199_852, 0.199_837];
        check(&printed, &[0, 520_000, 360_000, 220_000, 200_000, 200_000], &waits);

        limiter.sleep(secs(1));
        let waits = limiter.acquire_each(&[1; 10]);
        let printed =
            [0.0, 0.360_015, 0.220_133, 0.200_117, 0.200_096, 0.200_064, 0.200_112, 0.20012, 0.200_085, 0.199_973];
        let mut ideal = [200_000; 10];
        ideal[..3].copy_from_slice(&[0, 360_000, 220_000]);
        check(&printed, &ideal, &waits);
    }

    #[test]
    fn weights_1_to_5() {
        let waits = SmoothTrial::new(bursty(1.0)).acquire_each(&[1, 2, 3, 4, 5]);
        let printed = [0.0, 0.997_729, 1.998_076, 3.000_303, 4.000_223];
        check(&printed, &[0, 1_000_000, 2_000_000, 3_000_000, 4_000_000], &waits);
    }
}

mod guava_tests {
    use super::*;

    #[test]
    fn test_one_second_burst() {
        let mut limiter = SmoothTrial::new(bursty(5.0));
        limiter.sleep(secs(2));
        assert_eq!(limiter.acquire_each(&[1, 1, 3, 1, 1]), [0, 0, 0, 0, 200_000]);
    }

    #[test]
    fn test_try_acquire_some_wait_allowed() {
        let mut limiter = SmoothTrial::new(bursty(5.0));
        assert!(limiter.try_acquire(1, ms(0)));
        assert!(limiter.try_acquire(1, ms(200)));
        assert!(!limiter.try_acquire(1, ms(100)));
        limiter.sleep(ms(100));
        assert!(limiter.try_acquire(1, ms(100)));
    }

    #[test]
    fn test_warm_up_and_update() {
        let mut limiter = SmoothTrial::new(warming_up(2.0, 4, 3.0));
        let cold = [0, 1_375_000, 1_125_000, 875_000, 625_000, 500_000, 500_000, 500_000];
        assert_eq!(limiter.acquire_each(&[1; 8]), cold);
        limiter.sleep(ms(4_500));
        assert_eq!(limiter.acquire_each(&[1; 3]), cold[..3]);

        limiter.set_rate(limiter.limiter.with_rate(4.0).unwrap());
        // The first one still pays the debt from the old rate.
        assert_eq!(limiter.acquire_each(&[1; 5]), [875_000, 343_750, 281_250, 250_000, 250_000]);
        limiter.sleep(ms(4_250));
        let cold = [0, 718_750, 656_250, 593_750, 531_250, 468_750, 406_250, 343_750, 281_250, 250_000, 250_000];
        assert_eq!(limiter.acquire_each(&[1; 11]), cold);
    }

    #[test]
    fn test_infinity() {
        let mut limiter = SmoothTrial::new(bursty(f64::INFINITY));
        assert_eq!(limiter.acquire_each(&[1 << 29, 1 << 30, 1 << 31]), [0, 0, 0]);
        limiter.set_rate(bursty(2.0));
        assert_eq!(limiter.acquire_each(&[1; 5]), [0, 0, 0, 500_000, 500_000], "the store becomes full");
        limiter.set_rate(bursty(f64::INFINITY));
        assert_eq!(limiter.acquire_each(&[1; 3]), [500_000, 0, 0], "an old debt is still paid");
        limiter.set_rate(bursty(1.0));
        assert_eq!(limiter.acquire_each(&[1; 3]), [0, 0, 1_000_000], "the NaN store is a number again");

        let mut limiter = SmoothTrial::new(warming_up(f64::INFINITY, 10, 3.0));
        assert_eq!(limiter.acquire_each(&[1 << 29, 1 << 30, 1 << 31]), [0, 0, 0]);
        limiter.set_rate(warming_up(1.0, 10, 3.0));
        assert_eq!(
            limiter.acquire_each(&[1; 3]),
            [0, 1_000_000, 1_000_000],
            "the store becomes empty, which means warm"
        );
    }

    #[test]
    fn test_double_min_value_can_acquire_exactly_once() {
        let mut limiter = SmoothTrial::new(bursty(f64::from_bits(1)));
        assert!(limiter.try_acquire(1, ms(0)));
        assert!(!limiter.try_acquire(1, ms(0)));
        limiter.sleep(ms(2_147_483_647));
        assert_eq!(limiter.take(1, MaxWait::NONE), Outcome::never(), "past the last timestamp");
    }

    /// Takes `permits` in portions that add up to it, and one more; returns how many microseconds that took.
    fn take_in_portions<A: Algorithm>(limiter: &mut SmoothTrial<A>, permits: u64, portions: &[u64]) -> u64 {
        let (start, mut remaining, mut portions) = (limiter.now, permits, portions.iter().cycle());
        while remaining > 0 {
            let portion = portions.next().map_or(remaining, |&portion| portion.clamp(1, remaining));
            limiter.acquire(portion);
            remaining -= portion;
        }
        limiter.acquire(1); // pays for the last of them
        u64::try_from(limiter.now.since(start).as_micros()).unwrap()
    }

    proptest! {
        #[test]
        fn test_we_never_get_a_burst_more_than_one_sec(portions in prop::collection::vec(1u64..5_000, 1..50)) {
            let mut limiter = SmoothTrial::new(bursty(1.0));
            for rate in [1_000, 1, 10, 1_000_000, 10, 1] {
                limiter.sleep(secs(rate));
                limiter.set_rate(bursty(rate as f64));
                // Stored permits are granted at once; the same number again takes one second.
                let first = take_in_portions(&mut limiter, rate, &portions);
                prop_assert!(first <= 1_000_000, "{rate}/s: {first}");
                let second = take_in_portions(&mut limiter, rate, &portions);
                prop_assert!(second >= 1_000_000, "{rate}/s: {second}");
            }
        }

        #[test]
        fn test_time_to_warm_up_is_honoured_even_with_weights(portions in prop::collection::vec(1u64..=10, 1..10)) {
            for cold_factor in [2.0, 3.0, 10.0] {
                for rate in [4.0, 2.0, 1.0, 0.5, 0.1] {
                    // Chosen so that ten permits are between cold and warm.
                    let warm_up = Duration::from_secs_f64((1.0 + cold_factor) * 10.0 / (2.0 * rate));
                    let limiter = SmoothWarmingUp::new(rate, warm_up).unwrap().with_cold_factor(cold_factor).unwrap();
                    let took = take_in_portions(&mut SmoothTrial::new(limiter), 10, &portions);
                    // Each of up to ten portions is truncated to whole microseconds.
                    let micros = u64::try_from(warm_up.as_micros()).unwrap();
                    prop_assert!(took <= micros && micros - took <= 10, "{took} of {micros}");
                }
            }
        }
    }
}

mod guava_bugs_avoided {
    use super::*;

    #[test]
    fn rejects_a_warm_up_of_zero() {
        for warm_up in [Duration::ZERO, Duration::from_nanos(999), Duration::MAX] {
            assert_eq!(SmoothWarmingUp::new(5.0, warm_up), Err(InvalidSmooth::WarmUp(warm_up)));
        }
        assert!(SmoothWarmingUp::new(5.0, Duration::from_micros(1)).is_ok());
    }

    #[test]
    fn a_price_past_the_last_timestamp_does_not_wrap() {
        // 10,000 permits of 31.7 years each, plus the store's price.
        let mut limiter = SmoothTrial::new(warming_up(1e-9, 1, 3.0));
        assert_eq!(limiter.acquire(10_000), 0);
        assert_eq!(limiter.take(1, MaxWait::NONE), Outcome::never());
        assert_eq!(limiter.state.next_free_micros(), i64::MAX.unsigned_abs());
        // A request without a timeout is granted, and time does not overflow.
        assert!(limiter.take(1, MaxWait::FOREVER).is_granted());

        // The two parts of a store as large as the range of time.
        let longest = Duration::from_micros(i64::MAX.unsigned_abs());
        let mut limiter = SmoothTrial::new(SmoothWarmingUp::new(1e-3, longest).unwrap());
        assert_eq!(limiter.acquire(Cost::MAX.get()), 0);
        assert_eq!(limiter.take(1, MaxWait::NONE), Outcome::never());
    }

    #[test]
    fn rejects_a_store_that_is_not_finite() {
        let store = |rate: f64, seconds| bursty(rate).with_saved_seconds(seconds);
        for (rate, seconds) in [(f64::INFINITY, 0.0), (5.0, f64::INFINITY), (1e300, 1e300)] {
            assert_eq!(store(rate, seconds), Err(InvalidSmooth::Store { rate, saved_seconds: seconds }));
        }
        assert!(store(5.0, 0.0).unwrap().with_rate(f64::INFINITY).is_err());
    }

    #[test]
    fn rejects_invalid_parameters() {
        for rate in [0.0, -0.0, -10.0, f64::NEG_INFINITY, f64::NAN] {
            assert!(matches!(SmoothBursty::new(rate), Err(InvalidSmooth::Rate(_))), "{rate}");
            assert!(matches!(SmoothWarmingUp::new(rate, secs(1)), Err(InvalidSmooth::Rate(_))), "{rate}");
            assert!(matches!(bursty(1.0).with_rate(rate), Err(InvalidSmooth::Rate(_))), "{rate}");
        }
        for seconds in [-1.0, f64::NAN] {
            assert!(matches!(bursty(1.0).with_saved_seconds(seconds), Err(InvalidSmooth::SavedSeconds(_))));
        }
        for factor in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            let limiter = warming_up(1.0, 1, 3.0);
            assert!(matches!(limiter.with_cold_factor(factor), Err(InvalidSmooth::ColdFactor(_))), "{factor}");
        }
    }
}
