//! Which limits a function uses: those that are installed, and the error without any.
//!
//! One test, since installing is global to the process.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use diana::limited::{Cause, Limits};
use diana::{Limited, ManualClock, TableOptions, count_limit, rate_limit};

#[count_limit(limit = 1, period = "1h", by = "{id}")]
fn main_one(id: u32) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 0.001, burst = "0s", in = "other")]
fn other_one() -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1, period = "1h", on_limit = told)]
fn instead() -> String {
    "ran".to_owned()
}

fn told(limited: Limited) -> String {
    limited.to_string()
}

#[test]
fn functions_count_in_what_is_installed_at_the_time_of_the_call() {
    let limited = main_one(1).unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: None });
    assert_eq!(limited.retry_after(), None);
    assert_eq!(
        limited.to_string(),
        "`limited_install::main_one` has a limit, but nothing to count by: call \
         `diana::limited::Limits::new().install()` when the program starts"
    );
    assert!(instead().contains("nothing to count by"));

    let first = Limits::new().with_clock(ManualClock::new()).with_options(TableOptions::default().memory(1 << 20));
    first.install();
    assert!(first.is_empty());
    assert!(main_one(1).is_ok());
    assert!(main_one(1).is_err());
    assert_eq!(instead(), "ran");
    assert_eq!(first.len(), 2);

    // Another name is another matter, and what is remembered stays right.
    let limited = other_one().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: Some("other") });
    Limits::new().with_clock(ManualClock::new()).install_as("other");
    assert!(other_one().is_ok());
    assert!(other_one().is_err());
    assert!(main_one(1).is_err());

    // A newly installed one has counted nothing; the first, installed again, has kept its counts.
    Limits::new().with_clock(ManualClock::new()).install();
    assert!(main_one(1).is_ok());
    assert!(main_one(1).is_err());
    assert!(other_one().is_err());
    first.install();
    assert!(main_one(1).is_err());
    assert!(main_one(2).is_ok());

    // However many keys come, the memory has its ceiling.
    for id in 0..100_000 {
        let _whether_or_not = main_one(id);
    }
    assert!(first.memory_used() > 0);
    assert!(first.memory_used() <= 1 << 20, "{} bytes", first.memory_used());
    first.reclaim();
}
