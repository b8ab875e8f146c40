//! Retries of failed requests on another upstream: `retries: {on: [connect_failure, 503], attempts: 2, budget: 20%}`.

use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::rule::Percent;
use diana_rules::{Problem, scalar};
use http::StatusCode;
use std::ops::RangeInclusive;

/// The failed requests to send to another upstream, and their maximum number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The failures after which a request is retried.
    pub on: Vec<RetryOn>,
    /// The maximum number of retries of one request.
    pub attempts: u32,
    /// The share of the requests in the last ten seconds that may be retries.
    pub budget: Percent,
    /// The number of retries a second that are allowed in addition, on average over the ten seconds.
    pub min_per_second: u32,
}

/// A failure after which a request is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryOn {
    /// The upstream has not received the request: no connection, or no free stream on one.
    ConnectFailure,
    /// The connection broke before there was a response, or the response was invalid.
    Reset,
    /// There was no response within `timeouts.response`.
    Timeout,
    /// A response with this status, from 500 to 599.
    Status(u16),
}

pub(super) const FIELDS: [&str; 4] = ["on", "attempts", "budget", "min_per_second"];
const MAX_ATTEMPTS: u64 = 10;
const MAX_PER_SECOND: u64 = 100_000;
/// The budget if the file has none, as in Finagle, linkerd and Envoy.
const DEFAULT_BUDGET: Percent = Percent::whole(20);

impl RetryOn {
    /// The words, and the statuses that are suggested beside them.
    pub(super) const WORDS: [&str; 6] = ["connect_failure", "reset", "timeout", "502", "503", "504"];
    const ALL: [Self; 6] =
        [Self::ConnectFailure, Self::Reset, Self::Timeout, Self::Status(502), Self::Status(503), Self::Status(504)];

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        if node.text().is_some_and(|text| text.starts_with(|first: char| first.is_ascii_digit())) {
            // Other statuses are the upstream's answer to the request: another upstream would give the same.
            let status = scalar::within(node, "`on`", 500..=599, problems)?;
            return u16::try_from(status).ok().map(Self::Status);
        }
        scalar::word(node, "`on`", &Self::WORDS, problems).map(|index| Self::ALL[index])
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let [connect_failure, reset, _, bad_gateway, unavailable, gateway_timeout] = RetryOn::ALL;
        Self {
            on: vec![connect_failure, reset, bad_gateway, unavailable, gateway_timeout],
            attempts: 2,
            budget: DEFAULT_BUDGET,
            min_per_second: 3,
        }
    }
}

impl RetryPolicy {
    /// Returns `true` if a response with this status is retried.
    pub fn retries_status(&self, status: StatusCode) -> bool {
        self.on.contains(&RetryOn::Status(status.as_u16()))
    }

    pub(super) fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`retries`", FIELDS, problems)?;
        let on = fields.take("on").map(|node| {
            let nodes = scalar::at_least_one(node, "`on`", problems);
            nodes.into_iter().filter_map(|node| RetryOn::parse(node, problems)).collect()
        });
        let mut count = |name: &str, range: RangeInclusive<u64>| {
            let count = fields.take(name).and_then(|node| scalar::within(node, &format!("`{name}`"), range, problems));
            count.and_then(|count| u32::try_from(count).ok())
        };
        let (attempts, min_per_second) =
            (count("attempts", 1..=MAX_ATTEMPTS), count("min_per_second", 0..=MAX_PER_SECOND));
        let budget = fields.take("budget").and_then(|node| Percent::parse_node(node, "`budget`", problems));
        fields.finish(problems);
        let default = Self::default();
        Some(Self {
            on: on.unwrap_or(default.on),
            attempts: attempts.unwrap_or(default.attempts),
            budget: budget.unwrap_or(default.budget),
            min_per_second: min_per_second.unwrap_or(default.min_per_second),
        })
    }
}
