//! The maximum load of the machine: `load: {cpu: 85%, memory: 90%, connections: 20000, traffic: 800MiB/s}`.

use super::option::RuleOption;
use crate::json_schema::{object, reference};
use diana_core::Quota;
use diana_document::map_reader::MapReader;
use diana_document::{Node, Problem, Value, bytes, scalar};
use serde_json::json;
use std::fmt;

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    is_limit: true,
    check: |rule, fields| {
        if fields.is_whole && rule.load.is_some() && !rule.by.is_everyone() {
            let what = "`load` applies to the whole machine, and cannot be counted by key";
            fields.report("by", what, "use `by: global`, or remove `by`");
        }
    },
    ..RuleOption::new("load", |_| schema(), |node, rule, reader| rule.load = Overload::read(node, reader.problems))
}];

/// The load of the machine over which requests are denied.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Overload {
    /// The usage of all processors.
    pub cpu: Option<Percent>,
    /// The usage of all memory.
    pub memory: Option<Percent>,
    /// The number of open connections.
    pub connections: Option<u64>,
    /// The network traffic.
    pub traffic: Option<Quota>,
}

/// A percentage, stored in tenths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u16);

impl Percent {
    /// The fraction, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    /// Returns a percentage without tenths, at most 100.
    pub const fn whole(percent: u8) -> Self {
        Self(if percent > 100 { 1_000 } else { percent as u16 * 10 })
    }

    /// The percentage in tenths of a percent, from 1 to 1000.
    pub fn tenths(self) -> u16 {
        self.0
    }

    /// Reads `85%` or `99.5%`.
    pub fn parse_node(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let number = node.text().and_then(|text| text.trim().strip_suffix('%')).map(str::trim_end);
        let tenths = number.and_then(|number| {
            let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_valid = is_number(whole) && is_number(tenth) && tenth.len() == 1;
            let whole = Some(whole).filter(|_| is_valid)?.parse::<u16>().ok()?;
            whole.checked_mul(10)?.checked_add(tenth.parse().ok()?)
        });
        let percent = tenths.filter(|tenths| (1..=1_000).contains(tenths)).map(Self);
        if percent.is_none() {
            problems.push(scalar::invalid(node, what).expected("expected a percentage such as 85% or 99.5%"));
        }
        percent
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenth => write!(f, "{}.{tenth}%", self.0 / 10),
        }
    }
}

/// The fields of `load`.
const FIELDS: [&str; 4] = ["cpu", "memory", "connections", "traffic"];

impl Overload {
    fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`load`", FIELDS, problems)?;
        let cpu = fields.take("cpu").and_then(|node| Percent::parse_node(node, "`cpu`", problems));
        let memory = fields.take("memory").and_then(|node| Percent::parse_node(node, "`memory`", problems));
        let connections = fields.take("connections").and_then(|node| scalar::count(node, "`connections`", 1, problems));
        let traffic =
            fields.take("traffic").and_then(|node| scalar::parsed(node, "`traffic`", bytes::parse_byte_rate, problems));
        let is_empty = matches!(&node.value, Value::Map(entries) if entries.is_empty());
        if is_empty {
            problems.push(Problem::new(node.span, "`load` is empty").expected("expected {cpu: 85%, memory: 90%}"));
        }
        fields.finish(problems);
        Some(Self { cpu, memory, connections, traffic })
    }
}

fn schema() -> serde_json::Value {
    let mut load = object("the load of the machine over which requests are denied", &FIELDS, |field| match field {
        "cpu" => reference("percent", "the usage of all processors"),
        "memory" => reference("percent", "the usage of all memory"),
        "connections" => reference("count", "the number of open connections; over it, every request is denied"),
        _ => reference("byte_rate", "the network traffic"),
    });
    load["minProperties"] = json!(1);
    load
}
