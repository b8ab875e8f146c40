//! The token of a request: where it is, and what it claims if it is good.
//!
//! # What always holds (identity/tests.rs)
//! - A claim is only believed if the token is signed by the configured key with the configured algorithm, is valid now, and
//!   is of the issuer and for the audience that were asked for. A token that is not good claims nothing.
//! - A token of more than 8 KiB is not looked at.

use super::key::Key;
use super::source::Place;
use crate::attributes::Attributes;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use diana_core::{Clock, Timestamp};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The longest token that is looked at, in bytes.
const LONGEST: usize = 8 << 10;

/// What a token claims.
pub(super) type Claims = Map<String, Value>;

/// Where tokens are, and when they are believed.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) from: Place,
    pub(super) key: Key,
    /// Any of these; any at all if there are none.
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    /// How far the clocks of others may be off.
    pub(super) leeway: Duration,
    pub(super) clock: Arc<dyn Clock>,
}

impl Tokens {
    /// What the token of a request claims.
    pub(super) fn claims(&self, request: &(impl Attributes + ?Sized)) -> Option<Claims> {
        let said = request.get(self.from.attribute())?;
        let token = match said.split_at_checked("Bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("Bearer ") => token,
            _ => &said,
        };
        self.verified(token.trim())
    }

    fn verified(&self, token: &str) -> Option<Claims> {
        if token.len() > LONGEST {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        if let Some(name) = self.key.name() {
            let header = json(header)?;
            // What `crit` lists has to be understood, and we understand nothing beyond the plain token.
            if header.get("alg")?.as_str()? != name || header.contains_key("crit") {
                return None;
            }
            let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
            if !self.key.signed(message.as_bytes(), &signature) {
                return None;
            }
        }
        let claims = json(payload)?;
        self.is_for_us(&claims, self.clock.now()).then_some(claims)
    }

    fn is_for_us(&self, claims: &Claims, now: Timestamp) -> bool {
        let now = now.since(Timestamp::from_secs(0)).as_secs_f64();
        let leeway = self.leeway.as_secs_f64();
        // A time that is no number is no time that we could keep.
        let fits = |name: &str, fits: &dyn Fn(f64) -> bool| {
            claims.get(name).is_none_or(|time| time.as_f64().is_some_and(fits))
        };
        fits("exp", &|expires| now < expires + leeway)
            && fits("nbf", &|begins| now + leeway >= begins)
            && (self.issuers.is_empty() || claims.get("iss").is_some_and(|issuer| is_one_of(issuer, &self.issuers)))
            && (self.audiences.is_empty()
                || claims.get("aud").is_some_and(|audience| match audience {
                    Value::Array(several) => several.iter().any(|audience| is_one_of(audience, &self.audiences)),
                    one => is_one_of(one, &self.audiences),
                }))
    }
}

/// A claim as a text: one of this name, or `a.b` for `b` inside of `a`. What is empty is absent.
pub(super) fn claim<'a>(claims: &'a Claims, name: &str) -> Option<Cow<'a, str>> {
    let value = claims.get(name).or_else(|| {
        let mut names = name.split('.');
        let first = claims.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    })?;
    match value {
        Value::String(text) if !text.is_empty() => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_one_of(value: &Value, wanted: &[String]) -> bool {
    value.as_str().is_some_and(|value| wanted.iter().any(|wanted| wanted == value))
}

/// One part of a token.
fn json(part: &str) -> Option<Claims> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
