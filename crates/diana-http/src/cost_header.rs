//! The response header with the actual cost: `x-diana-cost: 250`, or `x-diana-cost: tokens=250, bytes=98304`.
//!
//! A service that knows the cost only afterwards (tokens of a model, rows of a query) returns it in its response. A
//! plain number applies to every rule with a `cost`; a number with a rule's name to that rule. The header is removed
//! before the client receives the response.

use crate::find_header::find_header;
use diana::ActualCost;
use http::HeaderMap;
use http::header::HeaderName;

/// The response header with the actual cost of a request; clients don't receive it.
pub const COST_HEADER: HeaderName = HeaderName::from_static("x-diana-cost");

/// Removes the costs from a response head and returns them. Invalid values are ignored.
pub(crate) fn take(headers: &mut HeaderMap) -> Option<ActualCost> {
    find_header(headers, &COST_HEADER)?;
    let values = || headers.get_all(COST_HEADER).into_iter().filter_map(|value| value.to_str().ok());
    let parts = || values().flat_map(|value| value.split(','));
    let for_all = parts().find_map(number).map_or_else(ActualCost::new, ActualCost::all);
    let for_rules = parts().filter_map(|part| {
        let (rule, cost) = part.rsplit_once('=')?;
        Some((rule.trim(), number(cost)?))
    });
    let costs = for_rules.fold(for_all, |costs, (rule, cost)| costs.rule(rule, cost));
    headers.remove(COST_HEADER);
    (!costs.is_empty()).then_some(costs)
}

/// Parses digits only.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
