//! The decisions, waits, keys and memory of each rule.
//!
//! At most [`MAX_RULES`] rules have samples of their own; the others are counted together.

use super::text::{Text, labelled};
use diana::redis::RedisStore;
use diana::ruleset::{CompiledRule, KeyOutcome, RuleCounts, Window};
use diana::store::KeyUsage;
use diana::{Engine, Timestamp};
use diana_metrics::{Kind, Reading};
use diana_rules::rule::CountedIn;
use std::time::Duration;

/// The maximum number of rules with samples of their own.
const MAX_RULES: usize = 1_000;

/// The exported values of a rule.
struct RuleSample {
    name: String,
    counts: RuleCounts,
    /// The share of its heaviest key of its denials in the last minute.
    top_key_share: f64,
    /// The rule's keys in this process; `None` if the shared store counts it.
    usage: Option<KeyUsage>,
}

type Metric = diana_metrics::Metric<RuleSample>;

/// The metrics of each rule that are numbers.
const METRICS: &[Metric] = &[
    Metric::with_readings("diana_decisions_total", Kind::Counter, "Decisions of each rule by outcome.", |of| {
        let RuleCounts { allowed, delayed, denied, rerouted, shadow_denied, .. } = of.counts;
        let outcomes = [("allowed", allowed), ("delayed", delayed), ("denied", denied), ("rerouted", rerouted)];
        Reading::numbers(outcomes.into_iter().chain([("shadow_denied", shadow_denied)]))
    })
    .by("outcome"),
    Metric::counter("diana_expression_failures_total", "Failed expressions of each rule.", |of| of.counts.failures),
    Metric::gauge(
        "diana_rule_waiting",
        "Requests that wait for each rule now, in a queue or for a reserved time.",
        |of| of.counts.waiting,
    ),
    Metric::with_readings("diana_rule_keys", Kind::Gauge, "Keys of each rule that is counted in this process.", |of| {
        Reading::numbers(of.usage.map(|usage| ("", usage.keys as u64)))
    }),
    Metric::with_readings(
        "diana_rule_keys_bytes",
        Kind::Gauge,
        "Memory of the keys of each rule that is counted in this process, in bytes.",
        |of| Reading::numbers(of.usage.map(|usage| ("", usage.bytes as u64))),
    ),
];

/// Writes the samples of all rules.
pub(super) fn rules(text: &mut Text, engine: &Engine) {
    let rules = engine.rules();
    text.single("diana_rules", Kind::Gauge, "Active rules.", rules.rules().len());
    let (usage, now) = (engine.local().usage(), engine.now());
    let has_shared = engine.shared::<RedisStore>().is_some();
    let sample = |rule: &CompiledRule| {
        let is_local = !has_shared || rule.counted_in() == CountedIn::Local;
        let usage = is_local.then(|| {
            let limits = rule.all_limits().filter_map(|limit| usage.get(&limit.id()));
            limits.fold(KeyUsage::default(), |sum, limit| KeyUsage {
                keys: sum.keys + limit.keys,
                bytes: sum.bytes + limit.bytes,
            })
        });
        RuleSample {
            name: rule.rule().name.clone(),
            counts: rule.counted(),
            top_key_share: top_key_share(rule, now),
            usage,
        }
    };
    let samples = rules.rules().iter().map(sample).collect::<Vec<_>>();
    let labelled = labelled(&samples, MAX_RULES, |rule| &rule.name);
    text.metrics(METRICS, "rule", &labelled);
    let help = "How long requests have waited for each rule, whether they were allowed then or not.";
    text.family("diana_rule_wait_seconds", Kind::Summary, help);
    for (rule, together) in &labelled {
        let counts = || together.iter().map(|sample| &sample.counts);
        let time = counts().map(|counts| counts.wait_time).sum::<Duration>();
        text.sample("diana_rule_wait_seconds_sum", &[("rule", rule)], time.as_secs_f64());
        let waits = counts().map(|counts| counts.waits).sum::<u64>();
        text.sample("diana_rule_wait_seconds_count", &[("rule", rule)], waits);
    }
    if rules.has_top_keys() {
        let help = "Share of the heaviest key of each rule's denials in the last minute.";
        text.family("diana_top_key_share", Kind::Gauge, help);
        for (rule, together) in &labelled {
            let share = together.iter().map(|sample| sample.top_key_share).fold(0.0, f64::max);
            text.sample("diana_top_key_share", &[("rule", rule)], share);
        }
    }
    let (keys, bytes) = usage.values().fold((0, 0), |(keys, bytes), of| (keys + of.keys, bytes + of.bytes));
    text.single("diana_keys", Kind::Gauge, "Keys counted in this process.", keys);
    text.single("diana_keys_bytes", Kind::Gauge, "Memory of the keys of this process in bytes.", bytes);
}

/// Returns the share of the heaviest key of a rule's denials in the last minute; 0 without denials.
#[allow(clippy::cast_precision_loss, reason = "a share needs no more")]
fn top_key_share(rule: &CompiledRule, now: Timestamp) -> f64 {
    let top = rule.top_keys(KeyOutcome::Denied, Window::Minute, 1, now);
    top.keys.first().map_or(0.0, |heaviest| heaviest.count as f64 / top.total as f64)
}
