//! The section `admin`: health, metrics and the active rules.
//!
//! The admin API shows which keys are limited, and can reset them. It requires a token if other machines can reach it.

use super::gateway::addresses;
use super::remote::token;
use crate::document::node::Node;
use crate::map_reader::MapReader;
use crate::problem::Problem;
use crate::secret::Secret;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The admin API: health, metrics and the active rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admin {
    /// The addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// The bearer token that clients must send; required if another machine can reach the API.
    pub token: Option<Secret>,
}

/// The default listener, which other machines can't reach.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

pub(crate) const ADMIN: [&str; 2] = ["listen", "token"];

impl Default for Admin {
    /// Listens on 127.0.0.1:9090, without a token.
    fn default() -> Self {
        Self { listen: vec![LISTEN], token: None }
    }
}

impl Admin {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`admin`", ADMIN, problems)?;
        let at = fields.take("listen");
        let listen = at.map_or_else(|| vec![LISTEN], |node| addresses(node, problems));
        let written = fields.peek("token").is_some();
        let token = fields.take("token").and_then(|node| token(node, problems));
        let open = listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(open), Some(at), false) = (open, at, written) {
            let problem = Problem::new(at.span, format!("other machines reach {open}, and `admin` has no `token`"));
            problems.push(problem.expected("`token: '${ADMIN_TOKEN}'` beside it, or 127.0.0.1"));
        }
        fields.finish(problems);
        Some(Self { listen, token })
    }
}
