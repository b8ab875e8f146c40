//! The output of `check --json` and `explain --json`. The fields are documented in `docs/reference/command-line.md`, and only ever
//! added to.

use super::input::InputError;
use super::output;
use diana::ruleset::ExplainedRule;
use diana::{Explanation, Retry, RuleExplanation, Verdict};
use diana_http::head::RejectedRequest;
use diana_rules::file::NotChecked;
use diana_rules::rule::{Mode, Rule};
use diana_rules::{Problems, RuleFile, describe};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// The result of `check`.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    pub(super) valid: bool,
    pub(super) files: Vec<CheckedFile>,
}

#[derive(Debug, Serialize)]
pub(super) struct CheckedFile {
    file: String,
    pub(super) valid: bool,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    not_checked: Vec<Unchecked>,
    rules: Vec<DescribedRule>,
}

/// A problem of a file; a file that can't be read has no line.
#[derive(Debug, Serialize)]
struct Problem {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    help: Option<String>,
}

/// A value that was not checked, since it has variables.
#[derive(Debug, Serialize)]
struct Unchecked {
    line: usize,
    column: usize,
    variables: Vec<String>,
}

/// A rule in words.
#[derive(Debug, Serialize)]
struct DescribedRule {
    name: String,
    by: String,
    key: String,
    matches: String,
    limit: String,
    over_limit: String,
    notes: Vec<String>,
    shadow: bool,
}

impl CheckedFile {
    /// Describes a file that can be used.
    pub(super) fn valid(name: String, file: &RuleFile, not_checked: Vec<NotChecked>) -> Self {
        let unchecked = |NotChecked { line, column, variables, .. }| Unchecked { line, column, variables };
        Self {
            file: name,
            valid: true,
            errors: Vec::new(),
            warnings: file.warnings.as_ref().map(warnings).unwrap_or_default(),
            not_checked: not_checked.into_iter().map(unchecked).collect(),
            rules: file.rules.iter().map(described).collect(),
        }
    }

    /// Describes a file that can't be used.
    pub(super) fn invalid(name: String, error: &InputError) -> Self {
        let errors = errors(&name, error);
        Self { file: name, valid: false, errors, warnings: Vec::new(), not_checked: Vec::new(), rules: Vec::new() }
    }
}

fn errors(name: &str, error: &InputError) -> Vec<Problem> {
    match error {
        InputError::Problems(invalid) => problems(invalid),
        InputError::Unreadable(reason) => {
            let message = reason.strip_prefix(&format!("{name}: ")).unwrap_or(reason).to_owned();
            vec![Problem { file: name.to_owned(), line: None, column: None, message, help: None }]
        }
    }
}

fn problems(problems: &Problems) -> Vec<Problem> {
    let located = problems.located().map(|problem| Problem {
        file: problem.file,
        line: Some(problem.line),
        column: Some(problem.column),
        message: problem.message,
        help: problem.help,
    });
    located.collect()
}

/// Returns warnings, without the word with which their text begins.
fn warnings(warnings: &Problems) -> Vec<Problem> {
    let without_word = |mut problem: Problem| {
        problem.message = problem.message.trim_start_matches("warning: ").to_owned();
        problem
    };
    problems(warnings).into_iter().map(without_word).collect()
}

fn described(rule: &Rule) -> DescribedRule {
    let words = describe::rule(rule);
    DescribedRule {
        name: rule.name.clone(),
        by: rule.by.to_string(),
        key: words.key,
        matches: words.matches,
        limit: words.limit,
        over_limit: words.over_limit,
        notes: words.notes,
        shadow: rule.mode == Mode::Shadow,
    }
}

/// The result of `explain`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Explained {
    /// `allowed`, `delayed`, `denied`, or `rejected` by the gateway before any rule; `null` if the file is invalid.
    decision: Option<&'static str>,
    denied_by: Vec<String>,
    wait_seconds: Option<f64>,
    rejected: Option<Rejected>,
    requests: Vec<Counted>,
    rules: Vec<RuleResult>,
    permission: Option<PermissionResult>,
    notes: Vec<String>,
    errors: Vec<Problem>,
}

