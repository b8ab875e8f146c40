//! The section `admin`: where the admin API listens, which tokens may use it, and where changes are recorded.
//!
//! The admin API shows which keys are limited, and can reset them. It requires a token if other machines can reach it.

mod token;

pub use token::{AdminToken, Role, TokenChange};

use diana_rules::describe::and;
use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, Secret, Section, scalar, schema};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The admin API: health, metrics and the active rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminSection {
    /// The addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// The bearer token of an operator without a name of their own; some token is required if another machine can reach
    /// the API.
    pub token: Option<Secret>,
    /// The tokens with a name and a role.
    pub tokens: Vec<AdminToken>,
    /// The file that changes are recorded in, in addition to the program's log.
    pub audit_log: Option<PathBuf>,
}

/// The default listener, which other machines can't reach.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

const FIELDS: [&str; 4] = ["listen", "token", "tokens", "audit_log"];

impl Default for AdminSection {
    /// Listens on 127.0.0.1:9090, without a token.
    fn default() -> Self {
        Self { listen: vec![LISTEN], token: None, tokens: Vec::new(), audit_log: None }
    }
}

impl AdminSection {
    /// Describes the admin API, on one line.
    pub fn describe(&self) -> String {
        let token = if self.token.is_some() { ", with a token" } else { "" };
        let named = if self.tokens.is_empty() { String::new() } else { format!(", for {}", and(&self.tokens)) };
        let audit = self.audit_log.as_ref().map(|file| format!(", audit log to {}", file.display()));
        format!("admin on {}{token}{named}{}", and(&self.listen), audit.unwrap_or_default())
    }

    /// Returns all tokens; `token` is that of an operator named `admin`.
    pub fn all_tokens(&self) -> Vec<AdminToken> {
        let unnamed = self.token.clone().map(AdminToken::unnamed);
        unnamed.into_iter().chain(self.tokens.iter().cloned()).collect()
    }
}

impl Section for AdminSection {
    const NAME: &'static str = "admin";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`admin`", FIELDS, problems)?;
        let listen_node = fields.take("listen");
        let listen = listen_node.map_or_else(|| vec![LISTEN], |node| scalar::listen(node, problems));
        let has_token = fields.peek("token").is_some() || fields.peek("tokens").is_some();
        let token = fields.take("token").and_then(|node| scalar::token(node, problems));
        let tokens = fields.take("tokens").map(|node| AdminToken::parse_all(node, token.as_ref(), problems));
        let audit_log = fields.take("audit_log").and_then(|node| {
            let read = |text: &str| {
                let is_path = !text.is_empty() && !text.contains('\0');
                is_path.then(|| text.into()).ok_or("expected the path of a file, such as /var/log/diana/audit.jsonl")
            };
            scalar::parsed(node, "`audit_log`", read, problems)
        });
        let open = listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(open), Some(node), false) = (open, listen_node, has_token) {
            let problem = Problem::new(node.span, format!("`admin` needs a `token`: other machines can reach {open}"));
            problems.push(problem.expected("add `token: '${ADMIN_TOKEN}'`, or listen on 127.0.0.1"));
        }
        fields.finish(problems);
        Some(Self { listen, token, tokens: tokens.unwrap_or_default(), audit_log })
    }

    fn schema() -> serde_json::Value {
        schema::object("the admin API: health, metrics and the active rules", &FIELDS, |name| match name {
            "listen" => schema::listen("127.0.0.1:9090"),
            "tokens" => AdminToken::schema(),
            "audit_log" => {
                let what = "a file for a line about each change, in addition to the program's log; SIGUSR1 reopens it";
                schema::reference_with("text", what, &["/var/log/diana/audit.jsonl"])
            }
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
    fn describes_that_there_are_tokens_without_showing_them() {
        assert_eq!(AdminSection::default().describe(), "admin on 127.0.0.1:9090");
        let section = AdminSection { token: Some(Secret::new("hunter2")), ..AdminSection::default() };
        assert_eq!(section.describe(), "admin on 127.0.0.1:9090, with a token");
        let token = |name: &str, role| AdminToken::new(name, Secret::new("hunter2"), role);
        let section = AdminSection {
            tokens: vec![token("alice", Role::Operate), token("grafana", Role::Read)],
            audit_log: Some("/var/log/audit.jsonl".into()),
            ..section
        };
        assert_eq!(
            section.describe(),
            "admin on 127.0.0.1:9090, with a token, for alice (operate) and grafana (read), audit log to /var/log/audit.jsonl"
        );
        assert!(!format!("{section:?}").contains("hunter2"));
    }
}
