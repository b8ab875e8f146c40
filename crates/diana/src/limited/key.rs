//! The key of one call.
//!
//! Limiters store a keyed 64-bit hash of a key and not the key itself, so it need not be text: addresses and integer
//! arguments are used as numbers. Several parts are concatenated on the stack. Texts are UTF-8, in which the bytes 0xFE
//! and 0xFF never occur; they mark the end of a part and an unknown value. So keys of a function are unambiguous:
//! `{a}{b}` distinguishes `1`, `23` from `12`, `3`, and a user with the name `(nobody)` from an unknown user.

use super::Caller;
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// How an unknown value is displayed.
const NOBODY: &str = "(nobody)";
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
pub struct Key<'a>(Whole<'a>);

/// A key of a single value, or of several concatenated parts.
#[derive(Clone, Debug, Default)]
enum Whole<'a> {
    /// The key that all calls of the function share.
    #[default]
    Nothing,
    Unsigned(u64),
    Signed(i64),
    V4(Ipv4Addr),
    /// The /64, since that is the usual allocation per customer; limits per address could be bypassed.
    V6(u64),
    User(Arc<str>),
    Text(&'a str),
    /// The address or user is unknown.
    Nobody,
    Written(Bytes),
}

/// What a key starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing: the whole key is a text, or there is none.
    Function,
    /// The caller's address.
    Ip,
    /// The caller's user.
    User,
}

impl<'a> Key<'a> {
    /// Creates the key that all calls of a function share.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a key of the caller's address; for IPv6 of its /64, like rules with `by: ip`.
    #[inline]
    pub fn by_ip() -> Self {
        Self(match Caller::look(|caller| caller.and_then(Caller::ip)) {
            Some(IpAddr::V4(ip)) => Whole::V4(ip),
            Some(IpAddr::V6(ip)) => Whole::V6(network(ip)),
            None => Whole::Nobody,
        })
    }

    /// Creates a key of the caller's user.
    #[inline]
    pub fn by_user() -> Self {
        Self(Caller::look(|caller| caller.and_then(Caller::user_name).cloned()).map_or(Whole::Nobody, Whole::User))
    }

    #[inline]
    pub(super) fn unsigned(&mut self, number: u64) {
        self.0 = Whole::Unsigned(number);
    }

    #[inline]
    pub(super) fn signed(&mut self, number: i64) {
        self.0 = Whole::Signed(number);
    }

    /// Sets the key to a single text.
    #[inline]
    pub(super) fn borrowed(&mut self, text: &'a str) {
        self.0 = Whole::Text(text);
    }

    /// Converts it into an owned key.
    pub fn into_owned(self) -> Key<'static> {
        Key(match self.0 {
            Whole::Nothing => Whole::Nothing,
            Whole::Unsigned(number) => Whole::Unsigned(number),
            Whole::Signed(number) => Whole::Signed(number),
            Whole::V4(ip) => Whole::V4(ip),
            Whole::V6(network) => Whole::V6(network),
            Whole::User(user) => Whole::User(user),
            Whole::Nobody => Whole::Nobody,
            Whole::Text(text) => Whole::Written(Bytes::from_slice(text.as_bytes())),
            Whole::Written(bytes) => Whole::Written(bytes),
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
            Whole::Written(_) => {}
            Whole::Nothing => self.0 = Whole::Written(Bytes::new()),
            _ => self.0 = Whole::Written(self.to_bytes()),
        }
        match &mut self.0 {
            Whole::Written(bytes) => bytes,
            _ => unreachable!("it has just been written"),
        }
    }

    /// Returns the key in bytes, for the shared store.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut bytes = Bytes::new();
        match &self.0 {
            Whole::Nothing => {}
            Whole::Unsigned(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
            Whole::Signed(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
            Whole::V4(ip) => {
                bytes.push(V4);
                bytes.extend_from_slice(&ip.octets());
            }
            Whole::V6(network) => {
                bytes.push(V6);
                bytes.extend_from_slice(&network.to_be_bytes());
            }
            Whole::User(user) => {
                bytes.extend_from_slice(user.as_bytes());
                bytes.push(END);
            }
            Whole::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Whole::Nobody => bytes.extend_from_slice(&[UNKNOWN, END]),
            Whole::Written(written) => bytes.clone_from(written),
        }
        bytes
    }

    /// Returns `true` for the key of all unknown callers.
    pub(super) fn is_nobodys(&self, by: By) -> bool {
        by != By::Function && self.to_bytes().starts_with(&[UNKNOWN, END])
    }

    /// Returns the key in a readable form.
    pub(super) fn shown(&self, by: By) -> Option<Box<str>> {
        let bytes = self.to_bytes();
        let (whose, rest) = match (by, &*bytes) {
            (By::Function, rest) => (None, rest),
            (_, [UNKNOWN, END, rest @ ..]) => (Some(NOBODY.to_owned()), rest),
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
        match (whose, readable(rest)) {
            (None, text) if text.is_empty() => None,
            (None, text) => Some(text.into()),
            (Some(whose), text) if text.is_empty() => Some(whose.into()),
            (Some(whose), text) => Some(format!("{whose}, {text}").into()),
        }
    }
}

impl Hash for Key<'_> {
    /// All keys of a function have the same variant, except those of unknown callers; so hashing the value is enough.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Whole::Nothing => {}
            Whole::Unsigned(number) => state.write_u64(*number),
            Whole::Signed(number) => state.write_i64(*number),
            Whole::V4(ip) => state.write_u32(ip.to_bits()),
            Whole::V6(network) => state.write_u64(*network),
            Whole::User(user) => state.write(user.as_bytes()),
            Whole::Text(text) => state.write(text.as_bytes()),
            Whole::Nobody => state.write_u8(UNKNOWN),
            Whole::Written(bytes) => state.write(bytes),
        }
    }
}

impl Write for Key<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

fn network(ip: Ipv6Addr) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = ip.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Formats an address of `N` octets, and returns it with the remaining bytes.
fn split<const N: usize>(bytes: &[u8], shown: fn([u8; N]) -> String) -> (Option<String>, &[u8]) {
    match bytes.split_first_chunk::<N>() {
        Some((octets, rest)) => (Some(shown(*octets)), rest),
        None => (None, bytes),
    }
}

/// Returns the text in the bytes of a key, without the end markers.
fn readable(bytes: &[u8]) -> String {
    bytes.split(|byte| *byte == END).map(String::from_utf8_lossy).collect()
}
