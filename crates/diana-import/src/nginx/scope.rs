//! The limits of http, servers and locations, with inheritance.
//!
//! In nginx a level inherits the limits of the outer one only if it has none of its own of that kind; statuses and
//! rates are inherited one by one. `return` responds before any limit is evaluated, so a level that returns has none.

use super::host::Names;
use super::limit_directives::{Denial, DenialLog, Use, Zone, limit_conn, limit_req, size, zone};
use super::lua;
use super::map_and_geo::Variables;
use super::notes::Notes;
use super::syntax::{Directive, Position};
use super::unsupported::{BlockKind, access, has_values, is_limit, rewrites, without_rule};
use crate::MAX_COUNT;
use std::collections::BTreeMap;

/// The contents of `http`.
#[derive(Debug, Default)]
pub(super) struct Http {
    pub(super) zones: BTreeMap<String, Zone>,
    pub(super) variables: Variables,
    pub(super) servers: Vec<Server>,
    /// `set_real_ip_from`, and the header that is trusted.
    pub(super) real_ip_from: Vec<(String, Position)>,
    pub(super) real_ip_header: Option<(String, Position)>,
}

/// One `server`.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) names: Names,
    /// Each port, and whether the server is marked as its default.
    pub(super) ports: BTreeMap<String, bool>,
    pub(super) limits: Limits,
    pub(super) locations: Vec<Location>,
    /// Whether it always `return`s.
    pub(super) returns: bool,
    pub(super) position: Position,
}

/// One `location`.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) kind: LocationKind,
    pub(super) text: String,
    pub(super) limits: Limits,
    pub(super) nested: Vec<Location>,
    pub(super) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocationKind {
    Prefix,
    /// `^~`: regular expressions are not tried.
    PrefixFirst,
    Exact,
    Regex,
    /// `~*`
    RegexAnyCase,
}

/// The limits of a level.
pub(super) type Limits = Vec<LevelLimit>;

/// One limit of a level.
#[derive(Clone, Debug)]
pub(super) struct LevelLimit {
    pub(super) limit: Use,
    pub(super) position: Position,
    pub(super) log: DenialLog,
}

/// The settings of a level, its own or inherited.
#[derive(Clone, Debug, Default)]
struct Level {
    requests: Vec<(Use, Position)>,
    connections: Vec<(Use, Position)>,
    request_denial: Denial,
    connection_denial: Denial,
    request_log: DenialLog,
    connection_log: DenialLog,
    /// The limits of scripts, for each phase that has a script: a level inherits a phase only without its own script.
    scripts: BTreeMap<String, Vec<(Use, Position)>>,
    rate: Option<(u64, Position)>,
    after: u64,
}

/// Reads the whole configuration. Without an `http`, as in a file of a site, the file itself is treated as its content.
pub(super) fn read(directives: &[Directive], notes: &mut Notes) -> Http {
    let mut reader = Reader { http: Http::default(), notes, remaining: MAX_COUNT };
    let blocks = directives.iter().filter(|directive| directive.name == "http").collect::<Vec<_>>();
    if blocks.is_empty() {
        reader.http(directives);
        reader.fragment(directives);
    }
    for block in blocks {
        reader.http(block.inside());
    }
    for stream in directives.iter().filter(|directive| directive.name == "stream") {
        reader.note_unsupported(stream.inside(), "it applies to TCP or UDP streams, but Diana limits HTTP requests");
    }
    reader.http
}

struct Reader<'a> {
    http: Http,
    notes: &'a mut Notes,
    /// The number of further limits and locations that are accepted.
    remaining: usize,
}

