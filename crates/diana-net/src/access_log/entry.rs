//! One line of the access log.

use super::escape;
use crate::LogTime;
use diana_core::Timestamp;
use diana_metrics::Outcome;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// The combined log format, followed by Diana's own fields as `name=value`.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// A rule that limited a request, and the key as logs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedBy<'a> {
    /// The rule's name.
    pub rule: &'a str,
    /// The key, if the rule counts by key and keys are logged.
    pub key: Option<&'a str>,
}

/// The logged fields of a request. `None`, empty and zero values are omitted where the format allows it.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry<'a> {
    /// The time of the request.
    pub at: Timestamp,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The request's method.
    pub method: &'a str,
    /// The request's path and query, as they were sent.
    pub target: &'a str,
    /// The requested host.
    pub host: Option<&'a [u8]>,
    /// The request's HTTP version.
    pub version: http::Version,
    /// The status of the response.
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub bytes_out: u64,
    /// Bytes of the request body that were received.
    pub bytes_in: u64,
    /// The request's total duration.
    pub took: Duration,
    /// The request's `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The request's `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The request's outcome.
    pub outcome: Outcome,
    /// The rule that denied, rerouted or delayed it, and the key.
    pub rule: Option<LimitedBy<'a>>,
    /// The shadow rules that would have denied it.
    pub shadow_rules: &'a [LimitedBy<'a>],
    /// The time after which a retry of a denied request makes sense.
    pub retry_after: Option<Duration>,
    /// Whether the shared store was unreachable, so that this process decided in its place.
    pub is_fallback: bool,
    /// The request's `X-Request-Id`.
    pub request_id: Option<&'a [u8]>,
    /// The request's `traceparent`.
    pub traceparent: Option<&'a [u8]>,
    /// The delay that the rules imposed.
    pub wait: Duration,
    /// The upstream that it was sent to.
    pub upstream: Option<&'a str>,
    /// The response time of the upstream.
    pub upstream_took: Option<Duration>,
}

impl Default for LogEntry<'_> {
    fn default() -> Self {
        Self {
            at: Timestamp::EPOCH,
            client: None,
            method: "",
            target: "",
            host: None,
            version: http::Version::HTTP_11,
            status: 0,
            bytes_out: 0,
            bytes_in: 0,
            took: Duration::ZERO,
            referer: None,
            user_agent: None,
            outcome: Outcome::Forwarded,
            rule: None,
            shadow_rules: &[],
            retry_after: None,
            is_fallback: false,
            request_id: None,
            traceparent: None,
            wait: Duration::ZERO,
            upstream: None,
            upstream_took: None,
        }
    }
}

