//! The key that a limit counts by: `by: account`, `by: [account, ip]`, `by: ip/24`, `by: header(x-api-key)`.

mod bytes;
mod describe;
pub(crate) mod parse;
mod part;

use crate::attributes::{Attribute, Attributes};
pub use bytes::KeyBytes;
use bytes::PrefixLengths;
use ipnet::IpNet;
use part::{MissingKey, Part};
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;

/// The key that a limit counts by: one global key, or one key for each combination of its parts.
///
/// ```
/// use diana_rules::key::{KeyBytes, KeySpec};
/// use diana_rules::{Attribute, Attributes, Document, Registry};
/// use std::borrow::Cow;
///
/// struct Request;
///
/// impl Attributes for Request {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         match attribute {
///             Attribute::Ip => Some("203.0.113.77".into()),
///             Attribute::Header(name) if &**name == "x-plan" => Some("free".into()),
///             _ => None,
///         }
///     }
/// }
///
/// let by = |text: &str| KeySpec::read(&Document::new("by.yaml", text).parse().unwrap(), &Registry::default(), &mut Vec::new()).unwrap();
/// let mut key = KeyBytes::new();
/// assert!(by("ip/24").key(&Request, &mut key).is_ok());
/// assert_eq!(key, b"203.0.113.0");
/// key.clear();
/// assert!(by("[header(X-Plan), ip/24]").key(&Request, &mut key).is_ok());
/// assert_eq!(key, b"4:free11:203.0.113.0");
/// assert!(by("account").key(&Request, &mut key).is_err(), "missing account");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpec {
    parts: Vec<Part>,
}

/// A key of one part or none, as most rules have.
#[derive(Debug)]
pub enum SimpleKey {
    /// An attribute as the request has it.
    Attribute(Attribute),
    /// The client's address, or a prefix of it.
    Address(PrefixLengths),
    /// All requests share one count.
    Everyone,
}

impl SimpleKey {
    /// Appends the key of a request like [`KeySpec::key`]. If the request does not have it, returns `false`, and `key` is
    /// unchanged.
    #[inline]
    pub fn write(&self, request: &dyn Attributes, key: &mut KeyBytes) -> bool {
        match self {
            Self::Attribute(attribute) => match request.get(attribute) {
                Some(text) if !text.is_empty() => key.extend_from_slice(text.as_bytes()),
                _ => return false,
            },
            Self::Address(prefix) => match request.ip() {
                Some(address) => prefix.write(address, key),
                None => return false,
            },
            Self::Everyone => {}
        }
        true
    }
}

/// Whether the expressions in a call's key succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExpressions {
    /// All of them.
    Succeeded,
    /// One can't be computed.
    Failed,
}

/// The part of a key that a request is missing.
#[derive(Clone, Copy, Debug)]
pub struct MissingKeyPart<'a> {
    part: &'a Part,
    missing: MissingKey,
}

impl MissingKeyPart<'_> {
    /// Returns `true` if an expression failed, rather than the attribute being absent.
    pub fn is_failure(&self) -> bool {
        self.missing == MissingKey::Failed
    }

    /// Returns `true` if the request has the credential, such as a token, but its value is ambiguous, unverified or unknown.
    pub fn is_doubt(&self) -> bool {
        matches!(
            self.missing,
            MissingKey::Several | MissingKey::Unverified | MissingKey::Rejected | MissingKey::Unknown
        )
    }

    /// Returns `true` if the front end does not know the address of the client.
    pub fn is_unknown_client(&self) -> bool {
        self.missing == MissingKey::Unknown
    }
}

impl KeySpec {
    /// The global key: all requests share one count.
    pub const fn everyone() -> Self {
        Self { parts: Vec::new() }
    }

    /// Appends the key of a request to `key`. If a part is missing, `key` is unchanged.
    ///
    /// A single part is written as it is. Each of several parts is prefixed with its length, so that no two
    /// combinations give the same key.
    pub fn key(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKeyPart<'_>> {
        self.write_key(key, |part, key| part.write(request, key))
    }

