//! The parser of a rule.

use super::{
    Bandwidth, Bodies, CostOf, CountByStatus, CountedIn, HeldUntil, KeyList, Missing, Mode, OnStatus, OverLimit,
    Overload, Override, Rule, bytes,
};
use crate::key::KeySpec;
use crate::limit::{LimitRule, LimitStyle, concurrent};
use crate::logged_keys::LogLevel;
use crate::matching::Match;
use crate::names_in_scope::{NamesInScope, Wanted};
use crate::registry::Registry;
use crate::response::CustomResponse;
use crate::upstream_url::Upstream;
use diana_core::{Cost, Limit, Properties, Restores};
use diana_document::Problem;
use diana_document::map_reader::{MapReader, nearest};
use diana_document::scalar;
use diana_document::{Entry, Node, Value};
use std::sync::Arc;

/// The fields of a rule that do not belong to its limits.
pub(crate) const FIELDS: [&str; 23] = [
    "name",
    "by",
    "match",
    "bandwidth",
    "load",
    "charges",
    "count",
    "cost",
    "cost_default",
    "cost_min",
    "allow",
    "deny",
    "overrides",
    "wait",
    "queue",
    "over",
    "shadow",
    "log",
    "status",
    "answer",
    "missing",
    "store",
    "memory",
];
/// The fields of `bandwidth`.
pub(crate) const BANDWIDTH: [&str; 4] = ["rate", "burst", "after", "of"];
/// The fields of `over`, if it is a map: one of them; the second is the word of older files.
pub(crate) const OVER: [&str; 2] = ["reroute", "divert"];
/// The fields of `missing`, if it is a map.
pub(crate) const MISSING: [&str; 1] = ["deny"];
/// The fields that limit something; a rule needs at least one of them.
pub(crate) const LIMITING: [&str; 8] =
    ["limit", "every", "total", "concurrent", "bandwidth", "load", "charges", "deny"];
/// The fields that have no meaning for a rule that only charges another one.
const NOT_WITH_CHARGES: [&str; 16] = [
    "limit",
    "every",
    "total",
    "concurrent",
    "bandwidth",
    "load",
    "deny",
    "count",
    "overrides",
    "wait",
    "queue",
    "over",
    "status",
    "answer",
    "store",
    "memory",
];
/// The minimum of `memory`: some thousand keys.
const MIN_MEMORY: u64 = 64 << 10;
/// The default of `cost_min`, so that no client can make its requests free.
const MIN_COST: u64 = 1;
/// The maximum length of a rule's name.
const MAX_NAME_LENGTH: usize = 128;

/// The settings outside of the rules that rules use.
pub(crate) struct Defaults<'a> {
    pub(crate) status: u16,
    pub(crate) answer: Option<&'a Arc<CustomResponse>>,
    pub(crate) log: LogLevel,
    /// Whether there is a shared store.
    pub(crate) has_shared: bool,
}

