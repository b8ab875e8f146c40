//! Records one request from its head to the last byte of its response, for the metrics and the access log.

use crate::access_log::{LimitedBy, LogEntry};
use crate::connection::Connection;
use crate::request_body::BodyProgress;
use diana::{Clock, Retry, SystemClock, Timestamp};
use diana_metrics::Outcome;
use http::header::{HOST, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::request::Parts;
use http::{Method, StatusCode, Uri, Version};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Records one request. When it is dropped, the request is finished: it is counted and logged, and its connection is
/// free for the next.
pub struct RequestRecord {
    connection: Arc<Connection>,
    start: Timestamp,
    /// The time of the decision of the rules.
    decided: Timestamp,
    /// The outcome of the request. [`Disconnected`](Outcome::Disconnected) until it is known.
    pub outcome: Outcome,
    /// Present only if there is an access log.
    log_fields: Option<Box<LogFields>>,
}

/// The status logged if the client disconnected before the response, as in nginx.
const CLIENT_DISCONNECTED: u16 = 499;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A rule that limited the request, and the key as logs write it.
struct LimitingRule {
    rule: String,
    key: Option<String>,
}

impl LimitingRule {
    fn logged(&self) -> LimitedBy<'_> {
        LimitedBy { rule: &self.rule, key: self.key.as_deref() }
    }
}

/// The fields of the access log entry.
struct LogFields {
    client: IpAddr,
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    traceparent: Option<HeaderValue>,
    status: u16,
    /// The rule that denied, rerouted or delayed it, and the key.
    rule: Option<LimitingRule>,
    /// The shadow rules that would have denied it.
    shadow_rules: Vec<LimitingRule>,
    retry_after: Option<Duration>,
    is_fallback: bool,
    wait: Duration,
    upstream: Option<String>,
    upstream_took: Option<Duration>,
    bytes_out: u64,
    body: Option<Arc<BodyProgress>>,
}

impl RequestRecord {
    /// Records that a request has started.
    pub fn begin(connection: &Arc<Connection>, head: &Parts) -> Self {
        connection.timeouts.begin();
        let start = SystemClock.now();
        let log_fields = connection.worker.log.is_some().then(|| {
            let header = |name| head.headers.get(name).cloned();
            Box::new(LogFields {
                // For a rejected request, only the peer's address is trusted.
                client: connection.info.peer,
                method: head.method.clone(),
                uri: head.uri.clone(),
                version: head.version,
                host: header(HOST),
                referer: header(REFERER),
                user_agent: header(USER_AGENT),
                request_id: header(REQUEST_ID),
                traceparent: header(TRACEPARENT),
                status: CLIENT_DISCONNECTED,
                rule: None,
                shadow_rules: Vec::new(),
                retry_after: None,
                is_fallback: false,
                wait: Duration::ZERO,
                upstream: None,
                upstream_took: None,
                bytes_out: 0,
                body: None,
            })
        });
        let (connection, outcome) = (Arc::clone(connection), Outcome::Disconnected);
        Self { connection, start, decided: start, outcome, log_fields }
    }

    /// Records the client's address.
    pub fn client(&mut self, client: IpAddr) {
        if let Some(fields) = &mut self.log_fields {
            fields.client = client;
        }
    }

    /// Records the decision, now. The decision time excludes the wait that the rules required.
    pub fn decided(&mut self, verdict: &diana::Verdict) {
        let wait = verdict.wait().unwrap_or_default() + verdict.queued_for();
        self.decided = SystemClock.now();
        let took = self.decided.since(self.start).saturating_sub(wait);
        self.connection.worker.metrics.decision_seconds.observe(took);
        if !wait.is_zero() {
            self.connection.worker.metrics.wait_seconds.observe(wait);
        }
        if let Some(fields) = &mut self.log_fields {
            fields.wait = wait;
            let named =
                |by: diana::LimitedBy<'_>| LimitingRule { rule: by.rule.name.clone(), key: verdict.logged_key(&by) };
            fields.rule = verdict.limited_by().map(named);
            fields.shadow_rules = verdict.shadow_denials().map(named).collect();
            fields.is_fallback = verdict.is_fallback();
            fields.retry_after = match verdict.retry() {
                Some(Retry::After(time)) => Some(time),
                _ => None,
            };
        }
    }

    /// Records the progress of the request's body.
    pub fn body(&mut self, progress: &Arc<BodyProgress>) {
        if let Some(fields) = &mut self.log_fields {
            fields.body = Some(Arc::clone(progress));
        }
    }

    /// Records the upstream that responded, and how long it took.
    pub fn responded(&mut self, upstream: &impl fmt::Display, took: Duration) {
        self.connection.worker.metrics.upstream_seconds.observe(took);
        if let Some(fields) = &mut self.log_fields {
            fields.upstream = Some(upstream.to_string());
            fields.upstream_took = Some(took);
        }
    }

    /// Records the response's status.
    pub fn status(&mut self, status: StatusCode) {
        if let Some(fields) = &mut self.log_fields {
            fields.status = status.as_u16();
        }
    }

    /// Records that the body of the response was aborted.
    pub(crate) fn aborted(&mut self) {
        self.connection.worker.metrics.upstream_failures.increment();
        self.outcome = Outcome::Failed;
    }

    /// Records that the client disconnected before it got a response.
    pub fn client_disconnected(&mut self) {
        self.outcome = Outcome::Disconnected;
        if let Some(fields) = &mut self.log_fields {
            fields.status = CLIENT_DISCONNECTED;
        }
    }

    /// Adds to the number of response bytes.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(fields) = &mut self.log_fields {
            fields.bytes_out += bytes as u64;
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let Connection { worker, timeouts, .. } = &*self.connection;
        // The response to a denied request is written at once, so the clock is not read again.
        let end = if self.outcome == Outcome::Denied { self.decided } else { SystemClock.now() };
        let took = end.since(self.start);
        timeouts.end();
        worker.metrics.request(self.outcome, took);
        let (Some(fields), Some(log)) = (&self.log_fields, &worker.log) else { return };
        // The host that rules match: the authority of an absolute URI, if there is one.
        let host = fields.uri.authority().map(|host| host.as_str().as_bytes());
        let shadow_rules = fields.shadow_rules.iter().map(LimitingRule::logged).collect::<Vec<_>>();
        log.log(&LogEntry {
            at: self.start,
            client: Some(fields.client),
            method: fields.method.as_str(),
            target: fields.uri.path_and_query().map_or("*", |target| target.as_str()),
            host: host.or_else(|| fields.host.as_ref().map(HeaderValue::as_bytes)),
            version: fields.version,
            status: fields.status,
            bytes_out: fields.bytes_out,
            bytes_in: fields.body.as_ref().map_or(0, |body| body.received()),
            took,
            referer: fields.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: fields.user_agent.as_ref().map(HeaderValue::as_bytes),
            outcome: self.outcome,
            rule: fields.rule.as_ref().map(LimitingRule::logged),
            shadow_rules: &shadow_rules,
            retry_after: fields.retry_after,
            is_fallback: fields.is_fallback,
            request_id: fields.request_id.as_ref().map(HeaderValue::as_bytes),
            traceparent: fields.traceparent.as_ref().map(HeaderValue::as_bytes),
            wait: fields.wait,
            upstream: fields.upstream.as_deref(),
            upstream_took: fields.upstream_took,
        });
    }
}

impl fmt::Debug for RequestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecord").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
