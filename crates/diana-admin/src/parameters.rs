//! The parameters of a request: from its query, or from a JSON body.

use super::response::Problem;
use axum::extract::{FromRequest, Query, Request};
use axum::http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;

/// The largest body in bytes, and the maximum time to read it.
const LARGEST: usize = 64 << 10;
const BODY: Duration = Duration::from_secs(5);

/// Names and values, in the order of the request. A name may occur more than once.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    /// Fails if an unknown name is used; the error lists the known ones.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.pairs.iter().find(|(name, _)| !known.contains(&&**name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Problem::bad(format!("`{name}` means nothing here; there are: {}", known.join(", "))))
            }
        }
    }

    /// Returns every value of a name.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a name that may occur once.
    pub(super) fn one(&self, name: &'static str) -> Result<Option<&str>, Problem> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (value, None) => Ok(value),
            _ => Err(Problem::bad(format!("`{name}` is there more than once"))),
        }
    }

    /// Returns the value of a name that must occur once.
    pub(super) fn required(&self, name: &'static str) -> Result<&str, Problem> {
        self.one(name)?.ok_or_else(|| Problem::bad(format!("`{name}` is missing")))
    }

    /// Returns a numeric value.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        let wrong = |value: &str| Problem::bad(format!("`{name}` is a whole number, and not `{value}`"));
        self.one(name)?.map(|value| value.parse().map_err(|_| wrong(value))).transpose()
    }

    fn add_json(&mut self, body: &[u8]) -> Result<(), Problem> {
        let wrong =
            || Problem::bad("the body is an object of texts, numbers, and lists of these, as in {\"rule\": \"a\"}");
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return Err(wrong()) };
        for (name, value) in fields {
            let values = match value {
                Value::Array(values) => values,
                value => vec![value],
            };
            for value in values {
                let text = match value {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    _ => return Err(wrong()),
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
        let wrong = |error: &dyn std::fmt::Display| Problem::bad(format!("the query can't be read: {error}"));
        let Query(pairs) = Query::try_from_uri(request.uri()).map_err(|error| wrong(&error))?;
        let mut parameters = Self { pairs };
        let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took longer than 5 seconds");
        let body = Limited::new(request.into_body(), LARGEST).collect();
        let body = tokio::time::timeout(BODY, body).await.map_err(too_slow)?;
        let too_large = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 64 KiB, or broke off");
        let body = body.map_err(too_large)?.to_bytes();
        if !body.is_empty() {
            parameters.add_json(&body)?;
        }
        Ok(parameters)
    }
}
