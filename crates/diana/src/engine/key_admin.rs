//! Reads and changes one key of one rule, for the admin API, support tools and tests.
//!
//! Operations go to the store in which the rule is counted: this process, or the shared store. A failing store is an
//! error, so that the operator knows that nothing was changed.

use super::Engine;
use super::shared_store::SharedStore;
use crate::RuleSet;
use crate::ruleset::{ChargedAt, CompiledLimit, InvalidKey, Listed, Matches, Purpose};
use diana_core::{Ask, Change, Cost, Decision, LocalStore, MaxWait, Query, Retry, StoreError};
use diana_rules::Attributes;
use diana_rules::rule::CountedIn;
use std::sync::Arc;
use std::time::Duration;

/// The status of a key of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyStatus {
    /// The limits of the key, in the order of the rule.
    pub limits: Vec<LimitStatus>,
    /// The store in which it is counted.
    pub counted_in: CountedIn,
    /// Whether the shared store is unreachable, so that this is the status of the local fallback counts.
    pub is_fallback: bool,
    /// The list of the rule that contains the key: then its counts are not used.
    pub listed: Option<Listed>,
}

/// The status of a key in one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus {
    /// The limit's name: the rule's name, followed by its index unless it is the first.
    pub name: String,
    /// The maximum that can be granted at once.
    pub limit: u64,
    /// How much could be granted now.
    pub remaining: u64,
    /// The time until the limit resets.
    pub reset: Duration,
    /// When a request with a cost of 1 would be granted; `None` if now.
    pub retry: Option<Retry>,
}

/// An operation that changes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyOperation {
    /// Resets its counts.
    Reset,
    /// Refunds a cost, up to its usage.
    Refund(Cost),
    /// Charges a cost, even over the limit.
    Charge(Cost),
}

/// An operation on a key with the status before and after it, for audit logs.
///
/// Requests that are decided at the same time are part of the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyChange {
    /// The rule.
    pub rule: String,
    /// The key in the format of the file's `log_keys`: as it is, its hash, or `None`. Also `None` for a rule without `by`.
    pub logged_key: Option<String>,
    /// The operation.
    pub operation: KeyOperation,
    /// The status before it.
    pub before: KeyStatus,
    /// The status after it. An error means that the store failed halfway: some limits may have been changed.
    pub after: Result<KeyStatus, StoreError>,
}

/// Why an operation on a key failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyAdminError {
    /// No active rule has this name.
    #[error("unknown rule `{0}`")]
    NoSuchRule(String),
    /// The key is invalid for this rule.
    #[error(transparent)]
    InvalidKey(InvalidKey),
    /// The rule counts nothing: it only throttles bodies, or has only `load`.
    #[error("rule `{0}` has no limit that is counted")]
    NothingToCount(String),
    /// Concurrency permits are released by their requests only.
    #[error(
        "`{0}` can't be refunded: its permits are released when their requests finish; to release them now, reset the \
         key"
    )]
    HeldByRequests(String),
    /// The shared store failed; the error contains whether anything was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A key of a rule, given by name.
struct NamedKey {
    rules: Arc<RuleSet>,
    rule: usize,
    key: Vec<u8>,
    listed: Option<Listed>,
}

impl NamedKey {
    fn limits(&self) -> &[CompiledLimit] {
        self.rules.rules().get(self.rule).map_or(&[], |rule| rule.limits_of_key(&self.key))
    }

    fn counted_in(&self) -> CountedIn {
        self.rules.rules().get(self.rule).map_or(CountedIn::Local, |rule| rule.rule().counted_in)
    }

    fn asks(&self) -> Vec<Ask<'_>> {
        self.limits().iter().map(|limit| Ask::one(&limit.limit, &self.key)).collect()
    }
}

