//! Applies rules, upstreams, routes and admin tokens when they change, and reports which changes need a restart.

use super::settings::Settings;
use diana::Reloader;
use diana_admin::{AdminSection, AdminTokens, AuditLog, RuleLog, SettingsStatus};
use diana_config::{Apply, Origin, SourceError};
use diana_gateway::UpstreamReload;
use diana_gateway::section::GatewaySection;
use diana_rules::upstream_url::Upstream;
use diana_rules::{Document, Problems, RuleFile};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Applies rules, upstreams, routes and admin tokens when they change, and logs which changed fields of the file need a
/// restart.
#[derive(Debug)]
pub(super) struct ConfigReload {
    reloader: Arc<Reloader>,
    rule_log: Arc<RuleLog>,
    audit: Arc<AuditLog>,
    /// The settings of the start.
    settings: Settings,
    /// The difference between the file and them.
    status: Mutex<SettingsStatus>,
    tokens: Arc<AdminTokens>,
    /// The upstreams of the command line, which override those of the file.
    upstream: Vec<Upstream>,
    /// The running gateway.
    gateway: OnceLock<UpstreamReload>,
}

impl ConfigReload {
    /// Creates a reload of the rules; `upstream` are those of the command line.
    pub(super) fn new(
        reloader: Arc<Reloader>,
        (rule_log, audit): (Arc<RuleLog>, Arc<AuditLog>),
        settings: Settings,
        tokens: Arc<AdminTokens>,
        upstream: Vec<Upstream>,
    ) -> Arc<Self> {
        let (status, gateway) = (Mutex::default(), OnceLock::new());
        Arc::new(Self { reloader, rule_log, audit, settings, status, tokens, upstream, gateway })
    }

    /// Returns which settings were changed since the start.
    pub(super) fn settings(&self) -> SettingsStatus {
        self.status.lock().clone()
    }

    /// Applies changes of upstreams and routes to this gateway from now on, and those since the file was first read.
    pub(super) fn gateway_started(&self, gateway: UpstreamReload) {
        let _ = self.gateway.set(gateway);
        if let Some(file) = self.reloader.file() {
            self.apply_upstreams(&file);
        }
    }

    /// Applies the upstreams and routes of a file. One without the section `gateway` changes nothing.
    fn apply_upstreams(&self, file: &RuleFile) {
        let (Some(gateway), Ok(Some(section))) = (self.gateway.get(), file.section::<GatewaySection>()) else { return };
        let mut section = section.clone();
        if !self.upstream.is_empty() {
            section.upstream = self.upstream.clone().into();
        }
        if gateway.apply(&section) {
            let count = section.upstream_groups().map(|group| group.endpoints.len()).sum::<usize>();
            tracing::info!("upstreams loaded: {count} in {} groups", section.upstream_groups().count());
        }
    }

    fn apply_tokens(&self, local: &Document, file: &RuleFile) {
        let Ok(section) = file.section_or_default::<AdminSection>() else { return };
        if let Some(change) = self.tokens.replace(&section) {
            self.audit.tokens_changed(&format!("local file {}", local.name()), change);
        }
    }

    /// Compares the file with the settings of the start, and logs what has changed since it was last compared.
    fn compare_settings(&self, local: &Document) {
        let status = self.settings.compare(local);
        let before = std::mem::replace(&mut *self.status.lock(), status.clone());
        if status.applied != before.applied && !status.applied.is_empty() {
            tracing::info!("settings applied without a restart: {}", status.applied.join(", "));
        }
        if status.waiting != before.waiting {
            log_waiting(&status);
        }
    }
}

/// Logs which changed fields wait for a restart.
pub(super) fn log_waiting(status: &SettingsStatus) {
    match &*status.waiting {
        [] => tracing::info!("no changed setting waits for a restart"),
        waiting => tracing::warn!("changed settings need a restart: {}", waiting.join(", ")),
    }
}

impl Apply for ConfigReload {
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems> {
        self.reloader.apply(local, remote)?;
        let Some(file) = self.reloader.file() else { return Ok(()) };
        if let Some(document) = remote.or(local) {
            self.rule_log.applied(Arc::clone(&file), document.clone());
        }
        self.apply_upstreams(&file);
        // Without a local file, its last settings stay.
        if let Some(local) = local {
            self.apply_tokens(local, &file);
            self.compare_settings(local);
        }
        Ok(())
    }

    fn rule_count(&self) -> Option<usize> {
        self.reloader.file().map(|file| file.rules.len())
    }

    fn loaded(&self, origin: Origin, name: &str) {
        self.rule_log.loaded(origin, name);
    }

    fn rejected(&self, error: &SourceError) {
        self.rule_log.rejected(error);
    }
}
