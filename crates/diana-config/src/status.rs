//! The active document, its load time and the last error: for the log, the metrics and the admin API.
//!
//! Its size is bounded: only the last errors, truncated to [`MAX_LENGTH`], and a count of all.

use diana_core::{Clock, SystemClock, Timestamp};
use parking_lot::Mutex;
use std::fmt;

/// The origin of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The local file.
    Local,
    /// The config server.
    Remote,
    /// The remote document in the disk cache.
    LastGood,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::LastGood => "last good",
        })
    }
}

/// The status of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The origin of the active rules.
    pub active: Origin,
    /// The path or the URL (without secrets) of their document.
    pub name: String,
    /// The version as the source reports it: an `ETag`, etcd's `mod_revision`, else a prefix of the content's SHA-256.
    pub version: String,
    /// The time at which a document was last applied.
    pub since: Timestamp,
    /// The number of applied documents.
    pub loads: u64,
    /// The number of errors.
    pub errors: u64,
    /// The last error, which may be resolved.
    pub last_error: Option<SourceError>,
    /// The current errors: each stays until it is resolved.
    pub failing: Vec<SourceError>,
    /// Whether the config server responded to the last request; `false` without a config server.
    pub connected: bool,
    /// Whether a config server is configured.
    pub has_remote: bool,
    /// Whether a file is watched.
    pub has_file: bool,
}

impl SourceStatus {
    /// Returns the current error of a source that has lasted longest; `None` if the source works.
    pub fn failure(&self, origin: Origin) -> Option<&SourceError> {
        self.failing.iter().filter(|error| error.origin == origin).min_by_key(|error| error.since)
    }
}

/// An error of a source. The active rules stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceError {
    /// The source.
    pub origin: Origin,
    /// The message.
    pub what: String,
    /// The time.
    pub when: Timestamp,
    /// The time at which the source began to fail in this way: repeated errors of the same kind have the time of the first.
    pub since: Timestamp,
}

/// The maximum length of a stored error: a document with ten thousand rules can have ten thousand problems.
const MAX_LENGTH: usize = 4096;

/// The mutable status.
#[derive(Debug)]
pub(super) struct StatusLog {
    status: Mutex<SourceStatus>,
    /// The errors, at most one for each source and kind.
    failing: Mutex<Vec<(ErrorKind, SourceError)>>,
}

impl Default for StatusLog {
    fn default() -> Self {
        let status = SourceStatus {
            active: Origin::Local,
            name: String::new(),
            version: String::new(),
            since: Timestamp::EPOCH,
            loads: 0,
            errors: 0,
            last_error: None,
            failing: Vec::new(),
            connected: false,
            has_remote: false,
            has_file: false,
        };
        Self { status: Mutex::new(status), failing: Mutex::default() }
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The source can't be read, or does not respond.
    Source,
    /// The document was rejected.
    Document,
}

impl StatusLog {
    pub(super) fn status(&self) -> SourceStatus {
        let failing = self.failing.lock().iter().map(|(_, error)| error.clone()).collect();
        SourceStatus { failing, ..self.status.lock().clone() }
    }

    /// Records that a config server is configured.
    pub(super) fn has_remote(&self) {
        self.status.lock().has_remote = true;
    }

    /// Records that a file is watched.
    pub(super) fn has_file(&self) {
        self.status.lock().has_file = true;
    }

    /// Records that an error is resolved. The end of an error is logged once, with its duration.
    pub(super) fn resolved(&self, origin: Origin, kind: ErrorKind) {
        let mut failing = self.failing.lock();
        let Some(index) = position(&failing, origin, kind) else { return };
        let (_, error) = failing.remove(index);
        drop(failing);
        let lasted = SystemClock.now().since(error.since);
        let end = match (origin, kind) {
            (Origin::Local, ErrorKind::Source) => "rule file readable again",
            (Origin::Local, ErrorKind::Document) => "rule file valid again",
            (Origin::Remote, ErrorKind::Source) => "config server reachable again",
            (Origin::Remote, ErrorKind::Document) => "rules of the config server valid again",
            (Origin::LastGood, _) => "disk cache of the config server's rules works again",
        };
        tracing::warn!(%origin, ?lasted, "{end}");
    }

