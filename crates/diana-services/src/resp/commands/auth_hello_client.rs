//! `AUTH`, `HELLO` and `CLIENT`: the identity of the client, and the protocol that it speaks.

use super::introspect::VERSION;
use super::{Command, ReplyBuffer, Session, Step, echo, integer, is, unknown_subcommand, wrong_arity};
use crate::resp::reply::Protocol;
use subtle::ConstantTimeEq;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const INVALID_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
/// The maximum length of a client's name, and of the name and version of its library.
const MAX_NAME: usize = 128;

pub(super) fn auth(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    let allowed = match command.len() {
        2 if session.state.password.is_none() => {
            replies.error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            );
            return Step::Done;
        }
        2 => log_in(session, b"default", command.arg(1)),
        3 => log_in(session, command.arg(1), command.arg(2)),
        _ => {
            replies.error("ERR syntax error");
            return Step::Done;
        }
    };
    match allowed {
        true => replies.ok(),
        false => replies.error(WRONG_PASSWORD),
    }
    Step::Done
}

/// Checks the password of the only user, in constant time. Without one, any password will do.
fn log_in(session: &mut Session, user: &[u8], password: &[u8]) -> bool {
    let is_right =
        session.state.password.as_ref().is_none_or(|expected| expected.reveal().as_bytes().ct_eq(password).into());
    let is_allowed = is_right && user == b"default";
    session.is_authenticated |= is_allowed;
    is_allowed
}

pub(super) fn hello(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match try_hello(session, command, replies.protocol) {
        Ok(protocol) => {
            replies.protocol = protocol;
            replies.map(7);
            for (field, value) in [("server", "redis"), ("version", VERSION)] {
                replies.bulk(field.as_bytes());
                replies.bulk(value.as_bytes());
            }
            replies.bulk(b"proto");
            replies.integer(protocol.number());
            replies.bulk(b"id");
            replies.integer(i64::try_from(session.id).unwrap_or(i64::MAX));
            for (field, value) in [("mode", "standalone"), ("role", "master")] {
                replies.bulk(field.as_bytes());
                replies.bulk(value.as_bytes());
            }
            replies.bulk(b"modules");
            replies.array(0);
        }
        Err(error) => replies.error(&error),
    }
    Step::Done
}

/// Executes `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
fn try_hello(session: &mut Session, command: Command<'_>, current: Protocol) -> Result<Protocol, String> {
    let protocol = match command.get(1).map(integer) {
        None => current,
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".to_owned()),
        Some(None) => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
    };
    let (mut index, mut name) = (2, None);
    while let Some(option) = command.get(index) {
        match (command.get(index + 1), command.get(index + 2)) {
            (Some(user), Some(password)) if is(option, "AUTH") => {
                if !log_in(session, user, password) {
                    return Err(WRONG_PASSWORD.to_owned());
                }
                index += 3;
            }
            (Some(chosen), _) if is(option, "SETNAME") => {
                name = Some(chosen);
                index += 2;
            }
            _ => return Err(format!("ERR Syntax error in HELLO option '{}'", echo(option, MAX_NAME))),
        }
    }
    if !session.is_authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                    version at the same time"
            .to_owned());
    }
    if let Some(name) = name {
        set_name(session, name)?;
    }
    Ok(protocol)
}

fn set_name(session: &mut Session, name: &[u8]) -> Result<(), String> {
    if !is_printable(name) {
        return Err(INVALID_NAME.to_owned());
    }
    session.name = name.to_vec();
    Ok(())
}

/// Returns `true` for short texts without blanks.
fn is_printable(text: &[u8]) -> bool {
    text.len() <= MAX_NAME && text.iter().all(u8::is_ascii_graphic)
}

pub(super) fn client(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    if let Err(error) = try_client(session, command, replies) {
        replies.error(&error);
    }
    Step::Done
}

/// Executes `CLIENT subcommand ...`.
fn try_client(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Result<(), String> {
    let takes = |name: &str, length: usize| match command.len() == length {
        true => Ok(()),
        false => Err(wrong_arity(&format!("client|{name}"))),
    };
    let subcommand = command.arg(1);
    if is(subcommand, "SETNAME") {
        takes("setname", 3)?;
        set_name(session, command.arg(2))?;
        replies.ok();
    } else if is(subcommand, "GETNAME") {
        takes("getname", 2)?;
        match &session.name[..] {
            b"" => replies.null(),
            name => replies.bulk(name),
        }
    } else if is(subcommand, "SETINFO") {
        takes("setinfo", 4)?;
        set_info(session, command)?;
        replies.ok();
    } else if is(subcommand, "ID") {
        takes("id", 2)?;
        replies.integer(i64::try_from(session.id).unwrap_or(i64::MAX));
    } else if is(subcommand, "INFO") || is(subcommand, "LIST") {
        let info = described(session, replies.protocol);
        replies.verbatim(&info);
    } else if is(subcommand, "NO-EVICT") || is(subcommand, "NO-TOUCH") {
        takes(&echo(subcommand, MAX_NAME).to_ascii_lowercase(), 3)?;
        if !(is(command.arg(2), "ON") || is(command.arg(2), "OFF")) {
            return Err("ERR syntax error".to_owned());
        }
        replies.ok();
    } else if is(subcommand, "MAINT_NOTIFICATIONS") {
        // Keys never move to another server, so there is nothing to notify of.
        replies.ok();
    } else {
        return Err(unknown_subcommand(command));
    }
    Ok(())
}

/// Executes `CLIENT SETINFO LIB-NAME|LIB-VER value`.
fn set_info(session: &mut Session, command: Command<'_>) -> Result<(), String> {
    let (option, value) = (command.arg(2), command.arg(3));
    let index = match option {
        name if is(name, "LIB-NAME") => 0,
        version if is(version, "LIB-VER") => 1,
        other => return Err(format!("ERR Unrecognized option '{}'", echo(other, MAX_NAME))),
    };
    if !is_printable(value) {
        let option = echo(option, MAX_NAME).to_ascii_lowercase();
        return Err(format!("ERR {option} cannot contain spaces, newlines or special characters."));
    }
    if let Some(part) = session.library.get_mut(index) {
        *part = value.to_vec();
    }
    Ok(())
}

/// Returns the line of a client in `CLIENT INFO`.
fn described(session: &Session, protocol: Protocol) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let [library, version] = &session.library;
    format!(
        "id={} addr={} name={} db={} resp={} user=default lib-name={} lib-ver={}\n",
        session.id,
        session.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
        text(&session.name),
        session.space.number(),
        protocol.number(),
        text(library),
        text(version),
    )
}
