//! Commands that need no counts: `PING`, `ECHO`, `SELECT`, transactions, `QUIT` and `RESET`.

use super::{Command, ReplyBuffer, Session, Step, integer, wrong_arity};
use crate::resp::transaction::Transaction;
use diana::KeySpace;

pub(super) fn ping(_session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match command.len() {
        1 => replies.simple("PONG"),
        2 => replies.bulk(command.arg(1)),
        _ => replies.error(&wrong_arity("ping")),
    }
    Step::Done
}

pub(super) fn echo(_session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    replies.bulk(command.arg(1));
    Step::Done
}

pub(super) fn select(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match integer(command.arg(1)) {
        None => replies.error("ERR value is not an integer or out of range"),
        Some(number) => match u8::try_from(number).ok().and_then(KeySpace::new) {
            None => replies.error("ERR DB index is out of range"),
            Some(space) => {
                session.space = space;
                replies.ok();
            }
        },
    }
    Step::Done
}

pub(super) fn multi(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    if session.transaction.is_some() {
        replies.error("ERR MULTI calls can not be nested");
    } else {
        session.transaction = Some(Transaction::new(&session.state.memory));
        replies.ok();
    }
    Step::Done
}

pub(super) fn exec(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match session.transaction.take() {
        None => replies.error("ERR EXEC without MULTI"),
        Some(transaction) if transaction.is_aborted => {
            replies.error("EXECABORT Transaction discarded because of previous errors.");
        }
        Some(transaction) => return Step::Exec(transaction),
    }
    Step::Done
}

pub(super) fn discard(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match session.transaction.take() {
        None => replies.error("ERR DISCARD without MULTI"),
        Some(_) => replies.ok(),
    }
    Step::Done
}

pub(super) fn quit(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    session.is_closing = true;
    replies.ok();
    Step::Done
}

pub(super) fn reset(session: &mut Session, _command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    session.reset(replies);
    replies.simple("RESET");
    Step::Done
}
