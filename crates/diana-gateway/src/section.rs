//! The section `gateway`: listeners and upstreams.
//!
//! # What always holds
//! - There is at least one listener: with TLS, without, or both.
//! - A client address that a proxy reports is trusted only if the proxy is in `trusted_proxies`; `proxy_protocol`
//!   without it is an error.
//! - Every timeout and every bound has a safe default.

mod describe;
mod health_check;
mod retry_policy;
mod route;
mod schema;
mod signed_requests;
mod upstream_group;

use diana_net::ServerSettings;
use diana_net::tls::{self, Tls};
pub use diana_net::{ClientBounds, Timeouts};
use diana_rules::document::{Node, Value};
use diana_rules::http_settings::{HttpSettings, SpellingPolicy};
use diana_rules::map_reader::MapReader;
use diana_rules::matching::first_route;
use diana_rules::{Attributes, Problem, Section, scalar};
pub use health_check::HealthCheck;
pub use retry_policy::{RetryOn, RetryPolicy};
pub use route::Route;
pub use signed_requests::Signature;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
pub use upstream_group::{Balance, UpstreamGroup, WeightedUpstream};

/// The listeners and upstreams.
///
/// ```
/// use diana_gateway::section::GatewaySection;
/// use diana_rules::attributes::SyntheticRequest;
/// use diana_rules::{Document, Registry, RuleFile};
///
/// let mut registry = Registry::default();
/// registry.section::<GatewaySection>();
/// let document = Document::new("diana.yaml", "
/// gateway:
///   upstream: http://127.0.0.1:3000
///   routes:
///     - match: {path: /v1/**}
///       upstream: [http://10.0.0.1, http://10.0.0.2]
/// rules: []
/// ");
/// let file = RuleFile::read(&document, &registry)?;
/// let gateway = file.section::<GatewaySection>()?.unwrap();
/// assert_eq!(gateway.route(&SyntheticRequest::new("GET", "/v1/users")), Some(0));
/// assert_eq!(gateway.route(&SyntheticRequest::new("GET", "/")), None);
/// assert_eq!(gateway.upstream.endpoints[0].upstream.to_string(), "http://127.0.0.1:3000");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GatewaySection {
    /// The addresses that accept connections without TLS; 127.0.0.1:8080 if neither this nor `tls` is set.
    pub listen: Vec<SocketAddr>,
    /// The listeners with TLS.
    pub tls: Option<Tls>,
    /// The upstreams of requests that match no route. Empty if Diana forwards nothing.
    pub upstream: UpstreamGroup,
    /// Whether requests without an upstream are answered with their own content, for experiments.
    pub echo: bool,
    /// A PEM file of certificates that are trusted for upstreams, in addition to the system's.
    pub upstream_ca: Option<PathBuf>,
    /// Upstreams for some hosts and paths; the first matching route is used.
    pub routes: Vec<Route>,
    /// The trusted proxies, the rate limit headers, and the accepted spellings of paths.
    pub http: HttpSettings,
    /// Whether every connection begins with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// The format of the access log.
    pub access_log: AccessLogFormat,
    /// The file of the access log; standard output if there is none.
    pub access_log_file: Option<PathBuf>,
    /// The signatures that requests must have; `None` if they need none.
    pub signature: Option<Signature>,
    /// The order of the filters, by their names; `limits` are Diana's own. Filters that are not named run last.
    pub filters: Vec<Box<str>>,
    /// The number of worker threads; one per core by default.
    pub workers: Option<NonZeroUsize>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds on what one client may send.
    pub bounds: ClientBounds,
    /// The spellings of methods that are accepted.
    pub methods: Methods,
}

/// The format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessLogFormat {
    /// No access log.
    #[default]
    Off,
    /// Human-readable lines.
    Text,
    /// JSON lines.
    Json,
}

/// The spellings of methods that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Methods {
    /// HTTP methods in another case, such as `post`. Denied by default, since services disagree on whether these are
    /// the same method.
    pub any_case: SpellingPolicy,
}

/// The default listener, which other machines can't reach.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The maximum number of threads: more than a machine has cores.
const MAX_WORKERS: u64 = 1_024;

