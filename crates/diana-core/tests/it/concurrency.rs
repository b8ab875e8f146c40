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
fn as_many_as_the_limit_are_in_flight() {
    let mut key = pool(2);
    assert_eq!(key.ask(1), "granted, 1 left");
    assert_eq!(key.ask(1), "granted, 0 left");
    assert_eq!(key.ask(1), "denied until something is returned");
    key.clock.advance(secs(1_000_000));
    assert_eq!(key.wait_for(1), "denied until something is returned");
    assert_eq!(key.refund_nth(0), Refund::Returned);
    assert_eq!(key.ask(1), "granted, 0 left");
}

#[test]
fn a_cost_above_the_limit_is_denied_for_good() {
    let mut key = pool(2);
    key.ask(1);
    assert_eq!(key.ask(2), "denied until something is returned");
    assert_eq!(key.ask(3), "denied for good");
}

#[test]
fn a_second_refund_does_not_underflow() {
    let mut key = pool(2);
    key.ask(2);
    assert_eq!(key.refund_nth(0), Refund::Returned);
    assert_eq!(key.refund_nth(0), Refund::Void);
    assert_eq!(key.ask(3), "denied for good");
    assert_eq!(key.ask(2), "granted, 0 left");
}

#[test]
fn those_beyond_the_limit_wait_longer_the_more_there_are() {
    let mut key = slower_pool();
    assert_eq!(key.wait_for(1), "granted, 4 left");
    assert_eq!(key.wait_for(1), "granted, 3 left");
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
    assert_eq!(key.wait_for(1), "granted after 100ms, 1 left");
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 left");
    assert_eq!(key.wait_for(1), "denied until something is returned");
}

#[test]
fn the_impatient_are_not_let_in_beyond_the_limit() {
    let mut key = slower_pool();
    key.ask(2);
    assert_eq!(key.ask(1), "denied until something is returned");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(99))), "denied until something is returned");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(100))), "granted after 100ms, 2 left");
}

#[test]
fn each_one_that_leaves_tells_how_long_it_took() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
    key.clock.advance(ms(400));
    // Admitted after 100 ms, so served for 300: the unit is (300 + 100) / 2.
    key.refund_nth(1);
    assert_eq!(key.wait_for(1), "granted after 200ms, 2 left");
}

#[test]
fn one_that_left_before_it_was_let_in_teaches_nothing() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
    key.clock.advance(ms(50));
    key.refund_nth(1);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
}

#[test]
fn an_idle_key_has_forgotten_what_it_learned() {
    let mut key = slower_pool();
    key.wait_for(2);
    key.wait_for(1);
    key.clock.advance(secs(10));
    key.refund_nth(0);
    assert!(!key.is_fresh());
    key.refund_nth(1);
    assert!(key.is_fresh());
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
}

#[test]
fn a_lower_limit_waits_for_all_that_are_in_flight() {
    let mut key = pool(3);
    key.ask(1);
    key.ask(1);
    key.ask(1);
    key.rescale(Concurrency::new(1).unwrap());
    key.refund_nth(0);
    key.refund_nth(1);
    assert_eq!(key.ask(1), "denied until something is returned");
    key.refund_nth(2);
    assert_eq!(key.ask(1), "granted, 0 left");
}

#[test]
fn nonsense_is_not_a_limit() {
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
fn what_a_request_takes_is_learned_up_to_104_days() {
    let mut pool = Trial::new(Concurrency::new(1).unwrap().with_burst(3).with_delay(Duration::from_nanos(1)));
    for _ in 0..2 {
        assert!(pool.take_within(1, MaxWait::FOREVER).is_granted());
    }
    pool.clock.set(pool.clock.now() + Duration::from_secs(300 * 86_400));
    assert_eq!(pool.refund_nth(0), Refund::Returned);
    assert_eq!(pool.take_within(1, MaxWait::FOREVER).wait(), Some(Duration::from_nanos((1 << 53) - 1)));
    // A wait of twice that is denied.
    assert_eq!(pool.take_within(1, MaxWait::FOREVER).retry(), Some(Retry::WhenReturned));
}

proptest! {
    #[test]
    fn rejects_delays_and_learns_as_lua_resty_does(
        (max, burst, delay) in (1..5_u64, 0..10_u64, 0..1_000_000_u64),
        // Each step is a new request, or a request in flight finishes after some service time.
        steps in prop::collection::vec(prop::option::weighted(0.4, (any::<prop::sample::Index>(), 1..5_000_000_u64)), 1..100),
    ) {
        let pool = Concurrency::new(max).unwrap().with_burst(burst).with_delay(Duration::from_nanos(delay));
        let mut diana = Trial::new(pool);
        let mut lua = Lua { max, burst, default_delay: delay, conn: 0, unit: delay };
        let mut there = Vec::new();
        let mut came = 0;
        for step in steps {
            match step {
                None => {
                    let wait = lua.incoming();
                    prop_assert_eq!(diana.take_within(1, MaxWait::FOREVER).wait(), wait.map(Duration::from_nanos));
                    if let Some(wait) = wait {
                        let now = diana.clock.now().as_nanos();
                        there.push((came, now + wait));
                        came += 1;
                    }
                }
                Some(_) if there.is_empty() => {}
                Some((nth, served)) => {
                    let (nth, let_in) = there.swap_remove(nth.index(there.len()));
                    let leaves = diana.clock.now().as_nanos().max(let_in) + served;
                    diana.clock.set(Timestamp::from_nanos(leaves));
                    lua.leaving(leaves - let_in);
                    prop_assert_eq!(diana.refund_nth(nth), Refund::Returned);
                }
            }
            prop_assert_eq!(diana.status().remaining, max + burst - lua.conn);
        }
    }
}
