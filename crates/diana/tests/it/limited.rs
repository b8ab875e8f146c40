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
fn heard<T>(answer: Result<T, Limited>) -> String {
    match answer {
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

#[rate_limit(rate = 5.0, burst = "1s", in = "flow")]
fn flow() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn spends_what_is_stored_and_one_more_then_one_an_interval() {
    let clock = limits("flow");
    for _ in 0..6 {
        assert_eq!(heard(flow()), "ran");
    }
    assert_eq!(heard(flow()), "limited: come again in 200ms");
    clock.advance(ms(199));
    assert_eq!(heard(flow()), "limited: come again in 1ms");
    clock.advance(ms(1));
    assert_eq!(heard(flow()), "ran");
    assert_eq!(heard(flow()), "limited: come again in 200ms");
}

/// Like the annotation of the essay that these come from: each call pays for itself, so one second's worth is granted
/// immediately.
mod defaults {
    use super::*;

    #[rate_limit(in = "default-rate")]
    fn rate() -> Result<(), Limited> {
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
    fn one_call_a_second_and_one_at_once() {
        let clock = limits("default-rate");
        assert_eq!(heard(rate()), "ran");
        assert_eq!(heard(rate()), "limited: come again in 1s");
        clock.advance(ms(999));
        assert_eq!(heard(rate()), "limited: come again in 1ms");
        clock.advance(ms(1));
        assert_eq!(heard(rate()), "ran");
        // However long it was quiet.
        clock.advance(ms(60_000));
        assert_eq!([heard(rate()), heard(rate())], ["ran", "limited: come again in 1s"]);
    }

    #[test]
    fn a_seconds_worth_goes_at_once() {
        let clock = limits("default-burst");
        for _ in 0..2 {
            for _ in 0..5 {
                assert_eq!(heard(burst()), "ran");
            }
            assert_eq!(heard(burst()), "limited: come again in 200ms");
            clock.advance(ms(1_000));
        }
        // Less than one call in a second is still one at once.
        let clock = limits("default-slow");
        assert_eq!([heard(slow()), heard(slow())], ["ran", "limited: come again in 2s"]);
        clock.advance(ms(2_000));
        assert_eq!(heard(slow()), "ran");
    }

    #[test]
    fn a_call_waits_for_its_own_permit_and_not_for_that_of_the_one_before() {
        let clock = limits("default-waits");
        assert_eq!(heard(waits()), "ran");
        assert_eq!(now(&clock), ms(0));
        assert_eq!(heard(waits()), "ran");
        assert_eq!(now(&clock), ms(1_000));
    }

    #[test]
    fn one_count_in_a_second() {
        let clock = limits("default-count");
        clock.advance(ms(300));
        assert_eq!(heard(count()), "ran");
        clock.advance(ms(999));
        assert_eq!(heard(count()), "limited: come again in 1ms");
        clock.advance(ms(1));
        assert_eq!(heard(count()), "ran");
    }
}

#[rate_limit(rate = 5, burst = "0s", timeout = "400ms", in = "waits")]
fn waits() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn waits_for_its_turn_exactly_and_for_no_longer_than_the_time_out() {
    let clock = limits("waits");
    // Waiting moves this clock.
    assert_eq!(heard(waits()), "ran");
    assert_eq!(now(&clock), ms(0));
    assert_eq!(heard(waits()), "ran");
    assert_eq!(now(&clock), ms(200));
    assert_eq!(heard(waits()), "ran");
    assert_eq!(now(&clock), ms(400));
}

#[rate_limit(rate = 2, burst = "0s", timeout = "499ms", in = "too-long")]
fn has_no_time() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_wait_beyond_the_time_out_is_refused_at_once_and_charges_nothing() {
    let clock = limits("too-long");
    assert_eq!(heard(has_no_time()), "ran");
    assert_eq!(heard(has_no_time()), "limited: come again in 500ms");
    assert_eq!(now(&clock), ms(0));
    clock.advance(ms(1));
    assert_eq!(heard(has_no_time()), "ran");
    assert_eq!(now(&clock), ms(500));
}

#[count_limit(limit = 2, period = "1min", in = "counts")]
fn counts() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_period_begins_with_its_first_call() {
    let clock = limits("counts");
    clock.advance(ms(50_000));
    assert_eq!(heard(counts()), "ran");
    clock.advance(ms(20_000));
    assert_eq!(heard(counts()), "ran");
    assert_eq!(heard(counts()), "limited: come again in 40s");
    clock.advance(ms(40_000));
    assert_eq!(heard(counts()), "ran");
}

struct User {
    id: u32,
    name: String,
}

impl User {
    fn shown(&self) -> impl Display {
        format!("<{}>", self.name)
    }
}

#[count_limit(limit = 1, period = "1h", by = "{user.id}", in = "fields")]
fn by_field(user: &User) -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1, period = "1h", key = "{user.shown()}/{key + 1} {{}}", in = "fields")]
fn by_call(user: User, key: u8) -> Result<String, Limited> {
    Ok(user.name) // still there, and may be moved
}

#[test]
fn counts_by_fields_and_calls_of_the_arguments() {
    limits("fields");
    let user = |id| User { id, name: "ann".to_owned() };
    assert_eq!(heard(by_field(&user(1))), "ran");
    assert_eq!(heard(by_field(&user(2))), "ran");
    assert_eq!(heard(by_field(&user(1))), "limited for 1: come again in 1h");
    assert_eq!(by_call(user(1), 1).unwrap(), "ann");
    assert_eq!(heard(by_call(user(2), 1)), "limited for <ann>/2 {}: come again in 1h");
    assert_eq!(heard(by_call(user(2), 2)), "ran");
}

#[count_limit(limit = 1, period = "1h", by = "{a}{b}", in = "parts")]
fn by_parts(a: &str, b: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn parts_that_read_alike_together_are_different_keys() {
    limits("parts");
    assert_eq!(heard(by_parts("1", "23")), "ran");
    assert_eq!(heard(by_parts("12", "3")), "ran");
    assert_eq!(heard(by_parts("", "123")), "ran");
    assert_eq!(heard(by_parts("12", "3")), "limited for 123: come again in 1h");
}

#[count_limit(limit = 1, period = "1h", by = ip, in = "ip")]
fn by_ip() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn counts_by_address_and_all_without_one_together() {
    limits("ip");
    let call = |ip: IpAddr| heard(Caller::new().with_ip(ip).enter(by_ip));
    let mapped: Ipv6Addr = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(call([192, 0, 2, 1].into()), "ran");
    assert_eq!(call(mapped.into()), "limited for 192.0.2.1: come again in 1h");
    // A customer has a whole /64.
    let v6 = |text: &str| call(text.parse::<Ipv6Addr>().unwrap().into());
    assert_eq!(v6("2001:db8:0:1::1"), "ran");
    assert_eq!(v6("2001:db8:0:1:ffff::"), "limited for 2001:db8:0:1::/64: come again in 1h");
    assert_eq!(v6("2001:db8:0:2::1"), "ran");
    assert_eq!(heard(by_ip()), "ran");
    assert_eq!(heard(by_ip()), "limited for (nobody): come again in 1h");
    let limited = Caller::new().with_user("ann").enter(by_ip).unwrap_err();
    assert!(limited.is_nobodys(), "{limited}");
}

#[count_limit(limit = 1, period = "1h", by = user, key = "{item}", in = "user")]
fn by_user(item: u8) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn counts_by_user_and_key_together() {
    limits("user");
    let call = |user: &str, item| heard(Caller::new().with_user(user).enter(|| by_user(item)));
    assert_eq!(call("ann", 1), "ran");
    assert_eq!(call("ann", 2), "ran");
    assert_eq!(call("ann1", 1), "ran");
    assert_eq!(call("ann", 1), "limited for ann, 1: come again in 1h");
    // Who is called so is somebody.
    assert_eq!(call("(nobody)", 1), "ran");
    let limited = Caller::new().with_user("(nobody)").enter(|| by_user(1)).unwrap_err();
    assert_eq!((limited.key(), limited.is_nobodys()), (Some("(nobody), 1"), false));
    assert_eq!(call("", 1), "ran");
    assert_eq!(heard(by_user(1)), "ran");
    assert_eq!(heard(by_user(1)), "limited for (nobody), 1: come again in 1h");
}

#[rate_limit(rate = 1, burst = "0s", in = "generic")]
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
    assert_eq!(heard(generic("one")), "limited: come again in 1s");
    clock.advance(ms(1_000));
    assert_eq!(generic("one").unwrap(), "one");
}

struct Shop {
    name: &'static str,
}

struct Bank;

trait WindowStart {
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

impl WindowStart for Shop {
    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn open(&mut self) -> Result<(), Limited> {
        Ok(())
    }
}

impl WindowStart for Bank {
    #[count_limit(limit = 1, period = "1h", in = "methods")]
    fn open(&mut self) -> Result<(), Limited> {
        Ok(())
    }
}

#[test]
fn methods_of_the_same_name_count_apart() {
    limits("methods");
    let (mut here, there) = (Shop { name: "here" }, Shop { name: "there" });
    assert_eq!(heard(here.sell()), "ran");
    assert_eq!(heard(there.sell()), "ran");
    assert_eq!(heard(Bank.sell()), "ran");
    let limited = here.sell().unwrap_err();
    assert_eq!((limited.function(), limited.name()), ("it::limited::sell", "shop:it::limited::sell"));
    assert_eq!(heard(Err::<(), _>(limited)), "limited for here: come again in 1h");
    assert_eq!(heard(here.open()), "ran");
    assert_eq!(heard(Bank.open()), "ran");
    assert_eq!(heard(here.open()), "limited: come again in 1h");
    // A method that a trait gives is one function for all who have it.
    assert_eq!(heard(here.shut()), "ran");
    assert_eq!(heard(Bank.shut()), "limited: come again in 1h");
}

#[count_limit(limit = 1, period = "1h", on_limit = instead, in = "instead")]
fn greeting(name: &str) -> String {
    format!("hello {name}")
}

fn instead(limited: Limited) -> String {
    format!("later, in {:?}", limited.retry_after().unwrap_or_default())
}

#[count_limit(limit = 1, period = "1h", on_limit = drop, in = "instead")]
fn nothing() {}

#[test]
fn on_limit_answers_instead() {
    limits("instead");
    assert_eq!(greeting("ann"), "hello ann");
    assert_eq!(greeting("ann"), "later, in 3600s");
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

type Made<T> = Result<T, Failed>;

#[count_limit(limit = 1, period = "1h", in = "own-error")]
fn own_error() -> Made<impl Display> {
    Ok("made")
}

#[test]
fn a_refusal_is_an_error_of_the_functions_own() {
    limits("own-error");
    assert_eq!(own_error().map(|made| made.to_string()).unwrap(), "made");
    let failed = own_error().map(|made| made.to_string()).unwrap_err();
    assert_eq!(failed.0, "`it::limited::own_error` is limited: come again in 1h");
}

#[rate_limit(rate = 1, burst = "9s", by = "{id}", in = "two")]
#[count_limit(limit = 2, period = "1h", by = "{id}", in = "two")]
fn has_two(id: u8) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_may_have_several_limits() {
    limits("two");
    assert_eq!(heard(has_two(1)), "ran");
    assert_eq!(heard(has_two(1)), "ran");
    assert_eq!(heard(has_two(1)), "limited for 1: come again in 1h");
    assert_eq!(heard(has_two(2)), "ran");
}

#[test]
fn the_body_of_a_refused_call_has_not_begun() {
    #[count_limit(limit = 1, period = "1h", in = "body")]
    fn adds(to: &mut u32) -> Result<(), Limited> {
        *to += 1;
        Ok(())
    }
    limits("body");
    let mut sum = 0;
    assert_eq!(heard(adds(&mut sum)), "ran");
    assert_eq!(heard(adds(&mut sum)), "limited: come again in 1h");
    assert_eq!(sum, 1);
}

mod names {
    //! Items with the same names as those in the generated code.
    #![allow(non_camel_case_types, non_upper_case_globals, dead_code, reason = "that is what it is about")]

    use super::{Limited, Limits, ManualClock};
    use diana as limits;

    const part: u8 = 1;
    const key: u8 = 2;
    struct pass;
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
        ($by:expr, $answer:path, $name:ident) => {
            #[diana::count_limit(limit = 1, period = "1h", by = $by, on_limit = $answer, in = "names")]
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
    fn nothing_of_it_is_in_the_way() {
        Limits::new().with_clock(ManualClock::new()).install_as("names");
        assert_eq!((counts(7), counts(8)), (Ok(6), Ok(6)));
        assert_eq!(counts(7).unwrap_err().key(), Some("7"));
        assert_eq!((through_a_macro(), through_a_macro()), (1, 2));
    }
}