impl LogEntry<'_> {
    /// Appends the entry to `line`, with a line end.
    pub(super) fn write(&self, format: LogFormat, date: &mut LogTime, line: &mut Vec<u8>) {
        match format {
            LogFormat::Text => self.text(date, line),
            LogFormat::Json => self.json(date, line),
        }
        line.push(b'\n');
    }

    fn text(&self, date: &mut LogTime, line: &mut Vec<u8>) {
        match self.client {
            Some(client) => put(line, format_args!("{client}")),
            None => line.push(b'-'),
        }
        put(line, format_args!(" - - [{}] \"", date.common(self.at)));
        escape::escape(self.method.as_bytes(), line);
        line.push(b' ');
        escape::escape(self.target.as_bytes(), line);
        if self.target.len() > escape::MAX_LENGTH {
            line.extend_from_slice(b"...");
        }
        put(line, format_args!(" {:?}\" {} {}", self.version, self.status, self.bytes_out));
        for text in [self.referer, self.user_agent] {
            line.push(b' ');
            escape::text(text.unwrap_or(b"-"), line);
        }
        put(line, format_args!(" outcome={} time={}ms", self.outcome.name(), Millis(self.took)));
        if let Some(LimitedBy { rule, key }) = self.rule {
            line.extend_from_slice(b" rule=");
            word(rule, line);
            if let Some(key) = key {
                line.extend_from_slice(b" key=");
                escape::text(key.as_bytes(), line);
            }
        }
        if let Some(time) = self.retry_after {
            put(line, format_args!(" retry_after={}ms", Millis(time)));
        }
        for LimitedBy { rule, key } in self.shadow_rules {
            line.extend_from_slice(b" shadow_rule=");
            word(rule, line);
            if let Some(key) = key {
                line.extend_from_slice(b" shadow_key=");
                escape::text(key.as_bytes(), line);
            }
        }
        if self.is_fallback {
            line.extend_from_slice(b" fallback=true");
        }
        if !self.wait.is_zero() {
            put(line, format_args!(" wait={}ms", Millis(self.wait)));
        }
        if let Some(upstream) = self.upstream {
            line.extend_from_slice(b" upstream=");
            word(upstream, line);
        }
        if let Some(took) = self.upstream_took {
            put(line, format_args!(" upstream_time={}ms", Millis(took)));
        }
        if self.bytes_in > 0 {
            put(line, format_args!(" bytes_in={}", self.bytes_in));
        }
        if let Some(host) = self.host {
            line.extend_from_slice(b" host=");
            escape::text(host, line);
        }
        for (name, id) in [(" request_id=", self.request_id), (" traceparent=", self.traceparent)] {
            if let Some(id) = id {
                line.extend_from_slice(name.as_bytes());
                escape::text(id, line);
            }
        }
    }

    fn json(&self, date: &mut LogTime, line: &mut Vec<u8>) {
        let millis = self.at.as_nanos() / 1_000_000 % 1_000;
        put(line, format_args!("{{\"time\":\"{}.{millis:03}Z\"", date.iso(self.at)));
        if let Some(client) = self.client {
            put(line, format_args!(",\"client\":\"{client}\""));
        }
        let texts = [
            ("method", Some(self.method.as_bytes())),
            ("host", self.host),
            ("target", Some(self.target.as_bytes())),
            ("referer", self.referer),
            ("user_agent", self.user_agent),
            ("rule", self.rule.map(|by| by.rule.as_bytes())),
            ("key", self.rule.and_then(|by| by.key).map(str::as_bytes)),
            ("request_id", self.request_id),
            ("traceparent", self.traceparent),
            ("upstream", self.upstream.map(str::as_bytes)),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                put(line, format_args!(",\"{name}\":"));
                escape::json(text, line);
            }
        }
        put(line, format_args!(",\"version\":\"{:?}\",\"status\":{}", self.version, self.status));
        put(line, format_args!(",\"outcome\":\"{}\",\"ms\":{}", self.outcome.name(), Millis(self.took)));
        put(line, format_args!(",\"bytes_in\":{},\"bytes_out\":{}", self.bytes_in, self.bytes_out));
        if !self.wait.is_zero() {
            put(line, format_args!(",\"wait_ms\":{}", Millis(self.wait)));
        }
        if let Some(took) = self.upstream_took {
            put(line, format_args!(",\"upstream_ms\":{}", Millis(took)));
        }
        if let Some(time) = self.retry_after {
            put(line, format_args!(",\"retry_after_ms\":{}", Millis(time)));
        }
        if self.is_fallback {
            line.extend_from_slice(b",\"fallback\":true");
        }
        if let Some((first, more)) = self.shadow_rules.split_first() {
            line.extend_from_slice(b",\"shadow\":[");
            first.json(line);
            for by in more {
                line.push(b',');
                by.json(line);
            }
            line.push(b']');
        }
        line.push(b'}');
    }
}

impl LimitedBy<'_> {
    fn json(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"rule\":");
        escape::json(self.rule.as_bytes(), line);
        if let Some(key) = self.key {
            line.extend_from_slice(b",\"key\":");
            escape::json(key.as_bytes(), line);
        }
        line.push(b'}');
    }
}

/// A duration in milliseconds, to the microsecond.
struct Millis(Duration);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1_000, micros % 1_000)
    }
}

fn put(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector never fails.
    let _ = line.write_fmt(text);
}

/// Writes a text as it is if it is one word, else in quotes.
fn word(text: &str, line: &mut Vec<u8>) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if !text.is_empty() && text.len() <= escape::MAX_LENGTH && text.bytes().all(is_plain) {
        line.extend_from_slice(text.as_bytes());
    } else {
        escape::text(text.as_bytes(), line);
    }
}
