//! The section `store`: where the counts are stored.

use crate::multi_host_url::Address;
use diana_document::Problem;
use diana_document::bytes;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use diana_document::secret::Secret;
use diana_document::{Node, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Where the counts are stored: in this process, and optionally in a Redis that all instances share.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StoreSection {
    /// The counts in this process.
    pub memory: MemorySection,
    /// The counts that all instances share.
    pub redis: Option<RedisSection>,
}

/// The counts in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySection {
    /// The maximum memory, in bytes.
    pub ceiling: Option<usize>,
    /// The handling of new keys when the memory is full.
    pub on_full: Option<OnFullKeys>,
    /// The file with the counts that survive a restart.
    pub snapshot: Option<SnapshotSection>,
}

/// The file with the counts that survive a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotSection {
    /// The file.
    pub path: PathBuf,
    /// How often it is written; `None` is the default.
    pub interval: Option<Duration>,
}

/// The handling of new keys when the memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFullKeys {
    /// New keys share a few counts.
    Share,
    /// New keys are denied.
    Deny,
    /// New keys are allowed.
    Allow,
}

/// A Redis that all instances share. `None` is the default of the store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RedisSection {
    /// The address.
    pub url: Secret,
    /// The prefix of all key names.
    pub prefix: Option<String>,
    /// The timeout of a decision.
    pub timeout: Option<Duration>,
    /// The clock of the limits.
    pub time: Option<StoreTime>,
    /// The decision while Redis is unreachable.
    pub when_down: Option<WhenRedisIsDown>,
    /// How many permits a busy key leases at once.
    pub lease: Option<Lease>,
    /// Whether concurrent requests are sent to Redis in one batch.
    pub batching: Option<bool>,
    /// The maximum time for which a permit of a `concurrent` limit is held.
    pub permits_for: Option<Duration>,
}

/// The clock of shared limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreTime {
    /// Redis's.
    Redis,
    /// This process's, which is set by Redis's.
    Local,
}

/// The values of `time`.
pub(crate) const TIME: [&str; 2] = ["redis", "local"];

/// The decision while Redis is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenRedisIsDown {
    /// Each instance uses local counts, and enforces its share of the limit.
    Local,
    /// Each instance uses local counts, and enforces the whole limit.
    LocalFull,
    /// All requests are allowed.
    Allow,
    /// All requests are denied.
    Deny,
}

/// How many permits a busy key leases at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// No leases: one permit at a time.
    Off,
    /// As many as the key uses in a tenth of a second.
    Auto,
    /// A fixed number.
    Of(u64),
}

pub(crate) const FIELDS: [&str; 12] = [
    "memory",
    "on_full",
    "redis",
    "prefix",
    "timeout",
    "time",
    "when_down",
    "lease",
    "batching",
    "permits_for",
    "snapshot",
    "snapshot_interval",
];
/// The fields that require `redis`.
const REDIS_FIELDS: [&str; 7] = ["prefix", "timeout", "time", "when_down", "lease", "batching", "permits_for"];
/// The URL schemes of Redis.
pub(crate) const SCHEMES: [&str; 8] = [
    "redis://",
    "rediss://",
    "redis+unix://",
    "unix://",
    "redis+cluster://",
    "rediss+cluster://",
    "redis+sentinel://",
    "rediss+sentinel://",
];

impl StoreSection {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`store`", FIELDS, problems)?;
        let ceiling =
            fields.take("memory").and_then(|node| scalar::parsed(node, "`memory`", bytes::parse_byte_size, problems));
        let on_full = fields
            .take("on_full")
            .and_then(|node| scalar::word(node, "`on_full`", &["share", "deny", "allow"], problems));
        let on_full = on_full.map(|index| [OnFullKeys::Share, OnFullKeys::Deny, OnFullKeys::Allow][index]);
        let snapshot = SnapshotSection::read(&mut fields, problems);
        let memory =
            MemorySection { ceiling: ceiling.and_then(|bytes| usize::try_from(bytes).ok()), on_full, snapshot };
        let redis = match fields.take("redis") {
            Some(node) => RedisSection::read(node, &mut fields, problems),
            None => {
                for name in REDIS_FIELDS {
                    if let Some(entry) = fields.take_entry(name) {
                        let problem = Problem::new(entry.span, format!("`{name}` needs `redis`"));
                        problems.push(problem.expected("add `redis: redis://127.0.0.1:6379`"));
                    }
                }
                None
            }
        };
        fields.finish(problems);
        Some(Self { memory, redis })
    }
}