/// The fields of `gateway`.
const FIELDS: [&str; 20] = [
    "listen",
    "upstream",
    "trusted_proxies",
    "tls",
    "upstream_ca",
    "routes",
    "echo",
    "proxy_protocol",
    "rate_limit_headers",
    "access_log",
    "signature",
    "filters",
    "workers",
    "timeouts",
    "bounds",
    "paths",
    "methods",
    "balance",
    "health",
    "retries",
];
/// The fields of `access_log`, if it is a map.
const ACCESS_LOG: [&str; 2] = ["format", "file"];
/// The fields of `methods`.
const METHODS: [&str; 1] = ["any_case"];

impl AccessLogFormat {
    const WORDS: [&str; 3] = ["off", "text", "json"];
    const ALL: [Self; 3] = [Self::Off, Self::Text, Self::Json];

    /// Parses a format, or a format and a file.
    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<(Self, Option<PathBuf>)> {
        let word = |node, what, problems: &mut Vec<Problem>| {
            scalar::word(node, what, &Self::WORDS, problems).map(|index| Self::ALL[index])
        };
        if !matches!(node.value, Value::Map(_)) {
            return Some((word(node, "`access_log`", problems)?, None));
        }
        let mut fields = MapReader::of(node, "`access_log`", ACCESS_LOG, problems)?;
        let format = fields.take("format").map_or(Some(Self::Text), |node| word(node, "`format`", problems));
        let file = fields.require("file", problems).and_then(|node| tls::pem_path(node, "file", problems));
        fields.finish(problems);
        Some((format?, Some(file?)))
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self { any_case: SpellingPolicy::Deny }
    }
}

impl Methods {
    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`methods`", METHODS, problems)?;
        let any_case = SpellingPolicy::parse(&mut fields, "any_case", problems);
        fields.finish(problems);
        Some(any_case.map_or_else(Self::default, |any_case| Self { any_case }))
    }
}

impl Default for GatewaySection {
    /// Listens on 127.0.0.1:8080, without an upstream.
    fn default() -> Self {
        Self {
            listen: vec![LISTEN],
            tls: None,
            upstream: UpstreamGroup::default(),
            echo: false,
            upstream_ca: None,
            routes: Vec::new(),
            http: HttpSettings::default(),
            proxy_protocol: false,
            access_log: AccessLogFormat::default(),
            access_log_file: None,
            signature: None,
            filters: Vec::new(),
            workers: None,
            timeouts: Timeouts::default(),
            bounds: ClientBounds::default(),
            methods: Methods::default(),
        }
    }
}

impl GatewaySection {
    /// Returns the index in [`routes`](Self::routes) of the first route that matches this request; if there is none,
    /// the request goes to [`upstream`](Self::upstream).
    pub fn route(&self, request: &dyn Attributes) -> Option<usize> {
        first_route(request, self.routes.iter().map(|route| &route.matches))
    }

    /// Returns the groups of upstreams: that of requests without a route, then those of the routes.
    pub fn upstream_groups(&self) -> impl Iterator<Item = &UpstreamGroup> {
        std::iter::once(&self.upstream).chain(self.routes.iter().map(|route| &route.upstream))
    }

    /// Returns how clients are served: what the services take over from the gateway.
    pub fn server_settings(&self) -> ServerSettings {
        let Self { http, bounds, timeouts, methods, .. } = self;
        ServerSettings::new(http.clone(), bounds.clone(), timeouts.clone(), methods.any_case)
            .proxy_protocol(self.proxy_protocol)
    }

    /// Returns these settings with the upstreams and routes of others: what can change while the gateway runs.
    #[must_use]
    pub fn with_upstreams_of(&self, other: &Self) -> Self {
        Self { upstream: other.upstream.clone(), routes: other.routes.clone(), ..self.clone() }
    }
}

