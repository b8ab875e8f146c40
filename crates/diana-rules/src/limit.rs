//! The limits of a rule: rate, burst and algorithm.
//!
//! ```yaml
//! limit: 100/s                                        # short for the simple case
//! limit: {rate: 100/s, burst: 200}
//! limit: [{rate: 100/s, burst: 200}, 20000/h]         # several at once
//! limit: 20/s                                         # a single one may have its options beside it
//! algorithm: sliding_window
//! buckets: 10
//! ```
//!
//! Instead of `limit`, `every: 200ms` is a minimum interval, `total: 1000` a total, `concurrent: 4` a concurrency
//! limit; `concurrent: {limit: 4, burst: 8, delay: 200ms}` admits a few more after a delay.

pub(crate) mod concurrent;
mod override_inherit;

use crate::algorithm::{AlgorithmOptions, DynAlgorithm};
use crate::registry::Registry;
pub use concurrent::HeldUntil;
use diana_core::{MinInterval, Properties, Quota, Restores, SlidingLog, Total};
use diana_document::Problem;
use diana_document::map_reader::{MapReader, all, empty, nearest};
use diana_document::scalar;
use diana_document::{MapEntry, Node, Span, Value};
pub(crate) use override_inherit::LimitStyle;
use std::time::Duration;

/// The default algorithm.
const DEFAULT: &str = "token_bucket";
/// The fields of a limit that every algorithm has.
pub(crate) const COMMON: [&str; 2] = ["rate", "algorithm"];

/// One limit of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRule {
    /// The algorithm with its parameters.
    pub configured: DynAlgorithm,
    /// The name of its algorithm; for `every`, `total` and `concurrent`, the field's name.
    pub algorithm: &'static str,
    /// The limit as it is written, for display.
    pub written: String,
    /// The location.
    pub span: Span,
}

impl LimitRule {
    /// Returns how long the last request of a full queue would wait, if the rate determines it.
    pub fn max_queue_wait(&self, queue: Option<u64>) -> Duration {
        let Some(queue) = queue else { return Duration::MAX };
        let Properties { restores: Restores::Continuously(quota), delays: false, .. } = self.configured.properties()
        else {
            return Duration::MAX;
        };
        let nanos = u128::from(queue) * quota.period().as_nanos() / u128::from(quota.permits());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Describes the limit, in the words of its algorithm.
    pub(crate) fn describe(&self) -> String {
        let description = self.configured.describe(self.written.parse().ok());
        description.unwrap_or_else(|| format!("{} by `{}`", self.written, self.algorithm))
    }

    /// Describes several limits that all apply.
    pub(crate) fn describe_all(limits: &[Self]) -> String {
        limits.iter().map(Self::describe).collect::<Vec<_>>().join(", and ")
    }

    /// Drops how it is written and where: what is left decides.
    pub(crate) fn reset_text(&mut self) {
        (self.algorithm, self.written, self.span) = Default::default();
    }

    /// The fields of a rule that define its limits.
    ///
    /// ```
    /// use diana_rules::limit::LimitRule;
    /// use diana_rules::Registry;
    ///
    /// let fields = LimitRule::fields(&Registry::default());
    /// assert!(["limit", "every", "burst", "algorithm", "buckets"].iter().all(|field| fields.contains(field)));
    /// ```
    pub fn fields(registry: &Registry) -> Vec<&'static str> {
        let mut fields = LIMITS.to_vec();
        fields.extend(BESIDE);
        fields.extend(registry.options());
        fields
    }

    /// Takes the limits out of a rule's fields. Reports errors in `problems`, and omits invalid limits.
    ///
    /// ```
    /// use diana_rules::limit::LimitRule;
    /// use diana_rules::map_reader::MapReader;
    /// use diana_rules::{Document, Registry};
    ///
    /// let document = Document::new("rule.yaml", "limit: [{rate: 100/s, burst: 200}, 20000/h]\nconcurrent: 4\n");
    /// let (tree, registry, mut problems) = (document.parse()?, Registry::default(), Vec::new());
    /// let mut rule = MapReader::of(&tree, "rule", LimitRule::fields(&registry), &mut problems).unwrap();
    ///
    /// let limits = LimitRule::read(&mut rule, &registry, &mut problems);
    /// let written = limits.iter().map(|limit| limit.written.as_str()).collect::<Vec<_>>();
    /// assert_eq!(written, ["100/s", "20000/h", "4"]);
    /// assert!(problems.is_empty());
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn read(rule: &mut MapReader<'_>, registry: &Registry, problems: &mut Vec<Problem>) -> Vec<Self> {
        Self::read_with_style(rule, &LimitStyle::default(), registry, problems).0
    }

