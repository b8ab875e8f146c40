//! How limits are parsed, and the problems that are reported for invalid ones.

use super::*;
use diana_core::{
    Calendar, Concurrency, Edge, FixedWindow, InitialPermits, LeakyBucket, RefillingBucket, SlidingLog, SlidingWindow,
    SmoothBursty, SmoothWarmingUp, TokenBucket, WindowStart,
};
use diana_document::Document;
use std::time::Duration;

/// Parses the limits of a rule.
fn limits(yaml: &str) -> Result<Vec<LimitRule>, String> {
    let document = Document::new("rule.yaml", yaml);
    let tree = document.parse().map_err(|error| error.to_string())?;
    let (registry, mut problems) = (Registry::default(), Vec::new());
    let mut rule = MapReader::of(&tree, "rule", LimitRule::fields(&registry), &mut problems).ok_or("no map")?;
    let limits = LimitRule::read(&mut rule, &registry, &mut problems);
    rule.finish(&mut problems);
    if problems.is_empty() { Ok(limits) } else { Err(document.problems(problems).to_string()) }
}

fn one_limit(yaml: &str) -> DynAlgorithm {
    let mut limits = limits(yaml).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(limits.len(), 1, "{limits:?}");
    limits.remove(0).configured
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

#[test]
fn parses_the_options_of_each_algorithm() {
    let ms = Duration::from_millis;
    let same = |yaml: &str, configured: DynAlgorithm| assert_eq!(one_limit(yaml), configured, "{yaml}");
    same("limit: 100/s", DynAlgorithm::from(TokenBucket::new(quota("100/s"))));
    same("limit: 100/s burst 200", DynAlgorithm::from(TokenBucket::new(quota("100/s burst 200"))));
    same("limit: {rate: 100/s, burst: 200}", DynAlgorithm::from(TokenBucket::new(quota("100/s burst 200"))));
    same("{limit: 100/s, burst: 200}", DynAlgorithm::from(TokenBucket::new(quota("100/s burst 200"))));
    same(
        "{limit: 1/2s, burst: 7, refill: {tokens: 5, every: 10s}}",
        DynAlgorithm::from(RefillingBucket::new(quota("5/10s burst 7"))),
    );
    same("{limit: 100/s, refill: {every: 10ms}}", DynAlgorithm::from(RefillingBucket::new(quota("1/10ms burst 100"))));
    same("{limit: 1/s, refill: {every: 1min}}", DynAlgorithm::from(RefillingBucket::new(quota("60/min"))));
    let leaky = || LeakyBucket::new(quota("500/s"));
    same("{limit: 500/s, algorithm: leaky_bucket}", DynAlgorithm::from(leaky()));
    same("{limit: 500/s, algorithm: leaky_bucket, burst: 50}", DynAlgorithm::from(leaky().with_queue(50)));
    same(
        "{limit: 500/s, algorithm: leaky_bucket, burst: 50, delay: 8}",
        DynAlgorithm::from(leaky().with_queue(50).with_delay(8)),
    );
    same(
        "{limit: 500/s, algorithm: leaky_bucket, burst: 5, nodelay: true}",
        DynAlgorithm::from(leaky().with_queue(5).without_delay()),
    );
    let window = || FixedWindow::new(quota("1/min"));
    same("{limit: 1/min, algorithm: fixed_window}", DynAlgorithm::from(window()));
    same(
        "{limit: 1/min, algorithm: fixed_window, opens: first_request}",
        DynAlgorithm::from(window().with_window_start(WindowStart::FirstRequest)),
    );
    same(
        "{limit: 1000/day, algorithm: fixed_window, time_zone: Europe/Berlin}",
        DynAlgorithm::from(FixedWindow::calendar(1_000, Calendar::Day, "Europe/Berlin").unwrap()),
    );
    let sliding = || SlidingWindow::new(quota("20/s"));
    same("{limit: 20/s, algorithm: sliding_window}", DynAlgorithm::from(sliding()));
    same(
        "{limit: 20/s, algorithm: sliding_window, buckets: 4}",
        DynAlgorithm::from(sliding().with_buckets(4).unwrap()),
    );
    same(
        "{limit: 20/s, algorithm: sliding_window, precision: 300ms}",
        // Four buckets: the window is longer than configured, never shorter.
        DynAlgorithm::from(sliding().with_precision(ms(300)).unwrap()),
    );
    assert_eq!(sliding().with_precision(ms(300)).unwrap().buckets(), 4);
    same(
        "{limit: 20/s, algorithm: sliding_window, precision: 50ms}",
        DynAlgorithm::from(sliding().with_precision(ms(50)).unwrap()),
    );
    same("{limit: 20/s, algorithm: sliding_window, edge: loose}", DynAlgorithm::from(sliding()));
    same(
        "{limit: 20/s, algorithm: sliding_window, edge: weighted}",
        DynAlgorithm::from(sliding().with_edge(Edge::Weighted)),
    );
    same(
        "{limit: 20/s, algorithm: sliding_window, buckets: 4, edge: strict}",
        DynAlgorithm::from(sliding().with_buckets(4).unwrap().with_edge(Edge::Strict)),
    );
    same("{limit: 20/s, algorithm: sliding_log}", DynAlgorithm::from(SlidingLog::new(quota("20/s"))));
    let smooth = SmoothBursty::new(5.0).unwrap();
    same(
        "{limit: 5/s, algorithm: smooth_bursty}",
        DynAlgorithm::from(smooth.with_initial_permits(InitialPermits::Full)),
    );
    same("{limit: 5/s, algorithm: smooth_bursty, starts: empty}", DynAlgorithm::from(smooth));
    // No permits are saved up, so the rate is even; Guava accepts this too, and also a start that is not slower when
    // cold.
    same(
        "{limit: 5/s, algorithm: smooth_bursty, burst_seconds: 0, starts: empty}",
        DynAlgorithm::from(smooth.with_saved_seconds(0.0).unwrap()),
    );
    same(
        "{limit: 5/s, algorithm: smooth_warming_up, warm_up: 10s, cold_factor: 1}",
        DynAlgorithm::from(SmoothWarmingUp::new(5.0, ms(10_000)).unwrap().with_cold_factor(1.0).unwrap()),
    );
    same(
        "{limit: 5/s, algorithm: smooth_warming_up, warm_up: 10s, cold_factor: 4}",
        DynAlgorithm::from(SmoothWarmingUp::new(5.0, ms(10_000)).unwrap().with_cold_factor(4.0).unwrap()),
    );
    same("every: 200ms", DynAlgorithm::from(MinInterval::new(ms(200)).unwrap()));
    same("total: 1_000", DynAlgorithm::from(Total::new(1_000).unwrap()));
    same("concurrent: 4", DynAlgorithm::from(Concurrency::new(4).unwrap()));
    same("concurrent: {limit: 4}", DynAlgorithm::from(Concurrency::new(4).unwrap()));
    same(
        "concurrent: {limit: 4, burst: 8, delay: 200ms}",
        DynAlgorithm::from(Concurrency::new(4).unwrap().with_burst(8).with_delay(ms(200))),
    );
}

#[test]
fn each_limit_of_a_list_has_its_own_options() {
    let all = limits("limit: [{rate: 100/s, burst: 200}, 20000/h, {rate: 5/s, algorithm: sliding_log}]").unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2].configured, DynAlgorithm::from(SlidingLog::new(quota("5/s"))));
    assert_eq!(all[1].written, "20000/h");
    assert!(
        limits("{limit: [1/s, 5/min], burst: 7}").unwrap_err().contains("`burst` is ambiguous beside several limits")
    );
}

