//! `CL.THROTTLE` where it is not redis-cell's arithmetic, which `golden/src/cell.rs` replays: errors, refunds, other
//! parameters on one key, and the bounds of the table.

use diana_core::{
    Algorithm, ClThrottle, ClThrottleError, Limit, MemoryStore, OnFull, TableOptions, TimeDebt, TimeDebtState,
    Timestamp, TokenBucket,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

fn call(max_burst: i64, count: i64, period: i64, quantity: i64) -> ClThrottle {
    ClThrottle::new(max_burst, count, period, quantity).unwrap()
}

#[test]
fn negative_parameters_are_errors() {
    let negative = |parameter, value| Err(ClThrottleError::Negative { parameter, value });
    assert_eq!(ClThrottle::new(-1, 30, 60, 1), negative("max_burst", -1));
    assert_eq!(ClThrottle::new(15, -30, 60, 1), negative("count", -30));
    assert_eq!(ClThrottle::new(15, 30, -60, 1), negative("period", -60));
    assert_eq!(ClThrottle::new(15, -30, -60, 1), negative("count", -30));
    assert_eq!(ClThrottle::new(15, 30, i64::MIN, 1), negative("period", i64::MIN));
}

#[test]
fn spans_that_overflow_are_errors() {
    let too_long = |parameter, value| Err(ClThrottleError::TooLong { parameter, value });
    assert_eq!(ClThrottle::new(i64::MAX, 30, 60, 1), too_long("max_burst", i64::MAX));
    assert_eq!(ClThrottle::new(i64::MAX, 1_000_000_000, 1, 1), too_long("max_burst", i64::MAX));
    assert_eq!(ClThrottle::new(9_223_372_036, 30, 60, 1), too_long("max_burst", 9_223_372_036));
    assert_eq!(ClThrottle::new(15, 30, 60, i64::MAX), too_long("quantity", i64::MAX));
    assert_eq!(ClThrottle::new(15, 30, 60, i64::MIN), too_long("quantity", i64::MIN));
    assert_eq!(ClThrottle::new(15, 30, 9_223_372_037, 1), Err(ClThrottleError::PeriodTooLong(9_223_372_037)));
    assert!(ClThrottle::new(i64::MAX - 1, 1_000_000_000, 1, 1).is_ok());
}

#[test]
fn a_refund_goes_down_to_no_debt() {
    let (now, mut state) = (Timestamp::from_secs(1), TimeDebtState::default());
    let mut ask = |quantity| state.cl_throttle(&call(15, 30, 60, quantity), now).to_integers();
    assert_eq!(ask(-1), [0, 16, 16, -1, 0]);
    assert_eq!(ask(5), [0, 16, 11, -1, 10]);
    assert_eq!(ask(-2), [0, 16, 13, -1, 6]);
    assert_eq!(ask(-9), [0, 16, 16, -1, 0]);
    assert_eq!(ask(16), [0, 16, 0, -1, 32]);
}

#[test]
fn fast_rates_report_what_remains() {
    for count in [400_000, 700_000, 1_000_001, 1_900_000, 1_000_000_000] {
        let (now, mut state) = (Timestamp::from_secs(1), TimeDebtState::default());
        let mut ask = |quantity| state.cl_throttle(&call(10, count, 1, quantity), now).to_integers();
        assert_eq!(ask(1), [0, 11, 10, -1, 0], "{count}");
        assert_eq!(ask(10), [0, 11, 0, -1, 0], "{count}");
        assert_eq!(ask(1), [1, 11, 0, 0, 0], "{count}");
    }
    assert_eq!(ClThrottle::new(10, 1_000_000_001, 1, 1), Err(ClThrottleError::ZeroRate));
}

#[test]
fn errors_show_an_invalid_argument_as_redis_cell_does() {
    let error = |argument: &[u8]| ClThrottle::from_args(&[argument, b"b", b"c"]).unwrap_err().to_string();
    assert_eq!(error(b"a\r\nb\r\n"), "Couldn't parse as integer: a  b");
    assert_eq!(error(b"a\0b"), "Couldn't parse as integer: a");
    assert_eq!(error(b"\xff"), "Couldn't parse as integer: \u{fffd}");
    assert_eq!(error(&[b'x'; 1_000]).len(), "Couldn't parse as integer: ".len() + 256);
    assert_eq!(ClThrottle::from_args(&["1"; 2]).unwrap_err(), ClThrottleError::Usage);
    assert_eq!(ClThrottle::from_args(&["1"; 5]).unwrap_err(), ClThrottleError::Usage);
    assert_eq!(ClThrottle::from_args(&["15", "30", "60"]), Ok(call(15, 30, 60, 1)));
}

#[test]
fn a_share_divides_rate_and_burst() {
    let (now, share) = (Timestamp::from_secs(1), call(15, 30, 60, 1).divided(4));
    let mut state = TimeDebtState::default();
    for remaining in (0..4).rev() {
        assert_eq!(state.cl_throttle(&share, now).to_integers()[..3], [0, 4, remaining]);
    }
    assert_eq!(state.cl_throttle(&share, now).to_integers(), [1, 4, 0, 8, 32]);
    assert_eq!(call(1, 30, 60, 1).divided(4).limit(), 1);
    assert_eq!(call(1, 30, 60, 1).divided(0), call(1, 30, 60, 1));
}

#[test]
fn an_algorithm_with_parameters_of_its_own_denies_every_call() {
    let (store, limit) = (MemoryStore::default(), Limit::new("bucket", TokenBucket::new("1/s".parse().unwrap())));
    let denied = store.cl_throttle(&limit, b"a", &call(1, 1, 1, 1), Timestamp::EPOCH);
    assert_eq!(denied.to_integers(), [1, 1, 1, -1, 0]);
}

/// A flood of keys, each with a debt of an hour.
fn flood(on_full: OnFull) -> (MemoryStore, Limit, [usize; 2]) {
    let store = MemoryStore::new(TableOptions::default().memory(256 << 10).on_full(on_full));
    let limit = Limit::new("cl.throttle", TimeDebt);
    let (slow, now) = (call(0, 1, 3_600, 1), Timestamp::from_secs(1));
    let mut counts = [0, 0];
    for key in 0..100_000_u32 {
        let answer = store.cl_throttle(&limit, &key.to_be_bytes(), &slow, now);
        counts[usize::from(!answer.is_granted())] += 1;
        assert!(store.memory_used() <= 256 << 10);
    }
    (store, limit, counts)
}

#[test]
fn a_flood_of_keys_is_bounded() {
    let (store, limit, [granted, limited]) = flood(OnFull::Share);
    // Each shared cell grants one more.
    assert!((store.len()..=store.len() + 16 * 64).contains(&granted), "{granted} of {}", store.len());
    assert!(limited > 50_000);
    // A key that was counted is still limited.
    let counted = store.cl_throttle(&limit, &0_u32.to_be_bytes(), &call(0, 1, 3_600, 1), Timestamp::from_secs(2));
    assert!(!counted.is_granted());

    let (store, _, [granted, limited]) = flood(OnFull::Deny);
    assert_eq!((granted, limited), (store.len(), 100_000 - store.len()));
    let (_, _, [granted, _]) = flood(OnFull::Allow);
    assert_eq!(granted, 100_000);
}

#[test]
fn a_key_without_memory_is_limited_with_a_retry_time() {
    let (store, limit, _) = flood(OnFull::Deny);
    let answer = store.cl_throttle(&limit, b"new", &call(0, 1, 3_600, 1), Timestamp::from_secs(1));
    assert_eq!(answer.to_integers(), [1, 1, 0, 1, 0]);
}

#[test]
fn peeks_take_no_memory() {
    let (store, limit) = (MemoryStore::default(), Limit::new("cl.throttle", TimeDebt));
    for key in 0..1_000_u32 {
        let answer = store.cl_throttle(&limit, &key.to_be_bytes(), &call(0, 1, 60, 0), Timestamp::from_secs(1));
        assert!(answer.is_granted());
    }
    assert_eq!(store.len(), 0);
}

#[test]
fn paid_debts_are_dropped() {
    let (store, limit) = (MemoryStore::default(), Limit::new("cl.throttle", TimeDebt));
    let _ = store.cl_throttle(&limit, b"a", &call(0, 1, 60, 1), Timestamp::from_secs(1));
    store.reclaim(Timestamp::from_millis(60_999));
    assert_eq!(store.len(), 1);
    store.reclaim(Timestamp::from_secs(61));
    assert_eq!(store.len(), 0);
}

proptest! {
    /// The store equals one state for each key, whatever the parameters and the key spaces.
    #[test]
    fn the_store_equals_the_states(
        steps in prop::collection::vec((0..3_u8, 0..2_usize, 0..4_i64, 1..6_i64, 1..3_i64, -2..4_i64, 0..2_000_000_000_u64), 1..60)
    ) {
        let store = MemoryStore::default();
        let limits = [Limit::new("cl.throttle", TimeDebt), Limit::new("cl.throttle:1", TimeDebt)];
        let mut states = HashMap::<_, TimeDebtState>::new();
        let mut now = Timestamp::from_secs(1);
        for (key, space, max_burst, count, period, quantity, wait) in steps {
            now = now + Duration::from_nanos(wait);
            let call = call(max_burst, count, period, quantity);
            let state = states.entry((key, space)).or_default();
            prop_assert_eq!(store.cl_throttle(&limits[space], &[key], &call, now), state.cl_throttle(&call, now));
            prop_assert_eq!(TimeDebt.is_fresh(state, now), state.debt(now).is_zero());
        }
    }

    /// Nothing overflows, and what is reported stays within the limit.
    #[test]
    fn any_call_answers(
        max_burst: i64, count: i64, period: i64, quantity: i64, nanos: u64, before in 0..100_000_u64, fast in 1..2_000_000_000_i64,
    ) {
        let now = Timestamp::from_nanos(nanos);
        for call in [ClThrottle::new(max_burst, count, period, quantity), ClThrottle::new(before.cast_signed(), fast, 1, quantity % 7)] {
            let Ok(call) = call else { continue };
            let mut state = TimeDebtState::default();
            for _ in 0..3 {
                let answer = state.cl_throttle(&call, now);
                prop_assert!(answer.status().remaining <= answer.status().limit);
                prop_assert!(answer.to_integers().iter().all(|number| *number >= -1));
            }
        }
    }
}
