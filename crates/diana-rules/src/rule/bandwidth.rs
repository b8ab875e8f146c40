//! `bandwidth`: how many bytes a second bodies may have.

use super::option::RuleOption;
use crate::json_schema::{object, reference, requiring, word};
use diana_core::{MAX_PERMITS, Quota};
use diana_document::map_reader::MapReader;
use diana_document::{Node, Problem, Value, bytes, scalar};
use serde_json::json;
use std::time::Duration;

/// The fields of `bandwidth`.
const FIELDS: [&str; 4] = ["rate", "burst", "after", "of"];
/// The values of `of`.
const BODIES: [&str; 3] = ["response", "request", "both"];

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    is_limit: true,
    check: |rule, fields| {
        if rule.matches.call.is_some() && fields.has(&["bandwidth"]) {
            let what = "`bandwidth` is not supported for calls: they have no body";
            fields.report("bandwidth", what, "remove `bandwidth`");
        }
    },
    ..RuleOption::new("bandwidth", |_| schema(), |node, rule, reader| rule.bandwidth = read(node, reader.problems))
}];

/// The bandwidth of bodies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bandwidth {
    /// The rate in bytes; its burst is sent at once.
    pub rate: Quota,
    /// The first bytes of each body that are sent at full speed.
    pub after: u64,
    /// The bodies to throttle.
    pub of: Bodies,
}

impl Bandwidth {
    /// The duration of a chunk at the rate: short enough to look even, long enough for a low overhead.
    pub const CHUNK: Duration = Duration::from_millis(20);

    /// Returns the bytes of a chunk, which are also the default burst: so bodies flow evenly from the first byte.
    pub fn chunk_of(rate: Quota) -> u64 {
        let bytes = u128::from(rate.permits()) * Self::CHUNK.as_nanos() / rate.period().as_nanos().max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(1, MAX_PERMITS)
    }
}

/// Which bodies are throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    /// Response bodies.
    #[default]
    Response,
    /// Request bodies.
    Request,
    /// Both, counted together.
    Both,
}

fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Bandwidth> {
    if !matches!(node.value, Value::Map(_)) {
        let rate = scalar::parsed(node, "`bandwidth`", bytes::parse_byte_rate, problems)?;
        let rate = rate.with_burst(Bandwidth::chunk_of(rate)).ok()?;
        return Some(Bandwidth { rate, after: 0, of: Bodies::default() });
    }
    let mut fields = MapReader::of(node, "`bandwidth`", FIELDS, problems)?;
    let rate = fields
        .require("rate", problems)
        .and_then(|node| scalar::parsed(node, "`rate`", bytes::parse_byte_rate, problems));
    let burst = fields.take("burst").and_then(|node| scalar::parsed(node, "`burst`", bytes::parse_byte_size, problems));
    let after = fields.take("after").and_then(|node| scalar::parsed(node, "`after`", bytes::parse_byte_size, problems));
    let of = fields.take("of").and_then(|node| scalar::word(node, "`of`", &BODIES, problems));
    fields.finish(problems);
    let rate = rate.and_then(|rate| rate.with_burst(burst.unwrap_or_else(|| Bandwidth::chunk_of(rate))).ok())?;
    let of = [Bodies::Response, Bodies::Request, Bodies::Both][of.unwrap_or(0)];
    Some(Bandwidth { rate, after: after.unwrap_or(0), of })
}

fn schema() -> serde_json::Value {
    let map = object("the bandwidth of bodies", &FIELDS, |field| match field {
        "rate" => reference("byte_rate", "bytes per time"),
        "burst" => reference("bytes", "the bytes that may be sent at once; those of 20 ms of the rate by default"),
        "after" => reference("bytes", "the first bytes of each body that are sent at full speed"),
        _ => word("the bodies to throttle", &BODIES),
    });
    let any_of = json!([{"$ref": "#/$defs/byte_rate"}, requiring(map, &["rate"])]);
    json!({"description": "the bandwidth of bodies", "anyOf": any_of, "examples": ["512KiB/s"]})
}
