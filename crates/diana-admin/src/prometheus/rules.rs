//! The decisions, waits, keys and memory of each rule.
//!
//! At most [`MAX_RULES`] rules have samples of their own; the others are counted together.

use super::text::{Text, labelled};
use crate::rules::Counts;
use diana::redis::RedisStore;
use diana::ruleset::{CompiledRule, KeyOutcome, RuleCounts, Window};
use diana::store::KeyUsage;
use diana::{Engine, Timestamp};
use diana_metrics::Kind;
use diana_rules::rule::CountedIn;
use std::fmt::Display;
use std::time::Duration;

/// The maximum number of rules with samples of their own.
const MAX_RULES: usize = 1_000;

/// What is exported of a rule, or of several together.
#[derive(Debug, Default)]
struct RuleSample {
    counts: Counts,
    waiting: u64,
    waits: u64,
    wait_time: Duration,
    /// The share of its heaviest key of its denials in the last minute.
    top_key_share: f64,
    /// Its keys in this process; `None` if the shared store counts it.
    usage: Option<KeyUsage>,
}

impl RuleSample {
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.waiting += other.waiting;
        self.waits += other.waits;
        self.wait_time += other.wait_time;
        self.top_key_share = self.top_key_share.max(other.top_key_share);
        if let Some(more) = other.usage {
            let usage = self.usage.get_or_insert_default();
            usage.keys += more.keys;
            usage.bytes += more.bytes;
        }
    }
}

/// Writes the samples of all rules.
pub(super) fn rules(text: &mut Text, engine: &Engine) {
    let rules = engine.rules();
    text.one("diana_rules", Kind::Gauge, "Active rules.", rules.rules().len());
    let (usage, now) = (engine.local().usage(), engine.now());
    let has_shared = engine.shared::<RedisStore>().is_some();
    let sample = |rule: &CompiledRule| {
        let RuleCounts { waiting, waits, wait_time, .. } = rule.counted();
        let is_local = !has_shared || rule.counted_in() == CountedIn::Local;
        let usage = is_local.then(|| {
            let limits = rule.all_limits().filter_map(|limit| usage.get(&limit.id()));
            limits.fold(KeyUsage::default(), |sum, limit| KeyUsage {
                keys: sum.keys + limit.keys,
                bytes: sum.bytes + limit.bytes,
            })
        });
        RuleSample {
            counts: Counts::of(rule),
            waiting,
            waits,
            wait_time,
            top_key_share: top_key_share(rule, now),
            usage,
        }
    };
    let samples = rules.rules().iter().map(|rule| (&*rule.rule().name, sample(rule))).collect::<Vec<_>>();
    let labelled = labelled(&samples, MAX_RULES, |(name, _)| name).into_iter().map(|(name, together)| {
        let mut sum = RuleSample::default();
        together.into_iter().for_each(|(_, sample)| sum.add(sample));
        (name, sum)
    });
    let labelled = labelled.collect::<Vec<_>>();
    decisions(text, &labelled);
    waits(text, &labelled);
    keys(text, &labelled);
    if rules.has_top_keys() {
        top_keys(text, &labelled);
    }
    let (keys, bytes) = usage.values().fold((0, 0), |(keys, bytes), of| (keys + of.keys, bytes + of.bytes));
    text.one("diana_keys", Kind::Gauge, "Keys counted in this process.", keys);
    text.one("diana_keys_bytes", Kind::Gauge, "Memory of the keys of this process in bytes.", bytes);
}

/// Returns the share of the heaviest key of a rule's denials in the last minute; 0 without denials.
#[allow(clippy::cast_precision_loss, reason = "a share needs no more")]
fn top_key_share(rule: &CompiledRule, now: Timestamp) -> f64 {
    let top = rule.top_keys(KeyOutcome::Denied, Window::Minute, 1, now);
    top.keys.first().map_or(0.0, |heaviest| heaviest.count as f64 / top.total as f64)
}

fn top_keys(text: &mut Text, rules: &[(&str, RuleSample)]) {
    let help = "Share of the heaviest key of each rule's denials in the last minute.";
    each(text, "diana_top_key_share", Kind::Gauge, help, rules, |rule| Some(rule.top_key_share));
}

fn decisions(text: &mut Text, rules: &[(&str, RuleSample)]) {
    text.family("diana_decisions_total", Kind::Counter, "Decisions of each rule by outcome.");
    for (rule, sample) in rules {
        for (outcome, count) in sample.counts.decisions() {
            text.sample("diana_decisions_total", &[("rule", rule), ("outcome", outcome)], count);
        }
    }
    let help = "Failed expressions of each rule.";
    each(text, "diana_expression_failures_total", Kind::Counter, help, rules, |rule| Some(rule.counts.failures));
}

fn waits(text: &mut Text, rules: &[(&str, RuleSample)]) {
    let help = "Requests that wait for each rule now, in a queue or for a reserved time.";
    each(text, "diana_rule_waiting", Kind::Gauge, help, rules, |rule| Some(rule.waiting));
    let help = "How long requests have waited for each rule, whether they were allowed then or not.";
    text.family("diana_rule_wait_seconds", Kind::Summary, help);
    for (rule, sample) in rules {
        text.sample("diana_rule_wait_seconds_sum", &[("rule", rule)], sample.wait_time.as_secs_f64());
        text.sample("diana_rule_wait_seconds_count", &[("rule", rule)], sample.waits);
    }
}

fn keys(text: &mut Text, rules: &[(&str, RuleSample)]) {
    let help = "Keys of each rule that is counted in this process.";
    each(text, "diana_rule_keys", Kind::Gauge, help, rules, |rule| Some(rule.usage?.keys));
    let help = "Memory of the keys of each rule that is counted in this process, in bytes.";
    each(text, "diana_rule_keys_bytes", Kind::Gauge, help, rules, |rule| Some(rule.usage?.bytes));
}

/// Writes a family with a sample of each rule that has a value.
fn each<N: Display>(
    text: &mut Text,
    name: &str,
    kind: Kind,
    help: &str,
    rules: &[(&str, RuleSample)],
    value: impl Fn(&RuleSample) -> Option<N>,
) {
    text.family(name, kind, help);
    for (rule, sample) in rules {
        if let Some(value) = value(sample) {
            text.sample(name, &[("rule", rule)], value);
        }
    }
}
