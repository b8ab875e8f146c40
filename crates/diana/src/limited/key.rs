//! The key of one call.
//!
//! Limiters store a keyed 64-bit hash of a key and not the key itself, so it need not be text: addresses and integer
//! arguments are used as numbers. Several parts are concatenated on the stack. Texts are UTF-8, in which the bytes 0xFE
//! and 0xFF never occur; they mark the end of a part and an unknown value. So keys of a function are unambiguous:
//! `{a}{b}` distinguishes `1`, `23` from `12`, `3`, and a user with the name `(unknown)` from an unknown user.

use super::Caller;
use diana_core::{Limiter, Quota};
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How an unknown value is displayed.
const UNKNOWN_TEXT: &str = "(unknown)";
/// Marks an unknown value.
const UNKNOWN: u8 = 0xFE;
/// Marks the end of a part.
const END: u8 = 0xFF;
const V4: u8 = 4;
const V6: u8 = 6;

/// The bytes of a key.
pub(super) type Bytes = SmallVec<[u8; 64]>;

/// The key of one call. Created by macro output; not public API.
#[derive(Clone, Debug, Default)]
pub struct CallKey<'a>(KeyRepr<'a>);

/// A key of a single value, or of several concatenated parts.
#[derive(Clone, Debug, Default)]
enum KeyRepr<'a> {
    /// The key that all calls of the function share.
    #[default]
    Empty,
    Unsigned(u64),
    Signed(i64),
    V4(Ipv4Addr),
    /// The /64, since that is the usual allocation per customer; limits per address could be bypassed.
    V6(u64),
    User(Arc<str>),
    Text(&'a str),
    /// The address or user is unknown.
    Unknown,
    Written(Bytes),
}

/// The prefix of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Empty: the whole key is a text, or there is none.
    Function,
    /// The caller's address.
    Ip,
    /// The caller's user.
    User,
}

impl<'a> CallKey<'a> {
    /// Creates the key that all calls of a function share.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a key of the caller's address; for IPv6 of its /64, like rules with `by: ip`.
    #[inline]
    pub fn by_ip() -> Self {
        Self(match Caller::with_current(|caller| caller.and_then(Caller::ip)) {
            Some(IpAddr::V4(ip)) => KeyRepr::V4(ip),
            Some(IpAddr::V6(ip)) => KeyRepr::V6(network(ip)),
            None => {
                warn_of_unknown_address();
                KeyRepr::Unknown
            }
        })
    }

    /// Creates a key of the caller's user.
    #[inline]
    pub fn by_user() -> Self {
        Self(
            Caller::with_current(|caller| caller.and_then(Caller::user_name).cloned())
                .map_or(KeyRepr::Unknown, KeyRepr::User),
        )
    }

    #[inline]
    pub(super) fn unsigned(&mut self, number: u64) {
        self.0 = KeyRepr::Unsigned(number);
    }

    #[inline]
    pub(super) fn signed(&mut self, number: i64) {
        self.0 = KeyRepr::Signed(number);
    }

    /// Sets the key to a single text.
    #[inline]
    pub(super) fn borrowed(&mut self, text: &'a str) {
        self.0 = KeyRepr::Text(text);
    }

