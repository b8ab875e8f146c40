//! Warnings of `diana check`: constructs that are valid, but most likely a mistake.

use super::RuleFile;
use crate::attributes::{Attribute, SyntheticRequest};
use crate::expression::Expression;
use crate::limit::LimitRule;
use crate::logged_keys::{self, LoggedKeys};
use crate::matching::Match;
use crate::matching::path::{PathPattern, Segment};
use crate::rule::{Missing, Mode, OnStatus, Rule};
use crate::words::{and, bytes};
use diana_core::Restores;
use diana_document::Problem;
use diana_document::Span;
use std::time::Duration;

/// The maximum number of rule pairs to compare for requests that no rule limits. Larger files get no such warning.
const MAX_COMPARISONS: usize = 1_000_000;

/// The shortest limit whose counts should survive a restart.
const HOUR: Duration = Duration::from_secs(3_600);
/// The most entries of a log for which there is no warning.
const MAX_LOG: u64 = 10_000;
/// The bytes of an entry of a log.
const LOG_ENTRY: u64 = 16;
/// The maximum number of rules that a warning names.
const MAX_NAMES: usize = 5;

/// The maximum number of conditions of which each is compared with all others.
const MAX_CONDITIONS: usize = 100;

/// Returns all warnings, each at the name of its rule.
pub(super) fn of(file: &RuleFile, name_span: impl Fn(&Rule) -> Span) -> Vec<Problem> {
    let rules = &file.rules;
    let mut warnings = Vec::new();
    for rule in rules.iter().filter(|_| file.log_keys == LoggedKeys::Full) {
        if let Some(credential) = logged_keys::credential(rule, &file.identity) {
            let what = format!("warning: `{}` counts by {credential}: logs will contain this credential", rule.name);
            let expected = "add `log_keys: hashed` or `log_keys: off` at the top of the local file";
            warnings.push(Problem::new(name_span(rule), what).expected(expected));
        }
    }
    warnings.extend(rules.iter().filter_map(|rule| without_responses(file, rule, name_span(rule))));
    let always = rules.iter().filter(|rule| limits_without(rule)).collect::<Vec<_>>();
    let are_compared = always.len().saturating_mul(rules.len()) <= MAX_COMPARISONS;
    for rule in rules.iter().filter(|rule| applies_to_requests(rule)) {
        if are_compared
            && let Some(missing) = skipped(rule)
            && !limits_skipped(&always, rule)
        {
            let what = format!(
                "warning: requests without {missing} are not limited by `{}` (`missing: skip`), nor by any other rule",
                rule.name
            );
            let expected =
                "use `missing: shared` or `missing: deny`; or add another rule for these requests, such as `by: ip`";
            warnings.push(Problem::new(name_span(rule), what).expected(expected));
        }
        if let Some(path) = rule.matches.paths.iter().find(|path| has_dot_star(path)) {
            let what = format!("warning: `.*` in `{path}` only matches a segment that starts with a dot");
            warnings
                .push(Problem::new(name_span(rule), what).expected("use `**` for any number of segments, `*` for one"));
        }
    }
    warnings.extend(rules.iter().filter_map(|rule| long_log(rule, name_span(rule))));
    warnings.extend(lost_at_a_restart(file, name_span));
    warnings
}

/// Returns the warning about a log that is too long for a key.
fn long_log(rule: &Rule, span: Span) -> Option<Problem> {
    let all = rule.limits.iter().chain(rule.overrides.iter().flat_map(|replacement| &replacement.limits));
    let entries = all.filter_map(|limit| limit.configured.properties().max_entries);
    let entries = entries.max().filter(|entries| *entries > MAX_LOG)?;
    let size = bytes(entries.saturating_mul(LOG_ENTRY));
    let what = format!("warning: the log of `{}` may have {entries} entries ({size}) for each key", rule.name);
    let expected =
        "use `algorithm: sliding_window` with `edge: strict`, which never allows more and has 80 bytes a key";
    Some(Problem::new(span, what).expected(expected))
}

/// Returns the warning about counts of an hour and more that a restart loses: one for all rules.
fn lost_at_a_restart(file: &RuleFile, name_span: impl Fn(&Rule) -> Span) -> Option<Problem> {
    if file.store.redis.is_some() || file.store.memory.snapshot.is_some() {
        return None;
    }
    let lasts = |rule: &&Rule| applies_to_requests(rule) && rule.limits.iter().any(lasts_an_hour);
    let rules = file.rules.iter().filter(lasts).collect::<Vec<_>>();
    let names = rules.iter().take(MAX_NAMES).map(|rule| format!("`{}`", rule.name));
    let more = rules.len().saturating_sub(MAX_NAMES);
    let more = (more > 0).then(|| format!("{more} more"));
    let names = and(&names.chain(more).collect::<Vec<_>>());
    let what = format!("warning: a restart resets the counts of {names}: they are only in this process");
    let expected = "add `store: {snapshot: /var/lib/diana/counts}`, or a `redis` that all instances share";
    Some(Problem::new(name_span(rules.first()?), what).expected(expected))
}

/// Returns `true` if a count may last an hour or longer: until the end of a window, until a bucket has refilled, or until
/// a total is reset.
fn lasts_an_hour(limit: &LimitRule) -> bool {
    match limit.configured.properties().restores {
        Restores::Continuously(quota) | Restores::InSteps(quota) => quota.period() >= HOUR,
        Restores::InWindows(windows) => windows.iter().any(|quota| quota.period() >= HOUR),
        Restores::AfterInterval(interval) => interval >= HOUR,
        Restores::Never => true,
        _ => false,
    }
}

