//! The in-process store passes the suite, and the suite detects broken stores, each by the intended check.

mod broken;

use broken::{Broken, Fault};
use diana_core::conformance::{self, Report, SuiteOptions};
use diana_core::{MemoryStore, Store, TableOptions, Timestamp};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Runs a future that waits for nothing.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

fn run<S: Store>(suite: &SuiteOptions, make: impl Fn() -> S) -> Report {
    block_on(conformance::run(suite, async || make()))
}

fn passes(suite: &SuiteOptions, options: TableOptions) {
    let report = run(suite, || MemoryStore::new(options));
    assert!(report.passed(), "{report}");
    assert!(report.checks().len() > 300, "only {} checks were run", report.checks().len());
}

#[test]
fn the_store_passes_with_one_shard() {
    passes(&SuiteOptions::default(), TableOptions::default().shards(1));
}

#[test]
fn the_store_passes_with_the_maximum_of_shards() {
    passes(&SuiteOptions::default(), TableOptions::default().shards(256));
}

#[test]
fn the_store_passes_with_other_scripts_and_at_other_times() {
    for seed in 2..6 {
        let start = Timestamp::from_nanos(seed * 1_234_567_890_123_456_789);
        passes(&SuiteOptions::default().seed(seed).start(start).steps(1_000), TableOptions::default());
    }
}

#[test]
fn the_store_passes_with_coarser_time() {
    passes(&SuiteOptions::default().tick(Duration::from_micros(1)), TableOptions::default());
}

/// The suite must find `fault`, and the check of that name must be among those that fail.
fn catches(fault: Fault, check: &str) {
    let report = run(&SuiteOptions::default(), || Broken::new(fault));
    let failed = report.failures().map(|failure| failure.check).collect::<Vec<_>>();
    assert!(failed.contains(&check), "expected {check:?} to fail for {fault:?}, found {failed:#?}");
}

#[test]
fn a_store_that_charges_denied_requests_is_caught() {
    catches(Fault::ChargesDenials, "a denied request changes nothing");
}

#[test]
fn a_store_that_charges_until_one_limit_denies_is_caught() {
    catches(Fault::ChargesUntilDenied, "either every ask is charged or none");
}

#[test]
fn a_store_that_charges_the_same_count_twice_is_caught() {
    catches(Fault::ChargesDuplicates, "the same limit and key twice is charged once, at the higher cost");
}

#[test]
fn a_store_whose_peek_takes_is_caught() {
    catches(Fault::PeekTakes, "peek answers what decide would, and changes nothing");
}

#[test]
fn a_store_whose_peek_returns_the_status_after_is_caught() {
    catches(Fault::PeekReturnsStatusAfter, "peek answers what decide would, and changes nothing");
}

#[test]
fn a_store_that_ignores_refunds_is_caught() {
    catches(Fault::IgnoresRefunds, "a refund restores the permits of a grant");
}

#[test]
fn a_store_that_refunds_denials_is_caught() {
    catches(Fault::RefundsDenials, "a refund of a denial restores nothing");
}

#[test]
fn a_store_that_refunds_by_resetting_is_caught() {
    catches(Fault::RefundsAll, "a refund restores nothing that time has already restored");
}

#[test]
fn a_store_that_stops_charging_at_the_capacity_is_caught() {
    catches(Fault::AsksBeforeCharging, "a charge is unconditional, even over the limit");
}

#[test]
fn a_store_that_ignores_resets_is_caught() {
    catches(Fault::IgnoresResets, "a reset restores a key in full, and only that key");
}

#[test]
fn a_store_that_lets_time_go_back_is_caught() {
    catches(Fault::TimeGoesBack, "time that goes back restores nothing");
}

#[test]
fn a_store_that_truncates_keys_is_caught() {
    catches(Fault::TruncatesKeys, "keys are separate, whatever their bytes");
}

#[test]
fn a_store_that_ends_keys_at_a_nul_is_caught() {
    catches(Fault::EndsKeysAtNul, "keys are separate, whatever their bytes");
}

#[test]
fn a_store_that_reads_keys_as_text_is_caught() {
    catches(Fault::ReadsKeysAsText, "keys are separate, whatever their bytes");
}

#[test]
fn a_store_that_merges_limits_is_caught() {
    catches(Fault::MergesLimits, "limits with equal parameters are separate");
}

#[test]
fn a_store_that_loses_usage_when_a_limit_changes_is_caught() {
    catches(Fault::LosesUsageOnChange, "a lowered limit keeps each key's usage, clamped");
    catches(Fault::LosesUsageOnChange, "a raised limit keeps each key's usage");
    catches(Fault::LosesUsageOnChange, "a limit that changes to another algorithm keeps each key's usage, clamped");
}

#[test]
fn a_store_that_does_not_notice_changes_is_caught() {
    catches(Fault::IgnoresChanges, "once a limit has changed, asks with its old version use the new one");
}

#[test]
fn a_store_that_returns_a_retry_time_for_permanent_denials_is_caught() {
    catches(Fault::RetryForPermanentDenial, "temporary and permanent denials are distinguished");
}

#[test]
fn a_store_that_truncates_costs_to_32_bits_is_caught() {
    catches(Fault::TruncatesCosts, "extreme costs are counted correctly");
}

#[test]
fn a_store_that_drops_keys_early_is_caught() {
    catches(Fault::DropsKeysEarly, "a key that is full again answers like a fresh one");
}

#[test]
fn a_store_with_coarse_time_is_caught() {
    catches(Fault::RoundsTime, "the same asks at the same times get the algorithm's answers");
}

#[test]
fn a_store_that_ignores_the_max_wait_of_an_ask_is_caught() {
    catches(Fault::IgnoresMaxWaitOfAsk, "the same asks at the same times get the algorithm's answers");
}

#[test]
fn a_store_that_peeks_and_takes_in_two_steps_is_caught() {
    catches(Fault::TwoSteps, "concurrent requests act as if in some order");
}

#[test]
fn unsupported_algorithms_can_be_excluded() {
    let report = run(&SuiteOptions::default(), || Broken::new(Fault::LacksLogs));
    assert!(!report.passed());
    assert!(report.failures().all(|failure| failure.algorithm.is_empty() || failure.algorithm == "sliding_log"));
    assert!(report.to_string().contains("`SuiteOptions::without`"), "{report}");

    let report = run(&SuiteOptions::default().without("sliding_log"), || Broken::new(Fault::LacksLogs));
    assert!(report.passed(), "{report}");
}

#[test]
fn a_failure_has_the_operation_and_both_answers() {
    let report = run(&SuiteOptions::default(), || Broken::new(Fault::IgnoresResets));
    let failures = report.into_result().unwrap_err();
    let reset = failures.iter().find(|failure| failure.check.starts_with("a reset")).unwrap();
    assert_eq!(
        reset.to_string(),
        "a reset restores a key in full, and only that key (token_bucket, 5/s)
  operation: peek [1 of `token_bucket 5/s a` for \"x\"] at 1700000000.000000000s, MaxWait { nanos: 0 }
  expected:  granted 1, 5 of 5 remaining, reset in 0ns
  actual:    denied, retry after 10.2s, 0 of 5 remaining, reset in 11s"
    );
}

#[test]
fn the_algorithms_have_names() {
    let names = conformance::algorithms().collect::<Vec<_>>();
    assert!(names.starts_with(&["token_bucket", "refilling_bucket", "leaky_bucket"]));
    assert!(names.contains(&"sliding_log"));
}
