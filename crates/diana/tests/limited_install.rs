//! Which limits a function uses: those that are installed, and the error without any.
//!
//! One test, since installing is global to the process.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use diana::limited::{Cause, Limits};
use diana::{Limited, ManualClock, TableOptions, count_limit, rate_limit};

#[count_limit(limit = 1, period = "1h", by = "{id}")]
fn default_instance(id: u32) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 0.001, burst = "0s", in = "other")]
fn named_instance() -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1, period = "1h", on_limit = message)]
fn with_fallback() -> String {
    "ran".to_owned()
}

fn message(limited: Limited) -> String {
    limited.to_string()
}

#[test]
fn functions_use_the_limits_that_are_installed_at_the_time_of_the_call() {
    let limited = default_instance(1).unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: None });
    assert_eq!(limited.retry_after(), None);
    assert_eq!(
        limited.to_string(),
        "`limited_install::default_instance` has a limit, but no `Limits` are installed: call \
         `diana::limited::Limits::new().install()` when the program starts"
    );
    assert!(with_fallback().contains("no `Limits` are installed"));

    let first = Limits::new().with_clock(ManualClock::new()).with_options(TableOptions::default().memory(1 << 20));
    first.install();
    assert!(first.is_empty());
    assert!(default_instance(1).is_ok());
    assert!(default_instance(1).is_err());
    assert_eq!(with_fallback(), "ran");
    assert_eq!(first.len(), 2);

    // A named instance is independent, and cached lookups stay valid.
    let limited = named_instance().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: Some("other") });
    Limits::new().with_clock(ManualClock::new()).install_as("other");
    assert!(named_instance().is_ok());
    assert!(named_instance().is_err());
    assert!(default_instance(1).is_err());

    // New limits have no counts; the first ones, installed again, have kept theirs.
    Limits::new().with_clock(ManualClock::new()).install();
    assert!(default_instance(1).is_ok());
    assert!(default_instance(1).is_err());
    assert!(named_instance().is_err());
    first.install();
    assert!(default_instance(1).is_err());
    assert!(default_instance(2).is_ok());

    // The memory is bounded for any number of keys.
    for id in 0..100_000 {
        let _result = default_instance(id);
    }
    assert!(first.memory_used() > 0);
    assert!(first.memory_used() <= 1 << 20, "{} bytes", first.memory_used());
    first.reclaim();
}
