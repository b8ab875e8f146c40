//! `DIANA.CHECK name value ... [REPLY used] [COST n]`: decides about a request by the rules.

use super::described_request::{DescribedRequest, InvalidRequest};
use super::{Command, ReplyBuffer, Session, Step};
use crate::resp::session::{NO_MEMORY, Outcome, ReplyForm};
use crate::resp::transaction::Transaction;
use diana::{DecideMode, Denial, LoggedRequest, Permit, Reason, Retry, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// The answer to a request without a matching rule.
const NO_RULE: [i64; 5] = [0, -1, -1, -1, 0];
/// The answer to a request that is denied before the rules are evaluated.
const DENIED: [i64; 5] = [1, -1, -1, -1, 0];

pub(super) fn check(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let request = match DescribedRequest::parse(command, &session.state.settings) {
        Ok(request) => request,
        Err(invalid) => {
            write_invalid(&invalid, replies);
            return Step::Done;
        }
    };
    let form = request.reply;
    if request.hits == 0 {
        return peek(session, command, replies);
    }
    match session.engine.acquire(&request.asked()).now() {
        Ok(result) => {
            write_result(&result, form, replies);
            Step::Done
        }
        Err(future) => Step::Check(future, form),
    }
}

/// Decides without charging anything. Rare, so it copies the command rather than to hold on to the input.
fn peek(session: &Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let (engine, state) = (session.engine.clone(), Arc::clone(&session.state));
    let mut owned = Transaction::new(&state.memory);
    if owned.push(command).is_err() {
        replies.error(NO_MEMORY);
        return Step::Done;
    }
    Step::Later(Box::pin(async move {
        let (peeked, form) = match DescribedRequest::parse(owned.command(0), &state.settings) {
            Ok(request) => (engine.decide(&[&request.asked()], DecideMode::Peek), request.reply),
            Err(invalid) => return Outcome::Invalid(invalid),
        };
        Outcome::Peeked(peeked.await, form)
    }))
}

/// Writes the answer to a command that describes no valid request.
pub(super) fn write_invalid(invalid: &InvalidRequest, replies: &mut ReplyBuffer) {
    match invalid {
        InvalidRequest::Command(error) => replies.error(error),
        InvalidRequest::Rejected(form) => {
            replies.counts.decision(false);
            write_numbers(DENIED, None, (*form == ReplyForm::WithUsed).then_some(-1), replies);
        }
    }
}

/// Writes the result of a request. A granted one is carried out by the client, and is finished here: a client of this
/// protocol can't say when.
pub(in crate::resp) fn write_result(result: &Result<Permit, Denial>, form: ReplyForm, replies: &mut ReplyBuffer) {
    replies.counts.decision(result.is_ok());
    write_verdict(Verdict::of(result), form, replies);
}

/// Writes five integers, as `CL.THROTTLE` does, the name of the rule and, if asked for, how much is in use.
pub(super) fn write_verdict(verdict: &Verdict, form: ReplyForm, replies: &mut ReplyBuffer) {
    if verdict.has_log_entries() {
        verdict.log(&LoggedRequest { service: "resp", ..LoggedRequest::default() });
    }
    let limited = i64::from(!verdict.is_granted());
    let mut used = None;
    let (numbers, rule) = match verdict.reason() {
        None => (NO_RULE, None),
        Some(Reason::Limit(checked)) => {
            let status = checked.answer.status();
            let retry = retry_after(verdict.retry());
            used = Some(status.used());
            ([limited, count(status.limit), count(status.remaining), retry, seconds(status.reset)], Some(checked.rule))
        }
        Some(Reason::Rule { rule, .. }) => ([limited, 0, 0, retry_after(verdict.retry()), 0], Some(rule)),
        Some(_) => ([limited, -1, -1, retry_after(verdict.retry()), 0], None),
    };
    let used = (form == ReplyForm::WithUsed).then(|| used.map_or(-1, count));
    write_numbers(numbers, rule.map(|rule| &*rule.name), used, replies);
}

fn write_numbers(numbers: [i64; 5], rule: Option<&str>, used: Option<i64>, replies: &mut ReplyBuffer) {
    replies.array(numbers.len() + 1 + usize::from(used.is_some()));
    for number in numbers {
        replies.integer(number);
    }
    match rule {
        Some(rule) => replies.bulk(rule.as_bytes()),
        None => replies.null(),
    }
    if let Some(used) = used {
        replies.integer(used);
    }
}

/// Returns the seconds until a retry; -1 if it was granted, or if the time is unknown.
pub(super) fn retry_after(retry: Option<Retry>) -> i64 {
    match retry {
        Some(Retry::After(time)) => seconds(time),
        Some(Retry::WhenReleased | Retry::Never) | None => -1,
    }
}

/// Returns whole seconds, rounded up as redis-cell does: less than a millisecond is cut off.
pub(super) fn seconds(time: Duration) -> i64 {
    count(time.as_secs() + u64::from(time.subsec_millis() > 0))
}

pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
