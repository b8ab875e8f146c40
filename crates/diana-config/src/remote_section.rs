//! The section `remote`: the config server, whose rules take precedence over the rules of the file.

use diana_rules::describe::period;
use diana_rules::document::{Format, Node};
use diana_rules::map_reader::MapReader;
use diana_rules::multi_host_url::Address;
use diana_rules::secret::redact_url;
use diana_rules::{Problem, Secret, Section, scalar, schema};
use std::time::Duration;

/// A config server. `None` means the default of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteSection {
    /// The URL of the document.
    pub from: Secret,
    /// The bearer token to send.
    pub token: Option<Secret>,
    /// The interval between polls of an HTTP server.
    pub poll: Option<Duration>,
    /// The time that an HTTP server may delay its response until the document changes.
    pub long_poll: Option<Duration>,
    /// The timeout of one request.
    pub timeout: Option<Duration>,
    /// The folder of the disk cache for the last good document.
    pub keep: Option<String>,
    /// The format of the document, if its name does not determine it.
    pub format: Option<Format>,
    /// The rules that apply while the config server is unreachable.
    pub when_down: WhenRemoteIsDown,
}

/// The rules that apply while the config server is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
        let mut text = format!("rules are loaded from the config server {}", redact_url(self.from.reveal()));
        if self.token.is_some() {
            text.push_str(", with a token");
        }
        if let Some(poll) = self.poll {
            text.push_str(&format!(", polled every {}", period(poll)));
        }
        text.push_str("; they replace the rules of this file");
        text.push_str(match self.when_down {
            WhenRemoteIsDown::LastGood => "; while it is unreachable, the last good ones apply, also after a restart",
            WhenRemoteIsDown::Local => "; while it is unreachable, the rules of this file apply",
        });
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
            let checked = if is_known { check(text) } else { Err("invalid config server URL") };
            if let Err(what) = checked {
                let problem = Problem::new(node.span, what);
                problems
                    .push(problem.expected("expected http(s)://host/path, etcd://host:2379/key or redis://host:6379"));
                return None;
            }
            Some(text)
        });
        let is_http = from.is_none_or(|from| from.starts_with("http"));
        let token = fields.take("token").and_then(|node| scalar::token(node, problems));
        let [poll, long_poll] = ["poll", "long_poll"].map(|name| {
            let entry = fields.take_entry(name)?;
            if !is_http {
                let problem = Problem::new(entry.span, format!("`{name}` needs an HTTP config server"));
                problems.push(problem.expected("remove it; changes on etcd and Redis are pushed"));
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
            let problem = Problem::new(entry.span, "`keep` has no effect with `when_down: local`");
            problems.push(problem.expected("remove it, or write `when_down: last_good`"));
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
            format: format.map(|index| if index == 2 { Format::Toml } else { Format::Yaml }),
            when_down,
        })
    }

    fn schema() -> serde_json::Value {
        let section = schema::object(
            "a config server, whose rules take precedence over the rules of this file",
            &FIELDS,
            schema_of,
        );
        schema::requiring(section, &["from"])
    }

    /// Requires local rules: without them, nothing would be limited while the config server is unreachable.
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
            schema::url("the URL of the document", &SCHEMES, &examples)
        }
        "token" => schema::reference_with("text", "the bearer token to send", &["${TOKEN}"]),
        "when_down" => schema::word("which rules apply while the config server is unreachable", &WHEN_DOWN),
        "poll" => schema::reference("duration", "the poll interval of an HTTP server"),
        "long_poll" => {
            schema::reference("duration", "how long an HTTP server may delay its response until the document changes")
        }
        "timeout" => schema::reference("duration", "the timeout of one request"),
        "keep" => schema::reference("text", "the folder that stores the last good document"),
        _ => schema::word("the format of the document, if its name does not determine it", &["yaml", "json", "toml"]),
    }
}

/// Returns an error if the address is incomplete. [`Remote::parse`](crate::Remote::parse) checks it again, more
/// strictly.
fn check(text: &str) -> Result<(), &'static str> {
    let address = Address::of(text);
    if !address.has_hosts() {
        return Err("invalid config server URL: missing host");
    }
    let path = address.path.trim_matches('/');
    let has_key = || address.query.and_then(|query| query.strip_prefix("key=")).is_some_and(|key| !key.is_empty());
    match address.scheme {
        "etcd" | "etcds" if path.is_empty() && !has_key() => Err("invalid config server URL: missing key"),
        "redis" | "rediss" if !path.is_empty() && path.parse::<u32>().is_err() => {
            Err("invalid config server URL: the path of a Redis URL must be a database number, and the key `?key=NAME`")
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
    fn valid_urls_are_accepted() {
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
    fn missing_parts_are_reported() {
        for (text, expected) in [
            ("http://:80/x", "missing host"),
            ("http:///x", "missing host"),
            ("http://me:pw@/x", "missing host"),
            ("http://[]:80/x", "missing host"),
            ("etcd://a,,b/key", "missing host"),
            ("etcd://h", "missing key"),
            ("etcd://h/", "missing key"),
            ("etcd://h?key=", "missing key"),
            ("redis://h:6379/rules", "must be a database number"),
        ] {
            let error = check(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn describes_the_config_server() {
        let text = "{from: 'https://config.example.com/diana.yaml?key=secret', token: secret, poll: 10s}";
        let node = Document::new("diana.yaml", text).parse().unwrap();
        assert_eq!(
            RemoteSection::parse(&node, &mut Vec::new()).unwrap().describe(),
            "rules are loaded from the config server https://config.example.com/diana.yaml, with a token, polled every 10 seconds; they replace the rules of this file; while it is unreachable, the last good ones apply, also after a restart",
        );
    }
}
