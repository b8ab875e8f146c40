//! One rule of an engine as a limiter, for pools and paced streams.

use crate::engine::{DecideMode, Engine, Permit};
use crate::ruleset::RuleNotCallable;
use diana_core::{BoxFuture, MaxWait, PermitSource, RateSource, Restores, Retry, SourceError, SourcePermit, TakeError};
use diana_rules::{Attribute, Attributes};
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};

/// A rule of an [`Engine`], by its name: a reload of the rule file changes its limit, and its key and its counts are those of the
/// rule. Created by [`Engine::limiter`].
///
/// A [`Pool`](crate::Pool) takes the permits of its `concurrent`, in this process or shared over processes:
///
/// ```
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana::{Engine, Pool};
/// use std::convert::Infallible;
///
/// let file = Document::new("diana.yaml", "rules: [{name: connections, match: {call: true}, concurrent: 1}]");
/// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
///
/// let pool = Pool::from_source("orders", engine.limiter("connections")?);
/// let connect = || Ok::<_, Infallible>("a connection");
/// let connection = pool.try_get(connect)?;
/// assert!(pool.try_get(connect).is_err());
/// # drop(connection);
///
/// let file = Document::new("diana.yaml", "rules: [{name: connections, match: {call: true}, concurrent: 2}]");
/// engine.set_rules(&RuleFile::read(&file, &Registry::default())?);
/// let both = (pool.try_get(connect)?, pool.try_get(connect)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RuleLimiter {
    engine: Engine,
    rule: Arc<str>,
    arguments: Vec<(Arc<str>, Arc<str>)>,
}

impl RuleLimiter {
    pub(crate) fn new(engine: Engine, rule: &str) -> Self {
        Self { engine, rule: rule.into(), arguments: Vec::new() }
    }

    /// Sets an argument that the rule reads, such as the application in `by: application`.
    #[must_use]
    pub fn with_argument(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }

    /// Returns the rule's name.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    fn call(&self, hits: u64) -> RuleCall<'_> {
        RuleCall { limiter: self, hits }
    }

    /// Returns a permit, if the rule is one whose permits are held.
    fn permit(&self, permit: Permit) -> Result<SourcePermit, SourceError> {
        if !permit.matches().is_held() {
            drop(permit.provisional());
            let problem = format!("rule `{}` has no `concurrent`, so a pool can't hold its permits", self.rule);
            return Err(SourceError::Failed(problem));
        }
        Ok(Box::new(permit))
    }

    /// Blocks this thread until `work` is done.
    fn block_this_thread(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        match self.runtime() {
            Some(runtime) => runtime.block_on(work),
            // The rule is counted in this process, so only its waits need a timer.
            None => match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime.block_on(work),
                Err(error) => tracing::error!(%error, "can't start a timer"),
            },
        }
    }

    fn runtime(&self) -> Option<Handle> {
        self.engine.runtime().or_else(|| Handle::try_current().ok())
    }
}

fn failed(error: RuleNotCallable) -> SourceError {
    SourceError::Failed(error.to_string())
}

/// A permit is waited for as long as the rule's `wait` and the maximum wait allow.
impl PermitSource for RuleLimiter {
    fn acquire(&self, max_wait: MaxWait) -> BoxFuture<'_, Result<SourcePermit, SourceError>> {
        Box::pin(async move {
            if max_wait == MaxWait::NONE {
                let deciding = self.engine.decide_by(&self.rule, &self.call(1), DecideMode::Deny).map_err(failed)?;
                return match deciding.await {
                    Ok(permit) if permit.wait() == Some(Duration::ZERO) => self.permit(permit),
                    // The request would have to wait.
                    Ok(permit) => {
                        let problem = permit.to_string();
                        drop(permit.provisional());
                        Err(SourceError::Denied(problem))
                    }
                    Err(denial) => Err(SourceError::Denied(denial.to_string())),
                };
            }
            let acquiring = self.engine.acquire_by(&self.rule, &self.call(1)).map_err(failed)?;
            match tokio::time::timeout(max_wait.as_duration(), acquiring).await {
                Ok(Ok(permit)) => self.permit(permit),
                Ok(Err(denial)) => Err(SourceError::Denied(denial.to_string())),
                Err(_) => Err(SourceError::TimedOut),
            }
        })
    }

    fn limit(&self) -> Option<u64> {
        self.engine.with_rules(|rules| {
            let limits = rules.named(&self.rule)?.own_limits();
            let in_use = limits.iter().filter_map(|limit| match limit.limit.properties().restores {
                Restores::WhenReleased { limit } => Some(limit),
                _ => None,
            });
            in_use.min()
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(task);
        }
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.block_this_thread(work);
    }
}

/// Permits are waited for as long as the rule's `wait` allows; a longer wait is a denial with the time of the next attempt.
impl RateSource for RuleLimiter {
    fn take(&self, permits: u64) -> BoxFuture<'_, Result<(), TakeError>> {
        Box::pin(async move {
            let failed = |problem: String| {
                tracing::warn!("nothing is taken from rule `{}`: {problem}", self.rule);
                TakeError::Failed(problem)
            };
            let call = self.call(permits);
            let acquiring = self.engine.acquire_by(&self.rule, &call).map_err(|error| failed(error.to_string()))?;
            match acquiring.await {
                Ok(permit) if permit.matches().is_held() => {
                    drop(permit.provisional());
                    Err(failed("it has `concurrent`, whose permits are released".to_owned()))
                }
                Ok(_) => Ok(()),
                Err(denial) => {
                    let capacities = denial.checked_limits().map(|checked| checked.answer.status().limit);
                    let capacity = capacities.filter(|&capacity| capacity < permits).min();
                    Err(TakeError::Denied { retry: denial.retry().unwrap_or(Retry::Never), capacity })
                }
            }
        })
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.block_this_thread(work);
    }
}

/// A call of the rule.
struct RuleCall<'a> {
    limiter: &'a RuleLimiter,
    hits: u64,
}

impl Attributes for RuleCall<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let Attribute::Named(name) = attribute else { return None };
        self.limiter.arguments.iter().find(|(known, _)| **known == **name).map(|(_, value)| Cow::Borrowed(&**value))
    }

    fn unknown_argument(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.limiter.arguments.iter().map(|(name, _)| &**name).find(|name| !is_asked(name))
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn passes_names(&self) -> bool {
        true
    }
}

impl fmt::Debug for RuleLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleLimiter")
            .field("rule", &self.rule)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}