impl Rule {
    /// The fields of a rule.
    pub(crate) fn fields(scope: &NamesInScope<'_>) -> Vec<&'static str> {
        FIELDS.into_iter().chain(LimitRule::fields(scope.registry)).collect()
    }

    /// Reads a rule and adds its problems to `problems`; `None` if the name, `by` or `match` is invalid.
    pub(crate) fn read(
        node: &Node,
        scope: &NamesInScope<'_>,
        defaults: &Defaults<'_>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let mut fields = MapReader::of(node, "rule", Self::fields(scope), problems)?;
        let name = fields.require("name", problems).and_then(|node| name(node, problems));
        let before = problems.len();
        let matches = match fields.take("match") {
            Some(node) => Match::read(node, scope, problems),
            None => Some(Match::default()),
        };
        // The parameters of an invalid path are unknown.
        let scope = &scope.of_rule(matches.as_ref().filter(|_| problems.len() == before));
        let by = match fields.take("by") {
            Some(node) => KeySpec::read_with(node, scope, problems),
            None => Some(KeySpec::everyone()),
        };
        let adaptive = adaptive(&mut fields, problems);
        let nodes = fields.peek("concurrent").into_iter();
        let nodes = nodes.chain(fields.peek("overrides").into_iter().flat_map(concurrent::of_overrides));
        let held_until = concurrent::held_until(nodes);
        let (limits, style) = LimitRule::read_with_style(&mut fields, &LimitStyle::default(), scope.registry, problems);
        // An invalid `by` is replaced with everyone, so that the remaining fields are still checked.
        let key = by.clone().unwrap_or_else(KeySpec::everyone);
        let mut lists = ["allow", "deny"].map(|name| {
            let node = fields.take(name).filter(|_| by.is_some());
            node.map_or_else(KeyList::default, |node| KeyList::read(node, &format!("`{name}`"), &key, problems))
        });
        let (deny, allow) = (std::mem::take(&mut lists[1]), std::mem::take(&mut lists[0]));
        let overrides = fields.take("overrides").filter(|_| by.is_some());
        let overrides =
            overrides.map(|node| Override::read(node, &key, &style, scope.registry, problems)).unwrap_or_default();
        let wait = fields.take("wait").and_then(|node| scalar::duration(node, "`wait`", problems));
        let cost_default = fields.take("cost_default");
        let cost_default = cost_default.and_then(|node| scalar::count(node, "`cost_default`", 1, problems));
        let cost_min = fields.take("cost_min").and_then(|node| scalar::count(node, "`cost_min`", 0, problems));
        let (missing, missing_status) =
            fields.take("missing").and_then(|node| missing(node, problems)).unwrap_or_default();
        let rule = Self {
            name: name.clone().unwrap_or_default(),
            by: key,
            matches: matches.clone().unwrap_or_default(),
            limits,
            adaptive,
            held_until,
            memory: fields.take("memory").and_then(|node| memory(node, problems)),
            bandwidth: fields.take("bandwidth").and_then(|node| bandwidth(node, problems)),
            load: fields.take("load").and_then(|node| Overload::read(node, problems)),
            charges: fields
                .take("charges")
                .and_then(|node| scalar::text(node, "`charges`", problems))
                .map(str::to_owned),
            count: fields.take("count").and_then(|node| CountByStatus::read(node, problems)),
            cost: fields.take("cost").and_then(|node| cost(node, scope, problems)).unwrap_or_default(),
            cost_default: cost_default.and_then(|cost| Cost::new(cost).ok()),
            cost_min: cost_min.unwrap_or(MIN_COST),
            allow,
            deny,
            overrides,
            wait,
            queue: fields.take("queue").and_then(|node| scalar::count(node, "`queue`", 1, problems)),
            over: fields.take("over").and_then(|node| over(node, problems)).unwrap_or_default(),
            mode: match fields.take("shadow").and_then(|node| scalar::flag(node, "`shadow`", problems)) {
                Some(true) => Mode::Shadow,
                _ => Mode::Enforced,
            },
            log: fields.take("log").and_then(|node| LogLevel::read(node, problems)).unwrap_or(defaults.log),
            status: fields.take("status").and_then(|node| status(node, problems)).unwrap_or(defaults.status),
            answer: fields
                .take("answer")
                .and_then(|node| CustomResponse::read(node, problems))
                .or_else(|| defaults.answer.cloned()),
            missing,
            missing_status,
            counted_in: counted_in(fields.take("store"), defaults, problems),
            span: node.span,
        };
        let is_whole = name.is_some() && by.is_some() && matches.is_some();
        rule.check_combinations(node, is_whole, scope, problems);
        rule.check_sharing(scope.registry, problems);
        fields.finish(problems);
        is_whole.then_some(rule)
    }

    /// Reports limits that the shared store does not support, if the rule uses it.
    fn check_sharing(&self, registry: &Registry, problems: &mut Vec<Problem>) {
        if self.counted_in != CountedIn::Shared {
            return;
        }
        let all = self.limits.iter().chain(self.overrides.iter().flat_map(|other| &other.limits));
        for LimitRule { configured, span, .. } in all {
            if let Some(reason) = registry.why_not_shared(&Limit::new(&*self.name, configured.clone())) {
                let problem = Problem::new(*span, format!("the shared store does not support this limit: {reason}"));
                problems.push(problem.expected("use `store: local`, or another algorithm"));
            }
        }
    }

    /// Reports fields that cannot be used together.
    fn check_combinations(&self, node: &Node, is_whole: bool, scope: &NamesInScope<'_>, problems: &mut Vec<Problem>) {
        let entry = |name: &str| match &node.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == name),
            _ => None,
        };
        let at = |name: &str| entry(name).map_or(node.span, |entry| entry.span);
        let written = |names: &[&str]| names.iter().any(|name| entry(name).is_some());
        let limit_fields = ["limit", "every", "total", "concurrent"];
        let denies = entry("deny").is_some_and(|entry| entry.node.value != Value::List(Vec::new()));
        let is_limit_typo = |entry: &Entry| {
            let known = Self::fields(scope);
            !known.contains(&&*entry.key) && nearest(&entry.key, &known).is_some_and(|meant| LIMITING.contains(&meant))
        };
        // For `limt: 5/s`, only the typo is reported, not the missing limit.
        let has_typo = matches!(&node.value, Value::Map(entries) if entries.iter().any(is_limit_typo));
        // A rule that denies requests without a key needs no limit.
        let denies = denies || self.missing == Missing::Deny;
        if !written(&limit_fields) && !written(&["bandwidth", "load", "charges"]) && !denies && !has_typo {
            let subject = if self.name.is_empty() { "this rule".to_owned() } else { format!("rule `{}`", self.name) };
            let problem = Problem::new(at("name"), format!("{subject} has no limit"));
            problems.push(
                problem.expected("add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`"),
            );
        }
        let mut report = |name: &str, what: &str, expected: &str| {
            problems.push(Problem::new(at(name), what).expected(expected));
        };
        if written(&["charges"]) {
            for name in NOT_WITH_CHARGES.into_iter().filter(|name| written(&[name])) {
                let what = format!("`{name}` cannot be combined with `charges`: the rule only charges another one");
                report(name, &what, "remove one of the two");
            }
            if self.missing == Missing::Deny {
                report(
                    "missing",
                    "`missing: deny` cannot be combined with `charges`: the rule never denies",
                    "remove it",
                );
            }
            return;
        }
        if self.queue.is_some() && self.wait.is_none() && entry("wait").is_none() {
            let leaks = |limit: &LimitRule| {
                let Properties { restores, delays, .. } = limit.configured.properties();
                delays && matches!(restores, Restores::Continuously(_))
            };
            if self.limits.iter().any(leaks) {
                let what = "`queue` needs `wait`: the queue of a leaky bucket is its `burst`";
                report("queue", what, "replace `queue` with `burst`");
            } else {
                report("queue", "`queue` needs `wait`", "add `wait: 2s`");
            }
        }
        if written(&["cost"]) && !written(&limit_fields) {
            report("cost", "`cost` needs a `limit`", "remove `cost`, or add a `limit`");
        }
        for name in ["cost_default", "cost_min"].into_iter().filter(|name| written(&[name])) {
            let whole =
                entry("cost").is_some_and(|entry| matches!(self.cost, CostOf::Request) && entry.node.text().is_some());
            match self.cost {
                CostOf::Expression(_) => {}
                // A problem with the cost itself has been reported already.
                CostOf::Request if whole => {}
                CostOf::Request => report(name, &format!("`{name}` needs a `cost`"), "remove it, or add a `cost`"),
                CostOf::Fixed(_) => {
                    let what = format!("`{name}` needs a `cost` that is an expression: a number cannot fail");
                    report(name, &what, "remove it");
                }
            }
        }
        if self.cost_default.is_some_and(|cost| cost.get() < self.cost_min) {
            report("cost_default", "`cost_default` is less than `cost_min`", "expected at least `cost_min`");
        }
        if written(&["count"]) {
            self.check_count(&written, &mut report);
        }
        if self.wait.is_some() && !written(&limit_fields) {
            report("wait", "`wait` needs a `limit`", "remove `wait`, or add a `limit`");
        }
        if is_whole && self.by.is_each_request() && written(&limit_fields) {
            report(
                "by",
                "`by: request` counts each request separately, so this limit never denies a request",
                "use another `by`; `request` is for `bandwidth`",
            );
        }
        if is_whole && self.load.is_some() && !self.by.is_everyone() {
            report(
                "by",
                "`load` applies to the whole machine, and cannot be counted by key",
                "use `by: global`, or remove `by`",
            );
        }
        if is_whole && self.missing != Missing::Skip && self.by.is_everyone() {
            report("missing", "`missing` has no effect: a rule by `global` has no key", "remove `missing`");
        }
        let calls = self.matches.call.is_some();
        if calls && self.adaptive {
            report(
                "concurrent",
                "`concurrent: adaptive` is not supported for calls: it needs responses",
                "expected a number",
            );
        }
        if calls && self.held_until == HeldUntil::UpstreamDone {
            report(
                "concurrent",
                "`until: upstream_done` is not supported for calls: they have no upstream",
                "remove `until`",
            );
        }
        if calls && written(&["bandwidth"]) {
            report("bandwidth", "`bandwidth` is not supported for calls: they have no body", "remove `bandwidth`");
        }
        if self.allow.networks.is_everything() {
            report("allow", "`allow` contains every address, so this rule never applies", "remove the rule");
        }
        if written(&["overrides"]) && !written(&limit_fields) {
            report("overrides", "`overrides` needs a `limit`", "remove `overrides`, or add a `limit`");
        }
        if written(&["memory"]) && !written(&limit_fields) && !written(&["bandwidth"]) {
            report("memory", "`memory` needs a `limit`", "remove `memory`, or add a `limit`");
        }
        let shared = entry("store").is_some_and(|entry| entry.node.text() == Some("shared"));
        if shared && !written(&limit_fields) {
            report("store", "`store: shared` is not supported for `bandwidth` and `load`", "remove `store`");
        }
        if shared && self.adaptive {
            report("store", "`store: shared` is not supported for `concurrent: adaptive`", "remove `store`");
        }
    }
}