impl Reader<'_> {
    fn http(&mut self, directives: &[Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                "limit_req_zone" | "limit_conn_zone" => self.zone(directive),
                "map" | "geo" => self.http.variables.add(directive),
                _ => {}
            }
        }
        let level = self.level(&Level::default(), directives);
        for upstream in directives.iter().filter(|directive| directive.name == "upstream") {
            self.note_unsupported(
                upstream.inside(),
                "it limits requests to one upstream; write a rule with its numbers",
            );
        }
        for directive in directives.iter().filter(|directive| directive.name == "server" && directive.block.is_some()) {
            self.server(&level, directive.inside(), directive.position);
        }
        // A file that is included into a server has locations at its top level.
        if let Some(first) = directives.iter().find(|directive| directive.name == "location") {
            self.server(&Level::default(), directives, first.position);
        }
    }

    /// Reads a file that is included into a server, and has only limits.
    fn fragment(&mut self, directives: &[Directive]) {
        let has_blocks = directives.iter().any(|directive| ["server", "location"].contains(&directive.name.as_str()));
        let is_use =
            |name: &str| ["limit_req", "limit_conn", "limit_rate"].contains(&name) || lua::phase(name).is_some();
        let first = directives.iter().find(|directive| is_use(&directive.name));
        if let Some(first) = first.filter(|_| !has_blocks) {
            self.server(&Level::default(), directives, first.position);
        }
    }

    fn zone(&mut self, directive: &Directive) {
        match zone(directive) {
            Ok((name, zone)) => {
                if directive.args.iter().any(|arg| arg == "sync") {
                    let what = "`sync` is not needed: give the file a `store` with `redis`, which all instances share";
                    self.notes.info(directive.position, &directive.name, what);
                }
                self.http.zones.insert(name, zone);
            }
            Err(problem) => self.not_converted(directive, &problem),
        }
    }

    fn server(&mut self, outer: &Level, directives: &[Directive], position: Position) {
        if self.remaining == 0 {
            return self.too_many(position);
        }
        self.remaining -= 1;
        let level = self.level(outer, directives);
        let returns = returns(directives);
        let limits = if returns { Vec::new() } else { self.limits(&level, position) };
        let locations = if returns { Vec::new() } else { self.locations(&level, directives) };
        if !limits.is_empty() || any_limited(&locations) {
            rewrites(directives, BlockKind::Server, self.notes);
        }
        let mut names = Names::default();
        let mut ports = BTreeMap::new();
        for directive in directives {
            match directive.name.as_str() {
                "server_name" => directive.args.iter().for_each(|name| {
                    if let Err(problem) = names.add(name) {
                        self.notes.add(directive.position, "server_name", problem);
                    }
                }),
                "listen" => {
                    let port = directive.arg(0).rsplit(':').next().unwrap_or_default();
                    let port = if port.bytes().all(|byte| byte.is_ascii_digit()) { port } else { "80" };
                    let is_default = directive.args.iter().any(|arg| arg == "default_server" || arg == "default");
                    *ports.entry(port.to_owned()).or_default() |= is_default;
                }
                _ => {}
            }
        }
        if ports.is_empty() {
            ports.insert("80".to_owned(), false);
        }
        self.http.servers.push(Server { names, ports, limits, locations, returns, position });
    }

    fn locations(&mut self, outer: &Level, directives: &[Directive]) -> Vec<Location> {
        let mut locations = Vec::new();
        for directive in directives.iter().filter(|directive| directive.name == "location") {
            let (kind, text) = match (directive.arg(0), directive.args.get(1)) {
                ("=", Some(text)) => (LocationKind::Exact, text.as_str()),
                ("^~", Some(text)) => (LocationKind::PrefixFirst, text.as_str()),
                ("~", Some(text)) => (LocationKind::Regex, text.as_str()),
                ("~*", Some(text)) => (LocationKind::RegexAnyCase, text.as_str()),
                // nginx also accepts them without a space.
                (text, _) => match text.get(..1).zip(text.get(1..)) {
                    Some(("=", rest)) => (LocationKind::Exact, rest),
                    Some(("~", rest)) => match rest.strip_prefix('*') {
                        Some(rest) => (LocationKind::RegexAnyCase, rest),
                        None => (LocationKind::Regex, rest),
                    },
                    _ => match text.strip_prefix("^~") {
                        Some(rest) => (LocationKind::PrefixFirst, rest),
                        None => (LocationKind::Prefix, text),
                    },
                },
            };
            if text.starts_with('@') {
                self.note_unsupported(
                    directive.inside(),
                    "a named location is only reached internally; limit the locations that lead to it",
                );
                access(directive.inside(), self.notes);
                continue;
            }
            if self.remaining == 0 {
                self.too_many(directive.position);
                break;
            }
            self.remaining -= 1;
            let level = self.level(outer, directive.inside());
            let limits = if returns(directive.inside()) { Vec::new() } else { self.limits(&level, directive.position) };
            let nested = self.locations(&level, directive.inside());
            locations.push(Location { kind, text: text.to_owned(), limits, nested, position: directive.position });
        }
        locations
    }

    /// Returns the settings of a level, with those that it inherits.
    fn level(&mut self, outer: &Level, directives: &[Directive]) -> Level {
        let mut level = outer.clone();
        // Only the level itself has its content handler.
        level.scripts.remove("content_by_lua");
        let (mut requests, mut connections, mut scripts) = (Vec::new(), Vec::new(), BTreeMap::new());
        for directive in directives {
            let position = directive.position;
            match directive.name.as_str() {
                "limit_req" => match limit_req(directive) {
                    Ok(limit) => requests.push((limit, position)),
                    Err(problem) => self.not_converted(directive, &problem),
                },
                "limit_conn" => match limit_conn(directive) {
                    Ok(limit) => connections.push((limit, position)),
                    Err(problem) => self.not_converted(directive, &problem),
                },
                "limit_req_status" => self.status(directive, &mut level.request_denial),
                "limit_conn_status" => self.status(directive, &mut level.connection_denial),
                "limit_req_dry_run" => level.request_denial.dry_run = directive.arg(0) == "on",
                "limit_conn_dry_run" => level.connection_denial.dry_run = directive.arg(0) == "on",
                "limit_rate" => match size(directive.arg(0)) {
                    Some(bytes) => level.rate = Some((bytes, position)),
                    None => self.not_converted(directive, &format!("unsupported rate `{}`", directive.arg(0))),
                },
                "limit_rate_after" => match size(directive.arg(0)) {
                    Some(bytes) => level.after = bytes,
                    None => self.not_converted(directive, &format!("unsupported size `{}`", directive.arg(0))),
                },
                "limit_req_zone" | "limit_conn_zone" => {}
                "limit_req_log_level" => self.log_level(directive, &mut level.request_log),
                "limit_conn_log_level" => self.log_level(directive, &mut level.connection_log),
                "limit_except" => {
                    let what = "not converted: access control, not a rate limit; deny methods at the upstream";
                    self.notes.add(position, "limit_except", what);
                }
                "set_real_ip_from" => self.http.real_ip_from.push((directive.arg(0).to_owned(), position)),
                "real_ip_header" => self.http.real_ip_header = Some((directive.arg(0).to_owned(), position)),
                "if" => self.note_unsupported(
                    directive.inside(),
                    "it applies only inside the `if`; write the condition as `match.when` of a rule",
                ),
                _ => {
                    if let Some(phase) = lua::phase(&directive.name) {
                        scripts.insert(phase.to_owned(), self.script(directive));
                    }
                    if let Some(reason) = without_rule(directive) {
                        self.not_converted(directive, reason);
                    }
                }
            }
        }
        if !requests.is_empty() {
            level.requests = requests;
        }
        if !connections.is_empty() {
            level.connections = connections;
        }
        level.scripts.extend(scripts);
        access(directives, self.notes);
        level
    }

    /// Returns the limits of a script, and notes what is not converted.
    fn script(&mut self, directive: &Directive) -> Vec<(Use, Position)> {
        if !lua::may_deny(directive) {
            return Vec::new();
        }
        match lua::limits(directive) {
            Ok(script) => {
                for (position, what) in script.differences {
                    self.notes.add(position, &directive.name, what);
                }
                for (position, what) in script.infos {
                    self.notes.info(position, &directive.name, what);
                }
                script.limits.into_iter().map(|(limit, position)| (Use::Lua(limit), position)).collect()
            }
            Err(problem) => {
                self.not_converted(directive, &problem);
                Vec::new()
            }
        }
    }

    /// Returns the limits of a level, with their responses.
    fn limits(&mut self, level: &Level, position: Position) -> Limits {
        let mut limits = Vec::new();
        let directives = level.requests.iter().chain(&level.connections);
        for (limit, position) in directives.chain(level.scripts.values().flatten()) {
            let mut limit = limit.clone();
            let mut log = DenialLog::default();
            match &mut limit {
                Use::Requests { denial, .. } => (*denial, log) = (level.request_denial, level.request_log),
                Use::Connections { denial, .. } => (*denial, log) = (level.connection_denial, level.connection_log),
                Use::Rate { .. } | Use::Lua(_) => {}
            }
            limits.push(LevelLimit { limit, position: *position, log });
        }
        if let Some((bytes, position)) = level.rate.filter(|(bytes, _)| *bytes > 0) {
            let limit = Use::Rate { bytes, after: level.after };
            limits.push(LevelLimit { limit, position, log: DenialLog::default() });
        }
        if limits.len() > self.remaining {
            self.too_many(position);
            limits.clear();
        }
        self.remaining -= limits.len();
        limits
    }

    fn status(&mut self, directive: &Directive, denial: &mut Denial) {
        match directive.arg(0).parse() {
            Ok(status @ 400..=599) => denial.status = status,
            _ => self.not_converted(directive, "the status must be from 400 to 599"),
        }
    }

    fn log_level(&mut self, directive: &Directive, log: &mut DenialLog) {
        match DenialLog::parse(directive.arg(0)) {
            Some(level) => *log = level,
            None => self.not_converted(directive, "the level must be `info`, `notice`, `warn` or `error`"),
        }
    }

    /// Notes the limits in a block that rules can't express.
    fn note_unsupported(&mut self, directives: &[Directive], reason: &str) {
        for directive in directives.iter().filter(|directive| !has_values(directive)) {
            if is_limit(directive) {
                self.not_converted(directive, reason);
            }
            self.note_unsupported(directive.inside(), reason);
        }
    }

    fn not_converted(&mut self, directive: &Directive, reason: &str) {
        self.notes.add(directive.position, &directive.name, format!("not converted: {reason}"));
    }

    fn too_many(&mut self, position: Position) {
        let what =
            format!("not converted, like everything after it: more than {MAX_COUNT} limits, locations and servers");
        self.notes.add(position, "limits", what);
    }
}

fn returns(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| directive.name == "return")
}

fn any_limited(locations: &[Location]) -> bool {
    locations.iter().any(|location| !location.limits.is_empty() || any_limited(&location.nested))
}
