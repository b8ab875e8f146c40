//! The section `remote`: the config server, whose rules take precedence over the rules of the file.

use super::address::check_centre;
use super::store::positive;
use crate::document::Format;
use crate::document::node::Node;
use crate::map_reader::MapReader;
use crate::problem::Problem;
use crate::scalar;
use crate::secret::Secret;
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

pub(crate) const FIELDS: [&str; 8] = ["from", "token", "poll", "long_poll", "timeout", "keep", "format", "when_down"];
/// The values of `when_down`.
pub(crate) const WHEN_DOWN: [&str; 2] = ["last_good", "local"];
/// The URL schemes of config servers.
pub(crate) const SCHEMES: [&str; 6] = ["http://", "https://", "etcd://", "etcds://", "redis://", "rediss://"];

impl RemoteSection {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`remote`", FIELDS, problems)?;
        let from = fields.require("from", problems).and_then(|node| {
            let text = scalar::text(node, "`from`", problems)?;
            let is_known = SCHEMES.iter().any(|scheme| text.starts_with(scheme) && text.len() > scheme.len());
            let checked = if is_known { check_centre(text) } else { Err("this is no address of a config server") };
            if let Err(what) = checked {
                let problem = Problem::new(node.span, what);
                problems.push(problem.expected("http(s)://host/path, etcd://host:2379/key or redis://host:6379"));
                return None;
            }
            Some(text)
        });
        let is_web = from.is_none_or(|from| from.starts_with("http"));
        let token = fields.take("token").and_then(|node| token(node, problems));
        let [poll, long_poll] = ["poll", "long_poll"].map(|name| {
            let entry = fields.take_entry(name)?;
            if !is_web {
                let problem =
                    Problem::new(entry.span, format!("`{name}` is for web servers; this one tells its news by itself"));
                problems.push(problem.expected("leave it out"));
            }
            positive(&entry.node, &format!("`{name}`"), problems)
        });
        let timeout = fields.take("timeout").and_then(|node| positive(node, "`timeout`", problems));
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
}

/// Reads a token and removes the trailing newline of a token file. It is never shown.
pub(super) fn token(node: &Node, problems: &mut Vec<Problem>) -> Option<Secret> {
    let token = scalar::text(node, "`token`", problems)?.trim();
    if token.is_empty() || token.contains(char::is_control) {
        let problem = Problem::new(node.span, "`token` can't be sent in a header");
        problems.push(problem.expected("a text on one line"));
        return None;
    }
    Some(Secret::new(token))
}