#[test]
fn logs_of_one_list_are_one_log() {
    let all =
        limits("limit: [{rate: 1/s, algorithm: sliding_log}, 9/s, {rate: 5/min, algorithm: sliding_log}]").unwrap();
    let log = SlidingLog::several([quota("1/s"), quota("5/min")]).unwrap();
    assert_eq!(all.iter().map(|limit| &*limit.written).collect::<Vec<_>>(), ["1/s, 5/min", "9/s"]);
    assert_eq!(all[0].configured, DynAlgorithm::from(log));
}

#[test]
fn reports_all_problems_at_once() {
    let error =
        limits("limit:\n  - {rate: 0/s}\n  - {rate: 5/fortnight, burts: 3}\n  - {burst: 4}\n  - [1]\n  - true\n");
    assert_eq!(
        error.unwrap_err(),
        "\
rule.yaml:2:12: invalid limit `0/s`
  2 |   - {rate: 0/s}
    |            ^^^ permits 0: must be a whole number from 1 to 9007199254740992
rule.yaml:3:12: invalid limit `5/fortnight`
  3 |   - {rate: 5/fortnight, burts: 3}
    |            ^^^^^^^^^^^ unknown unit of time `fortnight`; expected one of ns, us, ms, s, min, h, day, week or month
rule.yaml:3:25: unknown limit field `burts`
  3 |   - {rate: 5/fortnight, burts: 3}
    |                         ^^^^^ did you mean `burst`?
rule.yaml:4:5: missing `rate` in limit
  4 |   - {burst: 4}
    |     ^ expected {rate: 100/s, burst: 200}
rule.yaml:5:5: invalid limit: found a list
  5 |   - [1]
    |     ^ expected 100/s, {rate: 100/s, burst: 200}, or a list of them
rule.yaml:6:5: invalid limit: found a boolean
  6 |   - true
    |     ^^^^ expected 100/s, {rate: 100/s, burst: 200}, or a list of them
"
    );
}

