//! The concurrency limit, as transcripts; its laws are in tests/laws.rs.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use diana_core::{Concurrency, MAX_PERMITS, Patience, Refund};
use support::{Trial, ms, secs};

fn pool(limit: u64) -> Trial<Concurrency> {
    Trial::new(Concurrency::new(limit).unwrap())
}

/// lua-resty's `conn`: two at once, two more after a wait, 100 ms to begin with.
fn slower_pool() -> Trial<Concurrency> {
    Trial::new(Concurrency::new(2).unwrap().burst(3).delay(ms(100)))
}

#[test]
fn as_many_as_the_limit_are_in_flight() {
    let mut key = pool(2);
    assert_eq!(key.ask(1), "granted, 1 left");
    assert_eq!(key.ask(1), "granted, 0 left");
    assert_eq!(key.ask(1), "denied until something is returned");
    key.clock.advance(secs(1_000_000));
    assert_eq!(key.wait_for(1), "denied until something is returned");
    assert_eq!(key.refund(0), Refund::Returned);
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
    assert_eq!(key.refund(0), Refund::Returned);
    assert_eq!(key.refund(0), Refund::Void);
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
    assert_eq!(key.ask_within(1, Patience::up_to(ms(99))), "denied until something is returned");
    assert_eq!(key.ask_within(1, Patience::up_to(ms(100))), "granted after 100ms, 2 left");
}

#[test]
fn each_one_that_leaves_tells_how_long_it_took() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
    key.clock.advance(ms(400));
    // Let in after 100 ms, so served for 300: the unit is (300 + 100) / 2.
    key.refund(1);
    assert_eq!(key.wait_for(1), "granted after 200ms, 2 left");
}

#[test]
fn one_that_left_before_it_was_let_in_teaches_nothing() {
    let mut key = slower_pool();
    key.wait_for(2);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
    key.clock.advance(ms(50));
    key.refund(1);
    assert_eq!(key.wait_for(1), "granted after 100ms, 2 left");
}

#[test]
fn an_idle_key_has_forgotten_what_it_learned() {
    let mut key = slower_pool();
    key.wait_for(2);
    key.wait_for(1);
    key.clock.advance(secs(10));
    key.refund(0);
    assert!(!key.is_fresh());
    key.refund(1);
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
    key.refund(0);
    key.refund(1);
    assert_eq!(key.ask(1), "denied until something is returned");
    key.refund(2);
    assert_eq!(key.ask(1), "granted, 0 left");
}

#[test]
fn nonsense_is_not_a_limit() {
    let zero = Concurrency::new(0).unwrap_err();
    assert_eq!(zero.to_string(), "concurrent 0: must be a whole number from 1 to 9007199254740992");
    assert!(Concurrency::new(MAX_PERMITS + 1).is_err());
    assert_eq!(Trial::new(Concurrency::new(2).unwrap().burst(u64::MAX)).standing().limit, MAX_PERMITS);
}