    /// Returns how the key is written if that needs no more than an attribute as the request has it, or the address.
    pub fn simple(&self) -> Option<SimpleKey> {
        match &*self.parts {
            [] => Some(SimpleKey::Everyone),
            [part] => part.simple(),
            _ => None,
        }
    }

    /// Like [`key`](Self::key), but a part from a token that is not trusted is written as a value that all such
    /// requests share: `(several)`, `(unverified)`, or `(rejected)` with the claim. An unknown client is `(unknown)`.
    pub fn doubtful_key(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKeyPart<'_>> {
        self.write_key(key, |part, key| part.write_doubtful(request, key))
    }

    #[inline]
    fn write_key(
        &self,
        key: &mut KeyBytes,
        write: impl Fn(&Part, &mut KeyBytes) -> Result<(), MissingKey>,
    ) -> Result<(), MissingKeyPart<'_>> {
        let before = key.len();
        for part in &self.parts {
            let written = match self.parts.len() {
                1 => write(part, key),
                _ => bytes::with_length(key, |key| write(part, key)),
            };
            if let Err(missing) = written {
                key.truncate(before);
                return Err(MissingKeyPart { part, missing });
            }
        }
        Ok(())
    }

    /// Appends the key of a call to `key`. A part that the call does not pass is written as a marker byte that occurs
    /// in no text, so that one unknown part does not merge the keys of all calls. Returns whether an expression failed.
    pub fn key_of_call(&self, call: &dyn Attributes, key: &mut KeyBytes) -> KeyExpressions {
        let mut result = KeyExpressions::Succeeded;
        for part in &self.parts {
            let mut write = |key: &mut KeyBytes| {
                if let Err(missing) = part.write_argument(call, key) {
                    key.push(bytes::UNKNOWN);
                    if missing == MissingKey::Failed {
                        result = KeyExpressions::Failed;
                    }
                }
            };
            match self.parts.len() {
                1 => write(key),
                _ => {
                    let written = bytes::with_length(key, |key| {
                        write(key);
                        Ok::<_, Infallible>(())
                    });
                    let Ok(()) = written;
                }
            }
        }
        result
    }

    /// Returns `true` if a part of the key is unknown, because a call did not pass it.
    pub fn is_unknown(&self, key: &[u8]) -> bool {
        let is_it = |part: &[u8]| part == [bytes::UNKNOWN];
        if self.parts.len() < 2 { is_it(key) } else { bytes::parts(key).any(is_it) }
    }

    /// Formats a key for display: its parts, separated by commas. An unknown part is `(unknown)`.
    ///
    /// ```
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: a, by: [account, ip], limit: 5/s}]");
    /// let file = RuleFile::read(&document, &Registry::default())?;
    /// assert_eq!(file.rules[0].by.shown(b"5:alice9:192.0.2.1"), "alice, 192.0.2.1");
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn shown(&self, key: &[u8]) -> String {
        let shown = |part: &[u8]| match part {
            [bytes::UNKNOWN] => "(unknown)".to_owned(),
            known => String::from_utf8_lossy(known).into_owned(),
        };
        if self.parts.len() < 2 {
            return shown(key);
        }
        bytes::parts(key).map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Returns the values of a key, one for each part, as a compiled rule takes them; `None` if it can't, because a part is unknown or not valid text.
    pub fn values(&self, key: &[u8]) -> Option<Vec<String>> {
        let text = |part: &[u8]| std::str::from_utf8(part).ok().map(str::to_owned);
        match self.parts.len() {
            _ if key.is_empty() => Some(Vec::new()),
            0 | 1 => text(key).map(|text| vec![text]),
            count => bytes::parts(key).map(text).collect::<Option<Vec<_>>>().filter(|parts| parts.len() == count),
        }
    }

    /// Returns the key for `values`, one for each part, as the rule file writes them.
    pub fn key_of(&self, values: &[&str]) -> KeyBytes {
        let mut key = KeyBytes::new();
        for (part, value) in self.parts.iter().zip(values) {
            match self.parts.len() {
                1 => part.write_value(value, &mut key),
                _ => {
                    let written = bytes::with_length(&mut key, |key| {
                        part.write_value(value, key);
                        Ok::<_, Infallible>(())
                    });
                    let Ok(()) = written;
                }
            }
        }
        key
    }

    /// Returns `true` if `look` returns `true` for any part of a request's key.
    pub(crate) fn any_part(&self, request: &dyn Attributes, mut check: impl FnMut(&[u8]) -> bool) -> bool {
        let mut one = KeyBytes::new();
        self.parts.iter().any(|part| {
            one.clear();
            part.write_doubtful(request, &mut one).is_ok() && check(&one)
        })
    }

    /// Returns `true` if `look` returns `true` for any of these values, each as this rule's keys write it, and as an IP
    /// address if it is one.
    pub(crate) fn any_value(&self, values: &[&str], check: impl Fn(Option<IpAddr>, &[u8]) -> bool) -> bool {
        self.parts.iter().zip(values).any(|(part, value)| {
            let mut key = KeyBytes::new();
            part.write_value(value, &mut key);
            let address = value.split('/').next().filter(|_| part.is_address());
            check(address.and_then(|address| address.parse().ok()), &key)
        })
    }

    /// Returns a value as each part would write it, for comparison with parts of keys.
    pub(crate) fn part_of(&self, value: &str) -> KeyBytes {
        let mut key = KeyBytes::new();
        match self.parts.first() {
            Some(part) if self.parts.len() == 1 => part.write_value(value, &mut key),
            _ => key.extend_from_slice(value.as_bytes()),
        }
        key
    }

    /// Checks that values from a file, one for each part, can be a key. The error is the index of the invalid value,
    /// the problem, and a suggested fix.
    pub fn check_key(&self, values: &[&str]) -> Result<(), (usize, String, String)> {
        for (index, (part, value)) in self.parts.iter().zip(values).enumerate() {
            part.check_value(value).map_err(|(what, expected)| (index, what, expected))?;
        }
        Ok(())
    }

    /// Returns the network whose count is shared by the address that a file names: `2001:db8::/64` for `2001:db8::7`.
    pub(crate) fn network_of(&self, key: &str) -> Option<IpNet> {
        let [part] = &*self.parts else { return None };
        part.network_of(key)
    }

    /// Returns `true` if every part is an address.
    pub(crate) fn is_of_addresses(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(Part::is_address)
    }

    /// Returns `true` if any part is an address.
    pub fn has_address(&self) -> bool {
        self.parts.iter().any(Part::is_address)
    }

    /// The number of parts.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns `true` if all requests share one count.
    pub fn is_everyone(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns `true` if each request has its own count.
    pub fn is_each_request(&self) -> bool {
        self.parts.contains(&Part::Request)
    }

    /// Returns `true` if a part is a registered function, which may read any attribute.
    pub fn has_registered(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Registered(..)))
    }

    /// The attributes that the key reads.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.parts.iter().flat_map(Part::attributes)
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("global");
        }
        for (index, part) in self.parts.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{part}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MissingKeyPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.missing {
            MissingKey::Absent => write!(f, "missing {}", self.part),
            MissingKey::Failed => write!(f, "evaluation of {} failed", self.part),
            MissingKey::Unknown => write!(f, "{} is unknown", self.part),
            MissingKey::Several => write!(f, "{} has several values", self.part),
            MissingKey::Unverified => write!(f, "the token cannot be verified, so {} is unknown", self.part),
            MissingKey::Rejected => {
                write!(f, "the token is expired or has another issuer or audience, so {} is unknown", self.part)
            }
        }
    }
}

#[cfg(test)]
mod tests;
