//! The token of a request: where it is, and what it claims if it is good.
//!
//! # What always holds (identity/tests.rs)
//! - A claim is only believed if the token is signed by the configured key with the configured algorithm, is valid now, and
//!   is of the issuer and for the audience that were asked for. A token that is not good claims nothing.
//! - A request with a token that is not good is never taken for one without a token: see [`Token`].
//! - A token of more than 8 KiB is not looked at.
//!
//! # Lenient forms
//! Express, Django REST framework, PyJWT and others accept a tab or several spaces behind `Bearer`, any case of it, other schemes
//! than `Bearer`, and a signature with padding, with the standard alphabet of base64, or with characters that are no base64 at all.
//! Whatever they accept must be the same account here, or a client could choose a form that only the service understands. The
//! signature is still verified over the very bytes that were sent.

use super::key::Key;
use super::source::Place;
use crate::attributes::{Attributes, SEVERAL};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
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

/// The token of a request.
#[derive(Debug)]
pub(super) enum Token {
    /// There is none.
    Absent,
    /// There are several that differ.
    Several,
    /// Nobody knows who signed it.
    Unverified,
    /// The configured key signed it, but it is not valid now, or not for us.
    Rejected(Claims),
    /// It is good.
    Good(Claims),
}

impl Tokens {
    /// The token of a request, and what it claims.
    pub(super) fn token(&self, request: &(impl Attributes + ?Sized)) -> Token {
        let Some(said) = request.get(self.from.attribute()) else { return Token::Absent };
        if said == SEVERAL {
            return Token::Several;
        }
        let token = match credentials(&said) {
            Credentials::None => return Token::Absent,
            Credentials::Ambiguous => return Token::Unverified,
            Credentials::Token(token) => token,
        };
        match self.signed(token) {
            None => Token::Unverified,
            Some(claims) if self.is_for_us(&claims, self.clock.now()) => Token::Good(claims),
            Some(claims) => Token::Rejected(claims),
        }
    }

    /// What a token claims, if the configured key signed it.
    fn signed(&self, token: &str) -> Option<Claims> {
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
            if !self.key.signed(message.as_bytes(), &decoded(signature)?) {
                return None;
            }
        }
        json(payload)
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
    serde_json::from_slice(&decoded(part)?).ok()
}

/// What a header, cookie or parameter says.
enum Credentials<'a> {
    /// Nothing, nothing but the scheme, or the credentials of another scheme, such as `Basic`.
    None,
    /// A token, with or without a scheme such as `Bearer` in front.
    Token(&'a str),
    /// More than one token, or something that a service may make a token of.
    Ambiguous,
}

fn credentials(said: &str) -> Credentials<'_> {
    // Services that read headers as Latin-1 take more than ASCII for white space, and no token has other characters than ASCII.
    let words = said.split(|letter: char| letter.is_ascii_whitespace() || !letter.is_ascii());
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
    // Some services look for `Bearer` behind a comma, take the last word, or remove a scheme wherever it stands, also inside of
    // the token. Whatever they make a token of has two dots.
    let others =
        words.skip(usize::from(has_scheme)).filter(|word| token.is_none_or(|token| !std::ptr::eq(token, *word)));
    let is_bearer = |word: &str| word.as_bytes().windows(6).any(|part| part.eq_ignore_ascii_case(b"bearer"));
    if others.clone().any(is_bearer) || others.map(dots).sum::<usize>() >= 2 {
        return Credentials::Ambiguous;
    }
    token.map_or(Credentials::None, Credentials::Token)
}

/// Either alphabet of base64; the last character may have bits that nobody needs, as most decoders allow.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// What base64 says, read as leniently as common services read it: up to the padding, without what is no base64.
fn decoded(part: &str) -> Option<Vec<u8>> {
    let letters = part.bytes().take_while(|byte| *byte != b'=').filter_map(|byte| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(byte),
        _ => byte.is_ascii_alphanumeric().then_some(byte),
    });
    LENIENT.decode(letters.collect::<Vec<_>>()).ok()
}
