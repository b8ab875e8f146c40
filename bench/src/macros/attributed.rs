//! Functions that do nothing, with a limit that never denies.

use diana::limited::{Caller, Limits};
use diana::rules::{Document, Registry, RuleFile};
use diana::{Engine, Limited, count_limit, limited, rate_limit};
use std::net::Ipv4Addr;

pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
/// The rule that the function names.
pub(crate) const RULES: &str = "rules: [{name: each-user, match: {call: user}, by: user, limit: 1000000000000/h, algorithm: fixed_window, opens: first_request}]";

#[count_limit(limit = 1_000_000_000_000, period = "1h", by = "{user}")]
#[inline(never)]
pub(crate) fn counted(user: &str) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 1_000_000_000, saved = "1s", by = "{user}")]
#[inline(never)]
pub(crate) fn paced(user: &str) -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1_000_000_000_000, period = "1h", by = "{id}")]
#[inline(never)]
pub(crate) fn numbered(id: u64) -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1_000_000_000_000, period = "1h", by = user)]
#[inline(never)]
pub(crate) fn by_user() -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1_000_000_000_000, period = "1h", by = ip)]
#[inline(never)]
pub(crate) fn by_ip() -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1_000_000_000_000, period = "1h")]
#[inline(never)]
pub(crate) fn together() -> Result<(), Limited> {
    Ok(())
}

#[limited("each-user", user = "{user}")]
#[inline(never)]
pub(crate) fn by_rule(user: &str) -> Result<(), Limited> {
    Ok(())
}

/// Runs a closure as a request's handler does: with a caller in scope.
pub(crate) fn in_scope<R>(run: impl FnOnce() -> R) -> R {
    thread_local! {
        static ANN: Caller = Caller::new().with_ip(ADDRESS).with_user(crate::USER);
    }
    ANN.with(Clone::clone).enter(run)
}

/// Creates an engine with the rule that the function names.
pub(crate) fn engine() -> Engine {
    let file = RuleFile::read(&Document::new("bench.yaml", RULES), &Registry::default());
    Engine::new(&file.unwrap_or_else(|problems| panic!("{problems}")))
}

/// Installs the engine, as a program does at its start.
pub(crate) fn install() {
    Limits::new().with_rules(engine()).install();
}
