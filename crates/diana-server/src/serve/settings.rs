//! The changed fields of the file: those that apply at once, and those that wait for a restart.
//!
//! The fields of the file are compared one by one with those that the program was started with. A field that differs
//! waits if a start with only this field changed would have other settings: another spelling of the same value, or a
//! field that the command line overrides, does not.
//!
//! # What always holds (settings/tests.rs)
//! - Every field of the schema is in [`LIVE_FIELDS`], or is reported as waiting when it changes.
//! - A field that is changed back no longer waits.
//! - Only paths are reported, no values.

mod tree;

use super::{ServeError, ServeOptions};
use diana_admin::{AdminSection, SettingsStatus};
use diana_config::RemoteSection;
use diana_gateway::section::GatewaySection;
use diana_rules::document::Node;
use diana_rules::file::StoreSection;
use diana_rules::section::SectionNotRegistered;
use diana_rules::{Document, Registry, RuleFile};
use diana_services::ServicesSection;
use std::fmt;

/// The fields that apply without a restart, with all that is below them.
pub const LIVE_FIELDS: [&str; 17] = [
    "version",
    "revision",
    "identity",
    "log",
    "log_keys",
    "top_keys",
    "status",
    "answer",
    "permissions",
    "rules",
    "gateway.upstream",
    "gateway.routes",
    "gateway.balance",
    "gateway.health",
    "gateway.retries",
    "admin.token",
    "admin.tokens",
];
/// The live fields that are not reported as applied: rules have their own log.
const OF_RULES: [&str; 3] = ["version", "revision", "rules"];

/// The settings that the program was started with.
pub(super) struct Settings {
    options: ServeOptions,
    registry: Registry,
    /// The document, without its rules.
    document: Node,
    sections: StaticSections,
}

/// The settings that are read only at the start: the sections without their live fields.
#[derive(Clone, Debug, PartialEq)]
struct StaticSections {
    gateway: GatewaySection,
    services: ServicesSection,
    admin: AdminSection,
    store: StoreSection,
    remote: Option<RemoteSection>,
}

impl StaticSections {
    fn of(file: &RuleFile) -> Result<Self, SectionNotRegistered> {
        let mut admin = file.section_or_default::<AdminSection>()?;
        (admin.token, admin.tokens) = (None, Vec::new());
        Ok(Self {
            gateway: file.section_or_default::<GatewaySection>()?.with_upstreams_of(&GatewaySection::default()),
            services: file.section_or_default()?,
            admin,
            store: file.store.clone(),
            remote: file.section()?.cloned(),
        })
    }

    /// Returns the names of the sections that differ.
    fn differing_from(&self, other: &Self) -> Vec<&'static str> {
        let sections = [
            ("gateway", self.gateway != other.gateway),
            ("services", self.services != other.services),
            ("admin", self.admin != other.admin),
            ("store", self.store != other.store),
            ("remote", self.remote != other.remote),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// The path of a field, and its new value; `None` if it was removed.
type Change<'a> = (Vec<&'a str>, Option<&'a Node>);

impl Settings {
    /// Creates the settings of a start with this document and this file, which has the overrides of the command line.
    pub(super) fn new(options: &ServeOptions, document: &Document, file: &RuleFile) -> Result<Self, ServeError> {
        let sections = StaticSections::of(file)?;
        let document = parse(document).ok_or(ServeError::Sources("the file has changed meanwhile".to_owned()))?;
        Ok(Self { options: options.clone(), registry: crate::registry(), document, sections })
    }

    /// Compares a valid document with the settings of the start.
    pub(super) fn compare(&self, document: &Document) -> SettingsStatus {
        let Some(now) = parse(document) else { return SettingsStatus::default() };
        let mut status = SettingsStatus::default();
        let mut differing = Vec::new();
        self.collect(&[], Some(&self.document), Some(&now), &mut differing);
        // The upstreams stay if the whole section is removed, so that a mistake does not stop the traffic.
        let has_gateway = tree::get(&now, "gateway").is_some();
        let (live, fixed): (Vec<_>, Vec<_>) = differing.into_iter().partition(|(path, _)| is_live(&path.join(".")));
        for (path, _) in live {
            let name = path.join(".");
            if name.starts_with("gateway.") && !has_gateway {
                status.waiting.push(name);
            } else if !OF_RULES.contains(&&*name) {
                status.applied.push(name);
            }
        }
        let has_effect = |change: &&Change<'_>| {
            self.sections_with(std::slice::from_ref(*change)).is_none_or(|alone| alone != self.sections)
        };
        let mut waiting = fixed.iter().filter(has_effect).cloned().collect::<Vec<_>>();
        let wanted = self.sections_of(&now);
        // Fields that have an effect only together, and a section whose presence has one.
        if self.sections_with(&waiting) != wanted {
            waiting.clone_from(&fixed);
        }
        status.waiting.extend(waiting.iter().map(|(path, _)| path.join(".")));
        if let (Some(wanted), Some(reported)) = (wanted, self.sections_with(&waiting)) {
            status.waiting.extend(wanted.differing_from(&reported).into_iter().map(str::to_owned));
        }
        status
    }

    /// Collects the paths that differ, each as deep as it can be changed alone, with their new values.
    fn collect<'a>(&self, path: &[&'a str], old: Option<&'a Node>, new: Option<&'a Node>, diff: &mut Vec<Change<'a>>) {
        if tree::is_same(old, new) {
            return;
        }
        let (Some(old_entries), Some(new_entries)) = (tree::entries(old), tree::entries(new)) else {
            diff.push((path.to_vec(), new));
            return;
        };
        if is_live(&path.join(".")) {
            diff.push((path.to_vec(), new));
            return;
        }
        let mut inner = Vec::new();
        let added = new_entries.iter().filter(|entry| old_entries.iter().all(|old| old.key != entry.key));
        for key in old_entries.iter().chain(added).map(|entry| &*entry.key) {
            let path = path.iter().copied().chain([key]).collect::<Vec<_>>();
            let child = |node: Option<&'a Node>| node.and_then(|node| tree::get(node, key));
            self.collect(&path, child(old), child(new), &mut inner);
        }
        // A map below a section, such as `gateway.tls`, may be valid only as a whole.
        let is_whole = path.len() > 1
            && (old_entries.is_empty() || new_entries.is_empty())
            && inner.iter().any(|change| self.sections_with(std::slice::from_ref(change)).is_none());
        if is_whole {
            diff.push((path.to_vec(), new));
        } else {
            diff.append(&mut inner);
        }
    }

    /// Returns the settings of a start with only these changes; `None` if it would fail.
    fn sections_with(&self, changes: &[Change<'_>]) -> Option<StaticSections> {
        let changed =
            changes.iter().fold(self.document.clone(), |document, (path, node)| tree::with(&document, path, *node));
        self.sections_of(&changed)
    }

    fn sections_of(&self, document: &Node) -> Option<StaticSections> {
        let mut file = RuleFile::read_tree(document, &self.registry)?;
        self.options.override_sections(&mut file).ok()?;
        StaticSections::of(&file).ok()
    }
}

impl fmt::Debug for Settings {
    /// Omits the document, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("sections", &self.sections).finish_non_exhaustive()
    }
}

fn is_live(name: &str) -> bool {
    LIVE_FIELDS.contains(&name)
}

/// Parses a document, with the variables of the environment; its rules are left out.
fn parse(document: &Document) -> Option<Node> {
    let tree = document.parse_with(|name| std::env::var(name).ok()).ok()?;
    Some(tree::with(&tree, &["rules"], Some(&tree::no_rules())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on should stop")]
mod tests;
