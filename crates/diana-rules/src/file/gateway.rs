//! The section `gateway`: listeners and upstreams.
//!
//! # What always holds
//! - There is at least one listener: with TLS, without, or both.
//! - A client address that a proxy reports is trusted only if the proxy is in `trusted_proxies`; `proxy_protocol`
//!   without it is an error.
//! - Every timeout and every bound has a safe default.

mod limits;
mod observability;
mod route;
mod signature;
mod spelling;
mod timeouts;
mod tls;
mod upstream;

use crate::attributes::Attributes;
use crate::document::node::{Node, Value};
use crate::map_reader::MapReader;
use crate::matching::networks::Networks;
use crate::matching::{Looks, RequestView};
use crate::problem::Problem;
use crate::scalar;
use ipnet::IpNet;
pub(crate) use limits::BOUNDS;
pub use limits::GatewayLimits;
pub use observability::{AccessLogFormat, RateLimitHeaders};
pub use route::Route;
pub(crate) use route::{MOST_ROUTES, ROUTE};
pub(crate) use signature::SIGNATURE;
pub use signature::Signature;
pub(crate) use spelling::{METHODS, PATHS};
pub use spelling::{Methods, Paths, Spelling};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
pub(crate) use timeouts::TIMEOUTS;
pub use timeouts::Timeouts;
pub(crate) use tls::{CERTIFICATE, TLS};
pub use tls::{Certificate, Tls};
pub use upstream::{InvalidUpstream, Scheme, Upstream};

/// The listeners and upstreams.
///
/// ```
/// use diana_rules::{SyntheticRequest, Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "
/// gateway:
///   upstream: http://127.0.0.1:3000
///   routes:
///     - match: {path: /v1/**}
///       upstream: [http://10.0.0.1, http://10.0.0.2]
/// rules: []
/// ");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// let gateway = file.gateway.unwrap();
/// assert_eq!(gateway.route(&SyntheticRequest::new("GET", "/v1/users")), Some(0));
/// assert_eq!(gateway.route(&SyntheticRequest::new("GET", "/")), None);
/// assert_eq!(gateway.upstream[0].to_string(), "http://127.0.0.1:3000");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gateway {
    /// The addresses that accept connections without TLS; 127.0.0.1:8080 if neither this nor `tls` is set.
    pub listen: Vec<SocketAddr>,
    /// The listeners with TLS.
    pub tls: Option<Tls>,
    /// The upstreams of requests that match no route, used in turn. Empty if Diana forwards nothing.
    pub upstream: Vec<Upstream>,
    /// Whether requests without an upstream are answered with their own content, for experiments.
    pub echo: bool,
    /// A PEM file of certificates that are trusted for upstreams, in addition to the system's.
    pub upstream_ca: Option<PathBuf>,
    /// Upstreams for some hosts and paths; the first matching route is used.
    pub routes: Vec<Route>,
    /// The proxies whose reported client address is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether every connection begins with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// Which response headers report the remaining quota.
    pub rate_limit_headers: RateLimitHeaders,
    /// The format of the access log.
    pub access_log: AccessLogFormat,
    /// How requests must be signed; `None` if they need no signature.
    pub signature: Option<Signature>,
    /// The number of worker threads; one per core by default.
    pub workers: Option<NonZeroUsize>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds on what one client may send.
    pub bounds: GatewayLimits,
    /// Which spellings of paths are accepted.
    pub paths: Paths,
    /// Which spellings of methods are accepted.
    pub methods: Methods,
}

/// The default listener, which other machines can't reach.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The maximum number of threads: more than a machine has cores.
const MOST_WORKERS: u64 = 1_024;

pub(crate) const GATEWAY: [&str; 16] = [
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
    "workers",
    "timeouts",
    "bounds",
    "paths",
    "methods",
];

impl Default for Gateway {
    /// Listens on 127.0.0.1:8080, without an upstream.
    fn default() -> Self {
        Self {
            listen: vec![LISTEN],
            tls: None,
            upstream: Vec::new(),
            echo: false,
            upstream_ca: None,
            routes: Vec::new(),
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            rate_limit_headers: RateLimitHeaders::default(),
            access_log: AccessLogFormat::default(),
            signature: None,
            workers: None,
            timeouts: Timeouts::default(),
            bounds: GatewayLimits::default(),
            paths: Paths::default(),
            methods: Methods::default(),
        }
    }
}

impl Gateway {
    /// Returns the index in [`routes`](Self::routes) of the first route that matches this request; if there is none,
    /// the request goes to [`upstream`](Self::upstream).
    pub fn route(&self, request: &dyn Attributes) -> Option<usize> {
        // Most gateways have no routes.
        if self.routes.is_empty() {
            return None;
        }
        let looks = self.routes.iter().fold(Looks::default(), |looks, route| looks.and(&route.matches));
        let seen = RequestView::for_routes(request, looks);
        self.routes.iter().position(|route| route.is_for(&seen))
    }

