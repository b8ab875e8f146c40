//! The token of a request: how it is found, and its claims if it is valid.
//!
//! # What always holds (identity/tests.rs)
//! - A claim is only trusted if the token is signed by the configured key with the configured algorithm, is valid now,
//!   and has the issuer and audience that are configured, if any. An invalid token has no claims.
//! - A request with an invalid token is never treated as one without a token: see [`Token`].
//! - A token of more than 8 KiB is not parsed.
//!
//! # Lenient forms
//! Express, Django REST framework, PyJWT and others accept a tab or several spaces after `Bearer`, any case of it,
//! schemes other than `Bearer`, and a signature with padding, with the standard base64 alphabet, or with characters
//! that are not base64 at all. Every form that they accept must give the same account here, or a client could choose a
//! form that only the service understands. The signature is still verified over the exact bytes that were sent.

use super::source::TokenSource;
use super::verification_key::VerificationKey;
use crate::attributes::{Attribute, Attributes, SEVERAL};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use diana_core::{Clock, Timestamp};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The maximum length of a token, in bytes.
const MAX_LENGTH: usize = 8 << 10;

/// The claims of a token.
pub(super) type Claims = Map<String, Value>;

/// Where requests have tokens, and how tokens are validated.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) from: TokenSource,
    pub(super) key: VerificationKey,
    /// The accepted issuers; any issuer if empty.
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    /// The tolerated clock difference.
    pub(super) leeway: Duration,
    pub(super) clock: Arc<dyn Clock>,
}

/// The token of a request.
#[derive(Debug)]
pub(super) enum Token {
    /// The request has no token.
    Absent,
    /// The request has several different tokens.
    Several,
    /// The signer is unknown.
    Unverified,
    /// The token is signed by the configured key, but expired, not valid yet, or for another issuer or audience.
    Rejected(Claims),
    /// The token is valid.
    Valid(Claims),
}

impl Tokens {
    /// The attribute that has the token.
    pub(super) fn source(&self) -> &Attribute {
        self.from.attribute()
    }

    /// Finds and validates the token of a request.
    pub(super) fn token(&self, request: &(impl Attributes + ?Sized)) -> Token {
        let Some(value) = request.get(self.from.attribute()) else { return Token::Absent };
        if value == SEVERAL {
            return Token::Several;
        }
        let token = match credentials(&value) {
            Credentials::None => return Token::Absent,
            Credentials::Ambiguous => return Token::Unverified,
            Credentials::Token(token) => token,
        };
        match self.signed(token) {
            None => Token::Unverified,
            Some(claims) if self.is_accepted(&claims, self.clock.now()) => Token::Valid(claims),
            Some(claims) => Token::Rejected(claims),
        }
    }

    /// Returns the claims of a token, if it is signed by the configured key.
    fn signed(&self, token: &str) -> Option<Claims> {
        if token.len() > MAX_LENGTH {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        if let Some(name) = self.key.name() {
            let header = json(header)?;
            // Extensions that `crit` lists must be understood, and none is supported.
            if header.get("alg")?.as_str()? != name || header.contains_key("crit") {
                return None;
            }
            if !self.key.signed(message.as_bytes(), &decoded(signature)?) {
                return None;
            }
        }
        json(payload)
    }

    fn is_accepted(&self, claims: &Claims, now: Timestamp) -> bool {
        let now = now.since(Timestamp::from_secs(0)).as_secs_f64();
        let leeway = self.leeway.as_secs_f64();
        // A time that is not a number is invalid.
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

/// Returns a claim as a text: by its name, or `a.b` for `b` inside of `a`. An empty value counts as absent.
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

/// Decodes one part of a token.
fn json(part: &str) -> Option<Claims> {
    serde_json::from_slice(&decoded(part)?).ok()
}

/// The content of a header, cookie or parameter.
enum Credentials<'a> {
    /// Empty, only a scheme, or the credentials of another scheme, such as `Basic`.
    None,
    /// A token, with or without a scheme such as `Bearer` before it.
    Token(&'a str),
    /// More than one token, or text that a service may interpret as a token.
    Ambiguous,
}

fn credentials(value: &str) -> Credentials<'_> {
    // Services that decode headers as Latin-1 treat more than ASCII as white space, and tokens are always ASCII.
    let words = value.split(|letter: char| letter.is_ascii_whitespace() || !letter.is_ascii());
    let words = words.filter(|word| !word.is_empty());
    let dots = |word: &str| word.matches('.').count();
    let mut some = words.clone();
    let Some(first) = some.next() else { return Credentials::None };
    let has_scheme = first.eq_ignore_ascii_case("bearer");
    let token = match some.next() {
        None if has_scheme => return Credentials::None,
        None => Some(first),
        Some(second) if has_scheme || dots(second) == 2 => Some(second),
        Some(_) => Some(first).filter(|first| dots(first) == 2),
    };
    // Some services look for `Bearer` after a comma, use the last word, or remove a scheme at any position, also inside
    // of the token. Any text that they interpret as a token has two dots.
    let others =
        words.skip(usize::from(has_scheme)).filter(|word| token.is_none_or(|token| !std::ptr::eq(token, *word)));
    let is_bearer = |word: &str| word.as_bytes().windows(6).any(|part| part.eq_ignore_ascii_case(b"bearer"));
    if others.clone().any(is_bearer) || others.map(dots).sum::<usize>() >= 2 {
        return Credentials::Ambiguous;
    }
    token.map_or(Credentials::None, Credentials::Token)
}

/// Either alphabet of base64; the last character may have unused bits, as most decoders allow.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Decodes base64 as leniently as common services do: up to the padding, skipping characters that are not base64.
fn decoded(part: &str) -> Option<Vec<u8>> {
    let letters = part.bytes().take_while(|byte| *byte != b'=').filter_map(|byte| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(byte),
        _ => byte.is_ascii_alphanumeric().then_some(byte),
    });
    LENIENT.decode(letters.collect::<Vec<_>>()).ok()
}
