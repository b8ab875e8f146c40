//! Converts limits and their scopes to rules: one for each limit with its own counts, and for each kind of key.

use super::host::{Hosts, any_of};
use super::key::{ZoneKey, keys};
use super::limit_directives::{DenialLog, Use, Zone, ZoneKind, bytes};
use super::location_set::{Item, LocationSet, choices, condition, location_set};
use super::lua::LuaLimit;
use super::map_and_geo::{format_network, network};
use super::merge::{ConvertedRule, merged, named};
use super::notes::Notes;
use super::scope::{Http, LevelLimit};
use super::syntax::Position;
use crate::expression::Expression;
use crate::rule_file::{Limit, Rule, RuleFile};
use crate::{MAX_CONDITION, MAX_OUTPUT};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of origins in a comment.
const MAX_ORIGINS: usize = 8;

/// Creates the rule file.
pub(super) fn convert(name: &str, http: &Http, notes: &mut Notes) -> RuleFile {
    let choices = http.servers.iter().map(|server| match server.returns {
        true => Vec::new(),
        false => choices(server, notes),
    });
    let choices = choices.collect::<Vec<_>>();
    let mut uses: BTreeMap<&Use, Vec<Occurrence<'_>>> = BTreeMap::new();
    for (server, items) in choices.iter().enumerate() {
        for item in items {
            for LevelLimit { limit, position, log } in item.limits {
                uses.entry(limit).or_default().push(Occurrence { server, item, position: *position, log: *log });
            }
        }
    }
    let mut in_zone: BTreeMap<&str, usize> = BTreeMap::new();
    for limit in uses.keys() {
        *in_zone.entry(limit.zone().unwrap_or_default()).or_default() += 1;
    }
    let mut uses = uses.into_iter().collect::<Vec<_>>();
    uses.sort_by_key(|(_, occurrences)| occurrences.iter().map(|occurrence| occurrence.position).min());
    unused(http, &in_zone, notes);
    larger_than_the_store(http, &in_zone, notes);

    let mut converter = Converter { http, choices: &choices, hosts: Hosts::new(&http.servers), notes };
    let mut rules = Vec::new();
    let mut written = 0;
    for (limit, occurrences) in &uses {
        for converted in converter.rules(limit, occurrences) {
            let rule = &converted.rule;
            let condition = rule.when.as_ref().map_or(0, String::len);
            written += condition + rule.allow.iter().map(String::len).sum::<usize>();
            if condition > MAX_CONDITION {
                let what = format!(
                    "not converted: its condition would have {condition} bytes, but the maximum is {MAX_CONDITION}; write the rules manually"
                );
                converter.notes.add(converted.position, limit.directive(), what);
                continue;
            }
            rules.push(converted);
        }
        if written > MAX_OUTPUT {
            let position = occurrences.first().map(|occurrence| occurrence.position).unwrap_or_default();
            let what = "not converted, like everything after it: the rules would be too large";
            converter.notes.add(position, limit.directive(), what);
            break;
        }
    }
    let rules = named(merged(rules, notes), notes);
    let header = vec![format!("Converted from {name} by `diana import nginx`.")];
    let mut file = RuleFile { header, rules, ..RuleFile::default() };
    trusted_proxies(http, &mut file, notes);
    file
}

/// One use of a limit, in a server and a location.
#[derive(Clone, Copy, Debug)]
struct Occurrence<'a> {
    server: usize,
    item: &'a Item<'a>,
    position: Position,
    log: DenialLog,
}

struct Converter<'a> {
    http: &'a Http,
    /// The locations of each server; empty for one that always `return`s.
    choices: &'a [Vec<Item<'a>>],
    hosts: Hosts<'a>,
    notes: &'a mut Notes,
}