impl Section for GatewaySection {
    const NAME: &'static str = "gateway";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`gateway`", FIELDS, problems)?;
        let has_tls = fields.peek("tls").is_some();
        let plain = fields.take("listen");
        // A file with only `tls` does not listen without TLS.
        let default = if has_tls { Vec::new() } else { vec![LISTEN] };
        let listen = plain.map_or(default, |node| scalar::listen(node, problems));
        let tls = fields.take("tls").and_then(|node| Tls::parse(node, problems));
        let secure = tls.iter().flat_map(|tls| &tls.listen);
        if let (Some(duplicate), Some(plain)) = (secure.into_iter().find(|address| is_among(address, &listen)), plain) {
            let problem = Problem::new(plain.span, format!("{duplicate} is used both with and without TLS"));
            problems.push(problem.expected("use another address for one of them"));
        }
        let upstream = fields.take("upstream");
        let upstream = UpstreamGroup::parse(upstream, &mut fields, problems);
        let echo = fields.take("echo").and_then(|node| scalar::flag(node, "`echo`", problems)).unwrap_or_default();
        let upstream_ca = fields.take("upstream_ca").and_then(|node| tls::pem_path(node, "upstream_ca", problems));
        let routes = fields.take("routes").map(|node| Route::parse_all(node, problems));
        let trusted = fields.peek("trusted_proxies").filter(|node| node.value != Value::Null);
        let http = HttpSettings::parse_fields(&mut fields, problems);
        let proxy_protocol = fields.take_entry("proxy_protocol").is_some_and(|entry| {
            let is_on = scalar::flag(&entry.node, "`proxy_protocol`", problems).unwrap_or_default();
            // A list that can't be read has been reported already.
            let has_no_trusted = trusted.is_none_or(|node| node.value == Value::List(Vec::new()));
            if is_on && has_no_trusted {
                let problem = Problem::new(entry.span, "`proxy_protocol` needs `trusted_proxies`");
                problems.push(problem.expected("add the load balancers, such as `trusted_proxies: [10.0.0.0/8]`"));
            }
            is_on
        });
        let access_log = fields.take("access_log").and_then(|node| AccessLogFormat::parse(node, problems));
        let (access_log, access_log_file) = access_log.unwrap_or_default();
        let signature = fields.take("signature").and_then(|node| Signature::parse(node, problems));
        let filters = fields.take("filters").map(|node| filters(node, problems));
        let workers = fields.take("workers");
        let workers = workers.and_then(|node| scalar::within(node, "`workers`", 1..=MAX_WORKERS, problems));
        let timeouts = fields.take("timeouts").and_then(|node| Timeouts::parse(node, problems));
        let bounds = fields.take("bounds").and_then(|node| ClientBounds::parse(node, problems));
        let methods = fields.take("methods").and_then(|node| Methods::parse(node, problems));
        fields.finish(problems);
        Some(Self {
            listen,
            tls,
            upstream,
            echo,
            upstream_ca,
            routes: routes.unwrap_or_default(),
            http,
            proxy_protocol,
            access_log,
            access_log_file,
            signature,
            filters: filters.unwrap_or_default(),
            workers: workers.and_then(|count| usize::try_from(count).ok()).and_then(NonZeroUsize::new),
            timeouts: timeouts.unwrap_or_default(),
            bounds: bounds.unwrap_or_default(),
            methods: methods.unwrap_or_default(),
        })
    }

    fn schema() -> serde_json::Value {
        schema::gateway()
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        self.listen.iter().chain(self.tls.iter().flat_map(|tls| &tls.listen)).copied().collect()
    }

    fn warnings(&self) -> Vec<(String, String)> {
        let first = self.filters.first().filter(|first| ***first != *"limits");
        let warning = first.map(|first| {
            let what = format!("the filter `{first}` runs before the limits: requests that it denies are not limited");
            (what, "begin `filters` with `limits`".to_owned())
        });
        warning.into_iter().collect()
    }

    fn http_settings(&self) -> Option<&HttpSettings> {
        Some(&self.http)
    }
}

/// Parses the order of the filters. Programs may have other filters than Diana's own, so their names are checked at start.
fn filters(node: &Node, problems: &mut Vec<Problem>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for node in scalar::at_least_one(node, "`filters`", problems) {
        let Some(name) = scalar::text(node, "`filters`", problems) else { continue };
        if names.iter().any(|known| **known == *name) {
            let problem = Problem::new(node.span, format!("duplicate filter `{name}`"));
            problems.push(problem.expected("remove one of them"));
        }
        names.push(name.into());
    }
    names
}

/// Returns `true` if two listeners would use the same address. Port 0 is a different port each time.
fn is_among(address: &SocketAddr, others: &[SocketAddr]) -> bool {
    address.port() != 0 && others.contains(address)
}