#[test]
fn reports_invalid_values_with_a_hint() {
    for (yaml, expected) in [
        ("{limit: 5/s, algorithm: sliding_windw}", "did you mean `sliding_window`?"),
        ("{limit: 5/s, algorithm: magic}", "expected one of `fixed_window`, `leaky_bucket`"),
        ("{limit: 5/s, buckets: 3}", "`token_bucket` has no option `buckets`"),
        ("{limit: 5/s, algorithm: sliding_window, buckets: 0}", "invalid value `0` for `buckets`"),
        ("{limit: 5/s, algorithm: sliding_window, buckets: 3, precision: 1s}", "cannot be used together"),
        ("{limit: 5/s, algorithm: sliding_window, precision: 1}", "missing unit"),
        ("concurrent: {burst: 8, delay: 1s}", "missing `limit` in `concurrent`"),
        ("concurrent: {limit: 4, burst: 8}", "add `delay: 200ms`"),
        ("concurrent: {limit: 4, delay: 1s}", "`delay` needs a `burst`"),
        ("concurrent: {limit: 4, burst: 8, delay: 0s}", "`burst` only raises the limit"),
        ("concurrent: {limit: 0}", "expected a whole number from 1"),
        ("concurrent: {limt: 4}", "did you mean `limit`?"),
        ("{limit: 5/s, algorithm: sliding_window, edge: sharp}", "`weighted`"),
        ("{limit: 5/s, algorithm: sliding_log, edge: strict}", "`sliding_log` has no option `edge`"),
        ("{limit: 5/s, algorithm: leaky_bucket, delay: 3, nodelay: true}", "cannot be used together"),
        ("{limit: 5/s, algorithm: leaky_bucket, nodelay: yes}", "expected true or false"),
        ("{limit: 5/h, algorithm: fixed_window, time_zone: Europe/Berlin}", "needs a limit per day, week or month"),
        ("{limit: 5/day, algorithm: fixed_window, time_zone: Europe/Atlantis}", "`Europe/Atlantis`"),
        ("{limit: 5/s, algorithm: fixed_window, opens: sometimes}", "`clock`, `first_request`"),
        ("{limit: 5/s, algorithm: smooth_warming_up}", "needs a `warm_up`"),
        ("{limit: 5/s, burst: 6, algorithm: sliding_log}", "`sliding_log` has no option `burst`"),
        ("{limit: 5/s burst 6, algorithm: sliding_log}", "`sliding_log` does not support a burst"),
        ("{limit: 5/s, burst: 0}", "expected a whole number from 1"),
        ("{limit: 5/s, refill: {tokens: 1}}", "missing `every` in `refill`"),
        ("burst: 5", "`burst` needs a `limit`"),
        ("every: 0s", "interval 0"),
        ("every: soon", "unknown unit of time `soon`"),
        ("total: 0", "invalid value `0` for `total`"),
        ("concurrent: many", "invalid value `many` for `concurrent`"),
    ] {
        match limits(yaml) {
            Err(error) => assert!(error.contains(expected), "{yaml}:\n{error}"),
            Ok(limits) => panic!("{yaml} is valid: {limits:?}"),
        }
    }
}

