//! Rules in code: a rule file that is built rather than written, with the same options and the same checks.
//!
//! A builder makes the document that a person would write, one rule a line, and reads it like any other: so a problem has its line
//! and a fix, and [`RuleFileBuilder::document`] is a file that can be saved once the rules should change without a new program.

use crate::{Document, Problems, Registry, RuleFile, scalar};
use diana_core::Quota;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Builds a [`RuleFile`] in code.
///
/// ```
/// use diana_core::Quota;
/// use diana_rules::builder::{LimitBuilder, RuleBuilder};
/// use diana_rules::{Registry, RuleFile};
/// use std::time::Duration;
///
/// let file = RuleFile::builder()
///     .rule(RuleBuilder::new("each-account").by("account").limit(Quota::per_second(100)?))
///     .rule(
///         RuleBuilder::new("login")
///             .path("/login")
///             .method("POST")
///             .by("ip/24")
///             .limit(LimitBuilder::sliding_log(Quota::per_minute(5)?))
///             .wait(Duration::from_secs(2))
///             .status(429),
///     )
///     .build(&Registry::default())?;
/// assert_eq!(file.rules[1].wait, Some(Duration::from_secs(2)));
///
/// let wrong = RuleFile::builder().rule(RuleBuilder::new("each-account").by("acount").limit(Quota::per_second(100)?));
/// let problem = wrong.build(&Registry::default()).unwrap_err().to_string();
/// assert!(problem.contains("did you mean `account`?"), "{problem}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct RuleFileBuilder {
    fields: Map<String, Value>,
    rules: Vec<RuleBuilder>,
}

/// Builds one rule. Its setters are the options of a rule that are used most; [`option`](Self::option) sets any other one.
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until it is added to a file"]
pub struct RuleBuilder(Map<String, Value>);

/// Builds one limit: a rate with an algorithm and its options. A [`Quota`] is a token bucket.
#[derive(Clone, Debug)]
#[must_use = "a limit does nothing until it is added to a rule"]
pub struct LimitBuilder(Map<String, Value>);

impl RuleFile {
    /// Builds a file in code.
    pub fn builder() -> RuleFileBuilder {
        RuleFileBuilder::default()
    }
}

impl RuleFileBuilder {
    /// Adds a rule. All rules that match a request are checked.
    pub fn rule(mut self, rule: RuleBuilder) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets a field beside the rules, as in a file: `field("store", json!({"redis": "redis://127.0.0.1:6379"}))`.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// Returns the rule file: YAML, with one rule a line.
    pub fn document(&self) -> Document {
        // JSON is YAML; so texts are quoted as they must be.
        let mut text = String::new();
        for (name, value) in &self.fields {
            text.push_str(&format!("{}: {value}\n", json!(name)));
        }
        let rules = self.rules.iter().map(|RuleBuilder(rule)| format!("\n  - {}", json!(rule))).collect::<String>();
        text.push_str(&format!("rules:{}\n", if rules.is_empty() { " []" } else { &rules }));
        Document::new("rules in code", text)
    }

    /// Reads the file, with everything in the registry. All problems are reported at once. `${VARIABLES}` are not replaced:
    /// code has its own ways to read the environment.
    pub fn build(&self, registry: &Registry) -> Result<RuleFile, Problems> {
        RuleFile::read_with(&self.document(), registry, |name| Some(format!("${{{name}}}")))
    }
}

