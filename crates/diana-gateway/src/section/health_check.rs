//! Active health checks of upstreams: `health: {path: /healthz, interval: 5s}`, or only `health: /healthz`.

use diana_rules::document::{Node, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, scalar};
use http::StatusCode;
use http::uri::{Authority, PathAndQuery};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The checks of each upstream of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path, and a query if there is one, that is requested with `GET`.
    pub path: String,
    /// The `Host` of the request; `None` for the host of the upstream.
    pub host: Option<String>,
    /// The time between the starts of two checks of one upstream.
    pub interval: Duration,
    /// The timeout of the whole check: connecting, the TLS handshake, and the response.
    pub timeout: Duration,
    /// The number of checks in a row that must pass until a failing upstream gets requests again.
    pub healthy: u32,
    /// The number of checks in a row that must fail until an upstream gets no more requests.
    pub unhealthy: u32,
    /// The statuses that pass.
    pub status: Vec<RangeInclusive<u16>>,
}

pub(super) const FIELDS: [&str; 7] = ["path", "host", "interval", "timeout", "healthy", "unhealthy", "status"];
/// The shortest interval: more frequent checks would be load, not checks.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The highest threshold.
const MAX_THRESHOLD: u64 = 100;
/// The longest path.
const MAX_PATH: usize = 2_048;
/// The expected form of a status, for errors and the schema.
const STATUS: &str = "expected a status such as 200, or a class such as 2xx";

impl HealthCheck {
    /// Creates the check of a path, with the default times, thresholds and statuses.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            host: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            healthy: 2,
            unhealthy: 3,
            status: vec![200..=299, 300..=399],
        }
    }

    /// Returns `true` if a response with this status passes.
    pub fn accepts(&self, status: StatusCode) -> bool {
        self.status.iter().any(|range| range.contains(&status.as_u16()))
    }

    /// Reads a check: a map, or only the path.
    pub(super) fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            return Some(Self::new(path(node, "`health`", problems)?));
        }
        let mut fields = MapReader::of(node, "`health`", FIELDS, problems)?;
        let path = fields.require("path", problems).and_then(|node| path(node, "`path`", problems));
        let host = fields.take("host").and_then(|node| {
            let is_host = |text: &str| {
                let authority = text.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
                authority.map(|_| text.to_owned()).ok_or("expected a host such as api.example.com")
            };
            scalar::parsed(node, "`host`", is_host, problems)
        });
        let interval = fields.take("interval").and_then(|node| {
            let interval = scalar::positive_duration(node, "`interval`", problems)?;
            if interval < MIN_INTERVAL {
                problems.push(scalar::invalid(node, "`interval`").expected("expected at least 100ms"));
            }
            Some(interval)
        });
        let timeout = fields.take("timeout").and_then(|node| scalar::positive_duration(node, "`timeout`", problems));
        let [healthy, unhealthy] = ["healthy", "unhealthy"].map(|name| {
            let threshold = |node| scalar::within(node, &format!("`{name}`"), 1..=MAX_THRESHOLD, problems);
            fields.take(name).and_then(threshold).and_then(|count| u32::try_from(count).ok())
        });
        let status = fields.take("status").map(|node| {
            let nodes = scalar::at_least_one(node, "`status`", problems);
            nodes.into_iter().filter_map(|node| scalar::parsed(node, "`status`", statuses, problems)).collect()
        });
        fields.finish(problems);
        let default = Self::new(path?);
        Some(Self {
            host,
            interval: interval.unwrap_or(default.interval),
            timeout: timeout.unwrap_or(default.timeout),
            healthy: healthy.unwrap_or(default.healthy),
            unhealthy: unhealthy.unwrap_or(default.unhealthy),
            status: status.unwrap_or(default.status),
            path: default.path,
        })
    }
}

fn path(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<String> {
    let is_path = |text: &str| {
        let is_valid = text.starts_with('/') && text.len() <= MAX_PATH && text.parse::<PathAndQuery>().is_ok();
        if is_valid { Ok(text.to_owned()) } else { Err("expected a path such as /healthz") }
    };
    scalar::parsed(node, what, is_path, problems)
}

/// Parses `200` or `2xx`.
fn statuses(text: &str) -> Result<RangeInclusive<u16>, &'static str> {
    if let Some(class) = text.strip_suffix("xx") {
        let class = class.parse::<u16>().ok().filter(|class| (2..=5).contains(class)).ok_or(STATUS)?;
        return Ok(class * 100..=class * 100 + 99);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let status = text.parse::<u16>().ok().filter(|status| is_number && (200..=599).contains(status)).ok_or(STATUS)?;
    Ok(status..=status)
}
