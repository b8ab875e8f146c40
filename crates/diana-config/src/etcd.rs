//! A config server on etcd: the value of a key, read over the JSON gateway of the v3 API.
//!
//! A connection begins with a `range`, which returns the value and the revision; a `watch` from the next revision
//! reports all later changes. When the watch ends for any reason (a new leader, a compaction, an expired token), the
//! connection starts over with the next endpoint. A watch can fail silently, so there is also a range every 30 s.
//!
//! The JSON gateway rather than the crate `etcd-client` (0.21.1): its build script compiles `.proto` files, so every
//! machine that builds Diana would need the program `protoc`. It would also bring tonic and prost to every user of
//! `diana-config`; the JSON gateway needs neither.

use super::client::{Client, body};
use super::coordinator::SourceDocument;
use super::file::{text, too_large};
use super::remote_url::Remote;
use super::remote_watcher::{Label, RemoteEvent, RemoteFailure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use diana_rules::Document;
use std::time::Duration;
use tokio::time::Instant;

mod api;

use api::{KeyValue, LineReader, Range, Watched};

/// The default interval between ranges while the watch reports nothing.
const RECHECK: Duration = Duration::from_secs(30);

/// The connect timeout if there are several endpoints.
const CONNECT: Duration = Duration::from_millis(300);

/// The maximum response size: a document in base64, and its envelope.
const MAX_RESPONSE: usize = Document::MAX_SIZE / 3 * 4 + (64 << 10);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Etcd {
    api: api::Api,
    key: String,
    timeout: Duration,
    recheck: Duration,
    label: Label,
    watch: Option<Watch>,
}

/// An open watch.
#[derive(Debug)]
struct Watch {
    lines: LineReader,
    /// The time of the next range.
    recheck: Instant,
    /// The revision of the last range: the watch's events of earlier revisions are outdated.
    known: u64,
    /// The result of the range, until it is returned.
    first: Option<RemoteEvent>,
}

impl Etcd {
    pub(super) fn new(endpoints: Vec<String>, key: String, remote: Remote, label: Label) -> Self {
        let Remote { credentials, timeout, poll, .. } = remote;
        // An unreachable endpoint must not delay the others for long: at startup there is one second for all of them.
        let connect = if endpoints.len() > 1 { timeout.min(CONNECT) } else { timeout };
        let api = api::Api::new(Client::new(connect), endpoints, credentials, timeout);
        Self { api, key, timeout, recheck: poll.unwrap_or(RECHECK), label, watch: None }
    }

    pub(super) async fn read(&mut self) -> Result<SourceDocument, RemoteFailure> {
        match self.range().await?.0 {
            RemoteEvent::Document(document) => Ok(document),
            RemoteEvent::Absent(what) => Err(RemoteFailure::no_document(what)),
            RemoteEvent::Same => Err(RemoteFailure::no_document("no document")),
        }
    }

    pub(super) async fn next(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        if self.watch.is_none() {
            self.watch = Some(self.connect().await?);
        }
        let Some(watch) = &mut self.watch else { return Ok(RemoteEvent::Same) };
        if let Some(first) = watch.first.take() {
            return Ok(first);
        }
        let line = tokio::select! {
            line = watch.lines.next() => Some(line),
            () = tokio::time::sleep_until(watch.recheck) => None,
        };
        let event = match line {
            Some(Ok(line)) => self.parse_line(&line),
            Some(Err(what)) => Err(RemoteFailure::unreachable(what)),
            None => self.range().await.map(|(event, _)| event),
        };
        if event.is_err() {
            self.watch = None;
            self.api.next_endpoint();
        }
        event
    }

    /// Returns the value of the key, and the revision of the store.
    async fn range(&mut self) -> Result<(RemoteEvent, u64), RemoteFailure> {
        let request = format!("{{\"key\":\"{}\"}}", STANDARD.encode(&self.key));
        let Range { header, kvs } = self.api.call("/v3/kv/range", &request).await?;
        if let Some(watch) = &mut self.watch {
            watch.known = header.revision;
            watch.recheck = Instant::now() + self.recheck;
        }
        let event = kvs.into_iter().next().map_or_else(|| self.missing_key(), |value| self.document_event(value));
        Ok((event, header.revision))
    }

    async fn connect(&mut self) -> Result<Watch, RemoteFailure> {
        let (first, known) = self.range().await?;
        let request = format!(
            "{{\"create_request\":{{\"key\":\"{}\",\"start_revision\":\"{}\"}}}}",
            STANDARD.encode(&self.key),
            known.saturating_add(1)
        );
        let response = self.api.open_stream("/v3/watch", &request).await?;
        if !response.status().is_success() {
            let status = response.status();
            let response_body = body(response, 64 << 10, self.timeout).await.unwrap_or_default();
            self.api.next_endpoint();
            return Err(api::error_response(status, &response_body));
        }
        let lines = LineReader::new(response.into_body(), MAX_RESPONSE);
        Ok(Watch { lines, recheck: Instant::now() + self.recheck, known, first: Some(first) })
    }

    /// Parses a line of the watch.
    fn parse_line(&mut self, line: &[u8]) -> Result<RemoteEvent, RemoteFailure> {
        let Watched { canceled, cancel_reason, events } = api::watched(line)?;
        if canceled {
            // The token may have expired.
            self.api.forget_token();
            return Err(RemoteFailure::no_document(format!(
                "watch canceled: {}",
                super::client::clean(&cancel_reason)
            )));
        }
        let known = self.watch.as_ref().map_or(0, |watch| watch.known);
        // The last event is the newest. A line without events confirms that the watch was created or is alive.
        let event = events.into_iter().next_back().filter(|event| event.kv.mod_revision > known);
        let Some(event) = event else { return Ok(RemoteEvent::Same) };
        if event.kind == "DELETE" { Ok(self.missing_key()) } else { Ok(self.document_event(event.kv)) }
    }

    fn missing_key(&self) -> RemoteEvent {
        RemoteEvent::Absent(format!("missing key `{}`", self.key))
    }

    fn document_event(&self, value: KeyValue) -> RemoteEvent {
        let bytes = match STANDARD.decode(&value.value) {
            Ok(bytes) if bytes.len() > Document::MAX_SIZE => return RemoteEvent::Absent(too_large()),
            Ok(bytes) => bytes,
            Err(error) => return RemoteEvent::Absent(format!("invalid value, not base64: {error}")),
        };
        match text(bytes) {
            Ok(text) => RemoteEvent::Document(self.label.document(text, Some(value.mod_revision.to_string()))),
            Err(what) => RemoteEvent::Absent(what),
        }
    }
}