/// The result of `permissions` for a request.
#[derive(Debug, Serialize)]
struct PermissionResult {
    allowed: bool,
    shadow: bool,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Rejected {
    status: u16,
    detail: &'static str,
}

/// A request of `--times`.
#[derive(Debug, Serialize)]
pub(super) struct Counted {
    number: u32,
    decision: &'static str,
    wait_seconds: Option<f64>,
    retry_after_seconds: Option<f64>,
    denied_by: Option<String>,
    text: String,
}

#[derive(Debug, Serialize)]
struct RuleResult {
    rule: String,
    matches: bool,
    denies: bool,
    shadow: bool,
    key: String,
    cost: u64,
    limits: Vec<LimitResult>,
    text: String,
}

#[derive(Debug, Serialize)]
struct LimitResult {
    name: String,
    limit: u64,
    remaining: u64,
    allowed: bool,
    wait_seconds: Option<f64>,
    retry_after_seconds: Option<f64>,
}

impl Explained {
    pub(super) fn invalid_file(name: &str, error: &InputError) -> Self {
        Self { errors: errors(name, error), ..Self::default() }
    }

    pub(super) fn rejected(rejected: RejectedRequest) -> Self {
        let RejectedRequest { status, detail } = rejected;
        let rejected = Some(Rejected { status: status.as_u16(), detail });
        Self { decision: Some("rejected"), rejected, ..Self::default() }
    }

    pub(super) fn new(explanation: &Explanation, requests: Vec<Counted>, notes: Vec<String>) -> Self {
        let denied_by = explanation.denying().map(|rule| rule.name.clone()).collect::<Vec<_>>();
        let enforced = explanation.rules.iter().filter(|rule| rule.mode == Mode::Enforced);
        let waits = enforced.flat_map(|rule| rule.limits.iter().filter_map(|(_, answer)| answer.wait()));
        let wait = waits.max().unwrap_or_default();
        let is_denied = explanation.is_denied();
        let permission = explanation.permission.as_ref().map(|permission| PermissionResult {
            allowed: permission.is_allowed,
            shadow: !permission.is_enforced,
            reason: permission.reason.clone(),
        });
        Self {
            decision: Some(decision((!is_denied).then_some(wait))),
            denied_by,
            wait_seconds: (!is_denied).then_some(wait.as_secs_f64()),
            rejected: None,
            requests,
            rules: explanation.rules.iter().map(rule).collect(),
            permission,
            notes,
            errors: Vec::new(),
        }
    }
}

impl Counted {
    pub(super) fn new(number: u32, verdict: &Verdict) -> Self {
        Self {
            number,
            decision: decision(verdict.wait()),
            wait_seconds: verdict.wait().map(|wait| wait.as_secs_f64()),
            retry_after_seconds: verdict.retry().and_then(seconds),
            denied_by: verdict.denied_by().filter(|_| !verdict.is_granted()).map(|rule| rule.name.clone()),
            text: verdict.to_string(),
        }
    }
}

fn rule(explanation: &RuleExplanation) -> RuleResult {
    let limits = explanation.limits.iter().map(|(name, answer)| LimitResult {
        name: name.clone(),
        limit: answer.status().limit,
        remaining: answer.status().remaining,
        allowed: answer.is_granted(),
        wait_seconds: answer.wait().map(|wait| wait.as_secs_f64()),
        retry_after_seconds: answer.retry().and_then(seconds),
    });
    RuleResult {
        rule: explanation.name.clone(),
        matches: !matches!(explanation.result, ExplainedRule::NoMatch(_)),
        denies: explanation.denies(),
        shadow: explanation.mode == Mode::Shadow,
        key: explanation.key.clone(),
        cost: explanation.cost,
        limits: limits.collect(),
        text: explanation.to_string(),
    }
}

/// Returns the word for a decision; `wait` is `None` for a denied request.
fn decision(wait: Option<Duration>) -> &'static str {
    match wait {
        None => "denied",
        Some(Duration::ZERO) => "allowed",
        Some(_) => "delayed",
    }
}

fn seconds(retry: Retry) -> Option<f64> {
    match retry {
        Retry::After(time) => Some(time.as_secs_f64()),
        Retry::WhenReleased | Retry::Never => None,
    }
}

/// Prints a result, indented.
pub(super) fn print(result: &impl Serialize) -> Result<(), ExitCode> {
    match serde_json::to_string_pretty(result) {
        Ok(text) => output::print(&format!("{text}\n")),
        Err(error) => Err(output::failure(&error.to_string())),
    }
}
