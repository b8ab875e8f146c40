//! The timeouts of a server: `timeouts: {header: 10s, connect: 3s}`.

use diana_rules::Problem;
use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::scalar::{duration, positive_duration};
use std::time::Duration;

/// The timeouts of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// The timeout of a request's head, from the first byte of the connection or the request.
    pub header: Duration,
    /// The timeout of a request's body: all waits for the client together, plus a second for each 512 bytes received. It also
    /// applies to a client that accepts no byte of its response.
    pub body: Duration,
    /// The timeout of the wait for the next request on a connection.
    pub idle: Duration,
    /// The timeout of the wait for another connection to be closed, when `bounds.connections` are open.
    pub accept: Duration,
    /// The timeout of connecting to an upstream.
    pub connect: Duration,
    /// The timeout of the head of the upstream's response, after the request was sent, and of each pause in its body.
    pub response: Duration,
    /// The timeout of the next byte of a tunnel (WebSocket, `CONNECT`), in either direction.
    pub tunnel: Duration,
    /// The time from the stop signal until the listeners are closed: `/readyz` answers 503, and requests are still accepted.
    pub drain: Duration,
    /// The time for requests in flight during shutdown, after `drain`.
    pub stop: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            accept: Duration::from_secs(1),
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            tunnel: Duration::from_secs(3_600),
            drain: Duration::ZERO,
            stop: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// The fields of `timeouts`.
    pub const FIELDS: [&str; 9] =
        ["header", "body", "idle", "accept", "connect", "response", "tunnel", "drain", "stop"];

    /// Parses `timeouts`.
    pub fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`timeouts`", Self::FIELDS, problems)?;
        let parsed = Self::FIELDS.map(|name| {
            // Only here does zero have a meaning: the listeners are closed at once.
            let parse = if name == "drain" { duration } else { positive_duration };
            fields.take(name).and_then(|node| parse(node, &format!("`{name}`"), problems))
        });
        fields.finish(problems);
        let [header, body, idle, accept, connect, response, tunnel, drain, stop] = parsed;
        let default = Self::default();
        Some(Self {
            header: header.unwrap_or(default.header),
            body: body.unwrap_or(default.body),
            idle: idle.unwrap_or(default.idle),
            accept: accept.unwrap_or(default.accept),
            connect: connect.unwrap_or(default.connect),
            response: response.unwrap_or(default.response),
            tunnel: tunnel.unwrap_or(default.tunnel),
            drain: drain.unwrap_or(default.drain),
            stop: stop.unwrap_or(default.stop),
        })
    }
}