impl Engine {
    /// Returns the status of a key of a rule. Nothing is charged.
    ///
    /// The key is written as in the rule's `overrides`: one value for each part of `by`, and none if all requests are
    /// counted together.
    ///
    /// ```
    /// # use diana::rules::attributes::SyntheticRequest;
    /// # use diana::rules::{Document, Registry, RuleFile};
    /// # use diana::Engine;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 5/h}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let alice = SyntheticRequest::new("GET", "/").named("account", "alice");
    /// assert!(engine.acquire(&alice).await.is_ok());
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
        Ok(self.status(&named).await?)
    }

    /// Resets a key of a rule. With `concurrent`, in-flight requests are no longer counted.
    pub async fn reset_key(&self, rule: &str, key: &[&str]) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        self.change(&named, KeyOperation::Reset).await?;
        Ok(self.status(&named).await?)
    }

    /// Charges `cost` to every limit of a key unconditionally, even over the limit.
    pub async fn charge_key(&self, rule: &str, key: &[&str], cost: Cost) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        self.change(&named, KeyOperation::Charge(cost)).await?;
        Ok(self.status(&named).await?)
    }

    /// Refunds `cost` to every limit of a key, up to its usage.
    ///
    /// The remaining usage is charged again, starting now: it expires no sooner than before, and maybe later. A
    /// concurrent request may stay uncounted. Permits of running requests (`concurrent`) are only released by the
    /// requests themselves.
    pub async fn refund_key(&self, rule: &str, key: &[&str], cost: Cost) -> Result<KeyStatus, KeyAdminError> {
        let named = self.named(rule, key)?;
        self.change(&named, KeyOperation::Refund(cost)).await?;
        Ok(self.status(&named).await?)
    }

    /// Does one of the operations above, and returns the status before and after it.
    ///
    /// # Errors
    /// Nothing was changed. An error of the store during the change is in [`KeyChange::after`].
    ///
    /// ```
    /// # use diana::rules::{Document, Registry, RuleFile};
    /// # use diana::{Cost, Engine, KeyOperation};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 5/h}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let change = engine.change_key("each-account", &["alice"], KeyOperation::Charge(Cost::new(2)?)).await?;
    /// assert_eq!(change.logged_key.as_deref(), Some("alice"));
    /// assert_eq!((change.before.limits[0].remaining, change.after?.limits[0].remaining), (5, 3));
    /// # Ok(())
    /// # }
    /// # futures_util::future::FutureExt::now_or_never(run()).unwrap().unwrap();
    /// ```
    pub async fn change_key(
        &self,
        rule: &str,
        key: &[&str],
        operation: KeyOperation,
    ) -> Result<KeyChange, KeyAdminError> {
        let named = self.named(rule, key)?;
        let before = self.status(&named).await?;
        let after = match self.change(&named, operation).await {
            Ok(()) => self.status(&named).await,
            Err(KeyAdminError::Store(error)) => Err(error),
            Err(error) => return Err(error),
        };
        let by = named.rules.rules().get(named.rule).map(|rule| &rule.rule().by);
        let logged_key = by.and_then(|by| named.rules.log_keys().show(by, &named.key));
        Ok(KeyChange { rule: rule.to_owned(), logged_key, operation, before, after })
    }

    /// Refunds the cost of requests to every rule that matches them, up to the usage of each key: as
    /// [`refund_key`](Self::refund_key), for requests that did not use their charges. Dropping the future does not cancel it.
    ///
    /// # Errors
    /// The shared store failed, or a rule has permits that only their requests release. Other rules may be refunded.
    pub fn refund_all<'e>(
        &'e self,
        requests: &[&dyn Attributes],
    ) -> impl Future<Output = Result<(), KeyAdminError>> + Send + use<'e> {
        let rules = self.rules();
        let mut matches = Matches::default();
        rules.find(requests, Purpose::Charge, &mut matches);
        let engine = self.clone();
        // The refund resets a count and charges what is still in use: it must not end between the two.
        let work = async move {
            let mut result = Ok(());
            // Rules that are charged after the response have charged nothing.
            for matched in matches.matched().iter().filter(|matched| matched.charged_at == ChargedAt::Request) {
                let Some(rule) = rules.rule(matched.rule) else { continue };
                let (limits, key) = (rule.limits(matched), matches.key(matched));
                result = engine.refund_limits(limits, key, matched.counted_in, matched.cost).await;
                if result.is_err() {
                    break;
                }
            }
            result
        };
        async move { self.state.background.run(work).await.unwrap_or(Ok(())) }
    }

    async fn change(&self, named: &NamedKey, operation: KeyOperation) -> Result<(), KeyAdminError> {
        let (asks, counted_in) = (named.asks(), named.counted_in());
        match operation {
            KeyOperation::Reset => {
                self.change_counts(&asks, counted_in, Change::Reset).await?;
                // Waiters can be granted earlier than predicted.
                self.state.counts.wake(&asks);
            }
            KeyOperation::Charge(cost) => {
                let asks = asks.into_iter().map(|ask| Ask { cost, ..ask }).collect::<Vec<_>>();
                self.change_counts(&asks, counted_in, Change::Charge).await?;
            }
            KeyOperation::Refund(cost) => self.refund_limits(named.limits(), &named.key, counted_in, cost).await?,
        }
        Ok(())
    }

    /// Refunds `cost` to each of these limits of a key, up to its usage.
    pub(super) async fn refund_limits(
        &self,
        limits: &[CompiledLimit],
        key: &[u8],
        counted_in: CountedIn,
        cost: Cost,
    ) -> Result<(), KeyAdminError> {
        if let Some(held) = limits.iter().find(|limit| limit.is_returned) {
            return Err(KeyAdminError::HeldByRequests(held.limit.name().to_owned()));
        }
        let asks = limits.iter().map(|limit| Ask::one(&limit.limit, key)).collect::<Vec<_>>();
        let before = self.peek_counts(&asks, counted_in).await?;
        for (ask, answer) in asks.iter().zip(before.answers()) {
            let used = answer.status().limit.saturating_sub(answer.status().remaining);
            if used == 0 {
                continue;
            }
            self.change_counts(&[*ask], counted_in, Change::Reset).await?;
            if let Ok(still_used) = Cost::new(used.saturating_sub(cost.get())) {
                self.change_counts(&[Ask { cost: still_used, ..*ask }], counted_in, Change::Charge).await?;
            }
        }
        self.state.counts.wake(&asks);
        Ok(())
    }

    fn named(&self, rule: &str, key: &[&str]) -> Result<NamedKey, KeyAdminError> {
        let rules = self.rules();
        let index = rules.rules().iter().position(|known| known.rule().name == rule);
        let index = index.ok_or_else(|| KeyAdminError::NoSuchRule(rule.to_owned()))?;
        let (values, compiled) = (key, &rules.rules()[index]);
        let key = compiled.key_of(values).map_err(KeyAdminError::InvalidKey)?;
        let listed = compiled.list_of(values);
        let named = NamedKey { rules, rule: index, key, listed };
        if named.limits().is_empty() {
            return Err(KeyAdminError::NothingToCount(rule.to_owned()));
        }
        Ok(named)
    }

    /// Returns the store of these counts, if it is not this process.
    fn shared_for(&self, counted_in: CountedIn) -> Option<&dyn SharedStore> {
        self.state.shared.as_deref().filter(|_| counted_in == CountedIn::Shared)
    }

    async fn status(&self, named: &NamedKey) -> Result<KeyStatus, StoreError> {
        let shared = self.shared_for(named.counted_in());
        let peeked = self.peek_counts(&named.asks(), named.counted_in()).await?;
        let is_fallback = shared.is_some_and(|shared| shared.is_fallback(&peeked));
        let counted_in = if shared.is_some() { CountedIn::Shared } else { CountedIn::Local };
        let limits = named.limits().iter().zip(peeked.answers()).map(|(limit, answer)| LimitStatus {
            name: limit.limit.name().to_owned(),
            limit: answer.status().limit,
            remaining: answer.status().remaining,
            reset: answer.status().reset,
            retry: answer.retry(),
        });
        Ok(KeyStatus { limits: limits.collect(), counted_in, is_fallback, listed: named.listed })
    }

    async fn peek_counts(&self, asks: &[Ask<'_>], counted_in: CountedIn) -> Result<Decision, StoreError> {
        match self.shared_for(counted_in) {
            Some(shared) => shared.query(asks, self.now(), Query::Peek(MaxWait::NONE)).await,
            None => Ok(LocalStore::peek(self.local(), asks, self.now(), MaxWait::NONE)),
        }
    }

    async fn change_counts(
        &self,
        asks: &[Ask<'_>],
        counted_in: CountedIn,
        change: Change<'_>,
    ) -> Result<(), StoreError> {
        match self.shared_for(counted_in) {
            Some(shared) => shared.change(asks, self.now(), change).await,
            None => {
                LocalStore::change(self.local(), asks, self.now(), change);
                Ok(())
            }
        }
    }
}
