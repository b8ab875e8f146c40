//! The limit directives: zones, and their uses.

use super::lua::LuaLimit;
use super::syntax::{Directive, Position};
use crate::rule_file::Delay;

/// A zone: its key and rate, independent of where it is used.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) kind: ZoneKind,
    /// The key, as written.
    pub(super) key: String,
    /// The zone's size in bytes.
    pub(super) size: Option<u64>,
    pub(super) position: Position,
}

impl Zone {
    /// Returns the memory of its rule. nginx accepts smaller zones than a rule does, and reserves them even for one key,
    /// which needs no bound.
    pub(super) fn memory(&self, by: &[String]) -> Option<String> {
        let size = self.size.filter(|_| !by.is_empty())?;
        Some(bytes(size.max(MIN_MEMORY)))
    }
}

/// The smallest memory of a rule, in bytes.
const MIN_MEMORY: u64 = 64 << 10;

/// The level at which nginx logs denials; delays are logged one level lower, as by Diana.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DenialLog {
    Info,
    Warn,
    /// nginx's default, if no directive sets a level.
    #[default]
    Default,
    Error,
}

impl DenialLog {
    /// Parses the argument of `limit_req_log_level` or `limit_conn_log_level`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "info" | "notice" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            _ => return None,
        })
    }

    /// Returns the value of a rule's `log`.
    pub(super) fn field(self) -> Option<&'static str> {
        match self {
            Self::Info => Some("info"),
            Self::Warn => Some("warn"),
            Self::Error => Some("error"),
            Self::Default => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ZoneKind {
    /// `limit_req_zone`, with its rate as Diana writes it.
    Requests(String),
    /// `limit_conn_zone`.
    Connections,
}

/// One limit in use. Equal ones are the same limit, with the same counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Use {
    Requests {
        zone: String,
        burst: u64,
        delay: Delay,
        denial: Denial,
    },
    Connections {
        zone: String,
        count: u64,
        denial: Denial,
    },
    /// Bytes per second, after this many.
    Rate {
        bytes: u64,
        after: u64,
    },
    /// A limit of lua-resty-limit-traffic.
    Lua(LuaLimit),
}

/// The response to requests over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Denial {
    pub(super) status: u16,
    pub(super) dry_run: bool,
}

impl Default for Denial {
    fn default() -> Self {
        Self { status: 503, dry_run: false }
    }
}

impl Use {
    pub(super) fn zone(&self) -> Option<&str> {
        match self {
            Self::Requests { zone, .. } | Self::Connections { zone, .. } => Some(zone),
            Self::Lua(limit) => Some(&limit.dictionary),
            Self::Rate { .. } => None,
        }
    }

    /// Returns the name of its directive.
    pub(super) fn directive(&self) -> &'static str {
        match self {
            Self::Requests { .. } => "limit_req",
            Self::Connections { .. } => "limit_conn",
            Self::Rate { .. } => "limit_rate",
            Self::Lua(limit) => limit.kind.module(),
        }
    }
}

/// Parses `limit_req_zone KEY zone=NAME:SIZE rate=N` or `limit_conn_zone KEY zone=NAME:SIZE` into the name and the
/// zone; fails with the reason.
pub(super) fn zone(directive: &Directive) -> Result<(String, Zone), String> {
    let key = directive.arg(0).to_owned();
    let (mut name, mut zone_size, mut rate) = (None, None, None);
    for arg in directive.args.iter().skip(1) {
        match arg.split_once('=') {
            Some(("zone", value)) => {
                let (zone, bytes) = value.split_once(':').unwrap_or((value, ""));
                (name, zone_size) = (Some(zone.to_owned()), size(bytes));
            }
            Some(("rate", value)) => {
                rate =
                    Some(requests(value).ok_or_else(|| {
                        format!("invalid `{arg}`: expected for example `rate=10r/s` or `rate=30r/m`")
                    })?);
            }
            // `sync` is reported elsewhere; it changes nothing here.
            _ if arg == "sync" => {}
            _ => return Err(format!("unknown parameter `{arg}`")),
        }
    }
    let name = name.filter(|name| !name.is_empty()).ok_or("missing `zone=NAME:SIZE`")?;
    let kind = match (directive.name.as_str(), rate) {
        ("limit_req_zone", Some(rate)) => ZoneKind::Requests(rate),
        ("limit_req_zone", None) => return Err("missing `rate`".to_owned()),
        _ => ZoneKind::Connections,
    };
    Ok((name, Zone { kind, key, size: zone_size, position: directive.position }))
}

