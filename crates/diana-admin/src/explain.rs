//! Each rule's decision about a described request.

use super::AdminState;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json, wants_text};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use diana::ruleset::ExplainedRule;
use diana::{Explanation, RuleExplanation};
use diana_http::head::{DescribedRequest, InvalidRequest, RejectedRequest};
use diana_rules::identity::Identity;
use diana_rules::rule::Mode;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;

const KNOWN: [&str; 7] = ["method", "path", "ip", "host", "header", "account", "set"];

#[derive(Debug, Serialize)]
struct Explained {
    granted: bool,
    denied_by: Vec<String>,
    /// The gateway's response if it rejects the request before it evaluates any rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Rejected>,
    rules: Vec<Rule>,
    /// The result of `permissions`, if the file has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    permission: Option<Permission>,
}

#[derive(Debug, Serialize)]
struct Permission {
    allowed: bool,
    shadow: bool,
    /// The explanation as text, with the rule that decides.
    text: String,
}

#[derive(Debug, Serialize)]
struct Rejected {
    status: u16,
    detail: &'static str,
}

#[derive(Debug, Serialize)]
struct Rule {
    name: String,
    /// Whether the rule matches the request.
    about: bool,
    denies: bool,
    shadow: bool,
    key: String,
    cost: u64,
    limits: Vec<Limit>,
    /// The rule's part of the explanation, as text.
    text: String,
}

#[derive(Debug, Serialize)]
struct Limit {
    name: String,
    limit: u64,
    remaining: u64,
    used: u64,
    grants: bool,
    /// Seconds that the rule would delay the request.
    wait: f64,
}

pub(super) async fn explain(
    State(state): State<Arc<AdminState>>,
    headers: HeaderMap,
    parameters: Parameters,
) -> HandlerResult {
    let request = described(&parameters, state.engine.rules().identity())?;
    if let Some(rejected) = request.rejected(&state.heads) {
        if wants_text(&headers) {
            return Ok(format!("=> {rejected}\n").into_response());
        }
        let RejectedRequest { status, detail } = rejected;
        let rejected = Some(Rejected { status: status.as_u16(), detail });
        return json(Explained {
            granted: false,
            denied_by: Vec::new(),
            rejected,
            rules: Vec::new(),
            permission: None,
        });
    }
    let explanation = state.engine.explain(&request).await;
    if wants_text(&headers) {
        return Ok(explanation.to_string().into_response());
    }
    json(explained(&explanation))
}

fn explained(explanation: &Explanation) -> Explained {
    let denied_by = explanation.denying().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    let rules = explanation.rules.iter().map(rule).collect();
    let permission = explanation.permission.as_ref().map(|permission| Permission {
        allowed: permission.is_allowed,
        shadow: !permission.is_enforced,
        text: permission.to_string(),
    });
    Explained { granted: !explanation.is_denied(), denied_by, rejected: None, rules, permission }
}

fn rule(explanation: &RuleExplanation) -> Rule {
    let limits = explanation.limits.iter().map(|(name, answer)| Limit {
        name: name.clone(),
        limit: answer.status().limit,
        remaining: answer.status().remaining,
        used: answer.status().used(),
        grants: answer.is_granted(),
        wait: answer.wait().unwrap_or_default().as_secs_f64(),
    });
    Rule {
        name: explanation.name.clone(),
        about: !matches!(explanation.result, ExplainedRule::NoMatch(_)),
        denies: explanation.denies(),
        shadow: explanation.mode == Mode::Shadow,
        key: explanation.key.clone(),
        cost: explanation.cost,
        limits: limits.collect(),
        text: explanation.to_string(),
    }
}

fn described(parameters: &Parameters, identity: &Identity) -> Result<DescribedRequest, Problem> {
    parameters.reject_unknown(&KNOWN)?;
    let path = parameters.optional("path")?.unwrap_or("/");
    if !path.starts_with('/') {
        return Err(Problem::bad("invalid `path`: expected a leading `/`, as in `/login?x=1`"));
    }
    let invalid_request = |error: InvalidRequest| Problem::bad(error.to_string());
    let mut request =
        DescribedRequest::new(parameters.optional("method")?.unwrap_or("GET"), path).map_err(invalid_request)?;
    for text in parameters.values("header") {
        let invalid = || Problem::bad(format!("invalid `header` `{text}`: expected `name:value`"));
        let (name, value) = text.split_once(':').ok_or_else(invalid)?;
        request = request.header(name.trim(), value.trim()).map_err(invalid_request)?;
    }
    if let Some(host) = parameters.optional("host")? {
        request = request.host(host).map_err(invalid_request)?;
    }
    if let Some(ip) = parameters.optional("ip")? {
        let invalid = |_| Problem::bad(format!("invalid `ip` `{ip}`: expected an address"));
        request = request.ip(ip.parse::<IpAddr>().map_err(invalid)?);
    }
    let mut named = Vec::new();
    named.extend(parameters.optional("account")?.map(|account| ("account", account)));
    for text in parameters.values("set") {
        let invalid = || Problem::bad(format!("invalid `set` `{text}`: expected `name=value`"));
        named.push(text.split_once('=').ok_or_else(invalid)?);
    }
    for (name, value) in named {
        if identity.names().any(|identity| identity == name) {
            let detail = "is derived from the request by `identity` of the rule file: set its source, such as `header`";
            return Err(Problem::bad(format!("`{name}` {detail}")));
        }
        request = request.named(name, value);
    }
    Ok(request)
}
