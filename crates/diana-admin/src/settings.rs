//! The settings of the rule file that were changed since the start: those that apply, and those that wait for a restart.

use serde::Serialize;
use std::sync::Arc;

/// The fields of the rule file that differ from those that the program was started with. A field is a path such as
/// `gateway.timeouts.body`; values are never shown, since they may be secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettingsStatus {
    /// The fields that were applied without a restart. Rules are not among them: they have their own log.
    pub applied: Vec<String>,
    /// The fields that apply after a restart.
    pub waiting: Vec<String>,
}

/// Returns which settings were changed since the start.
pub type ReportSettings = Arc<dyn Fn() -> SettingsStatus + Send + Sync>;
