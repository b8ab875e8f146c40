//! Limits that a descriptor brings along, in place of those of the rules: `limit: {dynamic_metadata: ...}` in Envoy.

use crate::envoy::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use diana::store::Limit;
use diana::{Engine, FixedWindow, Quota};
use diana_rules::attributes::DescriptorEntry;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The maximum number of different limits. The one that was not used for the longest time makes room for a new one; its
/// counts in this process are dropped.
const MAX_LIMITS: usize = 1_024;

/// The limits that descriptors brought along, for all threads. Those with the same parameters are one limit, with a key for
/// each descriptor.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    limits: Mutex<KnownLimits>,
}

#[derive(Debug, Default)]
struct KnownLimits {
    /// The limits by permits and unit, with the number of their last use.
    by_parameters: HashMap<(u32, i32), (Limit, u64)>,
    uses: u64,
}

impl Overrides {
    /// Returns the limit; `None` if its unit is unknown, or it [allows nothing](allows_nothing).
    pub(super) fn limit(&self, parameters: &RateLimitOverride, engine: &Engine) -> Option<Limit> {
        let RateLimitOverride { requests_per_unit, unit } = *parameters;
        let (period, name) = unit_of(unit)?;
        let quota = Quota::new(requests_per_unit.into(), period).ok()?;
        let new = || Limit::new(format!("override {requests_per_unit}/{name}"), FixedWindow::new(quota));
        let (limit, removed) = self.limits.lock().get((requests_per_unit, unit), new);
        removed.iter().for_each(|removed| engine.forget_limit(removed));
        Some(limit)
    }
}

impl KnownLimits {
    /// Returns the limit with these parameters, and the one that had to make room for it.
    fn get(&mut self, parameters: (u32, i32), new: impl FnOnce() -> Limit) -> (Limit, Option<Limit>) {
        self.uses += 1;
        if let Some((limit, last_use)) = self.by_parameters.get_mut(&parameters) {
            *last_use = self.uses;
            return (limit.clone(), None);
        }
        let mut removed = None;
        if self.by_parameters.len() >= MAX_LIMITS {
            let oldest = self.by_parameters.iter().min_by_key(|(_, (_, last_use))| *last_use);
            let oldest = oldest.map(|(parameters, _)| *parameters);
            removed = oldest.and_then(|oldest| self.by_parameters.remove(&oldest)).map(|(limit, _)| limit);
        }
        let limit = new();
        self.by_parameters.insert(parameters, (limit.clone(), self.uses));
        (limit, removed)
    }
}

/// Returns `true` if a limit is 0.
pub(super) fn allows_nothing(parameters: &RateLimitOverride) -> bool {
    parameters.requests_per_unit == 0 && unit_of(parameters.unit).is_some()
}

/// Returns the key of a descriptor: its domain and entries, each with its length, so that no two are alike.
pub(super) fn key(domain: &str, entries: &[DescriptorEntry]) -> Vec<u8> {
    let texts = entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
    let mut key = format!("{}:{domain}", domain.len());
    texts.for_each(|text| key.push_str(&format!("{}:{text}", text.len())));
    key.into_bytes()
}

/// Returns the period of one of Envoy's units, and its name.
fn unit_of(unit: i32) -> Option<(Duration, &'static str)> {
    const DAY: u64 = 24 * 3600;
    let (seconds, name) = match unit {
        1 => (1, "s"),
        2 => (60, "min"),
        3 => (3600, "h"),
        4 => (DAY, "day"),
        5 => (30 * DAY, "month"),
        6 => (365 * DAY, "year"),
        _ => return None,
    };
    Some((Duration::from_secs(seconds), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana::store::Ask;
    use diana_rules::{Document, Registry, RuleFile};

    #[tokio::test]
    async fn limits_that_make_room_leave_no_counts() {
        let file = RuleFile::read(&Document::new("diana.yaml", "rules: []"), &Registry::default()).unwrap();
        let (engine, overrides) = (Engine::new(&file), Overrides::default());
        let limit = |requests_per_unit| overrides.limit(&RateLimitOverride { requests_per_unit, unit: 6 }, &engine);
        let used = limit(1).unwrap();
        for number in 2..=3_000 {
            engine.acquire_limits(&[Ask::one(&limit(number).unwrap(), b"key")]).await.keep();
            assert_eq!(limit(1).unwrap().id(), used.id(), "it is used all the time");
        }
        assert_eq!(engine.local().len(), MAX_LIMITS - 1);
        assert_eq!(overrides.limits.lock().by_parameters.len(), MAX_LIMITS);
    }
}
