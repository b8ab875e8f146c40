//! The counts of limited functions, and their configuration: table options, clock, shared store, rules.
//!
//! [`Limits`] has the counts of each annotated function, found by the address of the static that the attribute creates.
//! A program [installs](Limits::install) one instance for all functions, or [several with names](Limits::install_as);
//! tests [enter](Limits::enter) their own, so that they do not share counts.

use super::Cause;
use super::callsite::Limit;
use super::installed;
#[cfg(feature = "rules")]
use crate::engine::Engine;
use diana_core::{Clock, TableOptions, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The counts of limited functions: one table of keys per function, with a memory limit, and a clock. For functions
/// with shared limits or rules, it also has the [shared store](Self::with_shared) and the [engine](Self::with_rules).
///
/// Functions use the [default instance](Self::install), or the [named instance](Self::install_as) in their `in`.
/// Cloning is cheap; clones share their counts.
///
/// ```
/// use diana::ManualClock;
/// use diana::limited::Limits;
/// use std::time::Duration;
///
/// #[diana::rate_limit(rate = 2.0, burst = 1)]
/// fn tick() -> Result<(), diana::Limited> {
///     Ok(())
/// }
///
/// let clock = ManualClock::new();
/// Limits::new().with_clock(clock.clone()).install();
///
/// assert!(tick().is_ok());
/// assert_eq!(tick().unwrap_err().retry_after(), Some(Duration::from_millis(500)));
/// clock.advance(Duration::from_millis(500));
/// assert!(tick().is_ok());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Limits {
    inner: Arc<LimitsParts>,
}

#[derive(Debug, Default)]
struct LimitsParts {
    config: Config,
    /// The counts, by the address of the attribute's static: two functions may have the same path, such as methods of different
    /// types.
    call_sites: Mutex<HashMap<usize, Arc<Limit>>>,
    /// The address of the static that uses each name of shared counts.
    #[cfg(feature = "redis")]
    names: Mutex<HashMap<&'static str, usize>>,
}

/// The configuration.
#[derive(Clone, Debug, Default)]
struct Config {
    options: TableOptions,
    clock: Option<SharedClock>,
    #[cfg(feature = "redis")]
    shared: Option<diana_redis::RedisStore>,
    #[cfg(feature = "rules")]
    rules: Option<Engine>,
}

impl From<Config> for Limits {
    fn from(config: Config) -> Self {
        Self { inner: Arc::new(LimitsParts { config, ..LimitsParts::default() }) }
    }
}

impl Limits {
    /// Creates empty counts with the system's clock, and at most 64 MiB for the keys of each function.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty copy with other table options. The memory limit is per table, so the program's total is that
    /// times the number of its attributes; a function with one key takes next to nothing.
    ///
    /// ```
    /// use diana::TableOptions;
    /// use diana::limited::Limits;
    ///
    /// Limits::new().with_options(TableOptions::default().memory(1 << 20)).install();
    /// ```
    #[must_use]
    pub fn with_options(self, options: TableOptions) -> Self {
        Config { options, ..self.inner.config.clone() }.into()
    }

