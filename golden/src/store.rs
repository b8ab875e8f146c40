//! The store of a replay: in process, or on a separate Redis.
//!
//! This module contains all differences between the two. Each scenario has an empty store, and provides the time of
//! each step.

use diana_core::{
    Answer, Ask, ClThrottle, Decision, Limit, LocalStore, MaxWait, MemoryStore, Query, Store, StoreError, Timestamp,
};
use diana_redis::{DenyCache, Health, Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use std::cell::Cell;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The values of `--store`.
pub(crate) const NAMES: &str = "memory or redis";

/// A kind of store, of which each scenario gets an empty one.
#[derive(Debug)]
pub(crate) enum Stores {
    Memory,
    Redis(Box<Server>),
}

/// A Redis that was started for the replay, and is stopped with it.
#[derive(Debug)]
pub(crate) struct Server {
    redis: RedisServer,
    runtime: Runtime,
    scenarios: Cell<u64>,
}

/// The store of one scenario.
#[derive(Debug)]
pub(crate) enum ScenarioStore<'a> {
    Memory(MemoryStore),
    Redis(RedisStore, &'a Runtime),
}

/// Why a scenario is stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The store does not support such a limit, for this reason: the remaining steps are skipped.
    Unsupported(String),
    /// The scenario or the store is invalid.
    Problem(String),
}

impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Self::Problem(problem)
    }
}

impl From<&str> for Stop {
    fn from(problem: &str) -> Self {
        Self::Problem(problem.to_owned())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported { reason, .. } => Self::Unsupported(reason),
            other => Self::Problem(other.to_string()),
        }
    }
}

impl Stores {
    /// Returns the kind with this name. Starts a server for `redis`.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name {
            "memory" => Ok(Self::Memory),
            "redis" => {
                let redis = RedisServer::start().map_err(|error| format!("cannot start Redis: {error}"))?;
                let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
                Ok(Self::Redis(Box::new(Server { redis, runtime, scenarios: Cell::new(0) })))
            }
            other => Err(format!("unknown store `{other}`; expected {NAMES}")),
        }
    }

    /// Creates an empty store.
    pub(crate) fn empty(&self) -> Result<ScenarioStore<'_>, String> {
        let Self::Redis(server) = self else { return Ok(ScenarioStore::Memory(MemoryStore::default())) };
        let Server { redis, runtime, scenarios } = &**server;
        scenarios.set(scenarios.get() + 1);
        let options = Options::default().prefix(format!("golden-{}", scenarios.get())).time_source(TimeSource::Caller);
        // Only Redis's own answers matter, however long they take.
        let options = options.deny_cache(DenyCache::Off).when_down(WhenDown::Deny).timeout(Duration::from_secs(10));
        let store = runtime.block_on(RedisStore::connect(&redis.url(), options)).map_err(|error| error.to_string())?;
        Ok(ScenarioStore::Redis(store, runtime))
    }
}

impl ScenarioStore<'_> {
    /// Answers a query about all of `asks`.
    fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, Stop> {
        match self {
            Self::Memory(store) => Ok(LocalStore::query(store, asks, now, query)),
            Self::Redis(store, runtime) => {
                let decision = runtime.block_on(store.query(asks, now, query))?;
                match store.link().health {
                    Health::Healthy => Ok(decision),
                    // The answer was made without Redis.
                    _ => Err("Redis is unreachable".into()),
                }
            }
        }
    }

    /// Takes all of `asks` or nothing.
    pub(crate) fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, Stop> {
        self.query(asks, now, Query::Take(max_wait))
    }

    /// Returns the answer of [`decide`](Self::decide), without the effect.
    pub(crate) fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, Stop> {
        self.query(asks, now, Query::Peek(max_wait))
    }

    /// Takes one ask.
    pub(crate) fn decide_one(&self, ask: Ask<'_>, now: Timestamp, max_wait: MaxWait) -> Result<Answer, Stop> {
        self.query_one(ask, now, Query::Take(max_wait))
    }

    /// Decides one `CL.THROTTLE` call.
    pub(crate) fn cl_throttle(
        &self,
        limit: &Limit,
        key: &[u8],
        call: &ClThrottle,
        now: Timestamp,
    ) -> Result<Answer, Stop> {
        self.query_one(Ask::one(limit, key), now, Query::ClThrottle(call))
    }

    fn query_one(&self, ask: Ask<'_>, now: Timestamp, query: Query<'_>) -> Result<Answer, Stop> {
        let decision = self.query(&[ask], now, query)?;
        decision.answers().first().copied().ok_or_else(|| "the store returned no answer".into())
    }
}
