//! What is in force, since when, and what went wrong last: for the log, the metrics and the admin page.
//!
//! What is remembered is bounded: the last error, cut to [`LONGEST`], and a count of all.

use diana_core::{Clock, SystemClock, Timestamp};
use parking_lot::Mutex;
use std::fmt;

/// Where a document came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The local file.
    Local,
    /// The configuration centre.
    Remote,
    /// The remote document that was kept on disk.
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

/// How the sources are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// Whose rules are in force.
    pub in_force: Origin,
    /// The path or the URL (without secrets) of the document that they are in.
    pub name: String,
    /// What the source calls its version: an `ETag`, etcd's `mod_revision`, else the beginning of the content's SHA-256.
    pub version: String,
    /// When something was last put in force.
    pub since: Timestamp,
    /// How often something was put in force.
    pub loads: u64,
    /// How often something went wrong.
    pub errors: u64,
    /// What went wrong last; it may be long over.
    pub last_error: Option<SourceError>,
    /// What is wrong now: each error stays until its source is well again.
    pub failing: Vec<SourceError>,
    /// Whether the centre answered when it was last asked; false without a centre.
    pub connected: bool,
    /// Whether there is a centre.
    pub has_remote: bool,
}

/// Something that went wrong. What was in force before it still is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceError {
    /// Which source.
    pub origin: Origin,
    /// What.
    pub what: String,
    /// When.
    pub when: Timestamp,
}

/// The most bytes of an error that are kept: a document of ten thousand rules can be wrong in ten thousand places.
const LONGEST: usize = 4096;

/// The status as it is being written.
#[derive(Debug)]
pub(super) struct StatusLog {
    status: Mutex<SourceStatus>,
    /// At most one for each source and what is wrong with it.
    failing: Mutex<Vec<(Wrong, SourceError)>>,
}

impl Default for StatusLog {
    fn default() -> Self {
        let status = SourceStatus {
            in_force: Origin::Local,
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

/// What of a source is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It can't be read, or does not answer.
    Source,
    /// What it brought is not put in force.
    Document,
}

impl StatusLog {
    pub(super) fn status(&self) -> SourceStatus {
        let failing = self.failing.lock().iter().map(|(_, error)| error.clone()).collect();
        SourceStatus { failing, ..self.status.lock().clone() }
    }

    /// Records that there is a centre.
    pub(super) fn has_remote(&self) {
        self.status.lock().has_remote = true;
    }

    /// Records that this is no longer wrong.
    pub(super) fn resolved(&self, origin: Origin, wrong: Wrong) {
        self.failing.lock().retain(|(known, error)| (*known, error.origin) != (wrong, origin));
    }

    /// Records that something went wrong, and logs it: once, if the same goes wrong again and again.
    pub(super) fn error(&self, origin: Origin, wrong: Wrong, what: &str) -> SourceError {
        let error = SourceError { origin, what: cut(what), when: SystemClock.now() };
        self.resolved(origin, wrong);
        self.failing.lock().push((wrong, error.clone()));
        let mut status = self.status.lock();
        let same = |last: &SourceError| last.origin == error.origin && last.what == error.what;
        if status.last_error.as_ref().is_some_and(same) {
            tracing::debug!(%origin, error = %error.what, "rules: still wrong; what is in force stays");
        } else {
            tracing::warn!(%origin, error = %error.what, "rules: what is in force stays");
        }
        status.errors += 1;
        status.last_error = Some(error.clone());
        error
    }

    pub(super) fn connected(&self, connected: bool) {
        let mut status = self.status.lock();
        if connected && !status.connected {
            tracing::info!("rules: the configuration centre answers");
        }
        status.connected = connected;
    }

    /// Records that a document was put in force.
    pub(super) fn loaded(&self, in_force: Origin, name: &str, version: &str) {
        tracing::info!(%in_force, name, version, "rules: put in force");
        let mut status = self.status.lock();
        status.name_it(in_force, name, version);
        status.since = SystemClock.now();
        status.loads += 1;
    }

    /// Records that what is in force has another version, or is now known to be the centre's: the same text, though.
    pub(super) fn named(&self, in_force: Origin, name: &str, version: &str) {
        self.status.lock().name_it(in_force, name, version);
    }
}

impl SourceStatus {
    fn name_it(&mut self, in_force: Origin, name: &str, version: &str) {
        self.in_force = in_force;
        name.clone_into(&mut self.name);
        version.clone_into(&mut self.version);
    }
}

fn cut(what: &str) -> String {
    if what.len() <= LONGEST {
        return what.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|&end| what.is_char_boundary(end)).unwrap_or_default();
    format!("{} [...]", what.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_an_error_is_bounded() {
        let ledger = StatusLog::default();
        for _ in 0..3 {
            let error = ledger.error(Origin::Remote, Wrong::Source, &"ä".repeat(1_000_000));
            assert!(error.what.len() <= LONGEST + 6 && error.what.ends_with("ä [...]"), "{}", error.what.len());
        }
        assert_eq!((ledger.status().errors, ledger.status().failing.len()), (3, 1));
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn an_error_is_over_when_its_source_is_well_again() {
        let ledger = StatusLog::default();
        ledger.error(Origin::Remote, Wrong::Source, "away");
        ledger.error(Origin::Remote, Wrong::Document, "no rules");
        ledger.error(Origin::Local, Wrong::Document, "a typo");
        let failing = || ledger.status().failing.into_iter().map(|error| error.what).collect::<Vec<_>>();
        assert_eq!(failing(), ["away", "no rules", "a typo"]);
        ledger.resolved(Origin::Remote, Wrong::Source);
        assert_eq!(failing(), ["no rules", "a typo"]);
        ledger.resolved(Origin::Remote, Wrong::Document);
        ledger.resolved(Origin::Local, Wrong::Source);
        assert_eq!(failing(), ["a typo"]);
        ledger.resolved(Origin::Local, Wrong::Document);
        assert!(failing().is_empty());
        // What was wrong last is still known.
        assert_eq!(ledger.status().last_error.unwrap().what, "a typo");
    }
}