    /// Like `read`, with inherited options. Also returns the options of this limit, for its overrides to inherit.
    pub(crate) fn read_with_style<'a>(
        rule: &mut MapReader<'a>,
        inherited: &LimitStyle<'_>,
        registry: &Registry,
        problems: &mut Vec<Problem>,
    ) -> (Vec<Self>, LimitStyle<'a>) {
        let [limit, every, total, concurrent] = LIMITS.map(|name| rule.take(name));
        let beside = BESIDE.into_iter().chain(registry.options()).filter_map(|name| rule.take_entry(name));
        let beside = beside.map(|entry| (&*entry.key, &entry.node)).collect::<Vec<_>>();
        let style = LimitStyle::new(limit, &beside);
        (read(LimitFields { limit, every, total, concurrent }, &beside, inherited, registry, problems), style)
    }
}

/// The fields that are limits. A rule may have several of them.
pub(crate) const LIMITS: [&str; 4] = ["limit", "every", "total", "concurrent"];
/// The fields that may be set beside a single limit, whatever its algorithm.
const BESIDE: [&str; 1] = ["algorithm"];

/// The limit fields of a rule, as they are written.
#[derive(Clone, Copy, Debug, Default)]
struct LimitFields<'a> {
    limit: Option<&'a Node>,
    every: Option<&'a Node>,
    total: Option<&'a Node>,
    concurrent: Option<&'a Node>,
}

/// Parses the limits of a rule. `beside` are the rule's own fields that may belong to a single limit: the algorithm and
/// the options of algorithms. A single limit takes the options that it does not set from `inherited`.
fn read(
    fields: LimitFields<'_>,
    beside: &[(&str, &Node)],
    inherited: &LimitStyle<'_>,
    registry: &Registry,
    problems: &mut Vec<Problem>,
) -> Vec<LimitRule> {
    let mut limits = Vec::new();
    if let Some(node) = fields.limit {
        match &node.value {
            Value::List(items) => {
                report_ambiguous(beside, problems);
                limits.extend(parse_limits(node, items, registry, problems));
            }
            value => {
                if let Value::Map(entries) = value {
                    report_duplicates(entries, beside, problems);
                }
                let mut given = inherited.for_limit(node, beside);
                given.extend(beside);
                limits.extend(parse_limit(node, &given, registry, problems));
            }
        }
    } else {
        for (name, node) in beside {
            let problem = Problem::new(node.span, format!("`{name}` needs a `limit`"));
            problems.push(problem.expected("add a `limit`, such as `limit: 100/s`"));
        }
    }
    let mut simple = |algorithm, node: Option<&Node>, configured: Option<DynAlgorithm>| {
        let (Some(node), Some(configured)) = (node, configured) else { return };
        let written = node.text().unwrap_or_default().to_owned();
        limits.push(LimitRule { configured, algorithm, written, span: node.span });
    };
    let every = fields.every.and_then(|node| scalar::duration(node, "`every`", problems).map(|time| (node, time)));
    let every = every.and_then(|(node, time)| or_report(MinInterval::new(time), node.span, problems));
    simple("every", fields.every, every.map(DynAlgorithm::from));
    let total = fields.total.and_then(|node| scalar::count(node, "`total`", 1, problems));
    simple("total", fields.total, total.and_then(|count| Total::new(count).ok()).map(DynAlgorithm::from));
    if let Some((node, (limit, written))) =
        fields.concurrent.and_then(|node| Some((node, concurrent::read(node, problems)?)))
    {
        limits.push(LimitRule {
            configured: DynAlgorithm::from(limit),
            algorithm: "concurrent",
            written,
            span: node.span,
        });
    }
    limits
}

/// Parses a list of limits, each with its own options.
fn parse_limits(node: &Node, items: &[Node], registry: &Registry, problems: &mut Vec<Problem>) -> Vec<LimitRule> {
    if items.is_empty() {
        // The intent is ambiguous: a limit, or none.
        problems.push(
            Problem::new(node.span, "the list of limits is empty")
                .expected("expected a limit such as 100/s, or remove it"),
        );
    }
    one_log(items.iter().filter_map(|item| parse_limit(item, &[], registry, problems)).collect())
}

