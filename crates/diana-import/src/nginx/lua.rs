//! Limits in Lua: scripts of OpenResty that may deny requests.
//!
//! Scripts that call lua-resty-limit-traffic with literal parameters become rules. All others are reported, since a
//! limit may be lost with them. Scripts are not interpreted: [`outcome`] follows the statements that such scripts
//! consist of, and nothing else.

mod outcome;
mod parse;
mod token;
mod value;

pub(super) use token::block_length;

use super::syntax::{Directive, Position};
use crate::rule_file::{Delay, Limit};
use outcome::{Group, Outcome};
use std::borrow::Cow;

/// The longest script that is converted, in bytes.
const MAX_SCRIPT: usize = 64 << 10;

/// A script and the place of its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) position: Position,
}

/// A part of a script that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unclear {
    /// The line, from 0.
    line: usize,
    what: String,
}

/// A module of lua-resty-limit-traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LimiterKind {
    Requests,
    Connections,
    Count,
}

impl LimiterKind {
    /// Returns the name of the module.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Requests => "resty.limit.req",
            Self::Connections => "resty.limit.conn",
            Self::Count => "resty.limit.count",
        }
    }
}

/// A limiter, as a script creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limiter {
    kind: LimiterKind,
    /// The name of the `lua_shared_dict`.
    dictionary: String,
    /// The limiter's parameters, in thousandths.
    numbers: Vec<i64>,
    line: usize,
}

/// A limit of a script. Equal ones are the same limit, with the same counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LuaLimit {
    pub(super) kind: LimiterKind,
    pub(super) dictionary: String,
    /// The key, with variables as nginx writes them.
    pub(super) key: String,
    pub(super) limit: Limit,
    pub(super) status: u16,
}

/// The limits of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LuaLimits {
    pub(super) limits: Vec<(LuaLimit, Position)>,
    /// Differences of the rules.
    pub(super) differences: Vec<(Position, &'static str)>,
    /// The parts that the rules don't need.
    pub(super) infos: Vec<(Position, &'static str)>,
}

/// The condition under which a script may deny a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayDeny {
    /// Every script of the phase may deny.
    Always,
    /// Only a script that mentions limits may: the phase is mostly for other purposes.
    IfItMentionsLimits,
}

/// Returns the phase of a directive such as `access_by_lua_block`, if its scripts may deny requests.
pub(super) fn phase(name: &str) -> Option<&str> {
    let phase = name.strip_suffix("_block").or_else(|| name.strip_suffix("_file")).unwrap_or(name);
    may_deny_in(phase).map(|_| phase)
}

fn may_deny_in(phase: &str) -> Option<MayDeny> {
    match phase {
        "access_by_lua" | "rewrite_by_lua" | "server_rewrite_by_lua" | "preread_by_lua" => Some(MayDeny::Always),
        "content_by_lua"
        | "balancer_by_lua"
        | "header_filter_by_lua"
        | "ssl_certificate_by_lua"
        | "ssl_client_hello_by_lua" => Some(MayDeny::IfItMentionsLimits),
        _ => None,
    }
}

/// Returns whether a directive is a script that may deny requests.
pub(super) fn may_deny(directive: &Directive) -> bool {
    match phase(&directive.name).and_then(may_deny_in) {
        None => false,
        Some(MayDeny::Always) => true,
        Some(MayDeny::IfItMentionsLimits) => {
            // A script that can't be read is judged by its name.
            let text = directive.script.as_ref().map_or(directive.arg(0), |script| &script.text);
            mentions_limits(text) || (directive.script.is_none() && text.contains("limit"))
        }
    }
}

fn mentions_limits(text: &str) -> bool {
    text.contains("resty.limit.") || exits_with_limit_status(text)
}

fn exits_with_limit_status(text: &str) -> bool {
    let exits = text.split("ngx.exit").skip(1);
    let statuses = ["429", "503", "ngx.HTTP_TOO_MANY_REQUESTS", "ngx.HTTP_SERVICE_UNAVAILABLE"];
    exits
        .map(|rest| rest.trim_start_matches(['(', ' ']))
        .any(|rest| statuses.iter().any(|status| rest.starts_with(status)))
}

/// Returns the limits of a script that may deny requests, or why it is not converted and what to do.
pub(super) fn limits(directive: &Directive) -> Result<LuaLimits, String> {
    let Some(script) = &directive.script else {
        let file = directive.arg(0);
        return Err(format!(
            "`{file}` can't be read here, and may deny requests; if it limits them, write rules for it"
        ));
    };
    if !script.text.contains("resty.limit.") || script.text.len() > MAX_SCRIPT {
        return Err(advice(&script.text).into_owned());
    }
    let place = |line: usize| Position { line: script.position.line + line, ..script.position };
    let converted = parse::parse(token::tokens(&script.text).collect()).and_then(|statements| {
        let outcome = outcome::outcome(&statements)?;
        let mut limits = Vec::new();
        for group in &outcome.groups {
            for (limiter, key) in &group.limiters {
                limits.push((limit(limiter, key, group)?, place(limiter.line)));
            }
        }
        Ok((outcome, limits))
    });
    match converted {
        Ok((_, limits)) if limits.is_empty() => Err(advice(&script.text).into_owned()),
        Ok((outcome, limits)) => Ok(with_notes(&outcome, limits, place)),
        Err(Unclear { line, what }) => Err(format!(
            "a limit in Lua that is not literal: {what} (line {}); {}",
            place(line).line,
            "write its numbers as a rule: `limit` with `algorithm: leaky_bucket` for resty.limit.req, `concurrent` for resty.limit.conn, `limit` with `algorithm: fixed_window` for resty.limit.count"
        )),
    }
}

