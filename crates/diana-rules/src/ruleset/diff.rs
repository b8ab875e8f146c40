//! Which limit of a rule is which after a change.

use crate::limit::LimitRule;
use diana_core::Quota;
use std::time::Duration;

/// For each limit, the place of the one that it was before: first those that say the same, then those of the same kind over
/// the same time, then those of the same kind in their order. So a limit that comes or goes beside another one forgives
/// nobody.
pub(super) fn closest(limits: &[LimitRule], before: &[LimitRule]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; limits.len()];
    let mut is_free = vec![true; before.len()];
    let same: [fn(&LimitRule, &LimitRule) -> bool; 3] = [
        |one, other| one.configured == other.configured,
        |one, other| kind(one) == kind(other) && period(one) == period(other),
        |one, other| kind(one) == kind(other),
    ];
    for is_same in same {
        for (limit, pair) in limits.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let found = before.iter().zip(&is_free).position(|(known, is_free)| *is_free && is_same(limit, known));
            if let Some(place) = found {
                is_free[place] = false;
                *pair = Some(place);
            }
        }
    }
    pairs
}

/// For each limit, the one at the same place before.
pub(super) fn by_place(limits: &[LimitRule], before: &[LimitRule]) -> Vec<Option<usize>> {
    (0..limits.len()).map(|place| (place < before.len()).then_some(place)).collect()
}

/// `every`, `total` and `concurrent` are each of their own kind; rates are one, whatever their algorithms.
fn kind(limit: &LimitRule) -> &str {
    match limit.algorithm {
        "every" | "total" | "concurrent" => limit.algorithm,
        _ => "limit",
    }
}

fn period(limit: &LimitRule) -> Option<Duration> {
    limit.written.parse::<Quota>().ok().map(|quota| quota.period())
}
