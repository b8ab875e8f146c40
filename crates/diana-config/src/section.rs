//! The section `remote`: the config server, whose rules take precedence over the rules of the file.

use diana_rules::address::Address;
use diana_rules::describe::period;
use diana_rules::document::{Format, Node};
use diana_rules::map_reader::MapReader;
use diana_rules::secret::redact_url;
use diana_rules::{Problem, Secret, Section, scalar, schema};
use std::time::Duration;

/// A config server. `None` stands for the default of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteSection {
    /// The URL of the document.
    pub from: Secret,
    /// The bearer token to send.
    pub token: Option<Secret>,
    /// The interval between polls of an HTTP server.
    pub poll: Option<Duration>,
    /// How long an HTTP server may delay its response until the document changes.
    pub long_poll: Option<Duration>,
    /// The timeout of one request.
    pub timeout: Option<Duration>,
    /// The folder of the disk cache for the last good document.
    pub keep: Option<String>,
    /// The format of the document, if its name does not determine it.
    pub format: Option<Format>,
    /// Which rules apply while the config server is unreachable.
    pub when_down: WhenRemoteIsDown,
}

/// Which rules apply while the config server is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenRemoteIsDown {
    /// The last good rules from the config server, also after a restart; the local rules if there are none.
    #[default]
    LastGood,
    /// The local rules, until the config server is reachable again.
    Local,
}

const FIELDS: [&str; 8] = ["from", "token", "poll", "long_poll", "timeout", "keep", "format", "when_down"];
/// The values of `when_down`.
const WHEN_DOWN: [&str; 2] = ["last_good", "local"];
/// The URL schemes of config servers.
const SCHEMES: [&str; 6] = ["http://", "https://", "etcd://", "etcds://", "redis://", "rediss://"];

impl RemoteSection {
    /// Describes the config server, on one line. Passwords are not shown.
    pub fn describe(&self) -> String {
        let mut text = format!("rules come from the config server {}", redact_url(self.from.reveal()));
        if self.token.is_some() {
            text.push_str(", with a token");
        }
        if let Some(poll) = self.poll {
            text.push_str(&format!(", asked every {}", period(poll)));
        }
        text.push_str("; they take the place of those in this file");
        text
    }
}

impl Section for RemoteSection {
    const NAME: &'static str = "remote";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`remote`", FIELDS, problems)?;
        let from = fields.require("from", problems).and_then(|node| {
            let text = scalar::text(node, "`from`", problems)?;
            let is_known = SCHEMES.iter().any(|scheme| text.starts_with(scheme) && text.len() > scheme.len());
            let checked = if is_known { check(text) } else { Err("this is no address of a config server") };
            if let Err(what) = checked {
                let problem = Problem::new(node.span, what);
                problems.push(problem.expected("http(s)://host/path, etcd://host:2379/key or redis://host:6379"));
                return None;
            }
            Some(text)
        });
        let is_web = from.is_none_or(|from| from.starts_with("http"));
        let token = fields.take("token").and_then(|node| scalar::token(node, problems));
        let [poll, long_poll] = ["poll", "long_poll"].map(|name| {
            let entry = fields.take_entry(name)?;
            if !is_web {
                let problem =
                    Problem::new(entry.span, format!("`{name}` is for web servers; this one tells its news by itself"));
                problems.push(problem.expected("leave it out"));
            }
            scalar::positive_duration(&entry.node, &format!("`{name}`"), problems)
        });
        let timeout = fields.take("timeout").and_then(|node| scalar::positive_duration(node, "`timeout`", problems));
        let when_down =
            match fields.take("when_down").and_then(|node| scalar::word(node, "`when_down`", &WHEN_DOWN, problems)) {
                Some(1) => WhenRemoteIsDown::Local,
                _ => WhenRemoteIsDown::LastGood,
            };
        if let Some(entry) = fields.peek("keep").filter(|_| when_down == WhenRemoteIsDown::Local) {
            let problem = Problem::new(entry.span, "nothing is kept where the local rules apply instead");
            problems.push(problem.expected("leave it out, or `when_down: last_good`"));
        }
        let keep = fields.take("keep").and_then(|node| scalar::text(node, "`keep`", problems)).map(str::to_owned);
        let format =
            fields.take("format").and_then(|node| scalar::word(node, "`format`", &["yaml", "json", "toml"], problems));
        fields.finish(problems);
        Some(Self {
            from: Secret::new(from?),
            token,
            poll,
            long_poll,
            timeout,
            keep,
            format: format.map(|nth| if nth == 2 { Format::Toml } else { Format::Yaml }),
            when_down,
        })
    }

    fn schema() -> serde_json::Value {
        let section = schema::object("rules from a config server, which win over these", &FIELDS, schema_of);
        schema::requiring(section, &["from"])
    }

    /// Without local rules, nothing would be limited while the config server is unreachable.
    fn requires_rules(&self) -> bool {
        self.when_down == WhenRemoteIsDown::Local
    }
}

