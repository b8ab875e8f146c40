//! The total, as transcripts; its laws are in tests/it/laws.rs.

use crate::support::{Trial, secs};
use diana_core::{MAX_PERMITS, Refund, Total};

fn total(limit: u64) -> Trial<Total> {
    Trial::new(Total::new(limit).unwrap())
}

#[test]
fn used_permits_are_never_restored() {
    let mut key = total(3);
    assert_eq!(key.ask(2), "granted, 1 remaining");
    assert_eq!(key.ask(2), "denied permanently");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    key.clock.advance(secs(1_000_000_000));
    assert_eq!(key.wait_for(1), "denied permanently");
    assert!(!key.is_fresh());
}

#[test]
fn a_refund_restores_permits() {
    let mut key = total(2);
    key.ask(2);
    assert_eq!(key.refund_grant(0), Refund::Returned);
    assert_eq!(key.ask(1), "granted, 1 remaining");
}

#[test]
fn a_second_refund_of_all_is_void() {
    let mut key = total(2);
    key.ask(2);
    assert_eq!(key.refund_grant(0), Refund::Returned);
    assert_eq!(key.refund_grant(0), Refund::Void);
    assert_eq!(key.status().remaining, 2);
    assert!(!key.is_fresh(), "a used key is never dropped");
}

#[test]
fn a_charge_may_exceed_the_limit() {
    let mut key = total(2);
    key.ask(1);
    key.charge(5);
    assert_eq!(key.ask(1), "denied permanently");
}

#[test]
fn a_changed_limit_keeps_the_usage() {
    let mut key = total(10);
    key.ask(4);
    key.rescale(Total::new(5).unwrap());
    assert_eq!(key.ask(1), "granted, 0 remaining");
    key.rescale(Total::new(100).unwrap());
    assert_eq!(key.ask(1), "granted, 94 remaining");
}

#[test]
fn rejects_invalid_totals() {
    assert_eq!(Total::new(0).unwrap_err().to_string(), "total 0: must be a whole number from 1 to 9007199254740992");
    assert!(Total::new(MAX_PERMITS).is_ok());
    assert!(Total::new(MAX_PERMITS + 1).is_err());
}
