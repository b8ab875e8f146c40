//! The parts that the program can do without for a while: the shared store, the config server, the rule file and the
//! snapshot of the counts.
//!
//! A part that is not configured is absent.

use crate::SnapshotStatus;
use diana::Timestamp;
use diana::redis::{Health, LinkStatus};
use diana_config::{Origin, SourceStatus};

/// The state of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartStatus {
    /// The part's name in metrics and in `/status`.
    pub(super) name: &'static str,
    /// The reason why it does not work; `None` if it works.
    pub(super) failure: Option<PartFailure>,
}

/// The reason why a part does not work, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartFailure {
    pub(super) since: Timestamp,
    pub(super) reason: String,
}

/// Returns the parts that are configured.
pub(super) fn parts(
    link: Option<&LinkStatus>,
    sources: Option<&SourceStatus>,
    snapshot: Option<&SnapshotStatus>,
) -> Vec<PartStatus> {
    let mut parts = Vec::new();
    if let Some(link) = link {
        let failure = match &link.health {
            Health::Degraded { since, reason } => Some(PartFailure { since: *since, reason: reason.clone() }),
            _ => None,
        };
        parts.push(PartStatus { name: "redis", failure });
    }
    if let Some(status) = sources {
        let failure = |origin| {
            let error = status.failure(origin)?;
            Some(PartFailure { since: error.since, reason: error.what.clone() })
        };
        if status.has_remote {
            parts.push(PartStatus { name: "config_server", failure: failure(Origin::Remote) });
        }
        if status.has_file {
            parts.push(PartStatus { name: "rule_file", failure: failure(Origin::Local) });
        }
    }
    if let Some(status) = snapshot {
        let failure = status.failing.clone().map(|(since, reason)| PartFailure { since, reason });
        parts.push(PartStatus { name: "snapshot", failure });
    }
    parts
}
