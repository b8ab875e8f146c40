//! A config server on etcd: the value of a key, read over the JSON gateway of the v3 API.
//!
//! A connection begins with a `range`, which returns the value and the revision; a `watch` from the next revision
//! reports all later changes. When the watch ends for any reason (a new leader, a compaction, an expired token), the
//! connection starts over with the next endpoint. A watch can fail silently, so there is also a range every 30 s.

use super::client::{Client, body};
use super::coordinator::Found;
use super::file::{text, too_large};
use super::remote::Remote;
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
const MOST: usize = Document::MAX_SIZE / 3 * 4 + (64 << 10);

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

    pub(super) async fn look(&mut self) -> Result<Found, RemoteFailure> {
        match self.range().await?.0 {
            RemoteEvent::Document(found) => Ok(found),
            RemoteEvent::Absent(what) => Err(RemoteFailure::answer(what)),
            RemoteEvent::Same => Err(RemoteFailure::answer("nothing")),
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
        let news = match line {
            Some(Ok(line)) => self.read(&line),
            Some(Err(what)) => Err(RemoteFailure::away(what)),
            None => self.range().await.map(|(news, _)| news),
        };
        if news.is_err() {
            self.watch = None;
            self.api.turn();
        }
        news
    }

    /// Returns the value of the key, and the revision of the store.
    async fn range(&mut self) -> Result<(RemoteEvent, u64), RemoteFailure> {
        let request = format!("{{\"key\":\"{}\"}}", STANDARD.encode(&self.key));
        let Range { header, kvs } = self.api.call("/v3/kv/range", &request).await?;
        if let Some(watch) = &mut self.watch {
            watch.known = header.revision;
            watch.recheck = Instant::now() + self.recheck;
        }
        let news = kvs.into_iter().next().map_or_else(|| self.nothing(), |value| self.news(value));
        Ok((news, header.revision))
    }

    async fn connect(&mut self) -> Result<Watch, RemoteFailure> {
        let (first, known) = self.range().await?;
        let request = format!(
            "{{\"create_request\":{{\"key\":\"{}\",\"start_revision\":\"{}\"}}}}",
            STANDARD.encode(&self.key),
            known.saturating_add(1)
        );
        let response = self.api.open("/v3/watch", &request).await?;
        if !response.status().is_success() {
            let status = response.status();
            let said = body(response, 64 << 10, self.timeout).await.unwrap_or_default();
            self.api.turn();
            return Err(api::refused(status, &said));
        }
        let lines = LineReader::new(response.into_body(), MOST);
        Ok(Watch { lines, recheck: Instant::now() + self.recheck, known, first: Some(first) })
    }

    /// Parses a line of the watch.
    fn read(&mut self, line: &[u8]) -> Result<RemoteEvent, RemoteFailure> {
        let Watched { canceled, cancel_reason, events } = api::watched(line)?;
        if canceled {
            // The token may have expired.
            self.api.forget_token();
            return Err(RemoteFailure::answer(format!(
                "the watch was ended: {}",
                super::client::clean(&cancel_reason)
            )));
        }
        let known = self.watch.as_ref().map_or(0, |watch| watch.known);
        // The last event is the newest. A line without events confirms that the watch was created or is alive.
        let event = events.into_iter().next_back().filter(|event| event.kv.mod_revision > known);
        let Some(event) = event else { return Ok(RemoteEvent::Same) };
        if event.kind == "DELETE" { Ok(self.nothing()) } else { Ok(self.news(event.kv)) }
    }

    fn nothing(&self) -> RemoteEvent {
        RemoteEvent::Absent(format!("there is nothing under the key `{}`", self.key))
    }

    fn news(&self, value: KeyValue) -> RemoteEvent {
        let bytes = match STANDARD.decode(&value.value) {
            Ok(bytes) if bytes.len() > Document::MAX_SIZE => return RemoteEvent::Absent(too_large()),
            Ok(bytes) => bytes,
            Err(error) => return RemoteEvent::Absent(format!("its value is not base64: {error}")),
        };
        match text(bytes) {
            Ok(text) => RemoteEvent::Document(self.label.found(text, Some(value.mod_revision.to_string()))),
            Err(what) => RemoteEvent::Absent(what),
        }
    }
}