impl<'a> Converter<'a> {
    /// Returns the rules of one limit: one, or one for each kind of key that its zone has.
    fn rules<'b>(&mut self, limit: &'b Use, occurrences: &[Occurrence<'b>]) -> Vec<ConvertedRule<'b>> {
        self.try_rules(limit, occurrences).unwrap_or_default()
    }

    fn try_rules<'b>(&mut self, limit: &'b Use, occurrences: &[Occurrence<'b>]) -> Option<Vec<ConvertedRule<'b>>> {
        let first = occurrences.iter().min_by_key(|occurrence| occurrence.position)?;
        let servers = occurrences.iter().map(|occurrence| occurrence.server).collect::<BTreeSet<_>>();
        let directive = limit.directive();
        // The rule is named after the widest location.
        let label = occurrences
            .iter()
            .map(|occurrence| occurrence.item.label)
            .min_by_key(|label| label.len())
            .unwrap_or_default();
        let mut keys = vec![ZoneKey::default()];
        let mut zone = None;
        let mut rule = Rule { source: self.notes.source(first.position, directive), ..Rule::default() };
        rule.log = self.log(limit, occurrences);
        match limit {
            Use::Requests { zone: name, .. } | Use::Connections { zone: name, .. } => {
                let known = self.zone(name, limit, first.position)?;
                keys = self.keys(known, limit, first.position, &servers)?;
                let shown = self.notes.show(known.position);
                rule.origins.push(format!("{shown}: {directive}_zone {}, zone {name}", known.key));
                counted(&mut rule, limit, known);
                zone = Some(known);
            }
            Use::Lua(lua) => {
                keys = self.keys_of_script(lua, first.position, servers.len())?;
                let shown = self.notes.show(first.position);
                rule.origins.push(format!("{shown}: {directive} {}, dictionary {}", lua.key, lua.dictionary));
                rule.limit = lua.limit.clone();
                rule.status = Some(lua.status).filter(|status| *status != 503);
            }
            Use::Rate { .. } => counted_by_request(&mut rule, limit),
        }
        let (hosts, paths, when) = self.scope(limit, &servers, first.position)?;
        rule.hosts = hosts;
        rule.paths = paths;
        self.origins(&mut rule, limit, occurrences);
        let is_one_of_several = keys.len() > 1;
        let mut rules = Vec::new();
        for key in keys {
            let when = when.clone().and(key.condition.when);
            if when == Expression::False {
                self.notes.add(first.position, directive, "not converted, since no rule can match its location");
                continue;
            }
            let mut rule = Rule { when: when.to_condition(), ..rule.clone() };
            rule.allow = key.condition.allow;
            rule.ips = key.condition.ips;
            rule.methods = key.condition.methods;
            let kind = is_one_of_several.then(|| key.by.first().map_or("all", String::as_str).to_owned());
            if limit.zone().is_some() {
                rule.by = key.by;
            }
            rule.memory = zone.and_then(|zone| zone.memory(&rule.by));
            let locations = occurrences.iter().map(|occurrence| (occurrence.server, occurrence.item.label)).collect();
            rules.push(ConvertedRule { rule, limit, label, kind, position: first.position, locations });
        }
        Some(rules)
    }

    fn zone(&mut self, name: &str, limit: &Use, position: Position) -> Option<&'a Zone> {
        let fits = |zone: &&Zone| matches!(limit, Use::Requests { .. }) == (zone.kind != ZoneKind::Connections);
        let zone = self.http.zones.get(name).filter(fits);
        if zone.is_none() {
            let directive = limit.directive();
            let what =
                format!("not converted: unknown zone `{name}`: no `{directive}_zone` defines it; import the main file");
            self.notes.add(position, directive, what);
        }
        zone
    }

    /// Returns the highest of nginx's levels, as a rule has one.
    fn log(&mut self, limit: &Use, occurrences: &[Occurrence<'_>]) -> Option<&'static str> {
        let highest = occurrences.iter().map(|occurrence| occurrence.log).max().unwrap_or_default();
        if let Some(other) = occurrences.iter().find(|occurrence| occurrence.log != highest) {
            let what = "its denials have different log levels in different locations; the rule has the highest";
            self.notes.info(other.position, limit.directive(), what);
        }
        highest.field()
    }

    fn keys_of_script(&mut self, limit: &LuaLimit, position: Position, servers: usize) -> Option<Vec<ZoneKey>> {
        let directive = limit.kind.module();
        match keys(&limit.key, servers, &self.http.variables) {
            Ok(keys) => {
                for note in keys.iter().flat_map(|key| &key.notes) {
                    self.notes.add(position, directive, note);
                }
                Some(keys)
            }
            Err(problem) => {
                self.notes.add(position, directive, format!("not converted: {problem}"));
                None
            }
        }
    }

    fn keys(&mut self, zone: &Zone, limit: &Use, at: Position, servers: &BTreeSet<usize>) -> Option<Vec<ZoneKey>> {
        let directive = format!("{}_zone", limit.directive());
        let is_named = |server: &usize| self.http.servers.get(*server).is_some_and(|server| server.names.is_written());
        if matches!(&*zone.key, "$server_name" | "${server_name}") && !servers.iter().any(is_named) {
            let what =
                "not converted: `$server_name` is empty without a `server_name`, and nginx does not count an empty key";
            self.notes.add(at, limit.directive(), what);
            return None;
        }
        match keys(&zone.key, servers.len(), &self.http.variables) {
            Ok(keys) => {
                for note in keys.iter().flat_map(|key| &key.notes) {
                    self.notes.add(zone.position, &directive, note);
                }
                Some(keys)
            }
            Err(problem) => {
                self.notes.add(zone.position, &directive, format!("not converted: {problem}"));
                let what = "not converted, since its zone is not";
                self.notes.add(at, limit.directive(), what);
                None
            }
        }
    }

    /// Returns the scope of a limit: hosts, paths, and a condition.
    fn scope(
        &mut self,
        limit: &Use,
        servers: &BTreeSet<usize>,
        position: Position,
    ) -> Option<(Vec<String>, Vec<String>, Expression)> {
        let too_complex = |problem: String, notes: &mut Notes| {
            notes.add(position, limit.directive(), format!("not converted: {problem}; write the rules manually"));
        };
        // Groups the servers in which the limit applies to the same paths.
        let mut location_sets: BTreeMap<LocationSet, BTreeSet<usize>> = BTreeMap::new();
        for server in servers {
            match self.choices.get(*server).map_or(Ok(None), |items| location_set(items, limit)) {
                Ok(Some(location_set)) => {
                    location_sets.entry(location_set).or_default().insert(*server);
                }
                Ok(None) => {}
                Err(problem) => {
                    too_complex(problem, self.notes);
                    return None;
                }
            }
        }
        self.same_name_elsewhere(servers);
        if location_sets.len() == 1 {
            let (LocationSet { paths, when }, with) = location_sets.pop_first()?;
            let everywhere = paths.is_empty() && when == Expression::True;
            // Servers that always `return` have no locations here.
            let is_every_server =
                self.choices.iter().enumerate().all(|(index, items)| items.is_empty() || with.contains(&index));
            let (hosts, host_condition) = match everywhere && is_every_server {
                true => (BTreeSet::new(), Expression::True),
                false => self.hosts_of(&with),
            };
            return Some((hosts.into_iter().collect(), paths, host_condition.and(when)));
        }
        let mut when = Expression::False;
        for with in location_sets.values() {
            let (hosts, host_condition) = self.hosts_of(with);
            let host_condition = if hosts.is_empty() { host_condition } else { any_of(&hosts, &BTreeSet::new()) };
            let items = with.first().and_then(|server| self.choices.get(*server)).map_or(&[][..], Vec::as_slice);
            match condition(items, limit) {
                Ok(condition) => when = when.or(host_condition.and(condition)),
                Err(problem) => {
                    too_complex(problem, self.notes);
                    return None;
                }
            }
        }
        Some((Vec::new(), Vec::new(), when))
    }

    /// Returns the hosts that reach the servers of `with`; adds a note if that depends on the port.
    fn hosts_of(&mut self, with: &BTreeSet<usize>) -> (BTreeSet<String>, Expression) {
        if self.hosts.is_by_port(with) {
            let catch_all = self.hosts.catch_all(with);
            let what = match catch_all.is_empty() {
                true => {
                    "rules don't distinguish ports: these limits apply only to the names of this server, but in nginx also to unknown hosts on its port; add hosts to `match.host` if needed"
                }
                false => {
                    "rules don't distinguish ports: these limits apply on every port, to all hosts that no other server names; add a `server_name`, or `match.host`"
                }
            };
            let servers = with.iter().filter(|index| match catch_all.is_empty() {
                true => self.hosts.is_default(**index),
                false => catch_all.contains(index),
            });
            for server in servers.filter_map(|index| self.http.servers.get(*index)) {
                self.notes.add(server.position, "server", what);
            }
        }
        self.hosts.matching(with)
    }

    /// Notes servers with the same name that differ by port: rules don't distinguish ports.
    fn same_name_elsewhere(&mut self, servers: &BTreeSet<usize>) {
        for index in servers {
            let Some(server) = self.http.servers.get(*index) else { continue };
            if let Some(name) = self.hosts.also_elsewhere(*index, servers) {
                let what = format!(
                    "another server has the name `{name}` too, with other limits; rules don't distinguish ports"
                );
                self.notes.add(server.position, "server", what);
            }
        }
    }

    fn origins(&self, rule: &mut Rule, limit: &Use, occurrences: &[Occurrence<'_>]) {
        let mut lines = Vec::new();
        for occurrence in occurrences {
            let line = format!(
                "{}: {} in {}",
                self.notes.show(occurrence.position),
                limit.directive(),
                occurrence.item.described()
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
            if lines.len() > MAX_ORIGINS {
                lines.pop();
                lines.push("and more".to_owned());
                break;
            }
        }
        rule.origins.extend(lines);
    }
}

/// Sets the limit of a zone.
fn counted(rule: &mut Rule, limit: &Use, zone: &Zone) {
    let denial = match limit {
        Use::Requests { burst, delay, denial, .. } => {
            if let ZoneKind::Requests(rate) = &zone.kind {
                rule.limit = Limit::Leaky { rate: rate.clone(), burst: *burst, delay: *delay };
            }
            denial
        }
        Use::Connections { count, denial, .. } => {
            rule.limit = Limit::Concurrent(*count);
            denial
        }
        Use::Rate { .. } | Use::Lua(_) => return,
    };
    rule.shadow = denial.dry_run;
    // Diana's default status is 503, like nginx's.
    rule.status = Some(denial.status).filter(|status| *status != 503);
}

/// Sets a byte rate, which applies to each response separately.
fn counted_by_request(rule: &mut Rule, limit: &Use) {
    if let Use::Rate { bytes: rate, after } = limit {
        rule.by = vec!["request".to_owned()];
        let after = Some(*after).filter(|after| *after > 0).map(bytes);
        rule.limit = Limit::Bandwidth { rate: format!("{}/s", bytes(*rate)), after };
    }
}

/// Notes unused zones.
fn unused(http: &Http, used: &BTreeMap<&str, usize>, notes: &mut Notes) {
    for (name, zone) in http.zones.iter().filter(|(name, _)| !used.contains_key(name.as_str())) {
        let directive = if zone.kind == ZoneKind::Connections { "limit_conn" } else { "limit_req" };
        let what = format!("not converted: no converted `{directive}` uses zone `{name}`");
        notes.info(zone.position, &format!("{directive}_zone"), what);
    }
}

/// The default `memory` of the store, in bytes.
const STORE_MEMORY: u64 = 64 << 20;

/// Notes zones that have more memory together than the store has by default, since rules only have a part of it.
fn larger_than_the_store(http: &Http, used: &BTreeMap<&str, usize>, notes: &mut Notes) {
    let zones = || http.zones.iter().filter(|(name, _)| used.contains_key(name.as_str())).map(|(_, zone)| zone);
    let size = zones().filter_map(|zone| zone.size).fold(0, u64::saturating_add);
    let Some(largest) = zones().max_by_key(|zone| zone.size).filter(|_| size > STORE_MEMORY) else { return };
    let directive = if largest.kind == ZoneKind::Connections { "limit_conn_zone" } else { "limit_req_zone" };
    let what = format!(
        "the zones have {} together, but all rules 64MiB by default, which is enough for some 2 million keys; for more, write `store: {{memory: {}}}`",
        bytes(size),
        bytes(size)
    );
    notes.info(largest.position, directive, what);
}

/// Converts `set_real_ip_from`: the proxies that are trusted for the client's address.
fn trusted_proxies(http: &Http, file: &mut RuleFile, notes: &mut Notes) {
    let mut trusted = BTreeSet::new();
    for (from, position) in &http.real_ip_from {
        match network(from) {
            Some(network) => {
                trusted.insert(network);
            }
            None => {
                let what = format!("`{from}` not converted: write its addresses into `gateway.trusted_proxies`");
                notes.add(*position, "set_real_ip_from", what);
            }
        }
    }
    file.trusted_proxies = trusted.iter().map(format_network).collect();
    let Some((_, first)) = http.real_ip_from.first() else { return };
    match &http.real_ip_header {
        Some((header, _)) if header.eq_ignore_ascii_case("x-forwarded-for") => {}
        Some((header, position)) => {
            let what = format!(
                "`{header}` not converted: Diana reads `X-Forwarded-For` of trusted proxies; configure them to set it"
            );
            notes.add(*position, "real_ip_header", what);
        }
        None => {
            let what =
                "nginx reads `X-Real-IP`, but Diana `X-Forwarded-For` of trusted proxies; configure them to set it";
            notes.add(*first, "set_real_ip_from", what);
        }
    }
}
