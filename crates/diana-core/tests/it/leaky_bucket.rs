//! The leaky bucket, as transcripts and against a model of nginx; its laws are in tests/it/laws.rs.

use crate::support::{Trial, ms};
use diana_core::{LeakyBucket, MAX_PERMITS, MaxWait, Outcome, Quota, Refund};
use proptest::prelude::*;

fn ten_a_second() -> LeakyBucket {
    LeakyBucket::new("10/s".parse().unwrap())
}

#[test]
fn without_a_queue_grants_are_an_interval_apart() {
    let mut key = Trial::new(ten_a_second());
    assert_eq!(key.wait_for(1), "granted, 0 remaining");
    key.clock.advance(ms(99));
    assert_eq!(key.wait_for(1), "denied, retry after 1ms");
    key.clock.advance(ms(1));
    assert_eq!(key.wait_for(1), "granted, 0 remaining");
}

#[test]
fn the_burst_of_the_quota_is_ignored() {
    let mut key = Trial::new(LeakyBucket::new("10/s burst 50".parse().unwrap()));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 100ms");
}

#[test]
fn queued_requests_proceed_one_interval_apart_and_a_full_queue_denies() {
    let mut key = Trial::new(ten_a_second().with_queue(2));
    assert_eq!(key.wait_for(1), "granted, 2 remaining");
    assert_eq!(key.wait_for(1), "granted after 100ms, 1 remaining");
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
    assert_eq!(key.wait_for(1), "denied, retry after 100ms");
    key.clock.advance(ms(100));
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
}

#[test]
fn a_request_with_too_short_a_max_wait_is_not_queued() {
    let mut key = Trial::new(ten_a_second().with_queue(2));
    key.wait_for(1);
    key.wait_for(1);
    assert_eq!(key.ask(1), "denied, retry after 200ms");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(150))), "denied, retry after 50ms");
    key.clock.advance(ms(50));
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(150))), "granted after 150ms, 0 remaining");
}

#[test]
fn delay_lets_the_first_queued_requests_proceed_immediately() {
    let mut key = Trial::new(ten_a_second().with_queue(3).with_delay(1));
    assert_eq!(key.wait_for(1), "granted, 3 remaining");
    assert_eq!(key.wait_for(1), "granted, 2 remaining");
    assert_eq!(key.wait_for(1), "granted after 100ms, 1 remaining");
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
    assert_eq!(key.wait_for(1), "denied, retry after 100ms");
}

#[test]
fn nodelay_lets_all_queued_requests_proceed_immediately() {
    let mut key = Trial::new(ten_a_second().with_queue(2).without_delay());
    assert_eq!(key.ask(1), "granted, 2 remaining");
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 100ms");
}

#[test]
fn the_order_of_the_settings_does_not_matter() {
    assert_eq!(ten_a_second().with_queue(5).without_delay(), ten_a_second().without_delay().with_queue(5));
    assert_eq!(ten_a_second().with_queue(5).with_delay(2), ten_a_second().with_delay(2).with_queue(5));
}

#[test]
fn a_cost_takes_as_many_slots_and_proceeds_with_the_first() {
    let mut key = Trial::new(ten_a_second().with_queue(4));
    assert_eq!(key.wait_for(3), "granted, 2 remaining");
    assert_eq!(key.wait_for(2), "granted after 300ms, 0 remaining");
    assert_eq!(key.wait_for(6), "denied permanently");
}

#[test]
fn only_the_last_queued_request_can_be_refunded() {
    let mut key = Trial::new(ten_a_second().with_queue(2));
    key.wait_for(1);
    key.wait_for(1);
    key.wait_for(1);
    assert_eq!(key.refund_grant(1), Refund::Void);
    assert_eq!(key.refund_grant(2), Refund::Returned);
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
}

#[test]
fn with_nodelay_any_request_can_be_refunded() {
    let mut key = Trial::new(ten_a_second().with_queue(2).without_delay());
    key.ask(1);
    key.ask(1);
    key.ask(1);
    key.clock.advance(ms(50));
    assert_eq!(key.refund_grant(0), Refund::Returned);
    // Half of it was refilled, half was refunded.
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn a_changed_queue_keeps_its_requests() {
    let mut key = Trial::new(ten_a_second().with_queue(4));
    key.wait_for(1);
    key.wait_for(1);
    key.rescale(LeakyBucket::new("1/s".parse().unwrap()).with_queue(2));
    assert_eq!(key.wait_for(1), "granted after 2s, 0 remaining");
}

#[test]
fn the_queue_length_is_bounded() {
    assert_eq!(Trial::new(ten_a_second().with_queue(u64::MAX)).status().limit, MAX_PERMITS);
}

/// `ngx_http_limit_req_lookup` and `ngx_http_limit_req_account`, for one key: milliseconds, and thousandths of a
/// request.
struct Nginx {
    rate: u64,
    burst: u64,
    delay: u64,
    key: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq)]
enum Status {
    Passed,
    Delayed { ms: u64 },
    Rejected,
}

impl Nginx {
    fn ask(&mut self, now_ms: u64) -> Status {
        let excess = match self.key {
            None => 0,
            Some((excess, last)) => (excess + 1_000).saturating_sub(self.rate * (now_ms - last) / 1_000),
        };
        if excess > self.burst {
            return Status::Rejected;
        }
        self.key = Some((excess, now_ms));
        match excess.saturating_sub(self.delay) * 1_000 / self.rate {
            0 => Status::Passed,
            ms => Status::Delayed { ms },
        }
    }
}

/// Rates at which a thousandth of a request is a whole number of milliseconds' worth, so that nginx truncates nothing.
const EXACT: [u64; 12] = [1, 2, 4, 5, 8, 10, 20, 25, 50, 100, 200, 500];

proptest! {
    #[test]
    fn passes_delays_and_rejects_as_nginx_does(
        rate in prop::sample::select(&EXACT[..]),
        queue in 0..12_u64,
        delay in prop::option::of(0..14_u64),
        // In quarters of the interval and odd milliseconds, so that the queue both fills and drains.
        gaps in prop::collection::vec((0..7_u64, 0..3_u64), 1..200),
    ) {
        let bucket = LeakyBucket::new(Quota::per_second(rate).unwrap()).with_queue(queue);
        let bucket = delay.map_or(bucket.clone().without_delay(), |permits| bucket.with_delay(permits));
        let mut diana = Trial::new(bucket);
        let delay = delay.map_or(u64::MAX, |permits| permits * 1_000);
        let mut nginx = Nginx { rate: rate * 1_000, burst: queue * 1_000, delay, key: None };
        let mut now_ms = 0;
        for (quarters, odd) in gaps {
            let gap = quarters * 250 / rate + odd;
            now_ms += gap;
            diana.clock.advance(ms(gap));
            let status = match diana.take_within(1, MaxWait::FOREVER) {
                Outcome::Denied { .. } => Status::Rejected,
                Outcome::Granted { wait, .. } if wait.is_zero() => Status::Passed,
                Outcome::Granted { wait, .. } => {
                    prop_assert_eq!(wait.subsec_nanos() % 1_000_000, 0);
                    Status::Delayed { ms: u64::try_from(wait.as_millis()).unwrap() }
                }
            };
            prop_assert_eq!(status, nginx.ask(now_ms));
        }
    }
}
