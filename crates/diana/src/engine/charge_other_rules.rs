//! Rules that charge others (`charges`): the cost of a granted request is added to the counts of another rule, into debt if
//! need be.

use super::asks::{AskList, OwnedAsks};
use super::local_counts::LocalCounts;
use super::shared_store::SharedStore;
use super::{EngineState, Verdict};
use crate::ruleset::{ChargedRule, CompiledLimit, Matches, RequestOutcome};
use diana_core::{Ask, Change, LocalStore};
use diana_rules::rule::{CountedIn, Mode};
use std::sync::Arc;

impl EngineState {
    /// Returns `true` if a granted request charges a rule that is counted in the shared store.
    #[inline]
    pub(super) fn charges_shared(&self, verdict: &Verdict) -> bool {
        !verdict.matches().charged().is_empty() && self.shared.is_some() && has_shared_charges(verdict)
    }

    /// Charges rules in the shared store with the cost of a granted request. Dropping the future does not cancel it.
    pub(super) async fn charge_shared(&self, verdict: &Verdict) {
        let Some(store) = &self.shared else { return };
        let asks = asks(charges(verdict, CountedIn::Shared), verdict.matches());
        if asks.is_empty() {
            return;
        }
        let (owned, store, counts) = (OwnedAsks::copied(&asks), Arc::clone(store), Arc::clone(&self.counts));
        let _ = self.background.run(charge_in_background(store, counts, owned)).await;
    }
}

/// Charges the shared store.
pub(super) async fn charge_in_background(store: Arc<dyn SharedStore>, counts: Arc<LocalCounts>, owned: OwnedAsks) {
    for ask in &owned.as_asks() {
        // If the store fails, it is charged in this process, which then decides.
        if store.change(&[*ask], counts.now(), Change::Charge).await.is_err() {
            LocalStore::charge(&counts.store, *ask, counts.now());
        }
    }
}

impl LocalCounts {
    /// Charges rules in this process with the cost of a granted request.
    pub(super) fn charge(&self, verdict: &Verdict) {
        let local = charges(verdict, CountedIn::Local);
        let all = local.chain(charges(verdict, CountedIn::Shared).filter(|_| verdict.is_all_local()));
        for ask in asks(all, verdict.matches()) {
            LocalStore::charge(&self.store, ask, verdict.at());
        }
    }
}

impl Verdict {
    /// Counts the request for the rules that charge others.
    pub(super) fn count_charges(&self) {
        for charged in self.matches().charged() {
            if let Some(rule) = self.rules().rule(charged.by) {
                rule.count(RequestOutcome::Allowed);
            }
        }
    }
}

#[cold]
fn has_shared_charges(verdict: &Verdict) -> bool {
    charges(verdict, CountedIn::Shared).next().is_some()
}

/// Returns the limits that a request charges, if they are counted there.
fn charges(verdict: &Verdict, counted_in: CountedIn) -> impl Iterator<Item = (&ChargedRule, &CompiledLimit)> {
    let charged = verdict.matches().charged().iter().filter(|charged| charged.mode == Mode::Enforced);
    let limits = charged.flat_map(|charged| {
        let limits =
            verdict.rules().rule(charged.rule).map(|rule| rule.limits_of_key(verdict.matches().charged_key(charged)));
        limits.unwrap_or_default().iter().map(move |limit| (charged, limit))
    });
    limits.filter(move |(_, limit)| limit.counted_in == counted_in)
}

fn asks<'a>(charges: impl Iterator<Item = (&'a ChargedRule, &'a CompiledLimit)>, matches: &'a Matches) -> AskList<'a> {
    charges.map(|(charged, limit)| Ask::new(&limit.limit, matches.charged_key(charged), charged.cost)).collect()
}
