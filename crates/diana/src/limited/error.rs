//! Why a function was not run.

use crate::duration_text::time;
use diana_core::Retry;
use std::fmt;
use std::time::Duration;

/// The error of a limited function that was not run: the function, the key, and the retry time. Nothing was charged.
///
/// A function's own error type needs `From<Limited>`; `Box<dyn Error + Send + Sync>` has it.
///
/// ```
/// #[derive(Debug)]
/// enum SearchError {
///     Limited(diana::Limited),
/// }
///
/// impl From<diana::Limited> for SearchError {
///     fn from(limited: diana::Limited) -> Self {
///         Self::Limited(limited)
///     }
/// }
///
/// #[diana::count_limit(limit = 1, period = "1min", by = "{words}")]
/// fn search(words: &str) -> Result<usize, SearchError> {
///     Ok(words.len())
/// }
///
/// let clock = diana::ManualClock::new();
/// diana::limited::Limits::new().with_clock(clock).install();
/// assert_eq!(search("crab").unwrap(), 4);
/// let SearchError::Limited(limited) = search("crab").unwrap_err();
/// assert!(limited.function().ends_with("::search"));
/// assert_eq!(limited.key(), Some("crab"));
/// assert_eq!(limited.retry_after(), Some(std::time::Duration::from_secs(60)));
/// assert!(limited.to_string().ends_with("search` is limited for crab: retry after 1min"), "{limited}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    name: &'static str,
    prefix: usize,
    key: Option<Box<str>>,
    is_unknown_caller: bool,
    cause: Cause,
}

/// Why a limited function was not run: its limit, or a mistake in the program.
///
/// ```
/// use diana::limited::Cause;
///
/// #[diana::rate_limit(rate = 5, in = "searches")]
/// fn search() -> Result<(), diana::Limited> {
///     Ok(())
/// }
///
/// // `searches` is not installed, so a server would answer 500 here, not 429.
/// let limited = search().unwrap_err();
/// assert_eq!(limited.cause(), &Cause::NotInstalled { instance: Some("searches"), rule: None });
/// assert!(limited.to_string().contains(r#"`diana::limited::Limits::new().install_as("searches")`"#), "{limited}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The limit is exhausted.
    Exhausted {
        /// When the call would be granted.
        retry: Retry,
    },
    /// The rule of `#[limited]` denies the call.
    Rule {
        /// The rule's name.
        rule: &'static str,
        /// The HTTP status that the rule configures.
        status: u16,
        /// When the call would be granted.
        retry: Retry,
    },
    /// No [`Limits`](super::Limits) are installed.
    NotInstalled {
        /// The instance name in the attribute's `in`, if it has one.
        instance: Option<&'static str>,
        /// The rule that the function names, if it is `#[limited]`.
        rule: Option<&'static str>,
    },
    /// The function has `store = shared`, and the installed limits have no [shared store](super::Limits::with_shared).
    NoSharedStore,
    /// The function has `store = shared`, and another one with the same path and prefix already uses these counts.
    DuplicateName,
    /// The function names a rule, and the installed limits have no [rules](super::Limits::with_rules).
    NoRules {
        /// The name.
        rule: &'static str,
    },
    /// The function names a rule that is not active.
    NoSuchRule {
        /// The name.
        rule: &'static str,
    },
    /// The function passes an argument that its rule does not list.
    UnknownArgument {
        /// A description of the problem.
        problem: Box<str>,
    },
    /// The call would have to wait, and there is no tokio runtime.
    NoRuntime,
    /// The function is not async and needs the network, which takes a multi-threaded runtime.
    WouldBlock,
    /// The numbers in the attribute are not a valid limit, which the compiler could not detect.
    InvalidLimit {
        /// A description of the problem.
        problem: Box<str>,
    },
}

impl Limited {
    pub(super) fn new(name: &'static str, prefix: usize, key: Option<Box<str>>, cause: Cause) -> Self {
        Self { name, prefix, key, is_unknown_caller: false, cause }
    }

    pub(super) fn with_unknown_caller(self, is_unknown_caller: bool) -> Self {
        Self { is_unknown_caller, ..self }
    }