    /// Records an error. The first one is logged as a warning; a repeated one, or another reason why a source can't be
    /// read, is not, so that an outage has one warning. Each rejected document has its own.
    pub(super) fn error(&self, origin: Origin, kind: ErrorKind, what: &str) -> SourceError {
        let now = SystemClock.now();
        let mut error = SourceError { origin, what: truncate(what), when: now, since: now };
        let mut failing = self.failing.lock();
        let before = position(&failing, origin, kind).map(|index| failing.remove(index).1);
        error.since = before.as_ref().map_or(now, |before| before.since);
        failing.push((kind, error.clone()));
        drop(failing);
        let what = &*error.what;
        match before {
            Some(before) if before.what == what => {
                tracing::debug!(%origin, error = what, "rules not loaded (repeated error); the active rules stay");
            }
            Some(_) if kind == ErrorKind::Source => {
                tracing::info!(%origin, error = what, "rules still not loaded; the active rules stay");
            }
            _ => tracing::warn!(%origin, error = what, "rules not loaded; the active rules stay"),
        }
        let mut status = self.status.lock();
        status.errors += 1;
        status.last_error = Some(error.clone());
        error
    }

    pub(super) fn connected(&self, connected: bool) {
        self.status.lock().connected = connected;
    }

    /// Records that a document was applied.
    pub(super) fn loaded(&self, origin: Origin, name: &str, version: &str, rules: Option<usize>) {
        let count = match rules {
            Some(1) => "1 rule from ".to_owned(),
            Some(count) => format!("{count} rules from "),
            None => String::new(),
        };
        tracing::info!(active = %origin, name, version, "rules loaded: {count}{name}");
        let mut status = self.status.lock();
        status.set_document(origin, name, version);
        status.since = SystemClock.now();
        status.loads += 1;
    }

    /// Records another version or origin of the active document, whose text is unchanged.
    pub(super) fn renamed(&self, origin: Origin, name: &str, version: &str) {
        self.status.lock().set_document(origin, name, version);
    }
}

impl SourceStatus {
    fn set_document(&mut self, origin: Origin, name: &str, version: &str) {
        self.active = origin;
        name.clone_into(&mut self.name);
        version.clone_into(&mut self.version);
    }
}

/// Returns the index of the error of a source and kind.
fn position(failing: &[(ErrorKind, SourceError)], origin: Origin, kind: ErrorKind) -> Option<usize> {
    failing.iter().position(|(known, error)| (*known, error.origin) == (kind, origin))
}

fn truncate(what: &str) -> String {
    if what.len() <= MAX_LENGTH {
        return what.to_owned();
    }
    let end = (0..=MAX_LENGTH).rev().find(|&end| what.is_char_boundary(end)).unwrap_or_default();
    format!("{} [...]", what.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_errors_are_bounded() {
        let status_log = StatusLog::default();
        for _ in 0..3 {
            let error = status_log.error(Origin::Remote, ErrorKind::Source, &"ä".repeat(1_000_000));
            assert!(error.what.len() <= MAX_LENGTH + 6 && error.what.ends_with("ä [...]"), "{}", error.what.len());
        }
        assert_eq!((status_log.status().errors, status_log.status().failing.len()), (3, 1));
        assert_eq!(truncate("short"), "short");
    }

    #[test]
    fn an_error_ends_when_its_source_recovers() {
        let status_log = StatusLog::default();
        status_log.error(Origin::Remote, ErrorKind::Source, "unreachable");
        status_log.error(Origin::Remote, ErrorKind::Document, "no rules");
        status_log.error(Origin::Local, ErrorKind::Document, "a typo");
        let failing = || status_log.status().failing.into_iter().map(|error| error.what).collect::<Vec<_>>();
        assert_eq!(failing(), ["unreachable", "no rules", "a typo"]);
        status_log.resolved(Origin::Remote, ErrorKind::Source);
        assert_eq!(failing(), ["no rules", "a typo"]);
        status_log.resolved(Origin::Remote, ErrorKind::Document);
        status_log.resolved(Origin::Local, ErrorKind::Source);
        assert_eq!(failing(), ["a typo"]);
        status_log.resolved(Origin::Local, ErrorKind::Document);
        assert!(failing().is_empty());
        // The last error stays stored.
        assert_eq!(status_log.status().last_error.unwrap().what, "a typo");
    }

    #[test]
    fn a_repeated_error_keeps_the_time_of_the_first() {
        let status_log = StatusLog::default();
        let first = status_log.error(Origin::Remote, ErrorKind::Source, "connection refused");
        let second = status_log.error(Origin::Remote, ErrorKind::Source, "timed out");
        assert_eq!((second.since, first.since), (first.when, first.when));
        assert!(second.when >= first.when);
        let status = status_log.status();
        assert_eq!(status.failure(Origin::Remote).unwrap().what, "timed out");
        assert_eq!(status.failure(Origin::Local), None);
        status_log.resolved(Origin::Remote, ErrorKind::Source);
        assert_eq!(status_log.status().failure(Origin::Remote), None);
        let third = status_log.error(Origin::Remote, ErrorKind::Source, "timed out");
        assert_eq!(third.since, third.when);
    }
}
