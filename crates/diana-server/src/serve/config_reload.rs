//! Applies rules, upstreams and routes when they change, and warns about changes that need a restart.

use diana::Reloader;
use diana_admin::{AdminSection, RuleLog};
use diana_config::{Apply, Origin, RemoteSection, SourceError};
use diana_gateway::UpstreamReload;
use diana_gateway::section::GatewaySection;
use diana_rules::file::StoreSection;
use diana_rules::section::SectionNotRegistered;
use diana_rules::upstream_url::Upstream;
use diana_rules::{Document, Problems, RuleFile};
use diana_services::ServicesSection;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Applies rules, upstreams and routes when they change, and logs which changed sections of the file need a restart.
#[derive(Debug)]
pub(super) struct ConfigReload {
    reloader: Arc<Reloader>,
    rule_log: Arc<RuleLog>,
    /// The sections as they were when the file was first read.
    started: Mutex<Option<StaticSections>>,
    /// The upstreams of the command line, which override those of the file.
    upstream: Vec<Upstream>,
    /// The running gateway.
    gateway: OnceLock<UpstreamReload>,
}

/// The sections of a file that are read only at start. `gateway` is without its upstreams and routes.
#[derive(Clone, Debug, PartialEq)]
struct StaticSections {
    gateway: Option<GatewaySection>,
    services: Option<ServicesSection>,
    admin: Option<AdminSection>,
    store: StoreSection,
    remote: Option<RemoteSection>,
}

impl StaticSections {
    fn of(file: &RuleFile) -> Result<Self, SectionNotRegistered> {
        Ok(Self {
            gateway: file
                .section::<GatewaySection>()?
                .map(|gateway| gateway.with_upstreams_of(&GatewaySection::default())),
            services: file.section()?.cloned(),
            admin: file.section()?.cloned(),
            store: file.store.clone(),
            remote: file.section()?.cloned(),
        })
    }

    /// Returns the sections that differ.
    fn changes(&self, other: &Self) -> Vec<&'static str> {
        let sections = [
            ("`gateway`", self.gateway != other.gateway),
            ("`services`", self.services != other.services),
            ("`admin`", self.admin != other.admin),
            ("`store`", self.store != other.store),
            ("`remote`", self.remote != other.remote),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl ConfigReload {
    pub(super) fn new(reloader: Arc<Reloader>, rule_log: Arc<RuleLog>, upstream: Vec<Upstream>) -> Arc<Self> {
        Arc::new(Self { reloader, rule_log, started: Mutex::default(), upstream, gateway: OnceLock::new() })
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
}

impl Apply for ConfigReload {
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems> {
        self.reloader.apply(local, remote)?;
        let Some(file) = self.reloader.file() else { return Ok(()) };
        if let Some(document) = remote.or(local) {
            self.rule_log.applied(Arc::clone(&file), document.clone());
        }
        self.apply_upstreams(&file);
        let now = match StaticSections::of(&file) {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!("rules loaded; {error}");
                return Ok(());
            }
        };
        let mut started = self.started.lock();
        let changes = started.get_or_insert_with(|| now.clone()).changes(&now);
        if !changes.is_empty() {
            tracing::warn!("rules loaded; changes in {} need a restart", changes.join(", "));
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
