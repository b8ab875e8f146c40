//! Several requests that are decided together, such as the descriptors of one request from Envoy.

use super::asks::{Scope, ScopedDecision};
use super::decide::WhenFull;
use super::{AcquireFuture, CheckedLimit, Engine, KeyAdminError, Verdict};
use diana_core::{Cost, LocalStore, MaxWait};
use diana_rules::Attributes;
use diana_rules::rule::{CountedIn, Mode};
use diana_rules::ruleset::{ChargedAt, MatchedRule, Matches};
use std::sync::Arc;

impl Engine {
    /// Decides about several requests together, all or nothing, like [`acquire`](Self::acquire): each is matched by itself,
    /// and a rule that matches several of them with the same key is charged once, at the highest cost.
    ///
    /// [`Verdict::limits_of`] has the limits of each. Requests that stand for 0 hits are not charged; see
    /// [`peek_all`](Self::peek_all).
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    pub fn acquire_all(self: &Arc<Self>, requests: &[&dyn Attributes]) -> AcquireFuture {
        let mut verdict = self.new_verdict();
        verdict.find_all(requests);
        let next = self.start_with(&mut verdict, WhenFull::Queue);
        AcquireFuture::new(self, verdict, next)
    }

    /// Returns what [`acquire_all`](Self::acquire_all) would decide, without waiting; nothing is charged or counted. A
    /// request that stands for 0 hits is denied only if a limit is exceeded, that is, more is in use than it allows.
    ///
    /// ```
    /// use diana::Engine;
    /// use diana::rules::attributes::SyntheticRequest;
    /// use diana::rules::{Document, Registry, RuleFile};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: reports, limit: 1/h}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let report = SyntheticRequest::new("GET", "/report");
    /// assert!(engine.peek_all(&[&report]).await.is_granted());
    /// assert!(engine.decide(&report).await.is_granted(), "the peek took nothing");
    ///
    /// assert!(!engine.peek_all(&[&report]).await.is_granted());
    /// assert!(engine.peek_all(&[&report.hits(0)]).await.is_granted(), "used up, but not exceeded");
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek_all<'e>(&'e self, requests: &[&dyn Attributes]) -> impl Future<Output = Verdict> + Send + use<'e> {
        let mut verdict = self.new_verdict();
        verdict.find_all_to_peek(requests);
        async move {
            let denied = verdict.matches().denied().iter().copied().find(|denial| {
                verdict.rules().rule(denial.rule).is_some_and(|rule| rule.rule().mode == Mode::Enforced)
            });
            if let Some(denial) = denied {
                verdict.deny_by(denial);
            } else {
                let local_scope = self.local_scope();
                self.peek_in(&mut verdict, local_scope).await;
                if self.is_shared(&verdict) {
                    self.peek_in(&mut verdict, Scope::Shared).await;
                }
                if verdict.matches().has_looks() {
                    self.peek_in(&mut verdict, Scope::Look(CountedIn::Local)).await;
                    self.peek_in(&mut verdict, Scope::Look(CountedIn::Shared)).await;
                }
            }
            verdict.finish_peek();
            verdict
        }
    }

    /// Adds the peeked decision about the queries in scope.
    async fn peek_in(&self, verdict: &mut Verdict, scope: Scope) {
        let mut asks = verdict.asks(scope);
        if asks.is_empty() {
            return;
        }
        // Whether a limit is exceeded is not a question of how long a request could wait.
        asks.iter_mut().filter(|ask| ask.cost == Cost::ZERO).for_each(|ask| ask.max_wait = MaxWait::NONE);
        let (at, max_wait) = (verdict.at(), MaxWait::FOREVER);
        let peeked = match &self.state.shared {
            Some(shared) if matches!(scope, Scope::Shared | Scope::Look(CountedIn::Shared)) => {
                shared.peek(&asks, at, max_wait).await.ok()
            }
            _ => None,
        };
        let is_local = peeked.is_none();
        let decision = peeked.unwrap_or_else(|| LocalStore::peek(self.local(), &asks, at, max_wait));
        drop(asks);
        verdict.add(ScopedDecision { scope, decision, is_local });
    }

    /// Refunds the cost of requests to every rule that matches them, up to the usage of each key: as
    /// [`refund_key`](Self::refund_key), for requests that did not use what they were charged. Dropping the future does not
    /// cancel it.
    ///
    /// # Errors
    /// The shared store failed, or a rule has permits that only their requests release. Other rules may be refunded.
    pub fn refund_all<'e>(
        &'e self,
        requests: &[&dyn Attributes],
    ) -> impl Future<Output = Result<(), KeyAdminError>> + Send + use<'e> {
        let rules = self.rules();
        let mut found = Matches::default();
        rules.find_all(requests, &mut found);
        let engine = self.clone();
        let (done, is_done) = tokio::sync::oneshot::channel();
        // It resets a count and charges what is still in use: it must not end between the two.
        let work = async move {
            let mut result = Ok(());
            // Rules that are charged after the response have charged nothing.
            for matched in found.matched().iter().filter(|matched| matched.charged_at == ChargedAt::Request) {
                let Some(rule) = rules.rule(matched.rule) else { continue };
                let (limits, key) = (rule.limits(matched), found.key(matched));
                result = engine.refund_limits(limits, key, matched.counted_in, matched.cost).await;
                if result.is_err() {
                    break;
                }
            }
            // The caller may have left.
            let _ = done.send(result);
        };
        async move {
            if let Err(work) = self.state.background.spawn(work) {
                work.await;
            }
            is_done.await.unwrap_or(Ok(()))
        }
    }

    /// Returns `true` if the shared store was unreachable, so that a part of the verdict was decided without it.
    pub fn is_fallback(&self, verdict: &Verdict) -> bool {
        let is_fallback = |of: &ScopedDecision| {
            matches!(of.scope, Scope::Shared | Scope::Look(_)) && self.is_fallback_decision(&of.decision)
        };
        verdict.is_fallback() || verdict.enforced().any(is_fallback)
    }
}

impl Verdict {
    /// Returns every limit that was checked for one of several requests that were decided together, by its index. A limit
    /// that several of them use is in the list of each.
    pub fn limits_of(&self, request: usize) -> impl Iterator<Item = CheckedLimit<'_>> {
        let (found, own) = (self.matches(), self.matches().matched_by(request));
        let is_own = move |matched: &MatchedRule| {
            let mut own = own.iter().filter_map(|index| found.matched().get(*index as usize));
            own.any(|own| std::ptr::eq(own, matched))
        };
        self.enforced().flat_map(move |of| self.answers_if(of, is_own))
    }
}
