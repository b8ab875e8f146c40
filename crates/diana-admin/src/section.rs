//! The section `admin`: health, metrics and the active rules.
//!
//! The admin API shows which keys are limited, and can reset them. It requires a token if other machines can reach it.

use diana_rules::describe::and;
use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, Secret, Section, scalar, schema};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The admin API: health, metrics and the active rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminSection {
    /// The addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// The bearer token that clients must send; required if another machine can reach the API.
    pub token: Option<Secret>,
}

/// The default listener, which other machines can't reach.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

const FIELDS: [&str; 2] = ["listen", "token"];

impl Default for AdminSection {
    /// Listens on 127.0.0.1:9090, without a token.
    fn default() -> Self {
        Self { listen: vec![LISTEN], token: None }
    }
}

impl AdminSection {
    /// Describes the admin API, on one line.
    pub fn describe(&self) -> String {
        let token = if self.token.is_some() { ", with a token" } else { "" };
        format!("admin on {}{token}", and(&self.listen))
    }
}

impl Section for AdminSection {
    const NAME: &'static str = "admin";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`admin`", FIELDS, problems)?;
        let listen_node = fields.take("listen");
        let listen = listen_node.map_or_else(|| vec![LISTEN], |node| scalar::listen(node, problems));
        let has_token = fields.peek("token").is_some();
        let token = fields.take("token").and_then(|node| scalar::token(node, problems));
        let open = listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(open), Some(node), false) = (open, listen_node, has_token) {
            let problem = Problem::new(node.span, format!("`admin` needs a `token`: other machines can reach {open}"));
            problems.push(problem.expected("add `token: '${ADMIN_TOKEN}'`, or listen on 127.0.0.1"));
        }
        fields.finish(problems);
        Some(Self { listen, token })
    }

    fn schema() -> serde_json::Value {
        schema::object("the admin API: health, metrics and the active rules", &FIELDS, |name| match name {
            "listen" => schema::listen("127.0.0.1:9090"),
            _ => schema::reference_with("text", "the bearer token that clients must send", &["${ADMIN_TOKEN}"]),
        })
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        self.listen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_that_there_is_a_token_without_showing_it() {
        assert_eq!(AdminSection::default().describe(), "admin on 127.0.0.1:9090");
        let section = AdminSection { token: Some(Secret::new("hunter2")), ..AdminSection::default() };
        assert_eq!(section.describe(), "admin on 127.0.0.1:9090, with a token");
    }
}