/// Returns the warning about a rule with `count` that never learns the status of a response.
fn without_responses(file: &RuleFile, rule: &Rule, span: Span) -> Option<Problem> {
    let count = rule.count.as_ref()?;
    // A file without either is for a program that has the rules in itself.
    let has_responses = file.sections.has("gateway") || !file.sections.has("services");
    if has_responses && !rule.matches.is_for_envoy() {
        return None;
    }
    let name = &rule.name;
    let is_charged = file.rules.iter().any(|other| other.charges.as_ref() == Some(name));
    let (what, expected) = match count.then {
        OnStatus::Charge if is_charged => return None,
        OnStatus::Charge => ("charged", format!("add a rule with `charges: {name}`, a `gateway`, or remove `count`")),
        OnStatus::Refund => ("refunded", "add a `gateway`, or remove `count`".to_owned()),
    };
    let what = format!("warning: `{name}` is never {what} by status: services for other gateways do not see responses");
    Some(Problem::new(span, what).expected(expected))
}

/// Returns `true` if the rule counts requests and denies them.
fn applies_to_requests(rule: &Rule) -> bool {
    rule.mode == Mode::Enforced && rule.matches.call.is_none()
}

/// Returns the missing key for which a rule with a limit skips requests.
fn skipped(rule: &Rule) -> Option<String> {
    let has_limit = !rule.limits.is_empty() || rule.adaptive;
    may_be_missing(rule).filter(|_| has_limit && rule.missing == Missing::Skip)
}

fn may_be_missing(rule: &Rule) -> Option<String> {
    rule.by.may_be_missing(|name| is_in_path(rule, name))
}

fn is_in_path(rule: &Rule, name: &str) -> bool {
    let paths = &rule.matches.paths;
    !paths.is_empty() && paths.iter().all(|path| path.has_parameter(name))
}

/// Returns `true` if a rule limits requests even if keys are missing.
fn limits_without(rule: &Rule) -> bool {
    let has_limit = !rule.limits.is_empty() || rule.adaptive || rule.missing == Missing::Deny;
    applies_to_requests(rule) && has_limit && (rule.missing != Missing::Skip || may_be_missing(rule).is_none())
}

/// Returns `true` if the other rules limit all requests that a rule skips: one of them, one for each part of the key
/// that may be missing, or two with opposite conditions. `false` if that is not obvious.
fn limits_skipped(others: &[&Rule], rule: &Rule) -> bool {
    let similar = || others.iter().filter(|other| covers_but_for_when(other, rule)).map(|other| &other.matches.when);
    if similar().any(|when| when.is_none() || *when == rule.matches.when) {
        return true;
    }
    let conditions = similar().flatten().collect::<Vec<_>>();
    let mut missing = rule.by.missing_attributes(|name| is_in_path(rule, name)).into_iter();
    let has_opposite = |when: &&&Expression| conditions.iter().any(|other| when.is_negation_of(other));
    missing.all(|part| conditions.iter().any(|when| holds_without(when, &part)))
        || conditions.iter().take(MAX_CONDITIONS).any(|when| has_opposite(&when))
}

/// Returns `true` if a condition is true for all requests that have none of these attributes.
fn holds_without(when: &Expression, attributes: &[Attribute]) -> bool {
    when.attributes().all(|attribute| attributes.contains(attribute))
        && when.holds(&SyntheticRequest::default()).unwrap_or(false)
}

/// Returns `true` if `wide` matches all requests that `narrow` matches, as far as its `when` allows. `false` if that is
/// not obvious.
fn covers_but_for_when(wide: &Rule, narrow: &Rule) -> bool {
    let Match { paths, methods, hosts, headers, networks, domains, descriptor, when: _, others, call: _ } =
        &wide.matches;
    let other = &narrow.matches;
    let has_path = |path: &PathPattern| paths.iter().any(|wide| wide == path || is_below(path, wide));
    (paths.is_empty() || !other.paths.is_empty() && other.paths.iter().all(has_path))
        && (methods.is_empty()
            || !other.methods.is_empty() && other.methods.iter().all(|method| methods.contains(method)))
        && (hosts.is_empty() || *hosts == other.hosts)
        && (headers.is_empty() || *headers == other.headers)
        && (networks.is_empty() || *networks == other.networks)
        && (domains.is_empty() || *domains == other.domains)
        && (descriptor.is_none() || *descriptor == other.descriptor)
        && others.is_empty()
}

/// Returns `true` if `wide` ends in `**` and matches all paths that `path` matches.
fn is_below(path: &PathPattern, wide: &PathPattern) -> bool {
    let Some((Segment::Any, start)) = wide.segments().split_last() else { return false };
    path.segments().get(..start.len()).is_some_and(|narrow| {
        let mut pairs = narrow.iter().zip(start);
        pairs.all(|(narrow, wide)| narrow == wide || matches!(wide, Segment::One(_)) && *narrow != Segment::Any)
    })
}

/// Returns `true` if a segment is `.*`, which would match everything in a regular expression.
fn has_dot_star(path: &PathPattern) -> bool {
    path.segments().iter().any(|segment| matches!(segment, Segment::Text(glob) if glob.to_string() == ".*"))
}