    /// Converts it into an owned key.
    pub fn into_owned(self) -> CallKey<'static> {
        CallKey(match self.0 {
            KeyRepr::Empty => KeyRepr::Empty,
            KeyRepr::Unsigned(number) => KeyRepr::Unsigned(number),
            KeyRepr::Signed(number) => KeyRepr::Signed(number),
            KeyRepr::V4(ip) => KeyRepr::V4(ip),
            KeyRepr::V6(network) => KeyRepr::V6(network),
            KeyRepr::User(user) => KeyRepr::User(user),
            KeyRepr::Unknown => KeyRepr::Unknown,
            KeyRepr::Text(text) => KeyRepr::Written(Bytes::from_slice(text.as_bytes())),
            KeyRepr::Written(bytes) => KeyRepr::Written(bytes),
        })
    }

    /// Appends literal text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.written().extend_from_slice(text.as_bytes());
    }

    /// Appends the value of one pair of braces.
    #[inline]
    pub fn part(&mut self, part: impl fmt::Display) {
        // If `Display` fails, the key is the text so far.
        let _failed = write!(self, "{part}");
        self.written().push(END);
    }

    /// Converts the key to bytes, for appending.
    #[inline]
    fn written(&mut self) -> &mut Bytes {
        match &self.0 {
            KeyRepr::Written(_) => {}
            KeyRepr::Empty => self.0 = KeyRepr::Written(Bytes::new()),
            _ => self.0 = KeyRepr::Written(self.to_bytes()),
        }
        match &mut self.0 {
            KeyRepr::Written(bytes) => bytes,
            _ => unreachable!("just set to `Written`"),
        }
    }

    /// Returns the key in bytes, for the shared store.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut bytes = Bytes::new();
        match &self.0 {
            KeyRepr::Empty => {}
            KeyRepr::Unsigned(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
            KeyRepr::Signed(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
            KeyRepr::V4(ip) => {
                bytes.push(V4);
                bytes.extend_from_slice(&ip.octets());
            }
            KeyRepr::V6(network) => {
                bytes.push(V6);
                bytes.extend_from_slice(&network.to_be_bytes());
            }
            KeyRepr::User(user) => {
                bytes.extend_from_slice(user.as_bytes());
                bytes.push(END);
            }
            KeyRepr::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            KeyRepr::Unknown => bytes.extend_from_slice(&[UNKNOWN, END]),
            KeyRepr::Written(written) => bytes.clone_from(written),
        }
        bytes
    }

    /// Returns `true` for the key of all unknown callers.
    pub(super) fn is_unknown_caller(&self, by: By) -> bool {
        by != By::Function && self.to_bytes().starts_with(&[UNKNOWN, END])
    }

    /// Returns the key in a readable form.
    pub(super) fn to_text(&self, by: By) -> Option<Box<str>> {
        let bytes = self.to_bytes();
        let (caller, rest) = match (by, &*bytes) {
            (By::Function, rest) => (None, rest),
            (_, [UNKNOWN, END, rest @ ..]) => (Some(UNKNOWN_TEXT.to_owned()), rest),
            (By::Ip, [V4, rest @ ..]) => split(rest, |octets: [u8; 4]| Ipv4Addr::from(octets).to_string()),
            (By::Ip, [V6, rest @ ..]) => split(rest, |network: [u8; 8]| {
                let first = u128::from(u64::from_be_bytes(network)) << 64;
                format!("{}/64", Ipv6Addr::from_bits(first))
            }),
            (By::Ip, rest) => (None, rest),
            (By::User, bytes) => {
                let end = bytes.iter().position(|byte| *byte == END).unwrap_or(bytes.len());
                (Some(readable(&bytes[..end])), bytes.get(end + 1..).unwrap_or_default())
            }
        };
        match (caller, readable(rest)) {
            (None, text) if text.is_empty() => None,
            (None, text) => Some(text.into()),
            (Some(caller), text) if text.is_empty() => Some(caller.into()),
            (Some(caller), text) => Some(format!("{caller}, {text}").into()),
        }
    }
}

impl Hash for CallKey<'_> {
    /// All keys of a function have the same variant, except those of unknown callers; so hashing the value is enough.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            KeyRepr::Empty => {}
            KeyRepr::Unsigned(number) => state.write_u64(*number),
            KeyRepr::Signed(number) => state.write_i64(*number),
            KeyRepr::V4(ip) => state.write_u32(ip.to_bits()),
            KeyRepr::V6(network) => state.write_u64(*network),
            KeyRepr::User(user) => state.write(user.as_bytes()),
            KeyRepr::Text(text) => state.write(text.as_bytes()),
            KeyRepr::Unknown => state.write_u8(UNKNOWN),
            KeyRepr::Written(bytes) => state.write(bytes),
        }
    }
}

impl Write for CallKey<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

/// Warns once a minute that the calls of unknown addresses share one count.
#[cold]
fn warn_of_unknown_address() {
    static LOG: LazyLock<Limiter> = LazyLock::new(|| Limiter::new(Quota::checked(1, Duration::from_secs(60), 1)));
    if LOG.check().is_granted() {
        tracing::warn!(
            "a function with `by = ip` was called without the caller's address: set it around the call, with \
             `Caller::with_ip` and `Caller::scope`; with `RateLimitLayer` and axum, serve \
             `into_make_service_with_connect_info::<SocketAddr>()`"
        );
    }
}

fn network(ip: Ipv6Addr) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = ip.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Formats an address of `N` octets, and returns it with the remaining bytes.
fn split<const N: usize>(bytes: &[u8], format: fn([u8; N]) -> String) -> (Option<String>, &[u8]) {
    match bytes.split_first_chunk::<N>() {
        Some((octets, rest)) => (Some(format(*octets)), rest),
        None => (None, bytes),
    }
}

/// Returns the text in the bytes of a key, without the end markers.
fn readable(bytes: &[u8]) -> String {
    bytes.split(|byte| *byte == END).map(String::from_utf8_lossy).collect()
}
