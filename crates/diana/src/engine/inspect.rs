//! One key of one rule, looked at and changed by hand: for the admin page, for support desks, for tests.
//!
//! Where a rule counts is where it is looked at and changed: in this process, or in the shared store. A store that fails is an
//! error here, since whoever acts by hand wants to know that nothing happened.

use super::Engine;
use diana_core::{Ask, Cost, Decision, LocalStore, MaxWait, Retry, Store, StoreError};
use diana_rules::{CompiledLimit, CountedIn, InvalidKey, Listed, RuleSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a key of a rule stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyStatus {
    /// Each limit that the key has, in the order of the rule.
    pub limits: Vec<LimitStatus>,
    /// Where it is counted.
    pub home: CountedIn,
    /// Whether the shared store is unreachable, so that the counts which this process keeps meanwhile have answered.
    pub is_fallback: bool,
    /// The list of the rule that the key is on: then its counts decide nothing.
    pub listed: Option<Listed>,
}

/// Where a key stands with one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus {
    /// The limit's name: the rule's, with its place behind it unless it is the first.
    pub name: String,
    /// The most that can be granted at once.
    pub limit: u64,
    /// How much could be granted right now.
    pub remaining: u64,
    /// How long until the limit gives back.
    pub reset: Duration,
    /// When a request that costs 1 would be granted; `None` if it would be now.
    pub retry: Option<Retry>,
}

/// Why nothing was done by hand.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyAdminError {
    /// No rule in force has this name.
    NoSuchRule(String),
    /// The rule has no such key.
    InvalidKey(InvalidKey),
    /// The rule has nothing to count: it only slows bodies down, or looks at the load.
    NothingToCount(String),
    /// What requests hold while they run comes back with them, and not by hand.
    ComesBackByItself(String),
    /// The shared store did not do it; it says whether anything was changed.
    Store(StoreError),
}

impl fmt::Display for KeyAdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRule(name) => write!(f, "no rule in force is called `{name}`"),
            Self::InvalidKey(invalid) => write!(f, "{invalid}"),
            Self::NothingToCount(name) => write!(f, "rule `{name}` counts nothing"),
            Self::ComesBackByItself(name) => {
                write!(
                    f,
                    "`{name}` gives back by itself when requests are done; to forget those that hold it, reset it"
                )
            }
            Self::Store(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for KeyAdminError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidKey(invalid) => Some(invalid),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for KeyAdminError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A key of a rule that was named by hand.
struct Named {
    rules: Arc<RuleSet>,
    rule: usize,
    key: Vec<u8>,
    listed: Option<Listed>,
}

impl Named {
    fn limits(&self) -> &[CompiledLimit] {
        self.rules.rules().get(self.rule).map_or(&[], |rule| rule.limits_of_key(&self.key))
    }

    fn home(&self) -> CountedIn {
        self.rules.rules().get(self.rule).map_or(CountedIn::Local, |rule| rule.rule().home)
    }

    fn asks(&self) -> Vec<Ask<'_>> {
        self.limits().iter().map(|limit| Ask::one(&limit.limit, &self.key)).collect()
    }
}

