//! The key of one call, in bytes on the stack.
//!
//! Limiters keep 64 keyed bits of a key and not the key itself, so nothing needs to be a `String`: an address is its octets, a
//! user its name, a text what `Display` writes. Texts are UTF-8, in which the bytes 0xFE and 0xFF never occur; they end a part and
//! stand for what is not known. So no two keys are written alike: `{a}{b}` tells `1`, `23` from `12`, `3`, and a user who is
//! called `(nobody)` is not nobody.

use super::Caller;
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How a key shows what is not known.
pub(super) const NOBODY: &str = "(nobody)";
/// Stands for what is not known.
const UNKNOWN: u8 = 0xFE;
/// Ends a part.
const END: u8 = 0xFF;
const V4: u8 = 4;
const V6: u8 = 6;

/// The key of one call. Written by what the attributes write; no part of the API.
#[derive(Clone, Debug, Default)]
pub struct Key {
    bytes: SmallVec<[u8; 64]>,
}

/// What a key begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing: the whole key is a text, or there is none.
    Function,
    /// The caller's address.
    Ip,
    /// The caller's user.
    User,
}

impl Key {
    /// The key that all calls of a function share.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// The caller's address; of IPv6 its /64, as rules `by: ip` have it.
    #[inline]
    pub fn by_ip() -> Self {
        let mut key = Self::new();
        match Caller::look(|caller| caller.and_then(Caller::ip)) {
            Some(IpAddr::V4(ip)) => {
                key.bytes.push(V4);
                key.bytes.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                key.bytes.push(V6);
                // A customer has a whole /64; counting its addresses one by one would limit nobody.
                key.bytes.extend_from_slice(&ip.octets()[..8]);
            }
            None => key.bytes.push(UNKNOWN),
        }
        key
    }

    /// The caller's user.
    #[inline]
    pub fn by_user() -> Self {
        let mut key = Self::new();
        Caller::look(|caller| match caller.and_then(Caller::user) {
            Some(user) => key.bytes.extend_from_slice(user.as_bytes()),
            None => key.bytes.push(UNKNOWN),
        });
        key.bytes.push(END);
        key
    }

    /// Text that is the same for all calls.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// What stands in one pair of braces.
    #[inline]
    pub fn part(&mut self, part: impl fmt::Display) {
        // A `Display` that fails has written what it has: the key is that.
        let _failed = write!(self, "{part}");
        self.bytes.push(END);
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key as people read it.
    pub(super) fn shown(&self, by: By) -> Option<Box<str>> {
        let (whose, rest) = match (by, self.as_bytes()) {
            (By::Function, rest) => (None, rest),
            (By::Ip, [V4, rest @ ..]) => split(rest, |octets: [u8; 4]| Ipv4Addr::from(octets).to_string()),
            (By::Ip, [V6, rest @ ..]) => split(rest, |network: [u8; 8]| {
                let first = u128::from(u64::from_be_bytes(network)) << 64;
                format!("{}/64", Ipv6Addr::from_bits(first))
            }),
            (By::Ip, rest) => (Some(NOBODY.to_owned()), rest.get(1..).unwrap_or_default()),
            (By::User, bytes) => {
                let end = bytes.iter().position(|byte| *byte == END).unwrap_or(bytes.len());
                let user = &bytes[..end];
                let name = if user == [UNKNOWN] { NOBODY.to_owned() } else { readable(user) };
                (Some(name), bytes.get(end + 1..).unwrap_or_default())
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

impl Write for Key {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

/// An address in `N` octets, as people read it, and what follows it.
fn split<const N: usize>(bytes: &[u8], shown: fn([u8; N]) -> String) -> (Option<String>, &[u8]) {
    match bytes.split_first_chunk::<N>() {
        Some((octets, rest)) => (Some(shown(*octets)), rest),
        None => (None, bytes),
    }
}

/// The text in some bytes of a key, without what ends its parts.
fn readable(bytes: &[u8]) -> String {
    bytes.split(|byte| *byte == END).map(String::from_utf8_lossy).collect()
}
