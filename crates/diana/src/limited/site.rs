//! One attribute in the code: what it says, and the counts that it has found. What the attributes write; no part of the API.
//!
//! A call must cost little more than a check of a limiter that was made by hand. So the counts are looked up once and held;
//! after that a call compares one number, which tells whether something was installed since.

pub use super::key::{By, Key};
use super::{Cause, Limited, Limits};
use arc_swap::ArcSwapOption;
use diana_core::{Answer, FixedWindow, KeyedLimiter, Opens, Outcome, Quota, Retry, SmoothBursty, Starts, TableOptions};
use std::sync::Arc;
use std::time::Duration;

/// The counts of one attribute.
pub(super) type Limit = KeyedLimiter<[u8]>;

/// One attribute in the code.
#[derive(Debug)]
pub struct Site {
    says: Says,
    held: ArcSwapOption<Held>,
}

/// What an attribute says.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    /// The prefix and the function's path.
    pub name: &'static str,
    /// How long the prefix is.
    pub prefix: usize,
    /// Which limits it counts in: those of this name, or the program's.
    pub instance: Option<&'static str>,
    /// What keys begin with.
    pub by: By,
    /// Whether there is more than one key.
    pub keys: Keys,
    /// How much is granted.
    pub limit: Allows,
    /// How long a call may wait.
    pub timeout: Duration,
}

/// How many keys a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One for all calls.
    One,
    /// Many.
    Many,
}

/// How much an attribute grants.
#[derive(Clone, Copy, Debug)]
pub enum Allows {
    /// `#[rate_limit]`.
    Rate {
        /// Permits a second.
        rate: f64,
        /// How much time's worth of them is stored.
        burst: Duration,
    },
    /// `#[count_limit]`.
    Count {
        /// How many in one period.
        limit: u64,
        /// From the first call on.
        period: Duration,
    },
}

/// The counts that a site has found.
#[derive(Debug)]
struct Held {
    /// How often something was installed when they were found.
    installs: u64,
    limit: Arc<Limit>,
}

impl Site {
    /// An attribute that has not been called yet.
    pub const fn new(says: Says) -> Self {
        Self { says, held: ArcSwapOption::const_empty() }
    }

    /// Takes one permit, now or not at all.
    #[inline]
    pub fn check(&'static self, key: &Key) -> Result<(), Limited> {
        let held = self.held.load();
        match &*held {
            Some(held) if held.installs == Limits::installs() => self.told(key, held.limit.check(key.as_bytes())),
            _ => self.told(key, self.find(key)?.check(key.as_bytes())),
        }
    }

    /// Takes one permit, blocking this thread for at most the attribute's time-out.
    pub fn wait(&'static self, key: &Key) -> Result<(), Limited> {
        // Who need not wait need not hold the counts either.
        match self.check(key) {
            Err(limited) if self.is_worth_waiting(&limited) => {}
            answered => return answered,
        }
        let limit = self.find(key)?;
        match limit.try_acquire(key.as_bytes(), 1, self.says.timeout) {
            Ok(answer) => self.told(key, answer),
            Err(error) => Err(self.limited(key, unusable(error))),
        }
    }

    /// Takes one permit, waiting for at most the attribute's time-out. Dropped, it gives its permit back if it is the last.
    pub async fn wait_async(&'static self, key: Key) -> Result<(), Limited> {
        match self.check(&key) {
            Err(limited) if self.is_worth_waiting(&limited) => {}
            answered => return answered,
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(self.limited(&key, Cause::NoRuntime));
        }
        let limit = self.find(&key)?;
        match limit.try_acquire_async(key.as_bytes(), 1, self.says.timeout).await {
            Ok(answer) => self.told(&key, answer),
            Err(error) => Err(self.limited(&key, unusable(error))),
        }
    }

    /// Whether the time-out is long enough. If another call comes in between, it is asked again anyway.
    fn is_worth_waiting(&self, limited: &Limited) -> bool {
        limited.retry_after().is_some_and(|wait| wait <= self.says.timeout)
    }

    #[inline]
    fn told(&self, key: &Key, answer: Answer) -> Result<(), Limited> {
        match answer.outcome {
            Outcome::Granted { .. } => Ok(()),
            Outcome::Denied { retry } => Err(self.refused(key, retry)),
        }
    }

    #[cold]
    fn refused(&self, key: &Key, retry: Retry) -> Limited {
        self.limited(key, Cause::Used { retry })
    }

    fn limited(&self, key: &Key, cause: Cause) -> Limited {
        Limited::new(self.says.name, self.says.prefix, key.shown(self.says.by), cause)
    }

    /// The counts in what is installed now.
    #[cold]
    fn find(&'static self, key: &Key) -> Result<Arc<Limit>, Limited> {
        let instance = self.says.instance;
        let (limits, installs) =
            Limits::find(instance).ok_or_else(|| self.limited(key, Cause::NotInstalled { instance }))?;
        let limit =
            limits.of_site(self, |options| self.says.make(options)).map_err(|cause| self.limited(key, cause))?;
        // Two calls may do so at once, after two installs even: whichever is held, the next call compares the number.
        self.held.store(Some(Arc::new(Held { installs, limit: Arc::clone(&limit) })));
        Ok(limit)
    }
}

impl Says {
    fn make(&self, options: TableOptions) -> Result<Limit, Cause> {
        let options = match self.keys {
            Keys::One => options.shards(1),
            Keys::Many => options,
        };
        Ok(match self.limit {
            Allows::Rate { rate, burst } => {
                let smooth = SmoothBursty::new(rate).and_then(|smooth| smooth.with_burst_seconds(burst.as_secs_f64()));
                // An idle key must equal a new one, or none could ever be forgotten.
                KeyedLimiter::with_options(smooth.map_err(unusable)?.starting(Starts::Full), options)
            }
            Allows::Count { limit, period } => {
                let quota = Quota::new(limit, period).map_err(unusable)?;
                KeyedLimiter::with_options(FixedWindow::new(quota).opens(Opens::FirstRequest), options)
            }
        })
    }
}

fn unusable(error: impl std::error::Error) -> Cause {
    Cause::Unusable { problem: error.to_string().into() }
}