impl<S: Store> Engine<S> {
    /// Where a key of a rule stands. Nothing is charged.
    ///
    /// The key is written as in the rule's `overrides`: one value for each part of `by`, and none if everyone is counted
    /// together.
    ///
    /// ```
    /// # use diana::rules::{SyntheticRequest, Document, Registry, RuleFile};
    /// # use diana::Engine;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 5/h}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let alice = SyntheticRequest::new("GET", "/").named("account", "alice");
    /// assert!(engine.decide(&alice).await.is_granted());
    ///
    /// assert_eq!(engine.peek_key("each-account", &["alice"]).await?.limits[0].remaining, 4);
    /// engine.reset_key("each-account", &["alice"]).await?;
    /// assert_eq!(engine.peek_key("each-account", &["alice"]).await?.limits[0].remaining, 5);
    /// # Ok(())
    /// # }
    /// # futures_util::future::FutureExt::now_or_never(run()).unwrap().unwrap();
    /// ```
    pub async fn peek_key(&self, rule: &str, key: &[&str]) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        self.status(&named).await
    }

    /// Makes a key of a rule as good as new. With `concurrent`, requests that are under way are no longer counted.
    pub async fn reset_key(&self, rule: &str, key: &[&str]) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        for limit in named.limits() {
            self.reset_one(&named, limit).await?;
        }
        self.wake_queued(&named);
        self.status(&named).await
    }

    /// Takes `cost` from every limit of a key without asking, also beyond what is left.
    pub async fn charge_key(&self, rule: &str, key: &[&str], cost: Cost) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        for limit in named.limits() {
            self.charge_one(&named, limit, cost).await?;
        }
        self.status(&named).await
    }

    /// Gives `cost` back to every limit of a key, up to what is in use.
    ///
    /// What is in use is counted anew without `cost`, from now on: what is left of it comes back no sooner than before, and maybe
    /// later. A request of the same moment may go uncounted. Permits that requests hold (`concurrent`) come
    /// back with them alone.
    pub async fn refund_key(&self, rule: &str, key: &[&str], cost: Cost) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        if let Some(held) = named.limits().iter().find(|limit| limit.is_returned) {
            return Err(KeyAdminError::ComesBackByItself(held.limit.name().to_owned()));
        }
        let before = self.status(&named).await?;
        for (limit, status) in named.limits().iter().zip(&before.limits) {
            let used = status.limit.saturating_sub(status.remaining);
            if used == 0 {
                continue;
            }
            self.reset_one(&named, limit).await?;
            if let Ok(still_used) = Cost::new(used.saturating_sub(cost.get())) {
                self.charge_one(&named, limit, still_used).await?;
            }
        }
        self.wake_queued(&named);
        self.status(&named).await
    }

    /// Wakes those that are queued for a key: there is more for them than they were told.
    fn wake_queued(&self, named: &Named) {
        for limit in named.limits() {
            self.counts.lines.wake(self.counts.line(limit.limit.id(), &named.key));
        }
    }

    fn named(&self, rule: &str, key: &[&str]) -> Result<Named, KeyAdminError> {
        let rules = self.rules();
        let place = rules.rules().iter().position(|known| known.rule().name == rule);
        let place = place.ok_or_else(|| KeyAdminError::NoSuchRule(rule.to_owned()))?;
        let (values, own) = (key, &rules.rules()[place]);
        let key = own.key_of(values).map_err(KeyAdminError::InvalidKey)?;
        let listed = own.list_of(values);
        let named = Named { rules, rule: place, key, listed };
        if named.limits().is_empty() {
            return Err(KeyAdminError::NothingToCount(rule.to_owned()));
        }
        Ok(named)
    }

    /// The store in which a rule counts, if that is not this process.
    fn shared_for(&self, named: &Named) -> Option<&S> {
        self.shared().filter(|_| named.home() == CountedIn::Shared)
    }

    async fn status(&self, named: &Named) -> Result<KeyStatus, KeyAdminError> {
        let (asks, now) = (named.asks(), self.now());
        let (seen, home): (Decision, CountedIn) = match self.shared_for(named) {
            Some(shared) => (shared.peek(&asks, now, MaxWait::NONE).await?, CountedIn::Shared),
            None => (LocalStore::peek(self.local(), &asks, now, MaxWait::NONE), CountedIn::Local),
        };
        let is_fallback = self.shared_for(named).is_some_and(|shared| shared.is_fallback(&seen));
        let limits = named.limits().iter().zip(seen.answers()).map(|(limit, answer)| LimitStatus {
            name: limit.limit.name().to_owned(),
            limit: answer.status.limit,
            remaining: answer.status.remaining,
            reset: answer.status.reset,
            retry: answer.retry(),
        });
        Ok(KeyStatus { limits: limits.collect(), home, is_fallback, listed: named.listed })
    }

    async fn reset_one(&self, named: &Named, limit: &CompiledLimit) -> Result<(), StoreError> {
        match self.shared_for(named) {
            Some(shared) => shared.reset(&limit.limit, &named.key, self.now()).await,
            None => {
                LocalStore::reset(self.local(), &limit.limit, &named.key, self.now());
                Ok(())
            }
        }
    }

    async fn charge_one(&self, named: &Named, limit: &CompiledLimit, cost: Cost) -> Result<(), StoreError> {
        let ask = Ask::new(&limit.limit, &named.key, cost);
        match self.shared_for(named) {
            Some(shared) => shared.charge(ask, self.now()).await,
            None => {
                LocalStore::charge(self.local(), ask, self.now());
                Ok(())
            }
        }
    }
}
