//! The concurrency limit, as transcripts; its laws are in tests/it/laws.rs.

use crate::support::{Trial, ms, secs};
use diana_core::{Algorithm, Clock, Concurrency, MAX_PERMITS, MaxWait, Refund, Retry, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

fn pool(limit: u64) -> Trial<Concurrency> {
    Trial::new(Concurrency::new(limit).unwrap())
}

/// lua-resty's `conn`: two at once, two more after a wait, initially 100 ms.
fn slower_pool() -> Trial<Concurrency> {
    Trial::new(Concurrency::new(2).unwrap().with_burst(3).with_delay(ms(100)))
}

#[test]
fn grants_up_to_the_limit_in_flight() {
    let mut key = pool(2);
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry when permits are released");
    key.clock.advance(secs(1_000_000));
    assert_eq!(key.wait_for(1), "denied, retry when permits are released");
    assert_eq!(key.refund_grant(0), Refund::Returned);
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn a_cost_above_the_limit_is_denied_permanently() {
    let mut key = pool(2);
    key.ask(1);
    assert_eq!(key.ask(2), "denied, retry when permits are released");
    assert_eq!(key.ask(3), "denied permanently");
}

#[test]
fn a_second_refund_does_not_underflow() {
    let mut key = pool(2);
    key.ask(2);
    assert_eq!(key.refund_grant(0), Refund::Returned);
    assert_eq!(key.refund_grant(0), Refund::Void);
    assert_eq!(key.ask(3), "denied permanently");
    assert_eq!(key.ask(2), "granted, 0 remaining");
}

#[test]
fn requests_over_the_limit_wait_longer_the_more_there_are() {
    let mut key = slower_pool();
    assert_eq!(key.wait_for(1), "granted, 4 remaining");
    assert_eq!(key.wait_for(1), "granted, 3 remaining");
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 remaining");
    assert_eq!(key.wait_for(1), "granted after 100ms, 1 remaining");
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
    assert_eq!(key.wait_for(1), "denied, retry when permits are released");
}

#[test]
fn requests_over_the_limit_need_a_sufficient_max_wait() {
    let mut key = slower_pool();
    key.ask(2);
    assert_eq!(key.ask(1), "denied, retry when permits are released");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(99))), "denied, retry when permits are released");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(100))), "granted after 100ms, 2 remaining");
}

#[test]
fn each_finished_request_updates_the_learned_duration() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 remaining");
    key.clock.advance(ms(400));
    // Admitted after 100 ms, so served for 300: the unit is (300 + 100) / 2.
    key.refund_grant(1);
    assert_eq!(key.wait_for(1), "granted after 200ms, 2 remaining");
}

#[test]
fn a_request_released_before_its_admission_is_not_learned_from() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 remaining");
    key.clock.advance(ms(50));
    key.refund_grant(1);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 remaining");
}

#[test]
fn an_idle_key_drops_the_learned_duration() {
    let mut key = slower_pool();
    key.wait_for(2);
    key.wait_for(1);
    key.clock.advance(secs(10));
    key.refund_grant(0);
    assert!(!key.is_fresh());
    key.refund_grant(1);
    assert!(key.is_fresh());
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 remaining");
}

#[test]
fn a_lower_limit_waits_for_all_permits_in_flight() {
    let mut key = pool(3);
    key.ask(1);
    key.ask(1);
    key.ask(1);
    key.rescale(Concurrency::new(1).unwrap());
    key.refund_grant(0);
    key.refund_grant(1);
    assert_eq!(key.ask(1), "denied, retry when permits are released");
    key.refund_grant(2);
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn rejects_invalid_limits() {
    let zero = Concurrency::new(0).unwrap_err();
    assert_eq!(zero.to_string(), "concurrent 0: must be a whole number from 1 to 9007199254740992");
    assert!(Concurrency::new(MAX_PERMITS + 1).is_err());
    assert_eq!(Trial::new(Concurrency::new(2).unwrap().with_burst(u64::MAX)).status().limit, MAX_PERMITS);
}

#[test]
fn a_key_takes_two_words() {
    assert_eq!(size_of::<<Concurrency as Algorithm>::State>(), 16);
}

/// lua-resty-limit-traffic's `resty.limit.conn` for one key, in nanoseconds; like ours it drops its unit when idle.
struct Lua {
    max: u64,
    burst: u64,
    default_delay: u64,
    conn: u64,
    unit: u64,
}

impl Lua {
    fn incoming(&mut self) -> Option<u64> {
        let conn = self.conn + 1;
        if conn > self.max + self.burst {
            return None;
        }
        self.conn = conn;
        Some(if conn > self.max { self.unit * ((conn - 1) / self.max) } else { 0 })
    }

    fn leaving(&mut self, latency: u64) {
        self.conn -= 1;
        self.unit = if self.conn == 0 { self.default_delay } else { (latency + self.unit) / 2 };
    }
}

/// Redis keeps numbers up to 2^53, and both stores must learn the same.
#[test]
fn durations_are_learned_up_to_104_days() {
    let mut pool = Trial::new(Concurrency::new(1).unwrap().with_burst(3).with_delay(Duration::from_nanos(1)));
    for _ in 0..2 {
        assert!(pool.take_within(1, MaxWait::FOREVER).is_granted());
    }
    pool.clock.set(pool.clock.now() + Duration::from_secs(300 * 86_400));
    assert_eq!(pool.refund_grant(0), Refund::Returned);
    assert_eq!(pool.take_within(1, MaxWait::FOREVER).wait(), Some(Duration::from_nanos((1 << 53) - 1)));
    // A wait of twice that is denied.
    assert_eq!(pool.take_within(1, MaxWait::FOREVER).retry(), Some(Retry::WhenReleased));
}

proptest! {
    #[test]
    fn denies_delays_and_learns_as_lua_resty_does(
        (max, burst, delay) in (1..5_u64, 0..10_u64, 0..1_000_000_u64),
        // Each step is a new request, or a request in flight finishes after some service time.
        steps in prop::collection::vec(prop::option::weighted(0.4, (any::<prop::sample::Index>(), 1..5_000_000_u64)), 1..100),
    ) {
        let pool = Concurrency::new(max).unwrap().with_burst(burst).with_delay(Duration::from_nanos(delay));
        let mut diana = Trial::new(pool);
        let mut lua = Lua { max, burst, default_delay: delay, conn: 0, unit: delay };
        let mut in_flight = Vec::new();
        let mut granted = 0;
        for step in steps {
            match step {
                None => {
                    let wait = lua.incoming();
                    prop_assert_eq!(diana.take_within(1, MaxWait::FOREVER).wait(), wait.map(Duration::from_nanos));
                    if let Some(wait) = wait {
                        let now = diana.clock.now().as_nanos();
                        in_flight.push((granted, now + wait));
                        granted += 1;
                    }
                }
                Some(_) if in_flight.is_empty() => {}
                Some((index, served)) => {
                    let (grant, admitted) = in_flight.swap_remove(index.index(in_flight.len()));
                    let finished = diana.clock.now().as_nanos().max(admitted) + served;
                    diana.clock.set(Timestamp::from_nanos(finished));
                    lua.leaving(finished - admitted);
                    prop_assert_eq!(diana.refund_grant(grant), Refund::Returned);
                }
            }
            prop_assert_eq!(diana.status().remaining, max + burst - lua.conn);
        }
    }
}
