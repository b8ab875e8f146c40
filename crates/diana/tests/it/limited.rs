//! Limits on functions that aren't async: exact behaviour, with a manual clock.
//!
//! Each test has its own named limits, since all tests share one process.

use diana::limited::{Caller, Limits};
use diana::{Limited, ManualClock, count_limit, rate_limit};
use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Installs limits with this name, on a manual clock.
fn limits(name: &str) -> ManualClock {
    let clock = ManualClock::new();
    Limits::new().with_clock(clock.clone()).install_as(name);
    clock
}

/// Formats the result of a call.
fn outcome<T>(result: Result<T, Limited>) -> String {
    match result {
        Ok(_) => "ran".to_owned(),
        Err(limited) => {
            let text = limited.to_string();
            text.split_once("` is ").map_or(text.clone(), |(_, rest)| rest.to_owned())
        }
    }
}

fn now(clock: &ManualClock) -> Duration {
    use diana::{Clock, Timestamp};
    clock.now().since(Timestamp::EPOCH)
}

#[rate_limit(rate = 5.0, burst = 10, in = "flow")]
fn flow() -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 5.0, saved = "2s", algorithm = smooth_bursty, in = "guava-flow")]
fn guava_flow() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn grants_the_calls_of_the_burst_then_one_per_interval() {
    // Guava's next call pays for this one, so it grants one more.
    for (name, call, at_once) in [("flow", flow as fn() -> _, 10), ("guava-flow", guava_flow, 11)] {
        let clock = limits(name);
        for _ in 0..at_once {
            assert_eq!(outcome(call()), "ran");
        }
        assert_eq!(outcome(call()), "limited: retry after 200ms");
        clock.advance(ms(199));
        assert_eq!(outcome(call()), "limited: retry after 1ms");
        clock.advance(ms(1));
        assert_eq!(outcome(call()), "ran");
        assert_eq!(outcome(call()), "limited: retry after 200ms");
    }
}

#[rate_limit(rate = 2.5, in = "fraction")]
fn fraction() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn saved_calls_may_have_a_fraction_of_a_call() {
    let clock = limits("fraction");
    // 2.5 calls are stored; the half one is left.
    assert_eq!([outcome(fraction()), outcome(fraction())], ["ran", "ran"]);
    assert_eq!(outcome(fraction()), "limited: retry after 200ms");
    clock.advance(ms(200));
    assert_eq!([outcome(fraction()), outcome(fraction())], ["ran", "limited: retry after 400ms"]);
}

/// Like the Java annotations that these are modelled on: each call pays for itself, so one second's worth is granted
/// immediately.
mod defaults {
    use super::*;

    #[rate_limit(in = "default-rate")]
    fn rate() -> Result<(), Limited> {
        Ok(())
    }

    #[rate_limit(rate = 1, saved = "1s", in = "one")]
    fn one() -> Result<(), Limited> {
        Ok(())
    }

    #[rate_limit(rate = 5.0, in = "default-burst")]
    fn burst() -> Result<(), Limited> {
        Ok(())
    }

    #[rate_limit(rate = 0.5, in = "default-slow")]
    fn slow() -> Result<(), Limited> {
        Ok(())
    }

    #[rate_limit(timeout = "1s", in = "default-waits")]
    fn waits() -> Result<(), Limited> {
        Ok(())
    }

    #[count_limit(in = "default-count")]
    fn count() -> Result<(), Limited> {
        Ok(())
    }

    #[test]
    fn the_default_rate_is_one_call_per_second_with_a_burst_of_one() {
        let clock = limits("default-rate");
        assert_eq!(outcome(rate()), "ran");
        assert_eq!(outcome(rate()), "limited: retry after 1s");
        clock.advance(ms(999));
        assert_eq!(outcome(rate()), "limited: retry after 1ms");
        clock.advance(ms(1));
        assert_eq!(outcome(rate()), "ran");
        // However long it was idle.
        clock.advance(ms(60_000));
        assert_eq!([outcome(rate()), outcome(rate())], ["ran", "limited: retry after 1s"]);
    }

    #[test]
    fn a_rate_of_one_that_saves_a_second_is_one_call() {
        limits("one");
        assert_eq!([outcome(one()), outcome(one())], ["ran", "limited: retry after 1s"]);
    }