/// Makes one log of all logs, in the place of the first: each request is stored once, whatever the number of windows that count
/// it.
fn one_log(limits: Vec<LimitRule>) -> Vec<LimitRule> {
    let log = |limit: &LimitRule| limit.configured.downcast::<SlidingLog>().cloned();
    let first = limits.iter().position(|limit| log(limit).is_some()).unwrap_or(0);
    let (mut logs, mut others): (Vec<_>, Vec<_>) = limits.into_iter().partition(|limit| log(limit).is_some());
    let windows = logs.iter().filter_map(log).flat_map(|log| log.windows().to_vec());
    let written = logs.iter().map(|limit| &*limit.written).collect::<Vec<_>>().join(", ");
    if let (Ok(log), true) = (SlidingLog::several(windows), logs.len() > 1) {
        let configured = DynAlgorithm::from(log);
        logs.truncate(1);
        logs.iter_mut().for_each(|limit| (limit.configured, limit.written) = (configured.clone(), written.clone()));
    }
    others.splice(first..first, logs);
    others
}

/// Parses one limit: a text, or a map with a rate.
fn parse_limit(
    node: &Node,
    beside: &[(&str, &Node)],
    registry: &Registry,
    problems: &mut Vec<Problem>,
) -> Option<LimitRule> {
    let mut given = beside.to_vec();
    let rate = match &node.value {
        Value::Text(_) | Value::Number(_) => node,
        Value::Map(entries) => {
            entries.iter().for_each(|entry| empty(entry, problems));
            // The valid options depend on the algorithm, so unknown ones are reported below.
            for entry in entries.iter().filter(|entry| entry.node.value != Value::Null) {
                given.retain(|(name, _)| *name != entry.key);
                given.push((&entry.key, &entry.node));
            }
            match given.iter().find(|(name, _)| *name == "rate") {
                Some((_, rate)) => rate,
                None => {
                    let typo = entries.iter().find(|entry| nearest(&entry.key, &COMMON) == Some("rate"));
                    let problem = match typo {
                        Some(typo) => Problem::new(typo.span, format!("unknown limit field `{}`", typo.key))
                            .expected("did you mean `rate`?"),
                        None => Problem::new(node.span, "missing `rate` in limit")
                            .expected("expected {rate: 100/s, burst: 200}"),
                    };
                    problems.push(problem);
                    return None;
                }
            }
        }
        other => {
            let problem = Problem::new(node.span, format!("invalid limit: found {}", other.kind()));
            problems.push(problem.expected("expected 100/s, {rate: 100/s, burst: 200}, or a list of them"));
            return None;
        }
    };
    let written = scalar::text(rate, "limit", problems)?;
    let parse = |text: &str| {
        text.parse::<Quota>().map_err(|error| suggested_rate(text).unwrap_or(scalar::quota_problem(error)))
    };
    let quota = scalar::parsed(rate, "limit", parse, problems);
    let (name, kind) = match given.iter().find(|(name, _)| *name == "algorithm") {
        Some((_, node)) => {
            let named = scalar::text(node, "`algorithm`", problems)?;
            registry.find(named).or_else(|| {
                let names = registry.algorithms().collect::<Vec<_>>();
                let meant = nearest(named, &names).map(|meant| format!("did you mean `{meant}`?"));
                let problem = Problem::new(node.span, format!("unknown algorithm `{named}`"));
                problems.push(problem.expected(meant.unwrap_or_else(|| format!("expected one of {}", all(&names)))));
                None
            })?
        }
        None => registry.find(DEFAULT)?,
    };
    report_unknown(node, &given, name, kind.options, registry, problems);
    if !kind.options.contains(&"burst") && quota.is_some_and(|quota| quota.burst() != quota.permits()) {
        let what = format!("`{name}` does not support a burst");
        problems.push(
            Problem::new(rate.span, what)
                .expected("remove the burst, or use an algorithm with one, such as `token_bucket`"),
        );
    }
    if name == "leaky_bucket" && written.contains("burst") {
        let problem =
            Problem::new(rate.span, "the burst of a leaky bucket is its queue length, and not part of the rate");
        problems.push(problem.expected("expected {rate: 100/s, algorithm: leaky_bucket, burst: 50}"));
    }
    let burst = given.iter().find(|(name, _)| *name == "burst").map(|(_, node)| *node);
    let quota = match burst {
        // A leaky bucket's burst is its queue, which may be empty.
        Some(node) if name != "leaky_bucket" => {
            let burst = scalar::count(node, "`burst`", 1, problems);
            quota.and_then(|quota| or_report(quota.with_burst(burst?), node.span, problems))
        }
        _ => quota,
    }?;
    let mut options = AlgorithmOptions::new(given, rate.span, problems);
    let configured = kind.build(quota, &mut options)?;
    Some(LimitRule { configured, algorithm: name, written: written.to_owned(), span: node.span })
}

