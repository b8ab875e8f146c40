//! Bounds on what one client may send: `bounds: {header: 32KiB, body: 100MiB}`.

use diana_rules::bytes::parse_byte_size;
use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, scalar};

/// Bounds over which requests and connections are rejected, independent of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientBounds {
    /// The maximum size of a request's head in bytes: 8 KiB to 1 MiB.
    pub header: usize,
    /// The maximum number of headers of a request.
    pub headers: usize,
    /// The maximum size of a request's body in bytes; unlimited if `None`.
    pub body: Option<u64>,
    /// The maximum number of open connections.
    pub connections: usize,
    /// The maximum number of further connections that wait for one of these to be closed.
    pub accept_queue: usize,
    /// The number of connections of each listener and worker that the system keeps until they are accepted.
    pub backlog: u16,
    /// The maximum number of concurrent streams on one HTTP/2 connection.
    pub streams: u32,
    /// The maximum memory of all HTTP/2 connections together, and of the services', in bytes: request heads and buffered
    /// bodies, unfinished messages and transactions.
    pub memory: usize,
}

/// The range of `header`: less is too little for many browsers, and more belongs in a body.
const HEADER: std::ops::RangeInclusive<u64> = 8 << 10..=1 << 20;
/// The maximum of `headers`, since each header is inspected.
const MAX_HEADERS: u64 = 1_000;
/// More connections than a machine can have.
const MAX_CONNECTIONS: u64 = 100_000_000;
/// The maximum of `accept_queue`: a connection waits until many others have been closed.
const MAX_QUEUED: u64 = 1_000_000;
/// The maximum of `backlog`: what Linux can count.
const MAX_BACKLOG: u64 = u16::MAX as u64;
/// The minimum of `memory`: less than what two connections may use.
const MIN_MEMORY: u64 = 1 << 20;
/// The number of stream ids of a connection.
const MAX_STREAMS: u64 = (1 << 31) - 1;

impl Default for ClientBounds {
    fn default() -> Self {
        Self {
            header: 32 << 10,
            headers: 100,
            body: None,
            connections: 10_000,
            accept_queue: 100,
            backlog: crate::listen::BACKLOG,
            streams: 100,
            memory: 1 << 30,
        }
    }
}

impl ClientBounds {
    /// The fields of `bounds`.
    pub const FIELDS: [&str; 8] =
        ["header", "headers", "body", "connections", "accept_queue", "backlog", "streams", "memory"];

    /// Parses `bounds`.
    pub fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`bounds`", Self::FIELDS, problems)?;
        let header = |text: &str| {
            let bytes = parse_byte_size(text).map_err(|error| error.to_string())?;
            HEADER.contains(&bytes).then_some(bytes).ok_or_else(|| "expected 8KiB to 1MiB".to_owned())
        };
        let header = fields.take("header").and_then(|node| scalar::parsed(node, "`header`", header, problems));
        let body = fields.take("body").and_then(|node| scalar::parsed(node, "`body`", parse_byte_size, problems));
        let memory = fields.take("memory").and_then(|node| Self::parse_memory(node, problems));
        let [headers, connections, accept_queue, backlog, streams] = [
            ("headers", 1..=MAX_HEADERS),
            ("connections", 1..=MAX_CONNECTIONS),
            ("accept_queue", 0..=MAX_QUEUED),
            ("backlog", 1..=MAX_BACKLOG),
            ("streams", 1..=MAX_STREAMS),
        ]
        .map(|(name, range)| {
            fields.take(name).and_then(|node| scalar::within(node, &format!("`{name}`"), range, problems))
        });
        fields.finish(problems);
        let default = Self::default();
        let size =
            |number: Option<u64>, default| number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default);
        Some(Self {
            header: size(header, default.header),
            headers: size(headers, default.headers),
            body,
            connections: size(connections, default.connections),
            accept_queue: size(accept_queue, default.accept_queue),
            backlog: backlog.and_then(|number| u16::try_from(number).ok()).unwrap_or(default.backlog),
            streams: streams.and_then(|number| u32::try_from(number).ok()).unwrap_or(default.streams),
            memory: memory.unwrap_or(default.memory),
        })
    }

    /// Parses `memory`, also for other sections.
    pub fn parse_memory(node: &Node, problems: &mut Vec<Problem>) -> Option<usize> {
        let memory = |text: &str| {
            let bytes = parse_byte_size(text).map_err(|error| error.to_string())?;
            (bytes >= MIN_MEMORY).then_some(bytes).ok_or_else(|| "expected at least 1MiB".to_owned())
        };
        scalar::parsed(node, "`memory`", memory, problems).and_then(|bytes| usize::try_from(bytes).ok())
    }
}