    #[test]
    fn the_default_burst_is_one_second_of_the_rate() {
        let clock = limits("default-burst");
        for _ in 0..2 {
            for _ in 0..5 {
                assert_eq!(outcome(burst()), "ran");
            }
            assert_eq!(outcome(burst()), "limited: retry after 200ms");
            clock.advance(ms(1_000));
        }
        // Even below one call per second, the burst is one.
        let clock = limits("default-slow");
        assert_eq!([outcome(slow()), outcome(slow())], ["ran", "limited: retry after 2s"]);
        clock.advance(ms(2_000));
        assert_eq!(outcome(slow()), "ran");
    }

    #[test]
    fn a_call_waits_for_its_own_permit() {
        let clock = limits("default-waits");
        assert_eq!(outcome(waits()), "ran");
        assert_eq!(now(&clock), ms(0));
        assert_eq!(outcome(waits()), "ran");
        assert_eq!(now(&clock), ms(1_000));
    }

    #[test]
    fn the_default_count_is_one_per_second() {
        let clock = limits("default-count");
        clock.advance(ms(300));
        assert_eq!(outcome(count()), "ran");
        clock.advance(ms(999));
        assert_eq!(outcome(count()), "limited: retry after 1ms");
        clock.advance(ms(1));
        assert_eq!(outcome(count()), "ran");
    }
}

#[rate_limit(rate = 5, burst = 1, timeout = "400ms", in = "waits")]
fn waits() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn waits_exactly_for_its_permit_up_to_the_timeout() {
    let clock = limits("waits");
    // Waiting moves this clock.
    assert_eq!(outcome(waits()), "ran");
    assert_eq!(now(&clock), ms(0));
    assert_eq!(outcome(waits()), "ran");
    assert_eq!(now(&clock), ms(200));
    assert_eq!(outcome(waits()), "ran");
    assert_eq!(now(&clock), ms(400));
}

#[rate_limit(rate = 2, burst = 1, timeout = "499ms", in = "short-timeout")]
fn short_timeout() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_wait_over_the_timeout_is_denied_immediately_and_charges_nothing() {
    let clock = limits("short-timeout");
    assert_eq!(outcome(short_timeout()), "ran");
    assert_eq!(outcome(short_timeout()), "limited: retry after 500ms");
    assert_eq!(now(&clock), ms(0));
    clock.advance(ms(1));
    assert_eq!(outcome(short_timeout()), "ran");
    assert_eq!(now(&clock), ms(500));
}

#[count_limit(limit = 2, period = "1min", in = "counts")]
fn counts() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_period_starts_with_its_first_call() {
    let clock = limits("counts");
    clock.advance(ms(50_000));
    assert_eq!(outcome(counts()), "ran");
    clock.advance(ms(20_000));
    assert_eq!(outcome(counts()), "ran");
    assert_eq!(outcome(counts()), "limited: retry after 40s");
    clock.advance(ms(40_000));
    assert_eq!(outcome(counts()), "ran");
}

struct User {
    id: u32,
    name: String,
}

impl User {
    fn tag(&self) -> impl Display {
        format!("<{}>", self.name)
    }
}

#[count_limit(limit = 1, period = "1h", by = "{user.id}", in = "fields")]
fn by_field(user: &User) -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1, period = "1h", key = "{user.tag()}/{key + 1} {{}}", in = "fields")]
fn by_call(user: User, key: u8) -> Result<String, Limited> {
    Ok(user.name) // the key only borrows it, so it may be moved
}

#[test]
fn counts_by_fields_and_calls_of_the_arguments() {
    limits("fields");
    let user = |id| User { id, name: "ann".to_owned() };
    assert_eq!(outcome(by_field(&user(1))), "ran");
    assert_eq!(outcome(by_field(&user(2))), "ran");
    assert_eq!(outcome(by_field(&user(1))), "limited for 1: retry after 1h");
    assert_eq!(by_call(user(1), 1).unwrap(), "ann");
    assert_eq!(outcome(by_call(user(2), 1)), "limited for <ann>/2 {}: retry after 1h");
    assert_eq!(outcome(by_call(user(2), 2)), "ran");
}

