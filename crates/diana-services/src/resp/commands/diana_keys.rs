//! Single keys of rules, as the admin API has them: `DIANA.PEEK`, `DIANA.RESET`, `DIANA.REFUND`; and `DIANA.RULES`.

use super::diana_check::{count, retry_after, seconds, write_invalid, write_verdict};
use super::{Command, ReplyBuffer, Session, Step, integer};
use crate::resp::session::Outcome;
use diana::rules::describe;
use diana::{Cost, KeyOperation, KeyStatus, Verdict};
use std::sync::Arc;

/// A rule, and the values of a key of it.
struct KeyName {
    rule: String,
    key: Vec<String>,
}

impl KeyName {
    /// Parses a rule, and a key that starts with the argument at `first`.
    fn parse(command: Command<'_>, first: usize) -> Option<Self> {
        let text = |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
        Some(Self { rule: text(command.arg(1))?, key: command.args(first).map(text).collect::<Option<_>>()? })
    }

    fn values(&self) -> Vec<&str> {
        self.key.iter().map(String::as_str).collect()
    }
}

/// Executes `DIANA.PEEK rule key ...`.
pub(super) fn peek(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    start(session, command, 2, None, replies)
}

/// Executes `DIANA.RESET rule key ...`.
pub(super) fn reset(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    start(session, command, 2, Some(KeyOperation::Reset), replies)
}

/// Executes `DIANA.REFUND rule cost key ...`.
pub(super) fn refund(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let cost = integer(command.arg(2)).and_then(|cost| u64::try_from(cost).ok());
    match cost.and_then(|cost| Cost::new(cost).ok()).filter(|cost| cost.get() > 0) {
        Some(cost) => start(session, command, 3, Some(KeyOperation::Refund(cost)), replies),
        None => {
            replies.error("ERR cost is not an integer of at least 1");
            Step::Done
        }
    }
}

/// Starts an operation; without one, the key is only read.
fn start(
    session: &Session,
    command: Command<'_>,
    first: usize,
    operation: Option<KeyOperation>,
    replies: &mut ReplyBuffer,
) -> Step {
    let Some(name) = KeyName::parse(command, first) else {
        replies.error("ERR rule and key must be UTF-8");
        return Step::Done;
    };
    let (engine, state, peer) = (session.engine.clone(), Arc::clone(&session.state), session.peer);
    Step::Later(Box::pin(async move {
        let (rule, key) = (&*name.rule, &*name.values());
        let Some(operation) = operation else { return Outcome::Key(engine.peek_key(rule, key).await) };
        Outcome::Key(match engine.change_key(rule, key, operation).await {
            Err(error) => Err(error),
            Ok(change) => {
                if let Some(report) = &state.key_changes {
                    report(peer, &change);
                }
                change.after.map_err(Into::into)
            }
        })
    }))
}

/// Writes the outcome of a rare command.
pub(in crate::resp) fn write_outcome(outcome: Outcome, replies: &mut ReplyBuffer) {
    match outcome {
        Outcome::Peeked(peeked, form) => write_verdict(Verdict::of(&peeked), form, replies),
        Outcome::Key(Ok(status)) => write_status(&status, replies),
        Outcome::Key(Err(error)) => replies.error(&format!("ERR {error}")),
        Outcome::Invalid(invalid) => write_invalid(&invalid, replies),
    }
}

/// Writes a list for each limit of a key: five integers, as `CL.THROTTLE` does, and the name of the limit.
fn write_status(status: &KeyStatus, replies: &mut ReplyBuffer) {
    replies.array(status.limits.len());
    for limit in &status.limits {
        replies.array(6);
        let limited = i64::from(limit.retry.is_some());
        let numbers =
            [limited, count(limit.limit), count(limit.remaining), retry_after(limit.retry), seconds(limit.reset)];
        for number in numbers {
            replies.integer(number);
        }
        replies.bulk(limit.name.as_bytes());
    }
}

/// Executes `DIANA.RULES`: the name of each rule, and the rule in words.
pub(super) fn rules(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let active = session.engine.rules();
    replies.map(active.rules().len());
    for compiled in active.rules() {
        let rule = compiled.rule();
        replies.bulk(rule.name.as_bytes());
        replies.bulk(describe::rule(rule).to_string().as_bytes());
    }
    Step::Done
}