    /// Returns an empty copy with another clock. For functions that wait asynchronously it must be tokio's, whose timer
    /// wakes them: [`TokioClock`](diana_core::TokioClock) in tests with paused time. Rules and shared counts have their
    /// own clocks.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Config { clock: Some(SharedClock(Arc::new(clock))), ..self.inner.config.clone() }.into()
    }

    /// Returns an empty copy with a store for attributes with `store = shared`: all processes that have a function of
    /// the same path (and `prefix`) on the same Redis share its counts.
    ///
    /// While Redis is unreachable, calls are decided according to the store's
    /// [`when_down`](diana_redis::Options::when_down): by default by counts of this process.
    ///
    /// ```no_run
    /// use diana::limited::Limits;
    /// use diana::redis::{Options, RedisStore};
    ///
    /// #[diana::rate_limit(rate = 5.0, by = user, store = shared)]
    /// async fn export() -> Result<(), diana::Limited> {
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
    /// Limits::new().with_shared(store).install();
    /// export().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn with_shared(self, store: diana_redis::RedisStore) -> Self {
        Config { shared: Some(store), ..self.inner.config.clone() }.into()
    }

    /// Returns an empty copy with the rules for `#[limited("name")]`. Rule changes in the engine apply from the next call on.
    ///
    /// ```
    /// use diana::Engine;
    /// use diana::limited::Limits;
    /// use diana::rules::{Document, Registry, RuleFile};
    /// use std::sync::Arc;
    ///
    /// #[diana::limited("sms", phone = "{phone}")]
    /// fn send_code(phone: &str) -> Result<(), diana::Limited> {
    ///     Ok(())
    /// }
    ///
    /// let file = Document::new("diana.yaml", "rules: [{name: sms, match: {call: phone}, by: phone, limit: 1/min}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// Limits::new().with_rules(engine).install();
    ///
    /// assert!(send_code("555-1234").is_ok());
    /// assert!(send_code("555-1234").is_err());
    /// # Ok::<(), diana::rules::Problems>(())
    /// ```
    #[cfg(feature = "rules")]
    #[must_use]
    pub fn with_rules(self, engine: Engine) -> Self {
        Config { rules: Some(engine), ..self.inner.config.clone() }.into()
    }

    /// Installs these limits as the program's default, replacing the previous ones. Waiting calls keep their
    /// reservations.
    pub fn install(&self) {
        installed::install(None, self.clone());
    }

    /// Installs these limits for functions with `in = "name"`, replacing the previous ones.
    ///
    /// ```
    /// use diana::limited::Limits;
    ///
    /// #[diana::count_limit(limit = 1, period = "1day", in = "mail")]
    /// fn newsletter() -> Result<(), diana::Limited> {
    ///     Ok(())
    /// }
    ///
    /// Limits::new().install_as("mail");
    /// assert!(newsletter().is_ok());
    /// assert!(newsletter().is_err());
    ///
    /// Limits::new().install_as("mail"); // a new instance with empty counts
    /// assert!(newsletter().is_ok());
    /// ```
    pub fn install_as(&self, name: &str) {
        installed::install(Some(name), self.clone());
    }

    /// Runs synchronous code in which all limited functions use these limits, whichever instance they name: for tests,
    /// which run in parallel and would otherwise share the installed ones.
    ///
    /// ```
    /// use diana::ManualClock;
    /// use diana::limited::Limits;
    ///
    /// #[diana::count_limit(limit = 1, period = "1h")]
    /// fn export() -> Result<(), diana::Limited> {
    ///     Ok(())
    /// }
    ///
    /// Limits::new().with_clock(ManualClock::new()).enter(|| {
    ///     assert!(export().is_ok());
    ///     assert!(export().is_err());
    /// });
    /// Limits::new().enter(|| assert!(export().is_ok()));
    /// ```
    pub fn enter<R>(&self, run: impl FnOnce() -> R) -> R {
        installed::enter(self.clone(), run)
    }

    /// Runs a future in which all limited functions use these limits, like [`enter`](Self::enter). Spawned tasks use
    /// the installed ones.
    ///
    /// ```
    /// use diana::TokioClock;
    /// use diana::limited::Limits;
    ///
    /// #[diana::rate_limit(rate = 1, burst = 1, timeout = "5s")]
    /// async fn tick() -> Result<(), diana::Limited> {
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), diana::Limited> {
    /// let began = tokio::time::Instant::now();
    /// let limits = Limits::new().with_clock(TokioClock::new());
    /// limits.scope(async { tick().await.and(tick().await) }).await?;
    /// assert_eq!(began.elapsed().as_millis(), 1_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        installed::scope(self.clone(), future)
    }

    /// Returns the number of attributes that were counted so far, except those with shared counts or rules.
    pub fn len(&self) -> usize {
        self.inner.call_sites.lock().len()
    }

    /// Returns `true` if nothing was counted so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory used by all keys, in bytes; a function without keys uses none.
    pub fn memory_used(&self) -> usize {
        self.inner.call_sites.lock().values().map(|limit| limit.memory_used()).sum()
    }

    /// Drops all keys that equal a new one. Inserting keys does so incrementally; call this in idle times.
    pub fn reclaim(&self) {
        let limits: Vec<_> = self.inner.call_sites.lock().values().cloned().collect();
        limits.iter().for_each(|limit| limit.reclaim());
    }

    /// Returns the counts of the attribute whose static is at `address`, created by `create` at the first call.
    pub(super) fn of_call_site(
        &self,
        address: usize,
        create: impl FnOnce(TableOptions) -> Result<Limit, Cause>,
    ) -> Result<Arc<Limit>, Cause> {
        let mut call_sites = self.inner.call_sites.lock();
        if let Some(limit) = call_sites.get(&address) {
            return Ok(Arc::clone(limit));
        }
        let limit = create(self.inner.config.options)?;
        let limit = match &self.inner.config.clock {
            Some(clock) => limit.with_clock(clock.clone()),
            None => limit,
        };
        let limit = Arc::new(limit);
        call_sites.insert(address, Arc::clone(&limit));
        Ok(limit)
    }

    /// Returns the rules for `#[limited]`.
    #[cfg(feature = "rules")]
    pub(super) fn rules(&self) -> Option<&Engine> {
        self.inner.config.rules.as_ref()
    }

    /// Returns the shared store.
    #[cfg(feature = "redis")]
    pub(super) fn shared(&self) -> Option<&diana_redis::RedisStore> {
        self.inner.config.shared.as_ref()
    }

    /// Assigns a name of shared counts to the attribute whose static is at `address`, unless it is taken.
    #[cfg(feature = "redis")]
    pub(super) fn claim(&self, name: &'static str, address: usize) -> Result<(), Cause> {
        let owner = *self.inner.names.lock().entry(name).or_insert(address);
        if owner == address { Ok(()) } else { Err(Cause::DuplicateName) }
    }
}

/// One clock for many limiters.
#[derive(Clone, Debug)]
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn park(&self, at_most: Duration) {
        self.0.park(at_most);
    }
}
