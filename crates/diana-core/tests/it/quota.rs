//! The text format of quotas: parsing, printing, and errors.

use diana_core::{InvalidQuota, MAX_PERMITS, Quota};
use proptest::prelude::*;
use std::time::Duration;

fn parse_error(text: &str) -> String {
    text.parse::<Quota>().unwrap_err().to_string()
}

#[test]
fn parses_all_forms() {
    let quota = |permits, secs| Quota::new(permits, Duration::from_secs(secs)).unwrap();
    for (text, expected) in [
        ("100/s", quota(100, 1)),
        ("100 / s", quota(100, 1)),
        ("100/second", quota(100, 1)),
        ("100 per second", quota(100, 1)),
        (" 1_000/h ", quota(1_000, 3_600)),
        ("5/10min", quota(5, 600)),
        ("5/10 minutes", quota(5, 600)),
        ("1/day", quota(1, 86_400)),
        ("1/W", quota(1, 604_800)),
        ("1/month", quota(1, 2_592_000)),
        ("100/s burst 200", quota(100, 1).with_burst(200).unwrap()),
        // Decimals: the same rate with whole numbers.
        ("0.5/s", quota(1, 2)),
        ("2.5/s", quota(5, 2)),
        ("0.1 per min", quota(1, 600)),
        ("1.0/s", quota(1, 1)),
        ("1_2.50/s burst 3", quota(25, 2).with_burst(3).unwrap()),
        ("0.000000001/s", quota(1, 1_000_000_000)),
    ] {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
    assert_eq!("1 per 200ms".parse(), Quota::new(1, Duration::from_millis(200)));
}

#[test]
fn prints_the_shortest_form() {
    let printed = |text: &str| text.parse::<Quota>().unwrap().to_string();
    assert_eq!(printed("100 per 1 second"), "100/s");
    assert_eq!(printed("5/600s"), "5/10min");
    assert_eq!(printed("60/60s burst 60"), "60/min");
    assert_eq!(printed("7/7days burst 3"), "7/week burst 3");
}

#[test]
fn errors_have_the_problem_and_a_fix() {
    let units = "expected one of ns, us, ms, s, min, h, day, week or month";
    for (text, problem) in [
        ("5/0s", "period 0: must be at least 1ns, as in `5/10min`".to_owned()),
        ("10/fortnight", format!("unknown unit of time `fortnight`; {units}")),
        ("0/s", "permits 0: must be a whole number from 1 to 9007199254740992".to_owned()),
        ("-1/s", "the count `-1` is not a whole number above 0".to_owned()),
        ("1.5/s", "the count `1.5` is not exact; write `3/2s`".to_owned()),
        ("0.7/min", "the count `0.7` is not exact; write `7/10min`".to_owned()),
        ("0.0/s", "permits 0: must be a whole number from 1 to 9007199254740992".to_owned()),
        (".5/s", "the count `.5` is not a whole number above 0".to_owned()),
        ("5./s", "the count `5.` is not a whole number above 0".to_owned()),
        ("1.2.3/s", "the count `1.2.3` is not a whole number above 0".to_owned()),
        ("0.0000000001/s", "the count `0.0000000001` has more than 9 decimal places".to_owned()),
        ("0.000000001/month", "`0.000000001` is less than one in 584 years".to_owned()),
        ("/s", "the count `` is not a whole number above 0".to_owned()),
        ("5/", format!("missing unit in ``; {units}")),
        ("5/10", format!("missing unit in `10`; {units}")),
        (
            "99999999999999999999/s",
            "the count `99999999999999999999` is too large; expected at most 9007199254740992".to_owned(),
        ),
        ("1/99999999999h", "`99999999999h` is longer than 584 years".to_owned()),
        ("1/99999999999999999999s", "`99999999999999999999` is too large a number".to_owned()),
        ("5/s burst 0", "burst 0: must be a whole number from 1 to 9007199254740992".to_owned()),
        ("1/1.5s", "`1.5s` is not a whole number of units; write `1500ms` for one and a half seconds".to_owned()),
        ("1/M", format!("unknown unit of time `M`; {units}")),
        ("5/s burst", "the burst `` is not a whole number above 0".to_owned()),
        ("5", "expected a count per time, such as `100/s`, `5/10min` or `1 per 200ms`".to_owned()),
        ("", "expected a count per time, such as `100/s`, `5/10min` or `1 per 200ms`".to_owned()),
    ] {
        assert_eq!(parse_error(text), format!("invalid quota `{text}`: {problem}"));
    }
}

#[test]
fn rejects_invalid_values() {
    assert_eq!(Quota::per_second(0), Err(InvalidQuota::Count { what: "permits", value: 0 }));
    assert_eq!(Quota::new(1, Duration::ZERO), Err(InvalidQuota::NoPeriod));
    assert_eq!(Quota::new(1, Duration::MAX), Err(InvalidQuota::PeriodTooLong(Duration::MAX)));
    assert!(Quota::per_second(MAX_PERMITS).is_ok());
    assert!(Quota::per_second(MAX_PERMITS + 1).is_err());
    assert!(Quota::per_second(1).unwrap().with_burst(MAX_PERMITS + 1).is_err());
}

/// Nanoseconds, mostly whole numbers of the larger units.
fn periods() -> impl Strategy<Value = u64> {
    let units = [1, 1_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000, 604_800_000_000_000];
    prop_oneof![
        1..=u64::MAX,
        (prop::sample::select(units.to_vec()), 1..1_000_u64).prop_map(|(unit, count)| unit * count),
    ]
}

proptest! {
    #[test]
    fn printed_quotas_parse_to_the_same_value(
        permits in 1..=MAX_PERMITS,
        period in periods(),
        burst in prop::option::of(1..=MAX_PERMITS),
    ) {
        let quota = Quota::new(permits, Duration::from_nanos(period)).unwrap();
        let quota = burst.map_or(quota, |burst| quota.with_burst(burst).unwrap());
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
    }

    #[test]
    fn parsing_never_panics_and_every_error_quotes_the_text(text in ".{0,24}|[0-9 _./-]{0,12}(s|min|burst|per){0,3}[0-9 ]{0,5}") {
        if let Err(error) = text.parse::<Quota>() {
            let quoted = format!("invalid quota `{text}`: ");
            prop_assert!(error.to_string().starts_with(&quoted));
        }
    }
}
