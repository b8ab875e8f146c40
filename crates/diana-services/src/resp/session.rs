//! The session of a client: what it has selected, and whether it may execute a command.

use super::command_parser::{Bounds, Command};
use super::commands::{self, Flag, InvalidRequest, LastCall, Spec};
use super::reply::{Protocol, ReplyBuffer};
use super::transaction::{NotQueued, Transaction};
use super::{Engine, RespState};
use diana::{
    AcquireFuture, ClThrottleFuture, Clock, Denial, KeyAdminError, KeySpace, KeyStatus, Permit, SystemClock, Timestamp,
};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The error for a command that would need more memory than is left. The code is Redis's.
pub(super) const NO_MEMORY: &str = "OOM `bounds.memory` is used up by other clients";

/// The next step of a command.
pub(super) enum Step {
    /// The reply is written.
    Done,
    /// The reply is the answer of the shared store.
    ClThrottle(ClThrottleFuture),
    /// The reply is the verdict of the rules.
    Check(AcquireFuture, ReplyForm),
    /// The reply is an outcome that takes I/O, or is rare.
    Later(LaterFuture),
    /// The commands of a transaction are executed now.
    Exec(Transaction),
}

/// The form of the reply to `DIANA.CHECK`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// Five integers, as `CL.THROTTLE`, and the rule.
    #[default]
    Plain,
    /// The integers and the rule, and how much is in use.
    WithUsed,
}

/// The future of a rare command.
pub(super) type LaterFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The outcome of a rare command.
pub(super) enum Outcome {
    /// The decision that the rules would make.
    Peeked(Result<Permit, Denial>, ReplyForm),
    /// The status of a key of a rule, after the operation.
    Key(Result<KeyStatus, KeyAdminError>),
    /// The command describes no valid request.
    Invalid(InvalidRequest),
}

/// The settings that a client has selected.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) peer: Option<SocketAddr>,
    pub(super) engine: Engine,
    pub(super) state: Arc<RespState>,
    pub(super) space: KeySpace,
    pub(super) name: Vec<u8>,
    /// The name and the version of the client's library.
    pub(super) library: [Vec<u8>; 2],
    pub(super) transaction: Option<Transaction>,
    pub(super) last_call: LastCall,
    pub(super) is_authenticated: bool,
    /// Whether the connection is closed after the replies so far.
    pub(super) is_closing: bool,
}

impl Session {
    pub(super) fn new(peer: Option<SocketAddr>, engine: Engine, state: Arc<RespState>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            peer,
            engine,
            space: KeySpace::default(),
            name: Vec::new(),
            library: [Vec::new(), Vec::new()],
            transaction: None,
            last_call: LastCall::default(),
            is_authenticated: state.password.is_none(),
            is_closing: false,
            state,
        }
    }

    /// Returns the bounds of the client's commands.
    #[inline]
    pub(super) fn bounds(&self) -> &'static Bounds {
        if self.is_authenticated { &Bounds::AUTHENTICATED } else { &Bounds::UNAUTHENTICATED }
    }

    /// Executes a command, or queues it in the client's transaction.
    #[inline]
    pub(super) fn execute(&mut self, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
        let name = command.arg(0);
        let Some(spec) = commands::find(name) else { return self.reject_unknown(command, replies) };
        if !self.is_authenticated && !spec.has(Flag::NoAuth) {
            self.abort_transaction();
            replies.error("NOAUTH Authentication required.");
            return Step::Done;
        }
        if !spec.accepts(command.len()) {
            self.abort_transaction();
            replies.error(&commands::wrong_arity(spec.name));
            return Step::Done;
        }
        if self.transaction.is_some() && !spec.has(Flag::NotQueued) {
            return self.queue(command, replies);
        }
        (spec.run)(self, command, replies)
    }

    /// Executes a queued command, which was checked when it was queued.
    pub(super) fn execute_queued(&mut self, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
        commands::find(command.arg(0)).map_or(Step::Done, |spec: &Spec| (spec.run)(self, command, replies))
    }

    #[cold]
    fn queue(&mut self, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
        let Some(transaction) = &mut self.transaction else { return Step::Done };
        // An aborted transaction is not executed, so there is no need to remember its commands.
        match if transaction.is_aborted { Ok(()) } else { transaction.push(command) } {
            Ok(()) => replies.simple("QUEUED"),
            Err(NotQueued::TooLarge) => replies.error("ERR transaction is too large"),
            Err(NotQueued::NoMemory) => replies.error(NO_MEMORY),
        }
        Step::Done
    }

    /// Answers an unknown command. A line of HTTP closes the connection, as in Redis: a web page can make a browser send
    /// any body to a server that only this machine reaches, and the body follows this line.
    #[cold]
    fn reject_unknown(&mut self, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
        let name = command.arg(0);
        if [&b"POST"[..], b"Host:"].iter().any(|line| name.eq_ignore_ascii_case(line)) {
            if self.state.warnings.check() {
                let peer = self.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string());
                tracing::warn!(
                    "closing a connection from {peer} to the service `resp`: it sends HTTP, maybe for a web page that \
                     tries to send commands"
                );
            }
            self.is_closing = true;
            return Step::Done;
        }
        self.abort_transaction();
        replies.error(&commands::unknown(command));
        Step::Done
    }

    fn abort_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_aborted = true;
        }
    }

    /// Returns the session to its state at the start of the connection.
    pub(super) fn reset(&mut self, replies: &mut ReplyBuffer) {
        (self.space, self.transaction) = (KeySpace::default(), None);
        self.name.clear();
        self.is_authenticated = self.state.password.is_none();
        replies.protocol = Protocol::Resp2;
    }

    /// Records the replies since the last call in the metrics; their commands arrived at `start`.
    pub(super) fn record(&self, replies: &mut ReplyBuffer, start: Timestamp) {
        let counts = std::mem::take(&mut replies.counts);
        if counts.allowed + counts.denied > 0 {
            self.state.shard().answer_seconds.observe(SystemClock.now().since(start));
        }
        self.state.shard().batch(counts.allowed, counts.denied, counts.errors);
    }
}
