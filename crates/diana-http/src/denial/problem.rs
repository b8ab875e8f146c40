//! Denials as `application/problem+json` (RFC 9457), with the types that the IETF's draft registers.

use crate::policy_cache;
use bytes::Bytes;
use diana::rules::ruleset::DenyReason;
use diana::{Reason, Verdict};
use http::StatusCode;
use std::fmt::Write;

pub(crate) const TYPE: &str = "application/problem+json";

/// Returns the body.
pub(super) fn body(status: StatusCode, verdict: &Verdict, reason: Option<Reason<'_>>) -> Bytes {
    let refused = || verdict.asked().filter(|asked| !asked.answer.is_granted());
    match reason {
        Some(Reason::Limit(asked)) if verdict.only().is_some() || refused().count() == 1 => {
            policy_cache::with(&asked, |policy| policy.problem(status, || written(status, &[asked.limit.name()], None)))
        }
        Some(Reason::Limit(_)) => {
            let names = refused().map(|asked| asked.limit.name()).collect::<Vec<_>>();
            written(status, &names, None)
        }
        Some(Reason::Rule { rule, why }) => {
            let detail = match why {
                DenyReason::Listed => "You are on the list of those who are refused.".to_owned(),
                DenyReason::Missing => format!("The request has no {}.", rule.by),
                DenyReason::Cost => "What the request would cost can't be computed.".to_owned(),
                DenyReason::Overloaded(_) => return written(status, &[&rule.name], None),
                _ => return written(status, &[], None),
            };
            written(status, &[], Some(&detail))
        }
        _ => written(status, &[], None),
    }
}

/// Formats the body, with the violated policies or another detail.
pub(crate) fn written(status: StatusCode, violated: &[&str], detail: Option<&str>) -> Bytes {
    let mut text = String::with_capacity(256);
    text.push_str("{\"type\":\"");
    let title = match (violated, status) {
        ([], _) => {
            text.push_str("about:blank");
            status.canonical_reason().unwrap_or("Refused")
        }
        (_, StatusCode::SERVICE_UNAVAILABLE) => {
            text.push_str("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
            "Request cannot be satisfied due to temporary server capacity constraints"
        }
        _ => {
            text.push_str("https://iana.org/assignments/http-problem-types#quota-exceeded");
            "Request cannot be satisfied as assigned quota has been exceeded"
        }
    };
    let _ = write!(text, "\",\"title\":\"{title}\",\"status\":{}", status.as_u16());
    if let Some(detail) = detail {
        text.push_str(",\"detail\":");
        string(&mut text, detail);
    }
    if !violated.is_empty() {
        text.push_str(",\"violated-policies\":[");
        for (nth, name) in violated.iter().enumerate() {
            if nth > 0 {
                text.push(',');
            }
            string(&mut text, name);
        }
        text.push(']');
    }
    text.push_str("}\n");
    Bytes::from(text)
}

/// Writes a JSON string.
fn string(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            character if character < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text.push('"');
}
