//! The filter of logged events: `DIANA_LOG`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The prefix of all of Diana's crates.
const DIANA: &str = "diana";

/// The filter of logged events.
///
/// `debug` alone is the level of Diana's own events. Libraries are silent unless they are named, as in `info,h2=debug`:
/// at `debug` they log single frames, with data of clients.
///
/// ```
/// use diana_server::program_log::LogFilter;
///
/// assert!(LogFilter::parse("debug").is_ok());
/// assert!(LogFilter::parse("info,h2=trace,diana_gateway=debug").is_ok());
/// assert!(LogFilter::parse("foo").is_err());
/// ```
#[derive(Debug)]
pub struct LogFilter(EnvFilter);

/// An invalid log filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown log level `{0}`; expected error, warn, info, debug, trace or off, or these for single libraries, as in \
     `info,h2=debug`"
)]
pub struct InvalidLogFilter(String);

impl LogFilter {
    /// Parses levels and `target=level` pairs, separated by commas. An empty text is the default, `info`.
    pub fn parse(text: &str) -> Result<Self, InvalidLogFilter> {
        let mut directives = format!("off,{DIANA}=info");
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (target, level) = part.split_once('=').map_or((DIANA, part), |(target, level)| (target, level));
            let is_target = |character: char| character.is_ascii_alphanumeric() || "_-:".contains(character);
            if !is_level(level) || target.is_empty() || !target.chars().all(is_target) {
                return Err(InvalidLogFilter(
                    part.chars().filter(|character| !character.is_control()).take(100).collect(),
                ));
            }
            // Of two directives for the same target the later one wins.
            directives.push_str(&format!(",{target}={}", level.to_ascii_lowercase()));
        }
        EnvFilter::try_new(&directives).map(Self).map_err(|_| InvalidLogFilter(text.chars().take(100).collect()))
    }

    pub(super) fn into_inner(self) -> EnvFilter {
        self.0
    }
}

/// Returns whether it is the name of a level. (The parser of `tracing` also accepts numbers and an empty text.)
fn is_level(text: &str) -> bool {
    !text.is_empty() && text.parse::<LevelFilter>().is_ok() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_names_and_targets_are_paths() {
        for good in ["", "info", "DEBUG", "warn, h2=debug", "off", "diana_redis=trace", "error,"] {
            assert!(LogFilter::parse(good).is_ok(), "{good}");
        }
        for bad in ["foo", "5", "h2", "h2=", "=info", "h2=foo", "h2=3", "[span]=info", "info debug"] {
            assert!(LogFilter::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn libraries_are_silent_unless_they_are_named() {
        let shown = |text: &str| LogFilter::parse(text).unwrap().into_inner().to_string();
        assert_eq!(shown(""), "diana=info,off");
        assert_eq!(shown("debug"), "diana=debug,off");
        assert!(shown("warn,h2=debug").contains("h2=debug"));
    }
}
