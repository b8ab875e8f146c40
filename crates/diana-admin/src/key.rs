//! Single keys: peek, reset, refund and charge.

use super::AdminState;
use super::auth::Caller;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use diana::ruleset::Listed;
use diana::store::StoreError;
use diana::{Cost, KeyAdminError, KeyOperation, KeyStatus, Retry};
use diana_rules::rule::CountedIn;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Serialize)]
struct Status<'a> {
    rule: &'a str,
    key: &'a [&'a str],
    /// The counts that were read: local, shared, or the fallback.
    counted: &'static str,
    /// The list of the rule that contains the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<&'static str>,
    limits: Vec<Limit>,
}

#[derive(Debug, Serialize)]
struct Limit {
    name: String,
    limit: u64,
    remaining: u64,
    used: u64,
    /// Seconds until the limit resets.
    reset: f64,
    /// Whether a request that costs 1 would be allowed.
    grants: bool,
    /// Seconds until it would be allowed, if time alone decides that.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<f64>,
}

pub(super) async fn peek(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    let key = KeyName::parse(&parameters, &["rule", "key"])?;
    key.respond(state.engine.peek_key(key.rule, &key.key).await)
}

pub(super) async fn reset(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    parameters: Parameters,
) -> HandlerResult {
    let key = KeyName::parse(&parameters, &["rule", "key"])?;
    key.change(&state, &caller, KeyOperation::Reset).await
}

pub(super) async fn refund(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    parameters: Parameters,
) -> HandlerResult {
    let key = KeyName::parse(&parameters, &["rule", "key", "cost"])?;
    key.change(&state, &caller, KeyOperation::Refund(cost(&parameters)?)).await
}

pub(super) async fn charge(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    parameters: Parameters,
) -> HandlerResult {
    let key = KeyName::parse(&parameters, &["rule", "key", "cost"])?;
    key.change(&state, &caller, KeyOperation::Charge(cost(&parameters)?)).await
}

fn cost(parameters: &Parameters) -> Result<Cost, Problem> {
    let cost = parameters.number("cost")?.unwrap_or(1);
    Cost::new(cost).map_err(|invalid| Problem::bad(invalid.to_string()))
}

/// A key of a rule.
struct KeyName<'a> {
    rule: &'a str,
    key: Vec<&'a str>,
}

impl<'a> KeyName<'a> {
    fn parse(parameters: &'a Parameters, known: &[&str]) -> Result<Self, Problem> {
        parameters.reject_unknown(known)?;
        Ok(Self { rule: parameters.required("rule")?, key: parameters.values("key").collect() })
    }

    /// Changes the key, and records it. An invalid request changes nothing, and is not recorded.
    async fn change(&self, state: &AdminState, caller: &Caller, operation: KeyOperation) -> HandlerResult {
        let change = state.engine.change_key(self.rule, &self.key, operation).await;
        let change = change.map_err(|error| problem(&error))?;
        state.audit.key_changed(caller.actor(), &change);
        self.respond(change.after.map_err(KeyAdminError::Store))
    }

    fn respond(&self, result: Result<KeyStatus, KeyAdminError>) -> HandlerResult {
        let status = result.map_err(|error| problem(&error))?;
        let counted = match status.counted_in {
            CountedIn::Local => "here",
            CountedIn::Shared if status.is_fallback => "fallback",
            CountedIn::Shared => "shared",
        };
        // A key on a list is not counted, so the list overrides the counts.
        let by_list = status.listed.map(|listed| listed == Listed::Allow);
        let seconds = |time: Duration| time.as_secs_f64();
        let limits = status.limits.into_iter().map(|limit| Limit {
            name: limit.name,
            limit: limit.limit,
            remaining: limit.remaining,
            used: limit.limit.saturating_sub(limit.remaining),
            reset: seconds(limit.reset),
            grants: by_list.unwrap_or(limit.retry.is_none()),
            retry_after: match limit.retry {
                Some(Retry::After(time)) if by_list.is_none() => Some(seconds(time)),
                _ => None,
            },
        });
        let listed = status.listed.map(|listed| match listed {
            Listed::Allow => "allow",
            Listed::Deny => "deny",
        });
        json(Status { rule: self.rule, key: &self.key, counted, listed, limits: limits.collect() })
    }
}

fn problem(error: &KeyAdminError) -> Problem {
    let status = match error {
        KeyAdminError::NoSuchRule(_) => StatusCode::NOT_FOUND,
        KeyAdminError::Store(StoreError::TimedOut { .. } | StoreError::Unreachable { .. }) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        KeyAdminError::HeldByRequests(_) => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, error.to_string())
}