fn with_notes(outcome: &Outcome, limits: Vec<(LuaLimit, Position)>, place: impl Fn(usize) -> Position) -> LuaLimits {
    let mut limits = LuaLimits { limits, ..LuaLimits::default() };
    if let Some(second) = outcome.groups.get(1) {
        let what = "the script counts a request in its first limits even if a later one rejects it; Diana counts it in all or none";
        limits.differences.push((place(second.line), what));
    }
    if let Some(line) = outcome.header {
        let what = "headers of the response are not needed: the gateway sets `RateLimit` and `Retry-After`; `rate_limit_headers: both` adds `X-RateLimit-*`";
        limits.infos.push((place(line), what));
    }
    limits
}

/// Converts the parameters of a limiter.
fn limit(limiter: &Limiter, key: &str, group: &Group) -> Result<LuaLimit, Unclear> {
    let unclear = |what: &str| Unclear { line: limiter.line, what: format!("`{}` {what}", limiter.kind.module()) };
    let whole = |number: i64| match number % 1000 {
        0 => u32::try_from(number / 1000).map(u64::from).map_err(|_| unclear("has a number that is too large")),
        _ => Err(unclear("has a number that should be whole")),
    };
    if limiter.numbers.iter().any(|number| *number < 0) || limiter.numbers.first().is_none_or(|number| *number == 0) {
        return Err(unclear("has an invalid number"));
    }
    let limit = match (limiter.kind, &*limiter.numbers) {
        (LimiterKind::Requests, [thousandths, burst]) => {
            let delay = if group.sleeps { Delay::Each } else { Delay::Never };
            Limit::Leaky { rate: rate(*thousandths), burst: whole(*burst)?, delay }
        }
        (LimiterKind::Connections, [limit, burst, delay]) => match (whole(*limit)?, whole(*burst)?) {
            (_, _) if *delay == 0 => return Err(unclear("has an invalid number")),
            (limit, burst) if group.sleeps && burst > 0 => {
                Limit::ConcurrentWithBurst { limit, burst, delay: duration(*delay) }
            }
            // Without a sleep, those of the burst are forwarded at once.
            (limit, burst) => Limit::Concurrent(limit + burst),
        },
        (LimiterKind::Count, [count, window]) => match whole(*window)? {
            0 => return Err(unclear("has an invalid number")),
            1 => Limit::WindowOfFirst(format!("{}/s", whole(*count)?)),
            seconds => Limit::WindowOfFirst(format!("{}/{seconds}s", whole(*count)?)),
        },
        _ => return Err(unclear("has a wrong number of parameters")),
    };
    let (dictionary, key) = (limiter.dictionary.clone(), key.to_owned());
    Ok(LuaLimit { kind: limiter.kind, dictionary, key, limit, status: group.status })
}

/// Formats thousandths of requests per second as Diana writes a rate.
fn rate(thousandths: i64) -> String {
    let per_thousand_seconds = thousandths.unsigned_abs();
    let (mut divisor, mut rest) = (1000, per_thousand_seconds);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    match 1000 / divisor {
        1 => format!("{}/s", per_thousand_seconds / divisor),
        seconds => format!("{}/{seconds}s", per_thousand_seconds / divisor),
    }
}

fn duration(thousandths: i64) -> String {
    match thousandths % 1000 {
        0 => format!("{}s", thousandths / 1000),
        _ => format!("{thousandths}ms"),
    }
}

/// Returns what to do about a script without lua-resty-limit-traffic.
fn advice(text: &str) -> Cow<'static, str> {
    let lowercase = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lowercase.contains(word));
    let window = "write a rule with the same numbers, `algorithm: fixed_window` and `opens: first_request`";
    if has(&["connections_active"]) {
        "a limit in Lua, of all connections; write `load: {connections: NUMBER}`".into()
    } else if has(&["redis"]) && has(&["incr", "expire", "zadd", "eval", "setex"]) {
        format!("a limit in Lua, with counts in Redis; {window}, and a `store` with `redis`").into()
    } else if has(&["resty.lock", "ngx.shared"]) {
        format!("a limit in Lua, with counts in a shared dictionary; {window}").into()
    } else if has(&["resty.limit."]) || exits_with_limit_status(text) {
        "a limit in Lua; write a rule with its numbers".into()
    } else {
        "the script may deny requests; if it limits them, write a rule with its numbers".into()
    }
}
