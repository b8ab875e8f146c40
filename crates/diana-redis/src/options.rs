//! How the store is set up.

use std::time::Duration;

/// How the store is set up: where Redis is away, what is spared, and what its keys are called.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) times: Times,
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Redis's, for all who share it.
    #[default]
    OfRedis,
    /// The caller's, who hands it in with each request: for tests, which own the time.
    OfCaller,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: "diana".to_owned(), timeout: Duration::from_millis(20), times: Times::OfRedis }
    }
}

impl Options {
    /// What the names of all keys begin with, `diana` unless you say otherwise. Those who share a limit have the same.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a request waits for Redis, 20 ms unless you say otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Whose clock counts: Redis's unless you say otherwise.
    #[must_use]
    pub fn times(self, times: Times) -> Self {
        Self { times, ..self }
    }
}