#[count_limit(limit = 1, period = "1h", by = "{a}{b}", in = "parts")]
fn by_parts(a: &str, b: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn parts_with_the_same_concatenation_are_different_keys() {
    limits("parts");
    assert_eq!(outcome(by_parts("1", "23")), "ran");
    assert_eq!(outcome(by_parts("12", "3")), "ran");
    assert_eq!(outcome(by_parts("", "123")), "ran");
    assert_eq!(outcome(by_parts("12", "3")), "limited for 123: retry after 1h");
}

#[count_limit(limit = 1, period = "1h", by = ip, in = "ip")]
fn by_ip() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn counts_by_address_and_unknown_addresses_together() {
    limits("ip");
    let call = |ip: IpAddr| outcome(Caller::new().with_ip(ip).enter(by_ip));
    let mapped: Ipv6Addr = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(call([192, 0, 2, 1].into()), "ran");
    assert_eq!(call(mapped.into()), "limited for 192.0.2.1: retry after 1h");
    // An IPv6 address is counted as its /64.
    let v6 = |text: &str| call(text.parse::<Ipv6Addr>().unwrap().into());
    assert_eq!(v6("2001:db8:0:1::1"), "ran");
    assert_eq!(v6("2001:db8:0:1:ffff::"), "limited for 2001:db8:0:1::/64: retry after 1h");
    assert_eq!(v6("2001:db8:0:2::1"), "ran");
    assert_eq!(outcome(by_ip()), "ran");
    assert_eq!(outcome(by_ip()), "limited for (unknown): retry after 1h");
    let limited = Caller::new().with_user("ann").enter(by_ip).unwrap_err();
    assert!(limited.is_unknown_caller(), "{limited}");
}

#[count_limit(limit = 1, period = "1h", by = user, key = "{item}", in = "user")]
fn by_user(item: u8) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn counts_by_user_and_key_together() {
    limits("user");
    let call = |user: &str, item| outcome(Caller::new().with_user(user).enter(|| by_user(item)));
    assert_eq!(call("ann", 1), "ran");
    assert_eq!(call("ann", 2), "ran");
    assert_eq!(call("ann1", 1), "ran");
    assert_eq!(call("ann", 1), "limited for ann, 1: retry after 1h");
    // A user with this name is not an unknown user.
    assert_eq!(call("(unknown)", 1), "ran");
    let limited = Caller::new().with_user("(unknown)").enter(|| by_user(1)).unwrap_err();
    assert_eq!((limited.key(), limited.is_unknown_caller()), (Some("(unknown), 1"), false));
    assert_eq!(call("", 1), "ran");
    assert_eq!(outcome(by_user(1)), "ran");
    assert_eq!(outcome(by_user(1)), "limited for (unknown), 1: retry after 1h");
}

#[rate_limit(rate = 1, burst = 1, in = "generic")]
fn generic<T>(value: T) -> Result<String, Limited>
where
    T: Display,
{
    Ok(value.to_string())
}

#[test]
fn all_instances_of_a_generic_function_count_together() {
    let clock = limits("generic");
    assert_eq!(generic(1).unwrap(), "1");
    assert_eq!(outcome(generic("one")), "limited: retry after 1s");
    clock.advance(ms(1_000));
    assert_eq!(generic("one").unwrap(), "one");
}

struct Shop {
    name: &'static str,
}

struct Bank;

trait Business {
    fn open(&mut self) -> Result<(), Limited>;

    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn shut(&self) -> Result<(), Limited> {
        Ok(())
    }
}

impl Shop {
    #[count_limit(limit = 1, period = "1h", by = "{self.name}", prefix = "shop:", in = "methods")]
    fn sell(&self) -> Result<(), Limited> {
        Ok(())
    }
}

impl Bank {
    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn sell(&self) -> Result<(), Limited> {
        Ok(())
    }
}

impl Business for Shop {
    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn open(&mut self) -> Result<(), Limited> {
        Ok(())
    }
}

impl Business for Bank {
    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn open(&mut self) -> Result<(), Limited> {
        Ok(())
    }
}

#[test]
fn methods_of_the_same_name_have_separate_counts() {
    limits("methods");
    let (mut first, second) = (Shop { name: "first" }, Shop { name: "second" });
    assert_eq!(outcome(first.sell()), "ran");
    assert_eq!(outcome(second.sell()), "ran");
    assert_eq!(outcome(Bank.sell()), "ran");
    let limited = first.sell().unwrap_err();
    assert_eq!((limited.function(), limited.name()), ("it::limited::sell", "shop:it::limited::sell"));
    assert_eq!(outcome(Err::<(), _>(limited)), "limited for first: retry after 1h");
    assert_eq!(outcome(first.open()), "ran");
    assert_eq!(outcome(Bank.open()), "ran");
    assert_eq!(outcome(first.open()), "limited: retry after 1h");
    // A provided method of a trait is one function for all its types.
    assert_eq!(outcome(first.shut()), "ran");
    assert_eq!(outcome(Bank.shut()), "limited: retry after 1h");
}

#[count_limit(limit = 1, period = "1h", on_limit = fallback, in = "fallback")]
fn greeting(name: &str) -> String {
    format!("hello {name}")
}

fn fallback(limited: Limited) -> String {
    format!("retry after {:?}", limited.retry_after().unwrap_or_default())
}

#[count_limit(limit = 1, period = "1h", on_limit = drop, in = "fallback")]
fn nothing() {}

#[test]
fn on_limit_returns_the_value_of_a_denied_call() {
    limits("fallback");
    assert_eq!(greeting("ann"), "hello ann");
    assert_eq!(greeting("ann"), "retry after 3600s");
    nothing();
    nothing();
}

#[derive(Debug)]
struct Failed(String);

impl From<Limited> for Failed {
    fn from(limited: Limited) -> Self {
        Self(limited.to_string())
    }
}

type OwnResult<T> = Result<T, Failed>;

#[count_limit(limit = 1, period = "1h", in = "own-error")]
fn own_error() -> OwnResult<impl Display> {
    Ok("ran")
}

#[test]
fn a_denial_is_converted_to_the_error_type_of_the_function() {
    limits("own-error");
    assert_eq!(own_error().map(|value| value.to_string()).unwrap(), "ran");
    let failed = own_error().map(|value| value.to_string()).unwrap_err();
    assert_eq!(failed.0, "`it::limited::own_error` is limited: retry after 1h");
}

#[rate_limit(rate = 1, burst = 9, by = "{id}", in = "two")]
#[count_limit(limit = 2, period = "1h", by = "{id}", in = "two")]
fn has_two(id: u8) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_may_have_several_limits() {
    limits("two");
    assert_eq!(outcome(has_two(1)), "ran");
    assert_eq!(outcome(has_two(1)), "ran");
    assert_eq!(outcome(has_two(1)), "limited for 1: retry after 1h");
    assert_eq!(outcome(has_two(2)), "ran");
}

#[test]
fn the_body_of_a_denied_call_does_not_run() {
    #[count_limit(limit = 1, period = "1h", in = "body")]
    fn adds(to: &mut u32) -> Result<(), Limited> {
        *to += 1;
        Ok(())
    }
    limits("body");
    let mut sum = 0;
    assert_eq!(outcome(adds(&mut sum)), "ran");
    assert_eq!(outcome(adds(&mut sum)), "limited: retry after 1h");
    assert_eq!(sum, 1);
}

mod names {
    //! Items with the same names as those in the generated code.
    #![allow(non_camel_case_types, non_upper_case_globals, dead_code, reason = "these names are tested")]

    use super::{Limited, Limits, ManualClock};
    use diana as limits;

    const part: u8 = 1;
    const key: u8 = 2;
    struct guard;
    struct limited;
    enum Result2 {
        Ok,
        Err,
    }

    #[limits::count_limit(limit = 1, period = "1h", by = "{id}", in = "names", crate = limits)]
    fn counts(id: usize) -> Result<u8, Limited> {
        const THREE: u8 = 3;
        fn inner() -> u8 {
            THREE
        }
        Ok(part + key + inner())
    }

    macro_rules! limited_by {
        ($by:expr, $on_limit:path, $name:ident) => {
            #[diana::count_limit(limit = 1, period = "1h", by = $by, on_limit = $on_limit, in = "names")]
            fn $name() -> u8 {
                1
            }
        };
    }

    fn two(_: Limited) -> u8 {
        2
    }

    limited_by!(ip, two, through_a_macro);

    #[test]
    fn generated_names_do_not_conflict() {
        Limits::new().with_clock(ManualClock::new()).install_as("names");
        assert_eq!((counts(7), counts(8)), (Ok(6), Ok(6)));
        assert_eq!(counts(7).unwrap_err().key(), Some("7"));
        assert_eq!((through_a_macro(), through_a_macro()), (1, 2));
    }
}
