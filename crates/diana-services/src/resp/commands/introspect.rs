//! Commands that describe the server to clients and tools: `COMMAND`, `CONFIG GET` and `INFO`.

use super::{Command, Flag, ReplyBuffer, Session, Spec, Step, find, is, specs, unknown_subcommand, wrong_arity};
use std::fmt::Write;

/// The version of Redis whose protocol this is, for clients that look at it.
pub(super) const VERSION: &str = "7.4.0";

/// Executes `COMMAND [COUNT | DOCS [name ...] | INFO [name ...] | LIST]`.
pub(super) fn command(_session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let subcommand = command.arg(1);
    if command.len() == 1 {
        replies.array(specs().count());
        specs().for_each(|spec| write_info(spec, replies));
    } else if is(subcommand, "COUNT") {
        replies.integer(i64::try_from(specs().count()).unwrap_or(i64::MAX));
    } else if is(subcommand, "LIST") {
        replies.array(specs().count());
        specs().for_each(|spec| replies.bulk(spec.name.as_bytes()));
    } else if is(subcommand, "INFO") && command.len() == 2 {
        replies.array(specs().count());
        specs().for_each(|spec| write_info(spec, replies));
    } else if is(subcommand, "INFO") {
        replies.array(command.len() - 2);
        for name in command.args(2) {
            match find(name) {
                Some(spec) => write_info(spec, replies),
                None => replies.null(),
            }
        }
    } else if is(subcommand, "DOCS") {
        let chosen: Vec<&Spec> =
            if command.len() == 2 { specs().collect() } else { command.args(2).filter_map(find).collect() };
        replies.map(chosen.len());
        chosen.into_iter().for_each(|spec| write_docs(spec, replies));
    } else {
        replies.error(&unknown_subcommand(command));
    }
    Step::Done
}

/// Writes name, arity, flags, first key, last key, step, ACL categories, tips, key specifications, subcommands.
fn write_info(spec: &Spec, replies: &mut ReplyBuffer) {
    let key = i64::from(spec.has_key);
    replies.array(10);
    replies.bulk(spec.name.as_bytes());
    replies.integer(i64::from(spec.arity));
    let mut flags: Vec<&str> = spec.flags.iter().filter_map(|flag| flag_name(*flag)).collect();
    if spec.group == "module" {
        flags.push("module");
    }
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.simple(flag));
    for number in [key, key, key] {
        replies.integer(number);
    }
    replies.set(0);
    for _ in 0..3 {
        replies.array(0);
    }
}

fn flag_name(flag: Flag) -> Option<&'static str> {
    match flag {
        Flag::NoAuth => Some("no_auth"),
        Flag::NotQueued => None,
        Flag::Write => Some("write"),
        Flag::ReadOnly => Some("readonly"),
        Flag::Fast => Some("fast"),
    }
}

fn write_docs(spec: &Spec, replies: &mut ReplyBuffer) {
    replies.bulk(spec.name.as_bytes());
    let docs = [("summary", spec.summary), ("since", "1.0.0"), ("group", spec.group)];
    replies.map(docs.len());
    for text in docs.iter().flat_map(|(field, text)| [field, text]) {
        replies.bulk(text.as_bytes());
    }
}

/// The settings that tools ask for.
const SETTINGS: [(&str, &str); 3] = [("save", ""), ("appendonly", "no"), ("databases", "16")];

/// Executes `CONFIG GET name ...`.
pub(super) fn config(_session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    if !is(command.arg(1), "GET") {
        replies.error(&unknown_subcommand(command));
    } else if command.len() < 3 {
        replies.error(&wrong_arity("config|get"));
    } else {
        let is_asked = |name: &str| command.args(2).any(|pattern| pattern == b"*" || is(pattern, name));
        let settings: Vec<_> = SETTINGS.iter().filter(|(name, _)| is_asked(name)).collect();
        replies.map(settings.len());
        for text in settings.iter().flat_map(|(name, value)| [name, value]) {
            replies.bulk(text.as_bytes());
        }
    }
    Step::Done
}

/// Executes `INFO [section ...]`.
pub(super) fn info(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let (totals, memory) = (session.state.metrics.totals(), session.engine.local().memory_used());
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{VERSION}\r\nredis_mode:standalone\r\ndiana_version:{}\r\nprocess_id:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
            ),
        ),
        ("Clients", format!("connected_clients:{}\r\n", totals.connections)),
        ("Memory", format!("used_memory:{memory}\r\n")),
        ("Persistence", "loading:0\r\n".to_owned()),
        (
            "Stats",
            format!(
                "total_connections_received:{}\r\nrejected_connections:{}\r\ndiana_allowed:{}\r\ndiana_denied:{}\r\n\
                 total_error_replies:{}\r\n",
                totals.accepted, totals.rejected, totals.allowed, totals.denied, totals.failed,
            ),
        ),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Modules", String::new()),
        ("Keyspace", String::new()),
    ];
    let every = ["all", "default", "everything"];
    let is_asked = |section: &str| {
        command.len() == 1 || command.args(1).any(|asked| is(asked, section) || every.iter().any(|all| is(asked, all)))
    };
    let mut text = String::new();
    for (section, fields) in sections.iter().filter(|(section, _)| is_asked(section)) {
        let separator = if text.is_empty() { "" } else { "\r\n" };
        // Writing to a `String` does not fail.
        let _ = write!(text, "{separator}# {section}\r\n{fields}");
    }
    replies.verbatim(&text);
    Step::Done
}
