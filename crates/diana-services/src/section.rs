//! The section `services`: which protocols are served, and where.
//!
//! ```yaml
//! services:
//!   envoy: 127.0.0.1:8081
//!   resp: {listen: 127.0.0.1:6380, password: '${RESP_PASSWORD}'}
//!   http: 127.0.0.1:8082
//! ```

use diana_net::ClientBounds;
use diana_net::tls::Certificate;
use diana_rules::describe::and;
use diana_rules::document::{Node, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, Secret, Section, scalar, schema};
use serde_json::json;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

/// The services for other gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServicesSection {
    /// gRPC for Envoy: the rate limit service and external authorization.
    pub envoy: Option<ServiceSettings>,
    /// The Redis protocol.
    pub resp: Option<ServiceSettings>,
    /// `GET /check` for nginx, Traefik and Caddy.
    pub http: Option<ServiceSettings>,
    /// The number of threads; one per core by default.
    pub workers: Option<NonZeroUsize>,
    /// The maximum memory of all connections together, in bytes; by default, they share `bounds.memory` of the gateway.
    pub memory: Option<usize>,
}

/// The addresses of one service, its password and its TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceSettings {
    /// The addresses.
    pub listen: Vec<SocketAddr>,
    /// The password that clients must send; only for `resp`.
    pub password: Option<Secret>,
    /// The certificate, if clients connect with TLS.
    pub tls: Option<Certificate>,
}

const FIELDS: [&str; 5] = ["envoy", "resp", "http", "workers", "bounds"];
/// The fields of a service, if it is a map.
const SERVICE: [&str; 3] = ["listen", "password", "tls"];
/// The maximum number of threads: more than a machine has cores.
const MAX_WORKERS: u64 = 1_024;

impl ServicesSection {
    /// Returns the services that the file has, by name.
    pub fn services(&self) -> impl Iterator<Item = (&'static str, &ServiceSettings)> {
        let services = [("envoy", &self.envoy), ("resp", &self.resp), ("http", &self.http)];
        services.into_iter().filter_map(|(name, settings)| Some((name, settings.as_ref()?)))
    }

    /// Describes the services, one on each line.
    pub fn describe(&self) -> Vec<String> {
        let lines = self.services().map(|(name, settings)| {
            let password = if settings.password.is_some() { ", with a password" } else { "" };
            let tls = if settings.tls.is_some() { " with TLS" } else { "" };
            format!("service `{name}` on {}{tls}{password}", and(&settings.listen))
        });
        lines.collect()
    }
}

impl ServiceSettings {
    fn parse(name: &'static str, node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            return Some(Self { listen: scalar::listen(node, problems), ..Self::default() });
        }
        let mut fields = MapReader::of(node, "service", SERVICE, problems)?;
        let listen = fields.require("listen", problems).map(|node| scalar::listen(node, problems)).unwrap_or_default();
        let password_node = fields.take("password");
        let password = password_node.and_then(|node| password(node, problems));
        if let (Some(node), true) = (password_node, name != "resp") {
            let problem = Problem::new(node.span, format!("`password` is not supported by `{name}`"));
            problems.push(problem.expected("remove it; only `resp` has a password"));
        }
        let tls = fields.take("tls").and_then(|node| Certificate::parse(node, problems));
        fields.finish(problems);
        Some(Self { listen, password, tls })
    }

    fn schema(name: &str) -> serde_json::Value {
        let what = match name {
            "envoy" => "gRPC for Envoy: rate limit service v3, ext_authz v3, health, reflection",
            "resp" => "the Redis protocol: CL.THROTTLE, DIANA.CHECK and others",
            _ => "GET /check for nginx auth_request, Traefik forwardAuth and Caddy forward_auth",
        };
        let fields = if name == "resp" { &SERVICE[..] } else { &["listen", "tls"] };
        let map = schema::object(what, fields, |field| match field {
            "listen" => schema::listen("127.0.0.1:8081"),
            "password" => schema::reference_with("text", "the password that clients must send", &["${RESP_PASSWORD}"]),
            _ => Certificate::schema(),
        });
        json!({
            "description": what,
            "anyOf": [schema::listen("127.0.0.1:8081"), schema::requiring(map, &["listen"])],
        })
    }

    /// Returns an address that other machines can reach, although clients need neither a certificate nor a password.
    fn open_address(&self) -> Option<SocketAddr> {
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        let is_protected = self.tls.is_some() || self.password.is_some();
        self.listen.iter().find(is_open).copied().filter(|_| !is_protected)
    }
}

fn password(node: &Node, problems: &mut Vec<Problem>) -> Option<Secret> {
    let password = scalar::text(node, "`password`", problems)?;
    if password.is_empty() {
        problems.push(Problem::new(node.span, "`password` is empty").expected("remove it, or use another one"));
        return None;
    }
    Some(Secret::new(password))
}

impl Section for ServicesSection {
    const NAME: &'static str = "services";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`services`", FIELDS, problems)?;
        let [envoy, resp, http] = ["envoy", "resp", "http"]
            .map(|name| fields.take(name).and_then(|node| ServiceSettings::parse(name, node, problems)));
        let workers = fields.take("workers");
        let workers = workers.and_then(|node| scalar::within(node, "`workers`", 1..=MAX_WORKERS, problems));
        let workers = workers.and_then(|count| usize::try_from(count).ok()).and_then(NonZeroUsize::new);
        let bounds = fields.take("bounds").and_then(|node| MapReader::of(node, "`bounds`", ["memory"], problems));
        let memory = bounds.and_then(|mut bounds| {
            let memory = bounds.take("memory").and_then(|node| ClientBounds::parse_memory(node, problems));
            bounds.finish(problems);
            memory
        });
        fields.finish(problems);
        let section = Self { envoy, resp, http, workers, memory };
        let mut known: Vec<SocketAddr> = Vec::new();
        for address in section.listens_on() {
            if address.port() != 0 && known.contains(&address) {
                let problem = Problem::new(node.span, format!("two services listen on {address}"));
                problems.push(problem.expected("use another address for one of them"));
            }
            known.push(address);
        }
        Some(section)
    }

    fn schema() -> serde_json::Value {
        schema::object("services for other gateways", &FIELDS, |name| match name {
            "workers" => schema::reference("count", "the number of threads; one per core by default"),
            "bounds" => schema::object("what clients may use", &["memory"], |_| {
                let description = "the maximum memory of all connections together; by default, they share `bounds.memory` of the gateway, \
                                   which is 1GiB by default";
                schema::reference_with("bytes", description, &["64MiB"])
            }),
            name => ServiceSettings::schema(name),
        })
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        self.services().flat_map(|(_, settings)| settings.listen.iter().copied()).collect()
    }

    fn warnings(&self) -> Vec<(String, String)> {
        let open = self.services().filter_map(|(name, settings)| Some((name, settings.open_address()?)));
        let warnings = open.map(|(name, address)| {
            let what = format!("every machine that reaches {address} can use the service `{name}`");
            let fix = if name == "resp" { "add `password` or `tls`" } else { "add `tls`" };
            (what, format!("{fix}, or listen on 127.0.0.1, or protect the address with a firewall"))
        });
        warnings.collect()
    }
}
