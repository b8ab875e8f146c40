//! Tracks one request from its head to the last byte of its response, for the metrics and the access log.

use super::body::BodyProgress;
use crate::access_log::{Entry, LimitedBy};
use crate::connection::Connection;
use crate::upstream::InFlight;
use diana::{Clock, Retry, SystemClock, Timestamp};
use diana_metrics::Outcome;
use http::header::{HOST, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::request::Parts;
use http::{Method, Uri, Version};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Tracks one request. When it is dropped, the request is finished: it is counted and logged, and its connection is
/// free for the next.
pub(crate) struct RequestTracker {
    connection: Arc<Connection>,
    start: Timestamp,
    /// When the rules decided.
    decided: Timestamp,
    pub(crate) outcome: Outcome,
    /// The request at the upstream that responded.
    upstream: Option<InFlight>,
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
    upstream_took: Option<Duration>,
    bytes_out: u64,
    body: Option<Arc<BodyProgress>>,
}

impl RequestTracker {
    pub(crate) fn begin(connection: &Arc<Connection>, head: &Parts) -> Self {
        connection.timeouts.begin();
        let start = SystemClock.now();
        let log_fields = connection.worker.log.is_some().then(|| {
            let header = |name| head.headers.get(name).cloned();
            Box::new(LogFields {
                // For a rejected request, only the peer's address is trusted.
                client: connection.conn_info.peer,
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
                upstream_took: None,
                bytes_out: 0,
                body: None,
            })
        });
        let (connection, outcome) = (Arc::clone(connection), Outcome::Disconnected);
        Self { connection, start, decided: start, outcome, upstream: None, log_fields }
    }

    /// Records the client's address.
    pub(crate) fn client(&mut self, client: IpAddr) {
        if let Some(fields) = &mut self.log_fields {
            fields.client = client;
        }
    }

    /// Records the decision, now. The decision time excludes the wait that the rules required.
    pub(crate) fn decided(&mut self, verdict: &diana::Verdict) {
        let wait = verdict.wait().unwrap_or_default() + verdict.queued_for();
        self.decided = SystemClock.now();
        let took = self.decided.since(self.start).saturating_sub(wait);
        self.connection.worker.metrics.decision(took);
        if !wait.is_zero() {
            self.connection.worker.metrics.waited(wait);
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
    pub(crate) fn body(&mut self, progress: Option<&Arc<BodyProgress>>) {
        if let Some(fields) = &mut self.log_fields {
            fields.body = progress.cloned();
        }
    }

    /// Records the upstream that responded, and how long it took.
    pub(crate) fn responded(&mut self, upstream: InFlight, took: Duration) {
        self.connection.worker.metrics.upstream(took);
        upstream.endpoint.counts.response(took);
        self.upstream = Some(upstream);
        if let Some(fields) = &mut self.log_fields {
            fields.upstream_took = Some(took);
        }
    }

    /// Records the response's status.
    pub(crate) fn status(&mut self, status: http::StatusCode) {
        if let Some(fields) = &mut self.log_fields {
            fields.status = status.as_u16();
        }
    }

    /// Records that the upstream aborted its response.
    pub(crate) fn upstream_aborted(&mut self) {
        self.connection.worker.metrics.upstream_failed();
        if let Some(upstream) = &self.upstream {
            upstream.endpoint.counts.aborted();
        }
        self.outcome = Outcome::Failed;
    }

    /// Records that the client disconnected before it got a response.
    pub(crate) fn client_disconnected(&mut self) {
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

impl Drop for RequestTracker {
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
        let upstream = self.upstream.as_ref().map(|upstream| upstream.endpoint.upstream.to_string());
        let shadow_rules = fields.shadow_rules.iter().map(LimitingRule::logged).collect::<Vec<_>>();
        log.log(&Entry {
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
            upstream: upstream.as_deref(),
            upstream_took: fields.upstream_took,
        });
    }
}
