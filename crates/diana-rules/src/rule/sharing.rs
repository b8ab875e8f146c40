//! Checks whether the shared store supports a rule's limits.

use super::{CountedIn, Rule};
use crate::limit::LimitRule;
use crate::problem::Problem;
use crate::registry::Registry;

impl Rule {
    /// Reports limits that the shared store does not support, if the rule uses it.
    pub(super) fn check_sharing(&self, registry: &Registry, problems: &mut Vec<Problem>) {
        if self.home != CountedIn::Shared {
            return;
        }
        let all = self.limits.iter().chain(self.overrides.iter().flat_map(|other| &other.limits));
        for LimitRule { configured, span, .. } in all {
            if let Err(reason) = registry.shareable(&configured.limit(&self.name)) {
                let problem = Problem::new(*span, format!("the shared store can't keep this limit: {reason}"));
                problems.push(problem.expected("`store: local`, or another algorithm"));
            }
        }
    }
}
