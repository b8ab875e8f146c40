//! Converts limits and their scopes to rules: one for each limit with its own counts, and for each kind of key.

use super::super::expression::Expression;
use super::super::rule::{Limit, Rule, RuleFile};
use super::super::{LARGEST, LONGEST_CONDITION};
use super::host::{Hosts, any_of};
use super::key::{Key, keys};
use super::limit::{Use, Zone, ZoneKind, bytes};
use super::location_set::{Item, Region, choices, condition, region};
use super::merge::{Made, merged, named};
use super::notes::Notes;
use super::scope::Http;
use super::syntax::Place;
use super::variable::{network, show};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of origins in a comment.
const MOST_ORIGINS: usize = 8;

/// Creates the rule file.
pub(super) fn convert(name: &str, http: &Http, notes: &mut Notes) -> RuleFile {
    let choices = http.servers.iter().map(|server| match server.returns {
        true => Vec::new(),
        false => choices(server, notes),
    });
    let choices = choices.collect::<Vec<_>>();
    let mut uses: BTreeMap<&Use, Vec<Site<'_>>> = BTreeMap::new();
    for (server, items) in choices.iter().enumerate() {
        for item in items {
            for (limit, said) in item.limits {
                uses.entry(limit).or_default().push(Site { server, item, said: *said });
            }
        }
    }
    let mut in_zone: BTreeMap<&str, usize> = BTreeMap::new();
    for limit in uses.keys() {
        *in_zone.entry(limit.zone().unwrap_or_default()).or_default() += 1;
    }
    let mut uses = uses.into_iter().collect::<Vec<_>>();
    uses.sort_by_key(|(_, sites)| sites.iter().map(|site| site.said).min());
    unused(http, &in_zone, notes);

    let mut converter = Converter { http, choices: &choices, hosts: Hosts::new(&http.servers), notes };
    let mut made = Vec::new();
    let mut written = 0;
    for (limit, sites) in &uses {
        for made_of in converter.rules(limit, sites) {
            let rule = &made_of.rule;
            let condition = rule.when.as_ref().map_or(0, String::len);
            written += condition + rule.allow.iter().map(String::len).sum::<usize>();
            if condition > LONGEST_CONDITION {
                let what = format!(
                    "not carried over: its condition would have {condition} bytes, and at most {LONGEST_CONDITION} are possible; write the rules by hand"
                );
                converter.notes.add(made_of.said, limit.directive(), what);
                continue;
            }
            made.push(made_of);
        }
        if written > LARGEST {
            let place = sites.first().map(|site| site.said).unwrap_or_default();
            let what = "not carried over, nor what follows: the rules grow too large";
            converter.notes.add(place, limit.directive(), what);
            break;
        }
    }
    let rules = named(merged(made, notes), notes);
    let header = vec![format!("Made from {name} by `diana import nginx`.")];
    let mut file = RuleFile { header, rules, ..RuleFile::default() };
    trusted_proxies(http, &mut file, notes);
    file
}

