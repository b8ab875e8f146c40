//! Maps the limits of a rule to those before a change.

use diana_core::Quota;
use diana_rules::limit::LimitRule;
use std::time::Duration;

/// Returns the previous index of each limit: first of an equal limit, then of one of the same kind and period, then of
/// one of the same kind, in order. So adding or removing a limit does not reset another one.
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
            let previous = before.iter().zip(&is_free).position(|(known, is_free)| *is_free && is_same(limit, known));
            if let Some(index) = previous {
                is_free[index] = false;
                *pair = Some(index);
            }
        }
    }
    pairs
}

/// Returns the previous limit at the same index.
pub(super) fn by_index(limits: &[LimitRule], before: &[LimitRule]) -> Vec<Option<usize>> {
    (0..limits.len()).map(|index| (index < before.len()).then_some(index)).collect()
}

/// `every`, `total` and `concurrent` are separate kinds; all rates are one kind, regardless of their algorithms.
fn kind(limit: &LimitRule) -> &str {
    match limit.algorithm {
        "every" | "total" | "concurrent" => limit.algorithm,
        _ => "limit",
    }
}

fn period(limit: &LimitRule) -> Option<Duration> {
    limit.written.parse::<Quota>().ok().map(|quota| quota.period())
}
