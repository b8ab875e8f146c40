//! The total, as transcripts; its laws are in tests/it/laws.rs.

use crate::support::{Trial, secs};
use diana_core::{MAX_PERMITS, Refund, Total};

fn total(limit: u64) -> Trial<Total> {
    Trial::new(Total::new(limit).unwrap())
}

#[test]
fn what_is_used_up_stays_used_up() {
    let mut key = total(3);
    assert_eq!(key.ask(2), "granted, 1 left");
    assert_eq!(key.ask(2), "denied for good");
    assert_eq!(key.ask(1), "granted, 0 left");
    key.clock.advance(secs(1_000_000_000));
    assert_eq!(key.wait_for(1), "denied for good");
    assert!(!key.is_fresh());
}

#[test]
fn a_refund_gives_back() {
    let mut key = total(2);
    key.ask(2);
    assert_eq!(key.refund_nth(0), Refund::Returned);
    assert_eq!(key.ask(1), "granted, 1 left");
}

#[test]
fn a_second_refund_of_all_is_void() {
    let mut key = total(2);
    key.ask(2);
    assert_eq!(key.refund_nth(0), Refund::Returned);
    assert_eq!(key.refund_nth(0), Refund::Void);
    assert_eq!(key.status().remaining, 2);
    assert!(!key.is_fresh(), "a key that was seen is kept");
}

#[test]
fn a_charge_goes_beyond_the_limit() {
    let mut key = total(2);
    key.ask(1);
    key.charge(5);
    assert_eq!(key.ask(1), "denied for good");
}

#[test]
fn a_changed_limit_keeps_the_use() {
    let mut key = total(10);
    key.ask(4);
    key.rescale(Total::new(5).unwrap());
    assert_eq!(key.ask(1), "granted, 0 left");
    key.rescale(Total::new(100).unwrap());
    assert_eq!(key.ask(1), "granted, 94 left");
}

#[test]
fn nonsense_is_not_a_total() {
    assert_eq!(Total::new(0).unwrap_err().to_string(), "total 0: must be a whole number from 1 to 9007199254740992");
    assert!(Total::new(MAX_PERMITS).is_ok());
    assert!(Total::new(MAX_PERMITS + 1).is_err());
}