impl Rule {
    /// Reports fields that cannot be used together with `count`.
    fn check_count(&self, written: &impl Fn(&[&str]) -> bool, report: &mut impl FnMut(&str, &str, &str)) {
        if !written(&["limit", "every", "total"]) {
            report("count", "`count` needs a `limit`", "remove `count`, or add a `limit`");
        }
        if written(&["wait"]) {
            let what = "`wait` cannot be combined with `count`: what is counted is known only after the response";
            report("wait", what, "remove one of the two");
        }
        let limits = || self.limits.iter().chain(self.overrides.iter().flat_map(|own| &own.limits));
        let has_concurrent = limits().any(|limit| limit.configured.properties().is_released());
        if written(&["concurrent"]) || has_concurrent {
            let what = "`concurrent` cannot be combined with `count`: a permit is held until the response is sent";
            let at = if written(&["concurrent"]) { "concurrent" } else { "overrides" };
            report(at, what, "use another rule for `concurrent`");
        }
        if limits().any(|limit| limit.configured.properties().delays) {
            let what = "a leaky bucket cannot be combined with `count`: it delays requests";
            report("count", what, "use another algorithm");
        }
        let is_refunded = self.count.is_some_and(|count| count.then == OnStatus::Refund);
        if is_refunded
            && limits().any(|limit| matches!(limit.configured.properties().restores, Restores::AfterInterval(_)))
        {
            let what = "`every` cannot be combined with `refund: true`: an interval is not refunded";
            report("count", what, "use `limit`, or remove `refund`");
        }
        if self.matches.call.is_some() {
            report("count", "`count` is not supported for calls: they have no status", "remove `count`");
        }
    }
}