/// Suggests a rate for other notations: `10r/s` as in nginx, `10 rps`.
fn suggested_rate(text: &str) -> Option<String> {
    const REQUESTS: [&str; 6] = ["r", "req", "reqs", "request", "requests", "hits"];
    const SHORT: [(&str, &str); 5] = [("rps", "s"), ("qps", "s"), ("tps", "s"), ("rpm", "min"), ("rph", "h")];
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '_')?;
    let (count, word) = (&text[..digits], text[digits..].trim().to_ascii_lowercase());
    let short = SHORT.iter().find(|(short, _)| *short == word).map(|(_, unit)| *unit);
    let long = || word.split_once('/').or_else(|| word.split_once(" per "));
    let unit =
        short.or_else(|| long().filter(|(noun, _)| REQUESTS.contains(&noun.trim())).map(|(_, unit)| unit.trim()));
    let rate = format!("{count}/{}", unit?);
    rate.parse::<Quota>().is_ok().then(|| format!("did you mean `{rate}`?"))
}

/// Reports options that the algorithm does not have.
fn report_unknown(
    limit: &Node,
    given: &[(&str, &Node)],
    algorithm: &str,
    options: &[&'static str],
    registry: &Registry,
    problems: &mut Vec<Problem>,
) {
    let known = COMMON.iter().chain(options).copied().collect::<Vec<_>>();
    for (name, node) in given.iter().filter(|(name, _)| !known.contains(name)) {
        let is_known = registry.options().contains(name);
        let what = if is_known {
            format!("`{algorithm}` has no option `{name}`")
        } else {
            format!("unknown limit field `{name}`")
        };
        let expected = match nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("expected one of {}", all(&known)),
        };
        // In a map, the location is the name; beside a limit, it is the value, since only that location is known.
        let span = match &limit.value {
            Value::Map(entries) => {
                entries.iter().find(|entry| entry.key == *name).map_or(node.span, |entry| entry.span)
            }
            _ => node.span,
        };
        problems.push(Problem::new(span, what).expected(expected));
    }
}

/// Reports options that are set both in a limit and beside it.
fn report_duplicates(entries: &[MapEntry], beside: &[(&str, &Node)], problems: &mut Vec<Problem>) {
    for (name, node) in beside.iter().filter(|(name, _)| entries.iter().any(|entry| entry.key == *name)) {
        let problem = Problem::new(node.span, format!("duplicate `{name}`: it is set in the limit and beside it"));
        problems.push(problem.expected("remove one of the two"));
    }
}

/// Reports options beside a list of limits: each limit must have its own.
fn report_ambiguous(beside: &[(&str, &Node)], problems: &mut Vec<Problem>) {
    for (name, node) in beside.iter().filter(|(name, _)| *name != "algorithm") {
        let what = format!("`{name}` is ambiguous beside several limits");
        problems.push(
            Problem::new(node.span, what)
                .expected(format!("move it into a limit, such as {{rate: 100/s, {name}: ...}}")),
        );
    }
    if let Some((_, node)) = beside.iter().find(|(name, _)| *name == "algorithm") {
        let what = "`algorithm` is ambiguous beside several limits";
        problems.push(
            Problem::new(node.span, what).expected("move it into a limit, such as {rate: 100/s, algorithm: ...}"),
        );
    }
}

fn or_report<T, E: std::fmt::Display>(result: Result<T, E>, span: Span, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|error| problems.push(Problem::new(span, error.to_string()))).ok()
}

#[cfg(test)]
mod tests;