    /// Returns the function's path: its module and its name.
    pub fn function(&self) -> &'static str {
        self.name.get(self.prefix..).unwrap_or(self.name)
    }

    /// Returns the name of the counts: the attribute's `prefix`, if it has one, and the function's path.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the key of the call, if the function has keys: an address, a user (`(unknown)` if unknown), a text.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns why the function was not run.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns how long until the call would be granted, without other calls in between. `None` if waiting does not
    /// help: then see [`cause`](Self::cause).
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::Exhausted { retry: Retry::After(wait) } | Cause::Rule { retry: Retry::After(wait), .. } => {
                Some(wait)
            }
            _ => None,
        }
    }

    /// Returns the HTTP status for a server: the rule's, if a rule denied the call; 429 if the function's own limit
    /// did; 500 for a mistake in the program.
    pub fn status(&self) -> u16 {
        match self.cause {
            Cause::Exhausted { .. } => 429,
            Cause::Rule { status, .. } => status,
            _ => 500,
        }
    }

    /// Returns `true` if the call had no address or user to count by, and so was counted with all such calls. If that
    /// is not intended, the [`Caller`](super::Caller) was not set.
    pub fn is_unknown_caller(&self) -> bool {
        self.is_unknown_caller
    }
}

impl Limited {
    fn fmt_key_and_retry(&self, retry: Retry, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.key() {
            write!(f, " for {key}")?;
        }
        match retry {
            Retry::After(wait) => write!(f, ": retry after {}", time(wait)),
            Retry::WhenReleased => write!(f, ": retry when another call returns"),
            Retry::Never => write!(f, ": retrying does not help"),
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function();
        match &self.cause {
            Cause::Exhausted { retry } => {
                write!(f, "`{function}` is limited")?;
                self.fmt_key_and_retry(*retry, f)
            }
            Cause::Rule { rule, retry, .. } => {
                write!(f, "`{function}` is limited by rule `{rule}`")?;
                self.fmt_key_and_retry(*retry, f)
            }
            Cause::NotInstalled { instance, rule } => {
                match rule {
                    Some(rule) => write!(f, "`{function}` is limited by the rule `{rule}`")?,
                    None => write!(f, "`{function}` has a limit")?,
                }
                match instance {
                    Some(name) => write!(f, " in `{name}`, which is not installed")?,
                    None => f.write_str(", but no `Limits` are installed")?,
                }
                let rules = if rule.is_some() { ".with_rules(engine)" } else { "" };
                let install = instance.map_or("install()".to_owned(), |name| format!("install_as({name:?})"));
                write!(f, ": call `diana::limited::Limits::new(){rules}.{install}` when the program starts")
            }
            Cause::NoSharedStore => write!(
                f,
                "`{function}` has `store = shared`, but the installed limits have no shared store: install \
                 `Limits::new().with_shared(store)` (feature `redis`)"
            ),
            Cause::DuplicateName => write!(
                f,
                "duplicate name `{}` of shared counts: another function has the same path and prefix; give one of \
                 them a `prefix`",
                self.name
            ),
            Cause::NoRules { rule } => write!(
                f,
                "`{function}` names the rule `{rule}`, but the installed limits have no rules: install \
                 `Limits::new().with_rules(engine)`"
            ),
            Cause::NoSuchRule { rule } => write!(
                f,
                "`{function}` names the rule `{rule}`, which is not active: add it to the rule file, or name another"
            ),
            Cause::UnknownArgument { problem } => {
                write!(f, "invalid arguments of `{function}`: {problem}")
            }
            Cause::NoRuntime => write!(
                f,
                "`{function}` must wait, but there is no tokio runtime: call it in a runtime, or remove the option \
                 that waits (`timeout`, `store = shared`)"
            ),
            Cause::WouldBlock => write!(
                f,
                "`{function}` needs the network, and would block the only thread of a runtime: make it an \
                 `async fn`, or use a multi-threaded runtime"
            ),
            Cause::InvalidLimit { problem } => write!(f, "invalid limit of `{function}`: {problem}"),
        }
    }
}

impl std::error::Error for Limited {}
