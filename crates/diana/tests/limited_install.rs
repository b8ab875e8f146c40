//! Which limits a function uses: those that are installed, and the error without any.
//!
//! One test installs, since that is global to the process; the others have names that no test installs.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use diana::limited::{Caller, Cause, Limits};
use diana::{Limited, ManualClock, TableOptions, count_limit, rate_limit};
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;

#[count_limit(limit = 1, period = "1h", by = "{id}")]
fn default_instance(id: u32) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 0.001, burst = 1, in = "other")]
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

/// Every attribute, with instances that are never installed.
mod not_installed {
    use super::*;

    #[rate_limit(rate = 1, timeout = "1s", in = "a")]
    fn blocking() -> Result<(), Limited> {
        Ok(())
    }

    #[rate_limit(rate = 1, timeout = "1s", by = ip, in = "b")]
    async fn waiting() -> Result<(), Limited> {
        Ok(())
    }

    /// Polls once, outside of any runtime.
    fn now<T>(future: impl Future<Output = T>) -> T {
        futures_util::FutureExt::now_or_never(future).unwrap()
    }

    #[test]
    fn the_first_call_names_the_function_and_what_to_install() {
        let install = |name| format!("Limits::new().install_as({name:?})` when the program starts");
        for (result, name, instance) in [(blocking(), "blocking", "a"), (now(waiting()), "waiting", "b")] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(&format!("not_installed::{name}` has a limit in `{instance}`")), "{error}");
            assert!(error.ends_with(&install(instance)), "{error}");
        }
    }

    #[cfg(feature = "rules")]
    #[test]
    fn the_first_call_names_the_rule_too() {
        #[diana::limited("sms", in = "c")]
        fn blocking() -> Result<(), Limited> {
            Ok(())
        }

        #[diana::limited("sms")]
        async fn waiting() -> Result<(), Limited> {
            Ok(())
        }

        #[diana::limited("sms", in = "without-rules")]
        async fn without_rules() -> Result<(), Limited> {
            Ok(())
        }

        let error = blocking().unwrap_err().to_string();
        assert!(
            error.contains("::blocking` is limited by the rule `sms` in `c`, which is not installed: call"),
            "{error}"
        );
        assert!(error.contains("Limits::new().with_rules(engine).install_as(\"c\")`"), "{error}");
        // The default instance may be installed by now, without rules.
        let error = now(waiting()).unwrap_err().to_string();
        assert!(error.contains("::waiting`") && error.contains("the rule `sms`"), "{error}");
        assert!(error.contains("Limits::new().with_rules(engine)"), "{error}");
        Limits::new().install_as("without-rules");
        let error = now(without_rules()).unwrap_err().to_string();
        assert!(
            error.contains("::without_rules` names the rule `sms`, but the installed limits have no rules"),
            "{error}"
        );
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_first_call_with_shared_counts_names_the_function_too() {
        #[rate_limit(rate = 1, store = shared, in = "d")]
        fn blocking() -> Result<(), Limited> {
            Ok(())
        }

        #[count_limit(store = shared, in = "e")]
        async fn waiting() -> Result<(), Limited> {
            Ok(())
        }

        for (result, name, instance) in [(blocking(), "blocking", "d"), (now(waiting()), "waiting", "e")] {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains(&format!("::{name}` has a limit in `{instance}`, which is not installed")),
                "{error}"
            );
        }
    }
}

#[rate_limit(rate = 0.001, by = ip, in = "addresses")]
fn by_address() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn calls_without_an_address_share_a_count_and_one_warning() {
    let (log, clock) = (Log::default(), ManualClock::new());
    Limits::new().with_clock(clock).install_as("addresses");
    tracing::subscriber::with_default(log.subscriber(), || {
        assert!(by_address().is_ok());
        let denied = by_address().unwrap_err();
        assert_eq!((denied.key(), denied.is_unknown_caller()), (Some("(unknown)"), true));
        assert!(Caller::new().with_ip([192, 0, 2, 1]).enter(by_address).is_ok());
    });
    let log = log.text();
    assert_eq!(log.matches("a function with `by = ip` was called without the caller's address").count(), 1, "{log}");
    assert!(log.contains("WARN") && log.contains("into_make_service_with_connect_info"), "{log}");
}

#[cfg(feature = "rules")]
#[test]
fn calls_of_a_rule_without_an_address_share_a_count_and_one_warning() {
    #[diana::limited("each-address", in = "addresses-by-rule")]
    fn by_address() -> Result<(), Limited> {
        Ok(())
    }

    let file = diana::rules::Document::new(
        "diana.yaml",
        "rules: [{name: each-address, match: {call: true}, by: ip, limit: 1/h}]",
    );
    let file = diana::rules::RuleFile::read(&file, &diana::registry()).unwrap();
    Limits::new().with_rules(diana::Engine::new(&file)).install_as("addresses-by-rule");
    let log = Log::default();
    tracing::subscriber::with_default(log.subscriber(), || {
        assert!(by_address().is_ok());
        assert_eq!(by_address().unwrap_err().key(), Some("(unknown)"));
    });
    let log = log.text();
    let warning = "rule `each-address` counts by the client's address, which is unknown: set it around the call";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}

/// The lines that a test logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + use<> {
        let log = self.clone();
        tracing_subscriber::fmt().with_writer(move || log.clone()).finish()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn functions_use_the_limits_that_are_installed_at_the_time_of_the_call() {
    let limited = default_instance(1).unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: None, rule: None });
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
    assert_eq!(limited.cause(), &Cause::NotInstalled { instance: Some("other"), rule: None });
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
