//! The commands: their names, how many arguments they take, and their functions.

mod auth_hello_client;
mod cl_throttle;
mod described_request;
mod diana_check;
mod diana_keys;
mod introspect;
mod ping_select_multi;

use super::command_parser::Command;
use super::reply::ReplyBuffer;
use super::session::{Session, Step};
pub(super) use cl_throttle::LastCall;
pub(super) use described_request::InvalidRequest;
pub(super) use diana_check::write_result;
pub(super) use diana_keys::write_outcome;
use std::fmt::Write;

/// The maximum length of what a client has sent in an error message, as in Redis.
const MAX_ECHO: usize = 128;

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    /// The name, in lower case.
    pub(super) name: &'static str,
    /// The number of arguments including the name; negative for at least that many.
    arity: i8,
    flags: &'static [Flag],
    /// Whether its first argument is a key.
    has_key: bool,
    group: &'static str,
    summary: &'static str,
    pub(super) run: fn(&mut Session, Command<'_>, &mut ReplyBuffer) -> Step,
}

/// A property of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// The command may be used before the password was sent.
    NoAuth,
    /// The command is executed at once in a transaction, too.
    NotQueued,
    /// The command changes counts.
    Write,
    /// The command reads counts.
    ReadOnly,
    Fast,
}

impl Spec {
    #[inline]
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns `true` if a command of this many arguments, including its name, is valid.
    #[inline]
    pub(super) fn accepts(&self, length: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { length >= least } else { length == least }
    }
}

/// `CL.THROTTLE`, which checks its arguments itself, as redis-cell does.
static CL_THROTTLE: Spec = Spec {
    name: "cl.throttle",
    arity: -1,
    flags: &[Flag::Write],
    has_key: true,
    group: "module",
    summary: "Limits the rate of a key: key max_burst count period [quantity], as redis-cell.",
    run: cl_throttle::cl_throttle,
};

/// Describes a command of the server itself.
const fn spec(
    name: &'static str,
    arity: i8,
    flags: &'static [Flag],
    summary: &'static str,
    run: fn(&mut Session, Command<'_>, &mut ReplyBuffer) -> Step,
) -> Spec {
    Spec { name, arity, flags, has_key: false, group: "connection", summary, run }
}

/// Describes a command of Diana.
const fn diana(
    name: &'static str,
    arity: i8,
    flags: &'static [Flag],
    summary: &'static str,
    run: fn(&mut Session, Command<'_>, &mut ReplyBuffer) -> Step,
) -> Spec {
    Spec { name, arity, flags, has_key: false, group: "module", summary, run }
}

/// All other commands.
static COMMANDS: &[Spec] = &[
    diana(
        "diana.check",
        -3,
        &[Flag::Write],
        "Decides about a request by the rules: name value ... [REPLY used] [COST n].",
        diana_check::check,
    ),
    diana("diana.peek", -2, &[Flag::ReadOnly], "Returns the status of a key of a rule: rule key ...", diana_keys::peek),
    diana("diana.reset", -2, &[Flag::Write], "Resets a key of a rule: rule key ...", diana_keys::reset),
    diana("diana.refund", -3, &[Flag::Write], "Refunds a key of a rule: rule cost key ...", diana_keys::refund),
    diana("diana.rules", 1, &[Flag::ReadOnly], "Returns the active rules, in words.", diana_keys::rules),
    spec("ping", -1, &[Flag::Fast], "Returns the server's liveliness response.", ping_select_multi::ping),
    spec("echo", 2, &[Flag::Fast], "Returns the given string.", ping_select_multi::echo),
    spec("select", 2, &[Flag::Fast], "Changes the key space of CL.THROTTLE.", ping_select_multi::select),
    spec("multi", 1, &[Flag::NotQueued, Flag::Fast], "Starts a transaction.", ping_select_multi::multi),
    spec("exec", 1, &[Flag::NotQueued], "Executes all commands in a transaction.", ping_select_multi::exec),
    spec("discard", 1, &[Flag::NotQueued, Flag::Fast], "Discards a transaction.", ping_select_multi::discard),
    spec("auth", -2, &[Flag::NoAuth, Flag::Fast], "Authenticates the connection.", auth_hello_client::auth),
    spec("hello", -1, &[Flag::NoAuth, Flag::Fast], "Handshakes with the server.", auth_hello_client::hello),
    spec("client", -2, &[], "A container for client connection commands.", auth_hello_client::client),
    spec("command", -1, &[], "Returns information about all commands.", introspect::command),
    spec("config", -2, &[], "A container for server configuration commands.", introspect::config),
    spec("info", -1, &[], "Returns information about the server.", introspect::info),
    spec("quit", -1, &[Flag::NoAuth, Flag::NotQueued, Flag::Fast], "Closes the connection.", ping_select_multi::quit),
    spec("reset", 1, &[Flag::NoAuth, Flag::NotQueued, Flag::Fast], "Resets the connection.", ping_select_multi::reset),
];

/// Returns the command with this name, in any case.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    // Two comparisons of a few machine words; one that ignores the case goes byte by byte.
    if name == b"CL.THROTTLE" || name == b"cl.throttle" {
        return Some(&CL_THROTTLE);
    }
    specs().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

/// Returns all commands.
fn specs() -> impl Iterator<Item = &'static Spec> {
    std::iter::once(&CL_THROTTLE).chain(COMMANDS)
}

/// Returns the error for an unknown command, in the words of Redis.
#[cold]
pub(super) fn unknown(command: Command<'_>) -> String {
    let mut args = String::new();
    for arg in command.args(1) {
        if args.len() >= MAX_ECHO {
            break;
        }
        // Writing to a `String` does not fail.
        let _ = write!(args, "'{}' ", echo(arg, MAX_ECHO - args.len()));
    }
    format!("ERR unknown command '{}', with args beginning with: {args}", echo(command.arg(0), MAX_ECHO))
}

/// Returns the error for an unknown subcommand, in the words of Redis.
#[cold]
fn unknown_subcommand(command: Command<'_>) -> String {
    let name = String::from_utf8_lossy(command.arg(0)).to_ascii_uppercase();
    format!("ERR unknown subcommand '{}'. Try {name} HELP.", echo(command.arg(1), MAX_ECHO))
}

/// Returns the error for a wrong number of arguments; subcommands are written `client|setname`.
#[cold]
pub(super) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Returns the start of what a client has sent, for an error message.
fn echo(bytes: &[u8], most: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(most)).unwrap_or_default())
}

/// Returns `true` if an argument is this word, in any case.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

fn integer(argument: &[u8]) -> Option<i64> {
    std::str::from_utf8(argument).ok()?.parse().ok()
}
