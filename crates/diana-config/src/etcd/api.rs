//! Calls of etcd's JSON gateway: endpoints, tokens, responses and the lines of streaming responses.
//!
//! 64-bit integers are encoded as strings, bytes as base64, and zero or empty values are omitted.

use crate::client::{Client, RequestBody, body, clean};
use crate::remote_watcher::RemoteFailure;
use bytes::Bytes;
use diana_rules::Secret;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::Value;
use std::time::Duration;

/// The endpoints of a cluster.
#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    endpoints: Vec<String>,
    /// The index of the current endpoint.
    current: usize,
    credentials: Option<(String, Secret)>,
    token: Option<Secret>,
    timeout: Duration,
}

impl Api {
    pub(super) fn new(
        client: Client,
        endpoints: Vec<String>,
        credentials: Option<(String, Secret)>,
        timeout: Duration,
    ) -> Self {
        Self { client, endpoints, current: 0, credentials, token: None, timeout }
    }

    /// Switches to the next endpoint.
    pub(super) fn next_endpoint(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len().max(1);
    }

    pub(super) fn forget_token(&mut self) {
        self.token = None;
    }

    /// Tries the endpoints in turn until one returns a valid response.
    pub(super) async fn call<T: ApiResponse>(&mut self, path: &str, request: &str) -> Result<T, RemoteFailure> {
        let mut failure = RemoteFailure::unreachable("no endpoint");
        for _ in 0..self.endpoints.len() {
            match self.call_endpoint(path, request).await {
                Ok(response) => return Ok(response),
                Err(latest) => failure = latest,
            }
            self.next_endpoint();
        }
        Err(failure)
    }

    /// Starts a call with a streaming response.
    pub(super) async fn open_stream(&mut self, path: &str, request: &str) -> Result<Response<Incoming>, RemoteFailure> {
        let request = self.request(path, request)?;
        let sent = self.client.send(request, self.timeout).await;
        sent.map_err(|what| {
            self.next_endpoint();
            RemoteFailure::unreachable(what)
        })
    }

    async fn call_endpoint<T: ApiResponse>(&mut self, path: &str, request: &str) -> Result<T, RemoteFailure> {
        let fresh = self.token.is_none();
        if fresh {
            self.authenticate().await?;
        }
        match self.post(path, request).await {
            // The token may have expired, or the server may have restarted.
            Err(failure) if failure.responded && !fresh && self.token.is_some() => {
                self.token = None;
                self.authenticate().await?;
                T::read(&self.post(path, request).await?)
            }
            response => T::read(&response?),
        }
    }

    async fn authenticate(&mut self) -> Result<(), RemoteFailure> {
        let Some((name, password)) = &self.credentials else { return Ok(()) };
        let request = serde_json::json!({ "name": name, "password": password.reveal() }).to_string();
        let response = self.post("/v3/auth/authenticate", &request).await?;
        let token = response
            .get("token")
            .and_then(Value::as_str)
            .ok_or_else(|| RemoteFailure::no_document("response without a valid token"))?;
        self.token = Some(Secret::new(token));
        Ok(())
    }

    async fn post(&self, path: &str, request: &str) -> Result<Value, RemoteFailure> {
        let request = self.request(path, request)?;
        let response = self.client.send(request, self.timeout).await.map_err(RemoteFailure::unreachable)?;
        let status = response.status();
        let bytes = body(response, super::MAX_RESPONSE, self.timeout).await?;
        if !status.is_success() {
            return Err(error_response(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|_| RemoteFailure::unreachable("not an etcd response"))
    }

    fn request(&self, path: &str, request: &str) -> Result<Request<RequestBody>, RemoteFailure> {
        let endpoint = self.endpoints.get(self.current).map_or("", String::as_str);
        let mut builder = Request::post(format!("{endpoint}{path}")).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(token.reveal())
                .map_err(|_| RemoteFailure::no_document("response without a valid token"))?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        let sent = builder.body(RequestBody::from(request.to_owned()));
        sent.map_err(|error| RemoteFailure::unreachable(format!("invalid request: {error}")))
    }
}

/// Creates an error from an error response.
pub(super) fn error_response(status: StatusCode, body: &[u8]) -> RemoteFailure {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let message = body.get("error").or_else(|| body.get("message")).and_then(Value::as_str).unwrap_or_default();
    RemoteFailure::no_document(clean(&format!("unexpected status {status} {message}")))
}

/// A response that can be parsed.
pub(super) trait ApiResponse: Sized {
    fn read(response: &Value) -> Result<Self, RemoteFailure>;
}

#[derive(Debug)]
pub(super) struct Range {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Debug)]
pub(super) struct Header {
    pub(super) revision: u64,
}

#[derive(Debug)]
pub(super) struct KeyValue {
    /// The value, in base64.
    pub(super) value: String,
    pub(super) mod_revision: u64,
}

/// A line of a watch.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub(super) struct Event {
    /// `DELETE`, or empty for a put.
    pub(super) kind: String,
    pub(super) kv: KeyValue,
}

impl ApiResponse for Range {
    fn read(response: &Value) -> Result<Self, RemoteFailure> {
        // Every etcd response has a header.
        let header = response.get("header").ok_or_else(|| RemoteFailure::unreachable("not an etcd response"))?;
        let kvs = list(response, "kvs").map(key_value).collect();
        Ok(Self { header: Header { revision: number(header, "revision") }, kvs })
    }
}

/// Parses a line of a watch.
pub(super) fn watched(line: &[u8]) -> Result<Watched, RemoteFailure> {
    let line: Value =
        serde_json::from_slice(line).map_err(|_| RemoteFailure::unreachable("invalid watch response: not JSON"))?;
    if let Some(error) = line.get("error") {
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        return Err(RemoteFailure::no_document(format!("watch failed: {}", clean(message))));
    }
    let result = line.get("result").unwrap_or(&Value::Null);
    let events = list(result, "events")
        .map(|event| Event { kind: string(event, "type"), kv: key_value(event.get("kv").unwrap_or(&Value::Null)) });
    Ok(Watched {
        canceled: result.get("canceled").and_then(Value::as_bool).unwrap_or_default(),
        cancel_reason: string(result, "cancel_reason"),
        events: events.collect(),
    })
}

fn key_value(value: &Value) -> KeyValue {
    KeyValue { value: string(value, "value"), mod_revision: number(value, "mod_revision") }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn string(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, name: &str) -> u64 {
    let value = value.get(name).unwrap_or(&Value::Null);
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

/// Reads the lines of a streaming response, each of a bounded length.
#[derive(Debug)]
pub(super) struct LineReader {
    body: Incoming,
    max: usize,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// Received bytes after the current line.
    rest: Bytes,
}

impl LineReader {
    pub(super) fn new(body: Incoming, max: usize) -> Self {
        Self { body, max, line: Vec::new(), rest: Bytes::new() }
    }

    /// Returns the next line. Cancel safe: a dropped future loses no data.
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let part = self.rest.split_to(end.unwrap_or(self.rest.len()));
            if self.line.len() + part.len() > self.max {
                return Err(format!("invalid watch response: a line has more than {} bytes", self.max));
            }
            self.line.extend_from_slice(&part);
            if end.is_some() {
                // The newline.
                let _ = self.rest.split_to(1);
                return Ok(std::mem::take(&mut self.line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                Some(Err(_)) | None => return Err("watch interrupted".to_owned()),
            }
        }
    }
}
