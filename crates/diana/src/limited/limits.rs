//! Where the counts of limited functions live.
//!
//! One [`Limits`] is installed for the program, others by name for those attributes that ask for them with `in`. Sites
//! remember what they found, so each install raises a number that they compare with.

use super::site::{Limit, Site};
use diana_core::{Clock, KeyedLimiter, TableOptions, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the counts of limited functions live: one table of keys for each function, with a ceiling on its memory, and a clock.
///
/// Functions count in the one that is [installed](Self::install), or in one that they [name](Self::install_as) with `in`. A clone is
/// another handle to the same counts.
///
/// ```
/// use diana::core::ManualClock;
/// use diana::limited::Limits;
/// use std::time::Duration;
///
/// #[diana::rate_limit(rate = 2.0, burst = "0s")]
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
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    options: TableOptions,
    clock: Option<SharedClock>,
    /// By where the attribute's static is: two functions may have the same path, as methods of different types have.
    sites: Mutex<HashMap<usize, Arc<Limit>>>,
}

/// What is installed.
struct Installed {
    main: Option<Limits>,
    named: BTreeMap<Box<str>, Limits>,
}

static INSTALLED: Mutex<Installed> = Mutex::new(Installed { main: None, named: BTreeMap::new() });
/// How often something was installed; 0 before the first time. Changed only while `INSTALLED` is locked.
static INSTALLS: AtomicU64 = AtomicU64::new(0);

impl Limits {
    /// Nothing counted yet, by the system's clock, with 64 MiB at most for the keys of each function.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, unused, with other options for the table of each function. The ceiling on memory is each table's own, so the
    /// program's is that times the number of its attributes; a function that has one key takes next to nothing.
    ///
    /// ```
    /// use diana::core::TableOptions;
    /// use diana::limited::Limits;
    ///
    /// Limits::new().with_options(TableOptions::default().memory(1 << 20)).install();
    /// ```
    #[must_use]
    pub fn with_options(self, options: TableOptions) -> Self {
        Self { inner: Arc::new(Inner { options, clock: self.inner.clock.clone(), sites: Mutex::default() }) }
    }

    /// The same, unused, on another clock. For functions that wait asynchronously that is tokio's, whose timer wakes them:
    /// [`TokioClock`](diana_core::TokioClock) in tests with paused time.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let clock = Some(SharedClock(Arc::new(clock)));
        Self { inner: Arc::new(Inner { options: self.inner.options, clock, sites: Mutex::default() }) }
    }

    /// Makes this the one that the program's functions count in, in place of the one before. Calls that wait go on waiting
    /// for the turn that they were promised.
    pub fn install(&self) {
        self.install_with(|installed| installed.main = Some(self.clone()));
    }

    /// Makes this the one that functions with `in = "name"` count in, in place of the one before.
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
    /// Limits::new().install_as("mail"); // another one, which has counted nothing
    /// assert!(newsletter().is_ok());
    /// ```
    pub fn install_as(&self, name: &str) {
        self.install_with(|installed| {
            installed.named.insert(name.into(), self.clone());
        });
    }

    fn install_with(&self, put: impl FnOnce(&mut Installed)) {
        let mut installed = INSTALLED.lock();
        put(&mut installed);
        INSTALLS.fetch_add(1, Ordering::Release);
    }

    /// How many attributes have counted here so far.
    pub fn len(&self) -> usize {
        self.inner.sites.lock().len()
    }

    /// Whether nothing has counted here so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that all keys take.
    pub fn memory_used(&self) -> usize {
        self.inner.sites.lock().values().map(|limit| limit.memory_used()).sum()
    }

    /// Looks at every key and drops those that equal a fresh one. New keys do so bit by bit; this is for quiet times.
    pub fn reclaim(&self) {
        let limits: Vec<_> = self.inner.sites.lock().values().cloned().collect();
        limits.iter().for_each(|limit| limit.reclaim());
    }

    /// How often something was installed.
    #[inline]
    pub(super) fn installs() -> u64 {
        INSTALLS.load(Ordering::Acquire)
    }

    /// The one that is installed, by name or for the program, and how often something was installed till then.
    pub(super) fn find(name: Option<&str>) -> Option<(Self, u64)> {
        let installed = INSTALLED.lock();
        let limits = match name {
            Some(name) => installed.named.get(name),
            None => installed.main.as_ref(),
        };
        limits.map(|limits| (limits.clone(), Self::installs()))
    }

    /// The counts of one attribute, made by `make` if this is the first call.
    pub(super) fn of_site<E>(
        &self,
        site: &'static Site,
        make: impl FnOnce(TableOptions) -> Result<Limit, E>,
    ) -> Result<Arc<Limit>, E> {
        let mut sites = self.inner.sites.lock();
        let place = std::ptr::from_ref(site).addr();
        if let Some(limit) = sites.get(&place) {
            return Ok(Arc::clone(limit));
        }
        let limit = make(self.inner.options)?;
        let limit = match &self.inner.clock {
            Some(clock) => KeyedLimiter::with_clock(limit, clock.clone()),
            None => limit,
        };
        let limit = Arc::new(limit);
        sites.insert(place, Arc::clone(&limit));
        Ok(limit)
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
