//! What listens, and where requests go: `gateway` and `admin`.

use crate::document::node::{Node, Value};
use crate::fields::Fields;
use crate::matching::networks::Networks;
use crate::problem::Problem;
use crate::rule::http_url;
use crate::scalar;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What listens, and where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gateway {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where requests go: to these in turn. Nowhere, if Diana only answers others.
    pub upstream: Vec<String>,
    /// Whose word about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
}

/// Where health, metrics and the rules in force are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admin {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
}

/// Where a gateway listens that does not say where: nobody else's machine can ask it.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

pub(crate) const GATEWAY: [&str; 3] = ["listen", "upstream", "trusted_proxies"];
pub(crate) const ADMIN: [&str; 1] = ["listen"];

impl Gateway {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = Fields::of(node, "`gateway`", GATEWAY, problems)?;
        let listen = fields.take("listen").map_or_else(|| vec![LISTEN], |node| addresses(node, problems));
        let upstream = fields.take("upstream").map(|node| {
            let urls = at_least_one(node, "`upstream`", problems).into_iter();
            urls.filter_map(|node| http_url(node, "`upstream`", problems)).collect()
        });
        let trusted = fields.take("trusted_proxies").map(|node| {
            let networks = one_or_more(node).into_iter().filter_map(|node| {
                let wrong = || "an address or a network, such as 10.0.0.0/8".to_owned();
                scalar::parsed(node, "a trusted proxy", |text| Networks::read(text).ok_or_else(wrong), problems)
            });
            networks.collect()
        });
        fields.finish(problems);
        Some(Self { listen, upstream: upstream.unwrap_or_default(), trusted_proxies: trusted.unwrap_or_default() })
    }
}

impl Admin {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = Fields::of(node, "`admin`", ADMIN, problems)?;
        let listen = fields.require("listen", problems).map(|node| addresses(node, problems)).unwrap_or_default();
        fields.finish(problems);
        Some(Self { listen })
    }
}

fn addresses(node: &Node, problems: &mut Vec<Problem>) -> Vec<SocketAddr> {
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
