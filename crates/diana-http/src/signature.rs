//! Signed requests: an example of a filter for the chain.
//!
//! # Signed text
//! The method, the path with its query, and the time, each on its own line, by HMAC-SHA256 with a shared secret:
//!
//! ```text
//! POST
//! /orders?dry=1
//! 1700000000
//! ```
//!
//! The header is `x-signature: t=1700000000,v1=<64 hex digits>`. With a shell:
//!
//! ```text
//! t=$(date +%s); printf 'POST\n/orders?dry=1\n%s' $t | openssl dgst -sha256 -hmac "$SECRET"
//! ```
//!
//! # Guarantees and limits
//! Without the secret, a client can't send requests, and an intermediary can't change method, path or query. The body
//! is not signed (it is not read here), and an eavesdropper can replay a request until it is too old: use TLS.

use crate::filter_chain::{FilterFuture, HttpFilter};
use crate::problem::problem_response;
use bytes::Bytes;
use diana::Clock;
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use ring::hmac;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Passes only signed requests: a filter for a [`FilterChain`](crate::FilterChain).
///
/// ```
/// use diana_http::{FilterChain, SignatureFilter};
/// use http::{HeaderName, Method, Request};
/// use std::net::Ipv4Addr;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = SignatureFilter::new(b"a long secret", HeaderName::from_static("x-signature"), Duration::from_secs(300));
/// let signature = filter.sign(&Method::GET, "/orders?open=1");
/// let chain = FilterChain::new().and(filter);
///
/// let signed = Request::get("/orders?open=1").header("x-signature", signature).body(())?;
/// assert!(chain.check(&mut signed.into_parts().0, Ipv4Addr::LOCALHOST.into()).await.is_ok());
///
/// let unsigned = Request::get("/orders?open=1").body(())?;
/// let denial = chain.check(&mut unsigned.into_parts().0, Ipv4Addr::LOCALHOST.into()).await.unwrap_err();
/// assert_eq!(denial.response.status(), 401);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignatureFilter {
    key: hmac::Key,
    header: HeaderName,
    max_age: Duration,
    /// `None`: the wall clock.
    clock: Option<Arc<dyn Clock>>,
}

/// The reason why a signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignatureError {
    Missing,
    Malformed,
    Age,
    Signature,
}

impl SignatureFilter {
    /// Requires requests to be signed with `secret`, in `header`, at most `max_age` ago by the wall clock.
    pub fn new(secret: &[u8], header: HeaderName, max_age: Duration) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), header, max_age, clock: None }
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Returns the header value for a request that is sent now; for clients.
    pub fn sign(&self, method: &http::Method, path_and_query: &str) -> String {
        let seconds = self.seconds();
        let tag = hmac::sign(&self.key, &signed_text(method, path_and_query, &seconds.to_string()));
        let mut value = format!("t={seconds},v1=");
        for byte in tag.as_ref() {
            value.push(char::from(HEX[usize::from(byte >> 4)]));
            value.push(char::from(HEX[usize::from(byte & 15)]));
        }
        value
    }

    /// Returns the seconds since 1970. Clients sign by the wall clock, so this follows its changes: the clock of the
    /// limits does not, and after a clock step or a suspend it would deny every request.
    fn seconds(&self) -> u64 {
        match &self.clock {
            Some(clock) => clock.now().as_nanos() / 1_000_000_000,
            None => wall_seconds(),
        }
    }

    fn verify(&self, head: &Parts) -> Result<(), SignatureError> {
        let mut values = head.headers.get_all(&self.header).iter();
        let value = values.next().ok_or(SignatureError::Missing)?;
        if values.next().is_some() {
            return Err(SignatureError::Malformed);
        }
        let value = value.to_str().map_err(|_| SignatureError::Malformed)?;
        let parts = value.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
        let (time, tag) = parts.ok_or(SignatureError::Malformed)?;
        let tag = unhex(tag).ok_or(SignatureError::Malformed)?;
        let is_number = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = time.parse::<u64>().ok().filter(|_| is_number).ok_or(SignatureError::Malformed)?;
        // The comparison is constant-time. The time is signed as written.
        let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let signed = signed_text(&head.method, path_and_query, time);
        hmac::verify(&self.key, &signed, &tag).map_err(|_| SignatureError::Signature)?;
        // A time in the future is as invalid as an old one: otherwise signatures could be created in advance.
        if self.seconds().abs_diff(seconds) > self.max_age.as_secs() {
            return Err(SignatureError::Age);
        }
        Ok(())
    }
}

impl SignatureError {
    fn into_response(self) -> Response<Full<Bytes>> {
        let detail = match self {
            Self::Missing => "missing signature",
            Self::Malformed => "invalid signature, expected `t=<unix seconds>,v1=<64 hex digits>`",
            Self::Age => "the signature is too old, or its time is in the future",
            Self::Signature => "the signature does not match the method, path, query and time",
        };
        let mut response = problem_response(StatusCode::UNAUTHORIZED, detail);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Signature"));
        response
    }
}

impl HttpFilter for SignatureFilter {
    fn name(&self) -> &str {
        "signature"
    }

    fn check<'a>(&'a self, head: &'a mut Parts, _client: IpAddr) -> FilterFuture<'a> {
        Box::pin(std::future::ready(self.verify(head).map_err(SignatureError::into_response)))
    }
}

impl fmt::Debug for SignatureFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignatureFilter")
            .field("header", &self.header)
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

fn wall_seconds() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "a `Clock` never goes back, and the wall clock does when it is set")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn signed_text(method: &http::Method, path_and_query: &str, time: &str) -> Vec<u8> {
    [method.as_str(), "\n", path_and_query, "\n", time].concat().into_bytes()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}