/// Takes `concurrent: adaptive`, and returns `true` if it is set.
fn adaptive(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> bool {
    const WORD: [&str; 1] = ["adaptive"];
    let Some(node) = fields.peek("concurrent") else { return false };
    if node.text().is_none_or(|text| nearest(text, &WORD).is_none()) {
        return false;
    }
    fields.take("concurrent");
    scalar::word(node, "`concurrent`", &WORD, problems).is_some()
}

fn name(node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    let name = scalar::text(node, "`name`", problems)?;
    let is_valid = |character: char| character.is_alphanumeric() || "._-".contains(character);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_valid) {
        let problem = Problem::new(node.span, format!("invalid rule name `{name}`"));
        problems.push(problem.expected("expected at most 128 letters, digits, `.`, `_` and `-`"));
        return None;
    }
    Some(name.to_owned())
}

fn cost(node: &Node, scope: &NamesInScope<'_>, problems: &mut Vec<Problem>) -> Option<CostOf> {
    let is_number = node.text().is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_'));
    if is_number || !matches!(node.value, Value::Text(_)) {
        let count = scalar::count(node, "`cost`", 1, problems)?;
        return Cost::new(count).ok().map(CostOf::Fixed);
    }
    scope.expression(node, "`cost`", Wanted::Number, problems).map(CostOf::Expression)
}

/// Reads the status of a denied request.
pub(crate) fn status(node: &Node, problems: &mut Vec<Problem>) -> Option<u16> {
    let digits = node.text().filter(|text| text.len() == 3);
    let status = digits.and_then(|text| text.parse::<u16>().ok()).filter(|status| (400..=599).contains(status));
    if status.is_none() {
        problems
            .push(scalar::invalid(node, "status").expected("expected a status from 400 to 599, such as 429 or 503"));
    }
    status
}

