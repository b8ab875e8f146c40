//! Where health, metrics and the rules in force are shown: `admin`.
//!
//! Whoever reaches it sees who is limited, and may forgive them: beyond this machine it takes a token.

use super::gateway::addresses;
use super::remote::token;
use crate::document::node::Node;
use crate::map_reader::MapReader;
use crate::problem::Problem;
use crate::secret::Secret;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where health, metrics and the rules in force are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admin {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// What a client must show as a bearer token; it is there wherever another machine could ask.
    pub token: Option<Secret>,
}

/// Where it listens if nobody says: nobody else's machine can ask it.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

pub(crate) const ADMIN: [&str; 2] = ["listen", "token"];

impl Default for Admin {
    /// On 127.0.0.1:9090, without a token.
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
