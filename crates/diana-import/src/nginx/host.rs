//! The requests that reach a server: its names, and whether it is a default server.
//!
//! nginx selects by port first and then by name, so each port has a default server for hosts that match no name. Rules
//! know hosts but no ports. If a limit applies to all default servers, or to none, hosts alone describe it. Otherwise
//! the names of its servers describe it, so that the limits of one port don't apply to all others; servers without
//! names get the hosts that no server has as a name, on any port.

use super::scope::Server;
use crate::expression::{Expression, HOST, unsupported_regex};
use crate::rule_file::is_plain_host;
use std::collections::{BTreeMap, BTreeSet};

/// The names of a server, as `server_name` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Plain names, and `*.name`.
    pub(super) plain: BTreeSet<String>,
    /// Names that host globs can't express.
    pub(super) others: BTreeSet<Expression>,
    /// Whether one of them is a name, and not only a pattern, which may match anything.
    has_name: bool,
    /// Whether there is any, such as `_`: without one, `$server_name` is empty.
    is_written: bool,
}

impl Names {
    /// Adds a name; fails with the reason.
    pub(super) fn add(&mut self, name: &str) -> Result<(), String> {
        self.is_written |= !name.is_empty();
        if let Some(pattern) = name.strip_prefix('~') {
            if let Some(problem) = unsupported_regex(pattern) {
                return Err(format!("`{name}` not converted: {problem}; rewrite it, or list the names"));
            }
            self.others.insert(Expression::matches(HOST, pattern));
        } else if name.contains('$') {
            return Err(format!("`{name}` not converted: write its value into `match.host`"));
        } else if name.chars().all(|c| matches!(c, '_' | '-')) {
            // Names such as `_` are not hosts; they are a convention for a server that no host should match.
            return Ok(());
        } else if let Some(beginning) = name.strip_suffix(".*") {
            self.others.insert(Expression::starts_with(HOST, &format!("{beginning}.").to_lowercase()));
        } else if let Some(rest) = name.strip_prefix('.') {
            self.insert(rest.to_lowercase());
            self.insert(format!("*.{rest}").to_lowercase());
        } else {
            self.insert(name.to_lowercase());
        }
        self.has_name |= !name.starts_with('~');
        Ok(())
    }

    /// nginx accepts any text as a name; a rule's field does not.
    fn insert(&mut self, name: String) {
        match is_plain_host(name.strip_prefix("*.").unwrap_or(&name)) {
            true => _ = self.plain.insert(name),
            false => _ = self.others.insert(any_of(&BTreeSet::from([name]), &BTreeSet::new())),
        }
    }

    /// Returns `true` if the server has a name, even one that is no host.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.others.is_empty()
    }

    /// Returns a condition for a host that is one of them.
    pub(super) fn expression(&self) -> Expression {
        any_of(&self.plain, &self.others)
    }
}

/// Returns a condition for a host that is one of these names.
pub(super) fn any_of(plain: &BTreeSet<String>, others: &BTreeSet<Expression>) -> Expression {
    let (ends, whole): (Vec<_>, Vec<_>) = plain.iter().cloned().partition(|name| name.starts_with("*."));
    let whole = Expression::one_of(HOST, &whole);
    let ends = ends.iter().map(|name| Expression::ends_with(HOST, name.trim_start_matches('*')));
    ends.chain(others.iter().cloned()).fold(whole, Expression::or)
}

