//! The command line: how long to measure, and which subjects.

use diana_bench::gateways::load::Effort;
use std::time::Duration;

/// The subjects, as `--only` names them.
pub(crate) const SUBJECTS: &[&str] = &[
    "forward",
    "refuse",
    "half",
    "close-forward",
    "close-refuse",
    "h2c-forward",
    "h2c-refuse",
    "tls-forward",
    "tls-refuse",
    "many-forward",
    "many-refuse",
    "half-load",
    "idle",
    "idle-h2c",
    "idle-tls",
    "key-memory",
    "rules",
    "redis",
    "instructions",
];

/// How long to measure, and which subjects.
pub(crate) struct Options {
    pub(crate) effort: Effort,
    only: Vec<String>,
}

impl Options {
    /// Parses `args`; fails with a message for unknown ones.
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        // wrk counts in whole seconds.
        let mut effort = Effort { rounds: 9, slice: Duration::from_secs(2) };
        let (mut only, mut args) = (Vec::new(), args);
        while let Some(argument) = args.next() {
            match argument.as_str() {
                "--quick" => effort = Effort { rounds: 3, slice: Duration::from_secs(1) },
                "--only" => {
                    let names = args.next().unwrap_or_default();
                    only.extend(names.split(',').map(str::to_owned));
                }
                other => {
                    return Err(format!("bench gateway: unknown option `{other}`; {HELP} {}", SUBJECTS.join(", ")));
                }
            }
        }
        match only.iter().find(|name| !SUBJECTS.contains(&name.as_str())) {
            None => Ok(Self { effort, only }),
            Some(name) => Err(format!("bench gateway: unknown subject `{name}`; {HELP} {}", SUBJECTS.join(", "))),
        }
    }

    /// Returns whether `subject` is to be measured.
    pub(crate) fn wants(&self, subject: &str) -> bool {
        debug_assert!(SUBJECTS.contains(&subject), "{subject}");
        self.only.is_empty() || self.only.iter().any(|name| name == subject)
    }
}

const HELP: &str = "expected `--quick` or `--only NAME,...`, with names of";
