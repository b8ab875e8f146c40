//! Days, weeks and months in a time zone.

use crate::support::{Trial, secs};
use diana_core::{Algorithm, Calendar, FixedWindow, InvalidQuota, InvalidWindow, Timestamp};

const HOUR: u64 = 3_600;

fn calendar(unit: Calendar, zone: &str) -> FixedWindow {
    FixedWindow::calendar(2, unit, zone).unwrap()
}

/// Parses a UTC time.
fn at(written: &str) -> Timestamp {
    let seconds = written.parse::<jiff::Timestamp>().unwrap().as_second();
    Timestamp::from_secs(u64::try_from(seconds).unwrap())
}

fn ends(unit: Calendar, zone: &str, now: &str) -> Timestamp {
    calendar(unit, zone).restored_at(at(now))
}

#[test]
fn a_day_ends_at_the_zone_s_midnight() {
    let mut key = Trial::at(at("2024-06-10T21:59:00Z"), calendar(Calendar::Day, "Europe/Berlin"));
    assert_eq!(key.ask(2), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 60s");
    key.clock.advance(secs(60)); // 00:00 in Berlin
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.describe_status(), "1 of 2, reset in 86400s");
}

#[test]
fn the_day_when_clocks_go_forward_has_23_hours() {
    let mut key = Trial::at(at("2024-03-30T23:00:00Z"), calendar(Calendar::Day, "Europe/Berlin"));
    assert_eq!(key.ask(2), "granted, 0 remaining");
    assert_eq!(key.describe_status(), "0 of 2, reset in 82800s");
    key.clock.advance(secs(23 * HOUR - 1));
    assert_eq!(key.ask(1), "denied, retry after 1s");
    key.clock.advance(secs(1));
    assert_eq!(key.ask(1), "granted, 1 remaining");
}

#[test]
fn the_day_when_clocks_go_back_has_25_hours() {
    let mut key = Trial::at(at("2024-10-26T22:00:00Z"), calendar(Calendar::Day, "Europe/Berlin"));
    assert_eq!(key.ask(2), "granted, 0 remaining");
    assert_eq!(key.describe_status(), "0 of 2, reset in 90000s");
    key.clock.advance(secs(24 * HOUR));
    assert_eq!(key.ask(1), "denied, retry after 3600s");
}

#[test]
fn a_week_starts_on_monday_and_a_month_on_the_first() {
    // 2024-02-26 is a Monday; 2024 is a leap year.
    assert_eq!(ends(Calendar::Week, "UTC", "2024-02-25T23:59:59Z"), at("2024-02-26T00:00:00Z"));
    assert_eq!(ends(Calendar::Week, "UTC", "2024-02-26T00:00:00Z"), at("2024-03-04T00:00:00Z"));
    assert_eq!(ends(Calendar::Month, "UTC", "2024-02-01T00:00:00Z"), at("2024-03-01T00:00:00Z"));
    assert_eq!(ends(Calendar::Month, "UTC", "2024-12-31T23:59:59Z"), at("2025-01-01T00:00:00Z"));
    // March in New York is an hour short of 31 days.
    assert_eq!(ends(Calendar::Month, "America/New_York", "2024-03-01T05:00:00Z"), at("2024-04-01T04:00:00Z"));
}

#[test]
fn a_skipped_midnight_is_the_first_instant_of_its_day() {
    // In São Paulo clocks went from 2018-11-03 24:00 to 2018-11-04 01:00, which is 03:00 UTC.
    assert_eq!(ends(Calendar::Day, "America/Sao_Paulo", "2018-11-04T02:59:59Z"), at("2018-11-04T03:00:00Z"));
    assert_eq!(ends(Calendar::Day, "America/Sao_Paulo", "2018-11-04T03:00:00Z"), at("2018-11-05T02:00:00Z"));
    // Samoa had no 2011-12-30 at all.
    assert_eq!(ends(Calendar::Day, "Pacific/Apia", "2011-12-30T09:59:59Z"), at("2011-12-30T10:00:00Z"));
}

#[test]
fn a_repeated_midnight_ends_the_day_at_its_next_occurrence() {
    // In St. John's clocks went from 00:01 back to 23:01 on 2010-11-07: midnight was at 02:30 and at 03:30 UTC.
    assert_eq!(ends(Calendar::Day, "America/St_Johns", "2010-11-07T02:29:59Z"), at("2010-11-07T02:30:00Z"));
    assert_eq!(ends(Calendar::Day, "America/St_Johns", "2010-11-07T03:00:00Z"), at("2010-11-07T03:30:00Z"));
}

#[test]
fn invalid_parameters_are_rejected_with_a_fix() {
    let error = FixedWindow::calendar(1, Calendar::Day, "Mars/Olympus").unwrap_err();
    assert_eq!(error, InvalidWindow::TimeZone("Mars/Olympus".to_owned()));
    assert!(error.to_string().contains("`Mars/Olympus`") && error.to_string().contains("`Europe/Berlin`"));
    assert!(FixedWindow::calendar(1, Calendar::Day, "").is_err());
    assert!(FixedWindow::calendar(1, Calendar::Day, "Etc/Unknown").is_err());
    let error = FixedWindow::calendar(0, Calendar::Day, "UTC").unwrap_err();
    assert_eq!(error, InvalidWindow::Quota(InvalidQuota::Count { what: "limit", value: 0 }));
}

#[test]
fn another_zone_keeps_the_count() {
    let mut key = Trial::at(at("2024-06-10T12:00:00Z"), calendar(Calendar::Day, "Europe/Berlin"));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    key.rescale(calendar(Calendar::Day, "UTC"));
    assert_eq!(key.describe_status(), "1 of 2, reset in 43200s");
}

#[test]
fn the_first_and_last_timestamps_are_safe() {
    for unit in [Calendar::Day, Calendar::Week, Calendar::Month] {
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Niue"] {
            let window = calendar(unit, zone);
            assert!(window.restored_at(Timestamp::EPOCH) > Timestamp::EPOCH);
            assert_eq!(window.restored_at(Timestamp::MAX), Timestamp::MAX);
            let mut key = Trial::at(Timestamp::MAX, window);
            assert_eq!(key.ask(2), "granted, 0 remaining");
            assert_eq!(key.ask(1), "denied permanently");
            assert!(!key.algorithm.is_fresh(&key.state, Timestamp::MAX));
        }
    }
}