/// The mapping of hosts to servers.
#[derive(Debug)]
pub(super) struct Hosts<'a> {
    servers: &'a [Server],
    /// The default server of each port: the one marked as such, or the first.
    defaults: BTreeMap<&'a str, usize>,
    /// The servers with each name, except those that always `return`.
    named: BTreeMap<&'a str, BTreeSet<usize>>,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(servers: &'a [Server]) -> Self {
        let mut defaults = BTreeMap::new();
        let mut named: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, server) in servers.iter().enumerate() {
            for name in server.names.plain.iter().filter(|_| !server.returns) {
                named.entry(name).or_default().insert(index);
            }
            for (port, is_marked) in &server.ports {
                let first = *defaults.entry(port.as_str()).or_insert(index);
                let is_claimed = servers.get(first).is_some_and(|first| first.ports.get(port) == Some(&true));
                if *is_marked && !is_claimed {
                    defaults.insert(port, index);
                }
            }
        }
        Self { servers, defaults, named }
    }

    /// Returns whether a server is the default server of one of its ports.
    pub(super) fn is_default(&self, index: usize) -> bool {
        self.servers.get(index).is_some_and(|server| {
            server.names.is_empty() || server.ports.keys().any(|port| self.defaults.get(port.as_str()) == Some(&index))
        })
    }

    /// Returns whether a limit of the servers `with` depends on the port, for hosts that match no name.
    pub(super) fn is_by_port(&self, with: &BTreeSet<usize>) -> bool {
        // Servers that always `return` have no limits, and need none.
        let is_active = |index: &&usize| self.servers.get(**index).is_some_and(|server| !server.returns);
        let mut active = self.defaults.values().filter(is_active).map(|index| with.contains(index));
        active.next().is_some_and(|first| active.any(|other| other != first))
    }

    /// Returns the servers of `with` whose limits apply to hosts that match no name.
    pub(super) fn catch_all(&self, with: &BTreeSet<usize>) -> Vec<usize> {
        let is_by_port = self.is_by_port(with);
        let has_name = |index: usize| self.servers.get(index).is_some_and(|server| server.names.has_name);
        with.iter().copied().filter(|index| self.is_default(*index) && !(is_by_port && has_name(*index))).collect()
    }

    /// Returns the names that don't reach server `index`, except those of `with`: of servers on its ports, and of all
    /// that may have limits, since a name on another port means that server.
    fn elsewhere(&self, index: usize, with: &BTreeSet<usize>) -> Expression {
        let Some(server) = self.servers.get(index) else { return Expression::False };
        let shares = |other: &Server| other.ports.keys().any(|port| server.ports.contains_key(port));
        // A pattern may match anything, so servers with patterns only take nothing away from other ports.
        let has_limits = |other: &Server| !other.returns && other.names.has_name;
        let (mut plain, mut others) = (BTreeSet::new(), BTreeSet::new());
        for (number, other) in self.servers.iter().enumerate() {
            if !with.contains(&number) && (shares(other) || has_limits(other)) {
                plain.extend(other.names.plain.iter().cloned());
                others.extend(other.names.others.iter().cloned());
            }
        }
        for names in with.iter().filter_map(|index| self.servers.get(*index)).map(|server| &server.names) {
            names.plain.iter().for_each(|name| _ = plain.remove(name));
            names.others.iter().for_each(|name| _ = others.remove(name));
        }
        any_of(&plain, &others)
    }

    /// Returns a name of server `index` that a server outside of `with` also has, unless that one always `return`s.
    pub(super) fn also_elsewhere(&self, index: usize, with: &BTreeSet<usize>) -> Option<&'a str> {
        let is_elsewhere = |name: &&String| {
            self.named.get(name.as_str()).is_some_and(|servers| servers.iter().any(|server| !with.contains(server)))
        };
        self.servers.get(index)?.names.plain.iter().find(is_elsewhere).map(String::as_str)
    }

    /// Returns the hosts that reach the servers of `with`: as names if these suffice, else as a condition.
    pub(super) fn matching(&self, with: &BTreeSet<usize>) -> (BTreeSet<String>, Expression) {
        let catch_all = self.catch_all(with).into_iter();
        let elsewhere = catch_all.map(|index| self.elsewhere(index, with)).collect::<BTreeSet<_>>();
        if !elsewhere.is_empty() {
            // A host of a server that always `return`s on one port still reaches this server on the other.
            return (BTreeSet::new(), elsewhere.into_iter().fold(Expression::True, Expression::and).not());
        }
        let servers = with.iter().filter_map(|index| self.servers.get(*index));
        if servers.clone().all(|server| server.names.others.is_empty()) {
            return (servers.flat_map(|server| server.names.plain.iter().cloned()).collect(), Expression::True);
        }
        (BTreeSet::new(), servers.fold(Expression::False, |any, server| any.or(server.names.expression())))
    }
}
