//! Why a function was not run.

use crate::engine::time;
use diana_core::Retry;
use std::fmt;
use std::time::Duration;

/// Why a limited function was not run: which function, whose call, and when to come again. Nothing was charged.
///
/// A function's own error type takes it in by `From`; `Box<dyn Error + Send + Sync>` does already.
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
/// let clock = diana::core::ManualClock::new();
/// diana::limited::Limits::new().with_clock(clock).install();
/// assert_eq!(search("crab").unwrap(), 4);
/// let SearchError::Limited(limited) = search("crab").unwrap_err();
/// assert!(limited.function().ends_with("::search"));
/// assert_eq!(limited.key(), Some("crab"));
/// assert_eq!(limited.retry_after(), Some(std::time::Duration::from_secs(60)));
/// assert!(limited.to_string().ends_with("search` is limited for crab: come again in 1min"), "{limited}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    name: &'static str,
    prefix: usize,
    key: Option<Box<str>>,
    is_nobodys: bool,
    cause: Cause,
}

/// What kept a limited function from running: its limit, or something that is to be set right in the program.
///
/// ```
/// use diana::limited::Cause;
///
/// #[diana::rate_limit(rate = 5, in = "searches")]
/// fn search() -> Result<(), diana::Limited> {
///     Ok(())
/// }
///
/// // Nobody has installed `searches`, so a server would answer 500 here, and not 429.
/// let limited = search().unwrap_err();
/// assert_eq!(limited.cause(), &Cause::NotInstalled { instance: Some("searches") });
/// assert!(limited.to_string().contains(r#"`diana::limited::Limits::new().install_as("searches")`"#), "{limited}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The limit is used up.
    Used {
        /// When the call would be granted.
        retry: Retry,
    },
    /// The rule that the function names with `#[limited]` refuses the call.
    Rule {
        /// The rule's name.
        rule: &'static str,
        /// What the rule answers, where an answer has a status.
        status: u16,
        /// When the call would be granted.
        retry: Retry,
    },
    /// Nobody has installed [`Limits`](super::Limits) to count by.
    NotInstalled {
        /// The name that the attribute asks for with `in`, if it does.
        instance: Option<&'static str>,
    },
    /// The function has `store = shared`, and the installed limits know no such [store](super::Limits::with_shared).
    NotShared,
    /// The function has `store = shared`, and another one with the same path and prefix has these counts already.
    NameTaken,
    /// The function names a rule, and the installed limits know no [rules](super::Limits::with_rules).
    NoRules,
    /// The function names a rule that is not among the rules in force.
    NoSuchRule {
        /// The name.
        rule: &'static str,
    },
    /// The rule that the function names does not ask for something that the function tells it.
    NotAsked {
        /// What is wrong, in words.
        problem: Box<str>,
    },
    /// The call would have to wait, and there is no tokio runtime to wait in.
    NoRuntime,
    /// The function is not async and has to ask over the network, for which a runtime must have threads of its own.
    WouldBlock,
    /// The numbers in the attribute make no limit, which the compiler has not seen.
    Unusable {
        /// What is wrong with them.
        problem: Box<str>,
    },
}

impl Limited {
    pub(super) fn new(name: &'static str, prefix: usize, key: Option<Box<str>>, cause: Cause) -> Self {
        Self { name, prefix, key, is_nobodys: false, cause }
    }

    pub(super) fn nobodys(self, is_nobodys: bool) -> Self {
        Self { is_nobodys, ..self }
    }

    /// The function's path: its module and its name.
    pub fn function(&self) -> &'static str {
        self.name.get(self.prefix..).unwrap_or(self.name)
    }

    /// What the counts are called: the attribute's `prefix`, if it has one, and the function's path.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whose call it was, if the function counts by that: an address, a user (`(nobody)` if that is not known), a text.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What kept the function from running.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// How long until the call would be granted, if nobody else calls in between. `None` if waiting does not help: then
    /// [`cause`](Self::cause) says what does.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::Used { retry: Retry::After(wait) } | Cause::Rule { retry: Retry::After(wait), .. } => Some(wait),
            _ => None,
        }
    }

    /// The status that a server answers with: the rule's, if a rule refused the call; 429 if a limit of the function's own did;
    /// 500 if something is to be set right in the program.
    pub fn status(&self) -> u16 {
        match self.cause {
            Cause::Used { .. } => 429,
            Cause::Rule { status, .. } => status,
            _ => 500,
        }
    }

    /// Whether the call came without the address or the user that the function counts by, and so was counted with all such
    /// calls. If that is not meant, the [`Caller`](super::Caller) was not told.
    pub fn is_nobodys(&self) -> bool {
        self.is_nobodys
    }
}

impl Limited {
    fn whose_and_when(&self, retry: Retry, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.key() {
            write!(f, " for {key}")?;
        }
        match retry {
            Retry::After(wait) => write!(f, ": come again in {}", time(wait)),
            Retry::WhenReturned => write!(f, ": come again when another call is over"),
            Retry::Never => write!(f, ": coming again won't help"),
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function();
        match &self.cause {
            Cause::Used { retry } => {
                write!(f, "`{function}` is limited")?;
                self.whose_and_when(*retry, f)
            }
            Cause::Rule { rule, retry, .. } => {
                write!(f, "`{function}` is limited by rule `{rule}`")?;
                self.whose_and_when(*retry, f)
            }
            Cause::NotInstalled { instance: None } => write!(
                f,
                "`{function}` has a limit, but nothing to count by: call `diana::limited::Limits::new().install()` when the \
                 program starts"
            ),
            Cause::NotInstalled { instance: Some(name) } => write!(
                f,
                "`{function}` has a limit in `{name}`, which is not installed: call \
                 `diana::limited::Limits::new().install_as({name:?})` when the program starts"
            ),
            Cause::NotShared => write!(
                f,
                "`{function}` has a limit with `store = shared`, but the installed limits have no store to share: install \
                 `Limits::new().with_shared(store)` (feature `redis`)"
            ),
            Cause::NameTaken => write!(
                f,
                "another function is called `{}` and has shared counts, so they would be counted together: give one of them a \
                 `prefix`",
                self.name
            ),
            Cause::NoRules => write!(
                f,
                "`{function}` names a rule, but the installed limits have none: install `Limits::new().with_rules(engine)`"
            ),
            Cause::NoSuchRule { rule } => write!(
                f,
                "`{function}` names the rule `{rule}`, which is not in force: add it to the rule file, or name another"
            ),
            Cause::NotAsked { problem } => {
                write!(f, "`{function}` tells its rule what that does not ask for: {problem}")
            }
            Cause::NoRuntime => write!(
                f,
                "`{function}` is limited and has to wait, but runs outside of a tokio runtime: call it in one, or leave out \
                 what it waits for (`timeout`, `store = shared`)"
            ),
            Cause::WouldBlock => write!(
                f,
                "`{function}` has to ask over the network, and would block the only thread of a runtime: make it an `async fn`, or \
                 use a multi-threaded runtime"
            ),
            Cause::Unusable { problem } => write!(f, "`{function}` has no limit that can be counted: {problem}"),
        }
    }
}

impl std::error::Error for Limited {}