/// Converts `10r/s` or `30r/m` to Diana's syntax.
fn requests(rate: &str) -> Option<String> {
    let (count, unit) = rate.split_once("r/")?;
    let count = count.parse::<u32>().ok().filter(|count| *count > 0)?;
    match unit {
        "s" => Some(format!("{count}/s")),
        // Equal rates are written the same, so that equal limits compare equal.
        "m" if count.is_multiple_of(60) => Some(format!("{}/s", count / 60)),
        "m" => Some(format!("{count}/min")),
        _ => None,
    }
}

/// Parses `limit_req zone=NAME [burst=N] [nodelay | delay=N]`; fails with the reason.
pub(super) fn limit_req(directive: &Directive) -> Result<Use, String> {
    let (mut name, mut burst, mut delay) = (None, 0, Delay::Each);
    for arg in &directive.args {
        let count = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| format!("invalid number `{arg}`"));
        match arg.split_once('=') {
            Some(("zone", value)) => name = Some(value.to_owned()),
            Some(("burst", value)) => burst = count(value)?,
            Some(("delay", value)) => {
                delay = match count(value)? {
                    0 => Delay::Each,
                    requests => Delay::Over(requests),
                };
            }
            None if arg == "nodelay" => delay = Delay::Never,
            _ => return Err(format!("unknown parameter `{arg}`")),
        }
    }
    let zone = name.ok_or("missing `zone`")?;
    Ok(Use::Requests { zone, burst, delay, denial: Denial::default() })
}

/// Parses `limit_conn ZONE N`; fails with the reason.
pub(super) fn limit_conn(directive: &Directive) -> Result<Use, String> {
    let count = directive.arg(1).parse::<u32>().ok().filter(|count| *count > 0);
    let count = count.map(u64::from).ok_or_else(|| format!("invalid number of connections `{}`", directive.arg(1)))?;
    Ok(Use::Connections { zone: directive.arg(0).to_owned(), count, denial: Denial::default() })
}

/// The largest size that a rule may have, in bytes.
const MAX_SIZE: u64 = 1 << 53;

/// Parses a size: `500`, `512k`, `10m`, `1g`.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
        Some(number) => (number, text.chars().last()?.to_ascii_lowercase()),
        None => (text, 'b'),
    };
    let shift = match unit {
        _ if number.len() == text.len() => 0,
        'k' => 10,
        'm' => 20,
        'g' => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| *size <= MAX_SIZE)
}

/// Formats a size as Diana does, in the largest unit that divides it.
pub(super) fn bytes(count: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| count >= *unit && count.is_multiple_of(*unit)).unwrap_or((1, "B"));
    format!("{}{name}", count / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes() {
        assert_eq!(requests("10r/s").as_deref(), Some("10/s"));
        assert_eq!(requests("30r/m").as_deref(), Some("30/min"));
        assert_eq!(requests("120r/m").as_deref(), Some("2/s"));
        assert_eq!([requests("0r/s"), requests("1.5r/s"), requests("5"), requests("5r/h")], [const { None }; 4]);
        assert_eq!(
            [size("500"), size("512k"), size("10M"), size("1g")],
            [Some(500), Some(512 << 10), Some(10 << 20), Some(1 << 30)]
        );
        assert_eq!([size(""), size("k"), size("5x"), size("99999999999999g"), size("-1"), size("ü")], [None; 6]);
        assert_eq!([size("9007199254740992"), size("9007199254740993"), size("9999999g")], [Some(1 << 53), None, None]);
        assert_eq!(
            [bytes(0), bytes(500), bytes(1536), bytes(512 << 10), bytes(3 << 30)],
            ["0B", "500B", "1536B", "512KiB", "3GiB"]
        );
    }
}
