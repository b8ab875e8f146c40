//! The parameters of a request: from its query, or from a JSON body.

use super::response::Problem;
use axum::extract::{FromRequest, Query, Request};
use axum::http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;

/// The largest body in bytes, and the maximum time to read it.
const MAX_BODY: usize = 64 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Names and values, in the order of the request. A name may occur more than once.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    /// Fails if an unknown name is used; the error lists the known ones.
    pub(super) fn reject_unknown(&self, known: &[&str]) -> Result<(), Problem> {
        match self.pairs.iter().find(|(name, _)| !known.contains(&&**name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Problem::bad(format!("unknown parameter `{name}`, expected one of {}", known.join(", "))))
            }
        }
    }

    /// Returns every value of a name.
    pub(super) fn values(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a name that may occur once.
    pub(super) fn optional(&self, name: &'static str) -> Result<Option<&str>, Problem> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(Problem::bad(format!("duplicate parameter `{name}`"))),
        }
    }

    /// Returns the value of a name that must occur once.
    pub(super) fn required(&self, name: &'static str) -> Result<&str, Problem> {
        self.optional(name)?.ok_or_else(|| Problem::bad(format!("missing parameter `{name}`")))
    }

    /// Returns a numeric value.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        let invalid = |value: &str| Problem::bad(format!("invalid `{name}` `{value}`: expected a whole number"));
        self.optional(name)?.map(|value| value.parse().map_err(|_| invalid(value))).transpose()
    }

    fn add_json(&mut self, body: &[u8]) -> Result<(), Problem> {
        let invalid = || {
            Problem::bad(
                "invalid body: expected a JSON object of strings, numbers, and lists of these, such as {\"rule\": \"a\"}",
            )
        };
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return Err(invalid()) };
        for (name, value) in fields {
            let values = match value {
                Value::Array(values) => values,
                value => vec![value],
            };
            for value in values {
                let text = match value {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    _ => return Err(invalid()),
                };
                self.pairs.push((name.clone(), text));
            }
        }
        Ok(())
    }
}

impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let invalid = |error: &dyn std::fmt::Display| Problem::bad(format!("invalid query: {error}"));
        let Query(pairs) = Query::try_from_uri(request.uri()).map_err(|error| invalid(&error))?;
        let mut parameters = Self { pairs };
        let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took longer than 5 seconds");
        let body = Limited::new(request.into_body(), MAX_BODY).collect();
        let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(too_slow)?;
        let too_large =
            |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 64 KiB, or was aborted");
        let body = body.map_err(too_large)?.to_bytes();
        if !body.is_empty() {
            parameters.add_json(&body)?;
        }
        Ok(parameters)
    }
}