impl RuleBuilder {
    /// Creates a rule without a limit, for all requests together.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Map::from_iter([("name".to_owned(), Value::String(name.into()))]))
    }

    /// Sets an option of a rule, as in a file: `option("bandwidth", "512KiB/s")`.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Counts by this key: `account`, `ip/24`, `header(x-api-key)`. Of several keys, each combination has its own count.
    pub fn by(mut self, key: impl Into<String>) -> Self {
        add(&mut self.0, "by", key.into());
        self
    }

    /// Matches requests for this path: `/search/**`, `/users/{id}`. Of several paths, one must match.
    pub fn path(self, path: impl Into<String>) -> Self {
        self.matching("path", path.into())
    }

    /// Matches requests with this method. Of several methods, one must match.
    pub fn method(self, method: impl Into<String>) -> Self {
        self.matching("method", method.into())
    }

    /// Matches requests for this host: `*.example.com`. Of several hosts, one must match.
    pub fn host(self, host: impl Into<String>) -> Self {
        self.matching("host", host.into())
    }

    /// Matches requests for which this expression (CEL) is true. Of several expressions, all must be true.
    pub fn when(mut self, expression: impl Into<String>) -> Self {
        let (fields, expression) = (conditions(&mut self.0), expression.into());
        let both = match fields.get("when").and_then(Value::as_str) {
            Some(first) => format!("({first}) && ({expression})"),
            None => expression,
        };
        fields.insert("when".to_owned(), Value::String(both));
        self
    }

    /// Adds a limit; of several, all apply.
    pub fn limit(mut self, limit: impl Into<LimitBuilder>) -> Self {
        add(&mut self.0, "limit", limit.into().0);
        self
    }

    /// Sets the minimum time between two requests.
    pub fn every(self, interval: Duration) -> Self {
        self.option("every", scalar::time(interval))
    }

    /// Sets the maximum number of requests in total, until it is reset.
    pub fn total(self, count: u64) -> Self {
        self.option("total", count)
    }

    /// Sets the maximum number of concurrent requests.
    pub fn concurrent(self, count: u64) -> Self {
        self.option("concurrent", count)
    }

    /// Sets the cost of a request: a number, or an expression (CEL).
    pub fn cost(self, cost: impl Into<Value>) -> Self {
        self.option("cost", cost)
    }

    /// Sets other limits for a single key.
    pub fn limit_of_key(mut self, key: impl Into<String>, limit: impl Into<LimitBuilder>) -> Self {
        add(&mut self.0, "overrides", json!({"key": key.into(), "limit": limit.into().0}));
        self
    }

    /// Does not count this key, address or network.
    pub fn allow(mut self, key: impl Into<String>) -> Self {
        add(&mut self.0, "allow", key.into());
        self
    }

    /// Always denies this key, address or network.
    pub fn deny(mut self, key: impl Into<String>) -> Self {
        add(&mut self.0, "deny", key.into());
        self
    }

    /// Sets the maximum time that a request over the limit waits before it is denied.
    pub fn wait(self, max: Duration) -> Self {
        self.option("wait", scalar::time(max))
    }

    /// Sets the maximum number of waiting requests of one key.
    pub fn queue(self, max: u64) -> Self {
        self.option("queue", max)
    }

    /// Sets the status of a denied request.
    pub fn status(self, status: u16) -> Self {
        self.option("status", status)
    }

    /// Makes it a shadow rule, which only counts and reports.
    pub fn shadow(self) -> Self {
        self.option("shadow", true)
    }

    fn matching(mut self, field: &str, value: String) -> Self {
        add(conditions(&mut self.0), field, value);
        self
    }
}

impl LimitBuilder {
    /// Creates a limit by a registered algorithm.
    pub fn by_algorithm(algorithm: impl Into<String>, rate: Quota) -> Self {
        Self::from(rate).option("algorithm", algorithm.into())
    }

    /// Creates a leaky bucket: requests pass one by one at an even rate, and `queue` of them may be queued.
    pub fn leaky_bucket(rate: Quota, queue: u64) -> Self {
        // A quota's own burst is its count; the queue of a leaky bucket is what its `burst` means in a file.
        Self::by_algorithm("leaky_bucket", rate.with_burst(rate.permits()).unwrap_or(rate)).option("burst", queue)
    }

    /// Creates a count for each window, which starts by the clock.
    pub fn fixed_window(rate: Quota) -> Self {
        Self::by_algorithm("fixed_window", rate)
    }

    /// Creates a count for a window that slides in steps.
    pub fn sliding_window(rate: Quota, buckets: u64) -> Self {
        Self::by_algorithm("sliding_window", rate).option("buckets", buckets)
    }

    /// Creates an exact count for any window; memory grows with the limit.
    pub fn sliding_log(rate: Quota) -> Self {
        Self::by_algorithm("sliding_log", rate)
    }

    /// Sets an option of the algorithm, as in a file: `option("edge", "strict")`.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }
}

impl From<Quota> for LimitBuilder {
    fn from(rate: Quota) -> Self {
        Self(Map::from_iter([("rate".to_owned(), Value::String(rate.to_string()))]))
    }
}

/// Adds a value to a field that has one or several, also to a single one.
fn add(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let list = match fields.remove(name) {
        Some(Value::Array(mut list)) => {
            list.push(value.into());
            list
        }
        single => single.into_iter().chain([value.into()]).collect(),
    };
    fields.insert(name.to_owned(), Value::Array(list));
}

/// Returns the conditions of `match`, which is a map: any other value of it is invalid, and is replaced.
fn conditions(fields: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let matches = fields.entry("match").or_insert_with(|| Value::Object(Map::new()));
    if !matches.is_object() {
        *matches = Value::Object(Map::new());
    }
    matches.as_object_mut().unwrap_or_else(|| unreachable!("it was made a map"))
}

#[cfg(test)]
mod tests;
