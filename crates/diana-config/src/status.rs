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
    /// When a document was last applied.
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
}

/// The maximum length of a stored error: a document with ten thousand rules can have ten thousand problems.
const MAX_LENGTH: usize = 4096;

/// The mutable status.
#[derive(Debug)]
pub(super) struct StatusLog {
    status: Mutex<SourceStatus>,
    /// At most one error for each source and kind.
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

    /// Records that an error is resolved.
    pub(super) fn resolved(&self, origin: Origin, kind: ErrorKind) {
        self.failing.lock().retain(|(known, error)| (*known, error.origin) != (kind, origin));
    }

    /// Records an error and logs it; a repeated error is logged only at debug level.
    pub(super) fn error(&self, origin: Origin, kind: ErrorKind, what: &str) -> SourceError {
        let error = SourceError { origin, what: truncate(what), when: SystemClock.now() };
        self.resolved(origin, kind);
        self.failing.lock().push((kind, error.clone()));
        let mut status = self.status.lock();
        let same = |last: &SourceError| last.origin == error.origin && last.what == error.what;
        if status.last_error.as_ref().is_some_and(same) {
            tracing::debug!(%origin, error = %error.what, "rules not loaded (repeated error); the active rules stay");
        } else {
            tracing::warn!(%origin, error = %error.what, "rules not loaded; the active rules stay");
        }
        status.errors += 1;
        status.last_error = Some(error.clone());
        error
    }

    pub(super) fn connected(&self, connected: bool) {
        let mut status = self.status.lock();
        if connected && !status.connected {
            tracing::info!("config server reachable again");
        }
        status.connected = connected;
    }

    /// Records that a document was applied.
    pub(super) fn loaded(&self, origin: Origin, name: &str, version: &str, rules: Option<usize>) {
        let count = match rules {
            Some(1) => "1 rule from ".to_owned(),
            Some(count) => format!("{count} rules from "),
            None => String::new(),
        };
        tracing::info!(in_force = %origin, name, version, "rules loaded: {count}{name}");
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
}