fn schema_of(name: &str) -> serde_json::Value {
    match name {
        "from" => {
            let examples = [
                "etcd://127.0.0.1:2379/diana/rules",
                "https://config.example.com/rules.yaml",
                "redis://127.0.0.1:6379/0",
            ];
            schema::url("where the document of rules is", &SCHEMES, &examples)
        }
        "token" => schema::reference_with("text", "what is shown as a bearer token", &["${TOKEN}"]),
        "when_down" => schema::word("which rules apply while the config server is unreachable", &WHEN_DOWN),
        "poll" => schema::reference("duration", "how often a web server is asked"),
        "long_poll" => schema::reference("duration", "how long a web server may hold its answer until there is news"),
        "timeout" => schema::reference("duration", "how long one question may take"),
        "keep" => schema::reference("text", "the folder in which the last good document is kept"),
        _ => schema::word("how the document is written, where its name does not tell", &["yaml", "json", "toml"]),
    }
}

/// Returns an error if the address is incomplete. [`Remote::parse`](crate::Remote::parse) checks it again, more
/// strictly.
fn check(text: &str) -> Result<(), &'static str> {
    let address = Address::of(text);
    if !address.has_hosts() {
        return Err("this address names no host");
    }
    let path = address.path.trim_matches('/');
    let has_key = || address.query.and_then(|query| query.strip_prefix("key=")).is_some_and(|key| !key.is_empty());
    match address.scheme {
        "etcd" | "etcds" if path.is_empty() && !has_key() => Err("this address names no key of the etcd"),
        "redis" | "rediss" if !path.is_empty() && path.parse::<u32>().is_err() => {
            Err("what stands behind the host of a Redis is the number of a database; the key is given as ?key=NAME")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;
    use diana_rules::Document;

    #[test]
    fn good_addresses_pass() {
        for text in [
            "http://h",
            "https://user:pa%3Ass@h:8443/rules.yaml?env=a@b",
            "http://[::1]:80/x",
            "etcd://a:2379,b:2379/diana/rules",
            "etcds://user:pw@[::1]/k",
            "etcd://h?key=diana",
            "redis://h:6379",
            "redis://:pw@h/0?key=diana:rules",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        for (text, told) in [
            ("http://:80/x", "no host"),
            ("http:///x", "no host"),
            ("http://me:pw@/x", "no host"),
            ("http://[]:80/x", "no host"),
            ("etcd://a,,b/key", "no host"),
            ("etcd://h", "no key"),
            ("etcd://h/", "no key"),
            ("etcd://h?key=", "no key"),
            ("redis://h:6379/rules", "number of a database"),
        ] {
            let said = check(text).err().unwrap_or_default();
            assert!(said.contains(told), "{text}: {said}");
        }
    }

    #[test]
    fn the_config_server_is_said() {
        let text = "{from: 'https://config.example.com/diana.yaml?key=secret', token: secret, poll: 10s}";
        let node = Document::new("diana.yaml", text).parse().unwrap();
        assert_eq!(
            RemoteSection::parse(&node, &mut Vec::new()).unwrap().describe(),
            "rules come from the config server https://config.example.com/diana.yaml, with a token, asked every 10 seconds; they take the place of those in this file",
        );
    }
}