impl SnapshotSection {
    fn read(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let interval = fields.take_entry("snapshot_interval");
        let Some(node) = fields.take("snapshot") else {
            if let Some(entry) = interval {
                let problem = Problem::new(entry.span, "`snapshot_interval` needs `snapshot`");
                problems.push(problem.expected("add `snapshot: /var/lib/diana/counts`"));
            }
            return None;
        };
        let interval =
            interval.and_then(|entry| scalar::positive_duration(&entry.node, "`snapshot_interval`", problems));
        let path = scalar::parsed(
            node,
            "`snapshot`",
            |text| match text {
                "" => Err("expected the path of a file such as /var/lib/diana/counts"),
                path if path.ends_with('/') => Err("expected the path of a file, not of a folder"),
                path => Ok(PathBuf::from(path)),
            },
            problems,
        );
        path.map(|path| Self { path, interval })
    }
}

impl RedisSection {
    fn read(node: &Node, fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = scalar::text(node, "`redis`", problems);
        let is_known = |text: &str| SCHEMES.iter().any(|scheme| text.starts_with(scheme) && text.len() > scheme.len());
        let checked =
            text.map_or(Ok(()), |text| if is_known(text) { check(text) } else { Err("invalid Redis address") });
        if let Err(what) = checked {
            // The text is not shown, since it may contain a password.
            let problem = Problem::new(node.span, what);
            problems.push(problem.expected(
                "expected redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
            ));
        }
        let time = fields.take("time").and_then(|node| scalar::word(node, "`time`", &TIME, problems));
        let when_down = fields.take("when_down").and_then(|node| WhenRedisIsDown::read(node, problems));
        let prefix = fields.take("prefix").and_then(|node| {
            let is_valid = |text: &str| !text.is_empty() && !text.contains(['{', '}']);
            let expected = "expected a text without `{` and `}`, which would put all keys of a cluster on one node";
            scalar::parsed(
                node,
                "`prefix`",
                |text| is_valid(text).then(|| text.to_owned()).ok_or_else(|| expected.to_owned()),
                problems,
            )
        });
        let timeout = fields.take("timeout").and_then(|node| scalar::positive_duration(node, "`timeout`", problems));
        let lease = fields.take("lease").and_then(|node| match node.text() {
            Some("off") => Some(Lease::Off),
            Some("auto") => Some(Lease::Auto),
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                scalar::count(node, "`lease`", 1, problems).map(Lease::Of)
            }
            _ => {
                problems
                    .push(scalar::invalid(node, "`lease`").expected("expected `off`, `auto` or a number such as 100"));
                None
            }
        });
        let batching = fields.take("batching").and_then(|node| scalar::flag(node, "`batching`", problems));
        let permits_for =
            fields.take("permits_for").and_then(|node| scalar::positive_duration(node, "`permits_for`", problems));
        Some(Self {
            // An invalid address is kept, so that rules with `store: shared` do not also report a missing store.
            url: Secret::new(text.unwrap_or_default()),
            prefix,
            timeout,
            time: time.map(|index| [StoreTime::Redis, StoreTime::Local][index]),
            when_down,
            lease,
            batching,
            permits_for,
        })
    }
}

/// The values of `when_down`.
pub(crate) const WHEN_DOWN: [&str; 3] = ["local", "allow", "deny"];
/// The values of `local` in `when_down: {local: full}`.
pub(crate) const LOCAL: [&str; 2] = ["share", "full"];

impl WhenRedisIsDown {
    fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            let word = scalar::word(node, "`when_down`", &WHEN_DOWN, problems)?;
            return Some([Self::Local, Self::Allow, Self::Deny][word]);
        }
        let mut fields = MapReader::of(node, "`when_down`", ["local"], problems)?;
        let local = fields.require("local", problems).and_then(|node| scalar::word(node, "`local`", &LOCAL, problems));
        fields.finish(problems);
        Some([Self::Local, Self::LocalFull][local?])
    }
}

/// Returns an error if the address of a Redis is incomplete. The client that connects parses it again, more strictly.
fn check(text: &str) -> Result<(), &'static str> {
    let address = Address::of(text);
    match address.scheme {
        // The path of a local socket.
        "unix" | "redis+unix" => Ok(()),
        _ if !address.has_hosts() => Err("missing host in the Redis address"),
        "redis+sentinel" | "rediss+sentinel" if address.path.is_empty() => {
            Err("missing master name in the Redis address")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn checks_hosts_and_the_master_of_sentinels() {
        for text in [
            "redis://127.0.0.1:6379",
            "rediss://u:p@[::1]:6380/3",
            "unix:///run/redis.sock",
            "redis+unix:///run/redis.sock?pass=x",
            "redis+cluster://:s3%2Fcret@h:1,i:2",
            "redis+sentinel://:s3cret@h:1,i:2/master/1",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("redis://:pw@/", "missing host"),
            ("redis://:6379", "missing host"),
            ("redis+cluster://,,", "missing host"),
            ("redis+cluster://:pw@a:1,:2", "missing host"),
            ("redis+sentinel://a:1", "master"),
        ] {
            let problem = check(text).err().unwrap_or_default();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
