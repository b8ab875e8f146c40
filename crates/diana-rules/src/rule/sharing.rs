//! Whether the shared store can keep a rule's limits.

use super::{CountedIn, Rule};
use crate::limit::LimitRule;
use crate::problem::Problem;
use crate::registry::Registry;

impl Rule {
    /// Tells which of its limits the shared store can't keep, if it is to keep them.
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