fn over(node: &Node, problems: &mut Vec<Problem>) -> Option<OverLimit> {
    if matches!(node.value, Value::Map(_)) {
        let mut fields = MapReader::of(node, "`over`", OVER, problems)?;
        let [new, old] = OVER;
        let word = if fields.peek(old).is_some() { old } else { new };
        if word == old
            && let Some(entry) = fields.take_entry(new)
        {
            let problem = Problem::new(entry.span, format!("`{new}` and `{old}` are the same field"));
            problems.push(problem.expected("remove one of them"));
        }
        let url = fields.require(word, problems);
        let url = url.and_then(|node| Upstream::parse_node(node, &format!("`{word}`"), problems));
        fields.finish(problems);
        return url.map(OverLimit::Reroute);
    }
    match scalar::word(node, "`over`", &["deny", "reroute"], problems)? {
        0 => Some(OverLimit::Deny),
        _ => {
            problems.push(
                Problem::new(node.span, "missing upstream of `reroute`")
                    .expected("expected {reroute: http://127.0.0.1:3001}"),
            );
            None
        }
    }
}

/// Reads `skip`, `deny` or `shared`; or `{deny: 401}` with its own status.
fn missing(node: &Node, problems: &mut Vec<Problem>) -> Option<(Missing, Option<u16>)> {
    if matches!(node.value, Value::Map(_)) {
        let mut fields = MapReader::of(node, "`missing`", MISSING, problems)?;
        let status = fields.require("deny", problems).and_then(|node| status(node, problems));
        fields.finish(problems);
        return Some((Missing::Deny, status));
    }
    let missing = match scalar::word(node, "`missing`", &["skip", "deny", "shared"], problems)? {
        1 => Missing::Deny,
        2 => Missing::Shared,
        _ => Missing::Skip,
    };
    Some((missing, None))
}

fn counted_in(node: Option<&Node>, defaults: &Defaults<'_>, problems: &mut Vec<Problem>) -> CountedIn {
    let default = if defaults.has_shared { CountedIn::Shared } else { CountedIn::Local };
    let Some(node) = node else { return default };
    match scalar::word(node, "`store`", &["local", "shared"], problems) {
        Some(1) if !defaults.has_shared => {
            let problem = Problem::new(node.span, "`store: shared` needs a shared store");
            problems.push(problem.expected("add `store: {redis: redis://127.0.0.1:6379}` at the top of the file"));
            default
        }
        Some(1) => CountedIn::Shared,
        Some(_) => CountedIn::Local,
        None => default,
    }
}

fn memory(node: &Node, problems: &mut Vec<Problem>) -> Option<usize> {
    let parse = |text: &str| {
        let bytes = bytes::parse_byte_size(text).map_err(|error| error.to_string())?;
        (bytes >= MIN_MEMORY).then_some(bytes).ok_or_else(|| "expected at least 64KiB".to_owned())
    };
    scalar::parsed(node, "`memory`", parse, problems).and_then(|bytes| usize::try_from(bytes).ok())
}

fn bandwidth(node: &Node, problems: &mut Vec<Problem>) -> Option<Bandwidth> {
    if !matches!(node.value, Value::Map(_)) {
        let rate = scalar::parsed(node, "`bandwidth`", bytes::parse_byte_rate, problems)?;
        let rate = rate.with_burst(Bandwidth::chunk_of(rate)).ok()?;
        return Some(Bandwidth { rate, after: 0, of: Bodies::default() });
    }
    let mut fields = MapReader::of(node, "`bandwidth`", BANDWIDTH, problems)?;
    let rate = fields
        .require("rate", problems)
        .and_then(|node| scalar::parsed(node, "`rate`", bytes::parse_byte_rate, problems));
    let burst = fields.take("burst").and_then(|node| scalar::parsed(node, "`burst`", bytes::parse_byte_size, problems));
    let after = fields.take("after").and_then(|node| scalar::parsed(node, "`after`", bytes::parse_byte_size, problems));
    let of = fields.take("of").and_then(|node| scalar::word(node, "`of`", &["response", "request", "both"], problems));
    fields.finish(problems);
    let rate = rate.and_then(|rate| rate.with_burst(burst.unwrap_or_else(|| Bandwidth::chunk_of(rate))).ok())?;
    let of = [Bodies::Response, Bodies::Request, Bodies::Both][of.unwrap_or(0)];
    Some(Bandwidth { rate, after: after.unwrap_or(0), of })
}