    /// Returns `true` if the gateway listens on this address, with TLS or without.
    pub(super) fn listens_on(&self, address: &SocketAddr) -> bool {
        is_among(address, &self.listen) || self.tls.iter().any(|tls| is_among(address, &tls.listen))
    }

    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`gateway`", GATEWAY, problems)?;
        let has_tls = fields.peek("tls").is_some();
        let plain = fields.take("listen");
        // A file with only `tls` does not listen without TLS.
        let usual = if has_tls { Vec::new() } else { vec![LISTEN] };
        let listen = plain.map_or(usual, |node| addresses(node, problems));
        let tls = fields.take("tls").and_then(|node| Tls::read(node, problems));
        let secure = tls.iter().flat_map(|tls| &tls.listen);
        if let (Some(twice), Some(plain)) = (secure.into_iter().find(|own| is_among(own, &listen)), plain) {
            let problem = Problem::new(plain.span, format!("{twice} can't be both with and without TLS"));
            problems.push(problem.expected("another address for one of them"));
        }
        let upstream = fields.take("upstream").map(|node| upstreams(node, problems));
        let echo = fields.take("echo").and_then(|node| scalar::flag(node, "`echo`", problems)).unwrap_or_default();
        let upstream_ca = fields.take("upstream_ca").and_then(|node| tls::path(node, "upstream_ca", problems));
        let routes = fields.take("routes").map(|node| Route::read_all(node, problems));
        let trusted = fields.take("trusted_proxies");
        let trusted_proxies = trusted.map(|node| networks(node, problems)).unwrap_or_default();
        let proxy_protocol = fields.take_entry("proxy_protocol").is_some_and(|entry| {
            let is_on = scalar::flag(&entry.node, "`proxy_protocol`", problems).unwrap_or_default();
            // A list that can't be read has been reported already.
            let nobody = trusted.is_none_or(|node| node.value == Value::List(Vec::new()));
            if is_on && nobody {
                let problem = Problem::new(entry.span, "`proxy_protocol` lets anybody say who they are");
                problems.push(problem.expected("`trusted_proxies: [10.0.0.0/8]` beside it: those who may"));
            }
            is_on
        });
        let mut word = |name: &str, words: &[&str]| {
            fields.take(name).and_then(|node| scalar::word(node, &format!("`{name}`"), words, problems)).unwrap_or(0)
        };
        let rate_limit_headers = RateLimitHeaders::ALL[word("rate_limit_headers", &RateLimitHeaders::WORDS)];
        let access_log = AccessLogFormat::ALL[word("access_log", &AccessLogFormat::WORDS)];
        let signature = fields.take("signature").and_then(|node| Signature::read(node, problems));
        let workers = fields.take("workers");
        let workers = workers.and_then(|node| scalar::within(node, "`workers`", 1..=MOST_WORKERS, problems));
        let timeouts = fields.take("timeouts").and_then(|node| Timeouts::read(node, problems));
        let bounds = fields.take("bounds").and_then(|node| GatewayLimits::read(node, problems));
        let paths = fields.take("paths").and_then(|node| Paths::read(node, problems));
        let methods = fields.take("methods").and_then(|node| Methods::read(node, problems));
        fields.finish(problems);
        Some(Self {
            listen,
            tls,
            upstream: upstream.unwrap_or_default(),
            echo,
            upstream_ca,
            routes: routes.unwrap_or_default(),
            trusted_proxies,
            proxy_protocol,
            rate_limit_headers,
            access_log,
            signature,
            workers: workers.and_then(|count| usize::try_from(count).ok()).and_then(NonZeroUsize::new),
            timeouts: timeouts.unwrap_or_default(),
            bounds: bounds.unwrap_or_default(),
            paths: paths.unwrap_or_default(),
            methods: methods.unwrap_or_default(),
        })
    }
}

/// Returns `true` if two listeners would use the same address. Port 0 is a different port each time.
fn is_among(address: &SocketAddr, others: &[SocketAddr]) -> bool {
    address.port() != 0 && others.contains(address)
}

fn upstreams(node: &Node, problems: &mut Vec<Problem>) -> Vec<Upstream> {
    let nodes = at_least_one(node, "`upstream`", problems).into_iter();
    nodes.filter_map(|node| Upstream::read(node, "`upstream`", problems)).collect()
}

fn networks(node: &Node, problems: &mut Vec<Problem>) -> Vec<IpNet> {
    let wrong = || "an address or a network, such as 10.0.0.0/8".to_owned();
    let read = |text: &str| Networks::read(text).ok_or_else(wrong);
    let nodes = one_or_more(node).into_iter();
    nodes.filter_map(|node| scalar::parsed(node, "a trusted proxy", read, problems)).collect()
}

pub(super) fn addresses(node: &Node, problems: &mut Vec<Problem>) -> Vec<SocketAddr> {
    let read =
        |text: &str| text.parse().map_err(|_| "an address and a port, as in 127.0.0.1:8080 or [::]:8080".to_owned());
    let nodes = at_least_one(node, "`listen`", problems).into_iter();
    nodes.filter_map(|node| scalar::parsed(node, "`listen`", read, problems)).collect()
}

fn at_least_one<'a>(node: &'a Node, what: &str, problems: &mut Vec<Problem>) -> Vec<&'a Node> {
    let nodes = one_or_more(node);
    if nodes.is_empty() {
        problems.push(Problem::new(node.span, format!("{what} is empty")).expected("at least one"));
    }
    nodes
}

fn one_or_more(node: &Node) -> Vec<&Node> {
    match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}