/// The limits of the override `x` of a rule by account.
fn of_x(rule: &str, overrides: &str) -> Vec<DynAlgorithm> {
    let text = format!("rules: [{{name: a, by: account, {rule}, overrides: {overrides}}}]");
    let document = Document::new("diana.yaml", text);
    let file = crate::RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}"));
    file.rules[0].overrides[0].limits.iter().map(|limit| limit.configured.clone()).collect()
}

#[test]
fn overrides_inherit_the_algorithm_in_every_form() {
    let rule = "limit: 5/s, algorithm: sliding_window, buckets: 4";
    let window = DynAlgorithm::from(SlidingWindow::new(quota("9/s")).with_buckets(4).unwrap());
    for form in [
        "{x: 9/s}",
        "{x: {rate: 9/s}}",
        "{x: {limit: 9/s}}",
        "{x: {limit: {rate: 9/s}}}",
        "[{key: x, limit: 9/s}]",
        "[{key: x, limit: {rate: 9/s}}]",
    ] {
        assert_eq!(of_x(rule, form), std::slice::from_ref(&window), "{form}");
        assert_eq!(
            of_x("limit: 5/s, burst: 7", form),
            [DynAlgorithm::from(TokenBucket::new(quota("9/s")))],
            "{form}: the burst is of the rule's rate"
        );
    }
    let with_another = [window.clone(), DynAlgorithm::from(Concurrency::new(2).unwrap())];
    assert_eq!(of_x(rule, "{x: {limit: 9/s, concurrent: 2}}"), with_another);
    // A limit with its own algorithm inherits no options; nor does a list of limits.
    let log = DynAlgorithm::from(SlidingLog::new(quota("9/s")));
    for form in ["{x: {rate: 9/s, algorithm: sliding_log}}", "[{key: x, limit: 9/s, algorithm: sliding_log}]"] {
        assert_eq!(of_x(rule, form), std::slice::from_ref(&log), "{form}");
    }
    assert_eq!(of_x(rule, "{x: [9/s]}"), [DynAlgorithm::from(TokenBucket::new(quota("9/s")))]);
    // An alternative option replaces the inherited one.
    let finer = DynAlgorithm::from(SlidingWindow::new(quota("9/s")).with_buckets(10).unwrap());
    assert_eq!(of_x(rule, "{x: {limit: 9/s, precision: 100ms}}"), [finer]);
}

#[test]
fn overrides_inherit_the_refill_interval() {
    let refilled = DynAlgorithm::from(RefillingBucket::new(quota("300/min")));
    for rule in ["limit: 100/min, refill: {tokens: 100, every: 1min}", "limit: 100/min, refill: {every: 1min}"] {
        assert_eq!(of_x(rule, "{x: 300/min}"), std::slice::from_ref(&refilled), "{rule}");
        assert_eq!(of_x(rule, "[{key: x, limit: 300/min}]"), std::slice::from_ref(&refilled), "{rule}");
    }
}