/// One use of a limit, in a server and a location.
#[derive(Clone, Copy, Debug)]
struct Site<'a> {
    server: usize,
    item: &'a Item<'a>,
    said: Place,
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
    fn rules<'b>(&mut self, limit: &'b Use, sites: &[Site<'b>]) -> Vec<Made<'b>> {
        self.try_rules(limit, sites).unwrap_or_default()
    }

    fn try_rules<'b>(&mut self, limit: &'b Use, sites: &[Site<'b>]) -> Option<Vec<Made<'b>>> {
        let first = sites.iter().min_by_key(|site| site.said)?;
        let servers = sites.iter().map(|site| site.server).collect::<BTreeSet<_>>();
        let directive = limit.directive();
        // The rule is named after the widest location.
        let label = sites.iter().map(|site| site.item.label).min_by_key(|label| label.len()).unwrap_or_default();
        let mut keys = vec![Key::default()];
        let mut rule = Rule { source: self.notes.source(first.said, directive), ..Rule::default() };
        match limit.zone() {
            Some(name) => {
                let zone = self.zone(name, limit, first.said)?;
                keys = self.keys(zone, limit, first.said, servers.len())?;
                let shown = self.notes.show(zone.place);
                rule.origins.push(format!("{shown}: {directive}_zone {}, zone {name}", zone.key));
                counted(&mut rule, limit, zone);
            }
            None => counted_by_request(&mut rule, limit),
        }
        let (hosts, paths, when) = self.place(limit, &servers, first.said)?;
        rule.hosts = hosts;
        rule.paths = paths;
        self.origins(&mut rule, limit, sites);
        let is_one_of_several = keys.len() > 1;
        let mut made = Vec::new();
        for key in keys {
            let when = when.clone().and(key.condition.when);
            if when == Expression::False {
                self.notes.add(first.said, directive, "not carried over, since no rule could know its location");
                continue;
            }
            let mut rule = Rule { when: when.written(), ..rule.clone() };
            rule.allow = key.condition.allow;
            rule.ips = key.condition.ips;
            rule.methods = key.condition.methods;
            let kind = is_one_of_several.then(|| key.by.first().map_or("all", String::as_str).to_owned());
            if limit.zone().is_some() {
                rule.by = key.by;
            }
            let places = sites.iter().map(|site| (site.server, site.item.label)).collect();
            made.push(Made { rule, limit, label, kind, said: first.said, places });
        }
        Some(made)
    }

    fn zone(&mut self, name: &str, limit: &Use, said: Place) -> Option<&'a Zone> {
        let fits = |zone: &&Zone| matches!(limit, Use::Requests { .. }) == (zone.kind != ZoneKind::Connections);
        let zone = self.http.zones.get(name).filter(fits);
        if zone.is_none() {
            let directive = limit.directive();
            let what =
                format!("not carried over: no `{directive}_zone` here defines zone `{name}`; import the main file");
            self.notes.add(said, directive, what);
        }
        zone
    }

    fn keys(&mut self, zone: &Zone, limit: &Use, said: Place, servers: usize) -> Option<Vec<Key>> {
        let directive = format!("{}_zone", limit.directive());
        match keys(&zone.key, servers, &self.http.variables) {
            Ok(keys) => {
                for note in keys.iter().flat_map(|key| &key.notes) {
                    self.notes.add(zone.place, &directive, note);
                }
                Some(keys)
            }
            Err(problem) => {
                self.notes.add(zone.place, &directive, format!("not carried over: {problem}"));
                let what = "not carried over, since its zone is not";
                self.notes.add(said, limit.directive(), what);
                None
            }
        }
    }

    /// Returns the scope of a limit: hosts, paths, and a condition.
    fn place(
        &mut self,
        limit: &Use,
        servers: &BTreeSet<usize>,
        said: Place,
    ) -> Option<(Vec<String>, Vec<String>, Expression)> {
        let entangled = |problem: String, notes: &mut Notes| {
            notes.add(said, limit.directive(), format!("not carried over: {problem}; write the rules by hand"));
        };
        // Groups the servers in which the limit applies to the same paths.
        let mut regions: BTreeMap<Region, BTreeSet<usize>> = BTreeMap::new();
        for server in servers {
            match self.choices.get(*server).map_or(Ok(None), |items| region(items, limit)) {
                Ok(Some(region)) => {
                    regions.entry(region).or_default().insert(*server);
                }
                Ok(None) => {}
                Err(problem) => {
                    entangled(problem, self.notes);
                    return None;
                }
            }
        }
        self.same_name_elsewhere(servers);
        if regions.len() == 1 {
            let (Region { paths, when }, with) = regions.pop_first()?;
            let everywhere = paths.is_empty() && when == Expression::True;
            // Servers that always `return` have no locations here.
            let is_everyone =
                self.choices.iter().enumerate().all(|(index, items)| items.is_empty() || with.contains(&index));
            let (hosts, of_host) = match everywhere && is_everyone {
                true => (BTreeSet::new(), Expression::True),
                false => self.hosts_of(&with),
            };
            return Some((hosts.into_iter().collect(), paths, of_host.and(when)));
        }
        let mut when = Expression::False;
        for with in regions.values() {
            let (hosts, of_host) = self.hosts_of(with);
            let of_host = if hosts.is_empty() { of_host } else { any_of(&hosts, &BTreeSet::new()) };
            let items = with.first().and_then(|server| self.choices.get(*server)).map_or(&[][..], Vec::as_slice);
            match condition(items, limit) {
                Ok(condition) => when = when.or(of_host.and(condition)),
                Err(problem) => {
                    entangled(problem, self.notes);
                    return None;
                }
            }
        }
        Some((Vec::new(), Vec::new(), when))
    }

    /// Returns the hosts that reach the servers of `with`; adds a note if that depends on the port.
    fn hosts_of(&mut self, with: &BTreeSet<usize>) -> (BTreeSet<String>, Expression) {
        if self.hosts.is_by_port(with) {
            let catching = self.hosts.catching(with);
            let what = match catching.is_empty() {
                true => {
                    "Diana does not tell ports apart: its limits hold for its names only, but nginx also gives it what no name fits on its port; add hosts to `match.host` if need be"
                }
                false => {
                    "Diana does not tell ports apart: its limits hold on every port, for all hosts that no other server is called; give it a `server_name`, or add `match.host`"
                }
            };
            let noted = with.iter().filter(|index| match catching.is_empty() {
                true => self.hosts.is_default(**index),
                false => catching.contains(index),
            });
            for server in noted.filter_map(|index| self.http.servers.get(*index)) {
                self.notes.add(server.place, "server", what);
            }
        }
        self.hosts.of(with)
    }

    /// Notes servers with the same name that differ by port: rules don't distinguish ports.
    fn same_name_elsewhere(&mut self, servers: &BTreeSet<usize>) {
        for index in servers {
            let Some(server) = self.http.servers.get(*index) else { continue };
            if let Some(name) = self.hosts.also_elsewhere(*index, servers) {
                let what =
                    format!("another server is called `{name}` too and has other limits; rules don't tell ports apart");
                self.notes.add(server.place, "server", what);
            }
        }
    }

    fn origins(&self, rule: &mut Rule, limit: &Use, sites: &[Site<'_>]) {
        let mut lines = Vec::new();
        for site in sites {
            let line = format!("{}: {} in {}", self.notes.show(site.said), limit.directive(), site.item.described());
            if !lines.contains(&line) {
                lines.push(line);
            }
            if lines.len() > MOST_ORIGINS {
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
    let answer = match limit {
        Use::Requests { burst, delay, answer, .. } => {
            if let ZoneKind::Requests(rate) = &zone.kind {
                rule.limit = Limit::Leaky { rate: rate.clone(), burst: *burst, delay: *delay };
            }
            answer
        }
        Use::Connections { count, answer, .. } => {
            rule.limit = Limit::Concurrent(*count);
            answer
        }
        Use::Rate { .. } => return,
    };
    rule.shadow = answer.dry_run;
    // Diana's default status is 503, like nginx's.
    rule.status = Some(answer.status).filter(|status| *status != 503);
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
        let what = format!("not carried over: no `{directive}` that was carried over uses zone `{name}`");
        notes.info(zone.place, &format!("{directive}_zone"), what);
    }
}

/// Converts `set_real_ip_from`: the proxies that are trusted for the client's address.
fn trusted_proxies(http: &Http, file: &mut RuleFile, notes: &mut Notes) {
    let mut trusted = BTreeSet::new();
    for (from, place) in &http.real_ip_from {
        match network(from) {
            Some(network) => {
                trusted.insert(network);
            }
            None => {
                let what = format!("`{from}` not carried over: write its addresses into `gateway.trusted_proxies`");
                notes.add(*place, "set_real_ip_from", what);
            }
        }
    }
    file.trusted_proxies = trusted.iter().map(show).collect();
    let Some((_, first)) = http.real_ip_from.first() else { return };
    match &http.real_ip_header {
        Some((header, _)) if header.eq_ignore_ascii_case("x-forwarded-for") => {}
        Some((header, place)) => {
            let what = format!(
                "`{header}` not carried over: Diana reads `X-Forwarded-For` of trusted proxies; let them set it"
            );
            notes.add(*place, "real_ip_header", what);
        }
        None => {
            let what = "nginx reads `X-Real-IP` here, and Diana `X-Forwarded-For` of trusted proxies; let them set it";
            notes.add(*first, "set_real_ip_from", what);
        }
    }
}
