//! The program and the parts it depends on: sources of the rules, the shared store, certificates; and what is degraded.

use super::text::Text;
use super::{AdminState, seconds};
use crate::degraded::PartStatus;
use crate::{Phase, SnapshotStatus};
use diana::redis::{Health, LinkStatus};
use diana_config::{Origin, SourceStatus};
use diana_metrics::Kind;
use diana_net::tls::CertificateStatus;
use std::collections::BTreeMap;

/// Writes the version, the start time and the readiness of the program.
pub(super) fn program(text: &mut Text, state: &AdminState) {
    text.family("diana_build_info", Kind::Gauge, "The version of the program; always 1.");
    text.sample("diana_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = seconds(state.metrics.started());
    text.single("diana_start_time_seconds", Kind::Gauge, "When the program started, in Unix time.", started);
    let is_ready = u8::from(state.readiness.phase() == Phase::Ready);
    text.single("diana_ready", Kind::Gauge, "Whether the program accepts requests.", is_ready);
}

/// Writes the status of the sources of the rules.
pub(super) fn source(text: &mut Text, status: &SourceStatus) {
    text.family("diana_rules_source", Kind::Gauge, "1 for the source of the active rules.");
    for (origin, name) in [(Origin::Local, "local"), (Origin::Remote, "remote"), (Origin::LastGood, "last_good")] {
        text.sample("diana_rules_source", &[("origin", name)], u8::from(status.active == origin));
    }
    if status.has_remote {
        let help = "Whether the config server answered the last request.";
        text.single("diana_rules_remote_up", Kind::Gauge, help, u8::from(status.connected));
    }
    let help = "Whether loading rules currently fails; the rules loaded before stay active.";
    text.single("diana_rules_failing", Kind::Gauge, help, u8::from(!status.failing.is_empty()));
    let help = "When rules were last loaded, in Unix time.";
    text.single("diana_rules_loaded_time_seconds", Kind::Gauge, help, seconds(status.since));
    text.single("diana_rules_loads_total", Kind::Counter, "Successful loads of rules.", status.loads);
    let help = "Failed loads of rules: unreachable source, or invalid rules.";
    text.single("diana_rules_errors_total", Kind::Counter, help, status.errors);
}

/// Writes the status of the shared store.
pub(super) fn store(text: &mut Text, link: &LinkStatus) {
    let is_up = u8::from(link.health == Health::Healthy);
    text.single("diana_store_up", Kind::Gauge, "Whether the shared store responds.", is_up);
    let help = "Instances that share the store.";
    text.single("diana_store_instances", Kind::Gauge, help, link.instances);
    let help = "By how much the clocks of Redis and of this process changed beside each other.";
    text.single("diana_store_clock_difference_seconds", Kind::Gauge, help, link.clock_difference.as_secs_f64());
    let help = "Commands sent to the store for requests.";
    text.single("diana_store_commands_total", Kind::Counter, help, link.commands);
    text.single("diana_store_waits_total", Kind::Counter, "Requests that waited for the store.", link.waits);
    text.family("diana_store_saved_total", Kind::Counter, "Requests decided without their own round trip, by cause.");
    let saved = [
        ("deny_cache", link.saved_by_deny_cache),
        ("leases", link.saved_by_leases),
        ("batching", link.saved_by_batching),
    ];
    for (by, count) in saved {
        text.sample("diana_store_saved_total", &[("by", by)], count);
    }
    text.single("diana_store_leased", Kind::Gauge, "Permits leased by this instance.", link.leased);
    let help = "Limits whose newer configuration was adopted from another instance.";
    text.single("diana_store_adopted_limits", Kind::Gauge, help, link.adopted);
}

/// Writes when the counts of this process were last saved.
pub(super) fn snapshot(text: &mut Text, status: &SnapshotStatus) {
    let help = "When the counts of this process were last saved, in Unix time.";
    text.single("diana_snapshot_saved_time_seconds", Kind::Gauge, help, seconds(status.saved));
    text.single("diana_snapshot_keys", Kind::Gauge, "Keys in the last snapshot.", status.keys);
    let help = "Snapshots that could not be written.";
    text.single("diana_snapshot_errors_total", Kind::Counter, help, status.errors);
}

/// Writes which parts are degraded, and since when.
pub(super) fn degraded(text: &mut Text, parts: &[PartStatus]) {
    if parts.is_empty() {
        return;
    }
    let help = "Whether a part that is configured does not work: 1 while requests are decided without it.";
    text.family("diana_degraded", Kind::Gauge, help);
    for part in parts {
        text.sample("diana_degraded", &[("part", part.name)], u8::from(part.failure.is_some()));
    }
    let help = "Since when a part does not work, in Unix time; 0 if it works.";
    text.family("diana_degraded_since_seconds", Kind::Gauge, help);
    for part in parts {
        let since = part.failure.as_ref().map_or(0.0, |failure| seconds(failure.since));
        text.sample("diana_degraded_since_seconds", &[("part", part.name)], since);
    }
}

/// Writes when each active certificate expires.
pub(super) fn certificates(text: &mut Text, certificates: &[(&'static str, CertificateStatus)]) {
    if certificates.is_empty() {
        return;
    }
    // Two certificates of a listener may have the same name, for different algorithms: the first to expire counts.
    let mut first = BTreeMap::new();
    for (listener, certificate) in certificates {
        let name = certificate.names.first().map_or("", String::as_str);
        let not_after = first.entry((*listener, name)).or_insert(certificate.not_after);
        *not_after = certificate.not_after.min(*not_after);
    }
    let name = "diana_certificate_not_after_time_seconds";
    let help = "When the TLS certificate of a listener expires, in Unix time, by its first name.";
    text.family("diana_certificate_not_after_time_seconds", Kind::Gauge, help);
    for ((listener, first_name), not_after) in first {
        text.sample(name, &[("listener", listener), ("name", first_name)], seconds(not_after));
    }
}
