//! The cookies of a request.
//!
//! Cookies are separated by `;`. nginx treats a comma as a separator, too, so the pairs next to one are ambiguous:
//! their value is [`SEVERAL`], which is one key for all such requests. (RFC 6265 does not allow commas in values.)

use crate::pairs::{PairIndex, SHORT, value};
use diana::rules::attributes::SEVERAL;
use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};
use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The cookies of one request. Long headers are parsed once, for any number of lookups.
#[derive(Clone, Debug)]
pub(crate) struct Cookies<'a> {
    headers: &'a HeaderMap,
    index: OnceLock<PairIndex<'a>>,
}

impl<'a> Cookies<'a> {
    pub(crate) fn new(headers: &'a HeaderMap) -> Self {
        Self { headers, index: OnceLock::new() }
    }

    /// Returns the value of a cookie; [`SEVERAL`] if services may read different ones.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let values = self.headers.get_all(COOKIE);
        if values.iter().map(HeaderValue::len).sum::<usize>() <= SHORT {
            return value(values.into_iter().flat_map(pairs), name);
        }
        self.index.get_or_init(|| PairIndex::new(values.into_iter().flat_map(pairs))).get(name)
    }
}

/// Returns a `Cookie` value with the same names, each of whose values is [`SEVERAL`] to rules: a comma follows each pair.
pub(crate) fn with_several_values(header: &HeaderValue) -> Option<HeaderValue> {
    let pairs = header.as_bytes().split(|byte| *byte == b';');
    HeaderValue::from_bytes(&pairs.flat_map(|pair| [pair, b",;"]).collect::<Vec<_>>().concat()).ok()
}

/// Returns every name of a header value, with a function for its value.
fn pairs<'a>(header: &'a HeaderValue) -> impl Iterator<Item = (Cow<'a, str>, impl FnOnce() -> Cow<'a, str>)> {
    header.as_bytes().split(|byte| *byte == b';').filter(|part| !part.is_empty()).flat_map(|part| {
        let is_ambiguous = part.contains(&b',');
        part.split(|byte| *byte == b',').filter_map(move |pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (trimmed(pair.get(..at)?), trimmed(pair.get(at + 1..)?));
            let value = move || if is_ambiguous { Cow::Borrowed(SEVERAL) } else { decoded(value) };
            Some((String::from_utf8_lossy(name), value))
        })
    })
}

/// Trims whitespace around a name or a value: that of Unicode, like Django, and that of Latin-1, like Starlette.
fn trimmed(text: &[u8]) -> &[u8] {
    let mut text = text.trim_ascii();
    // Non-ASCII whitespace starts and ends with such bytes.
    while let Some(first) = text.first().filter(|byte| !byte.is_ascii()) {
        let start = (2..=4).find_map(|length| str::from_utf8(text.get(..length)?).ok());
        match whitespace_len(*first, start) {
            0 => break,
            length => text = text.split_at(length).1.trim_ascii_start(),
        }
    }
    while let Some(last) = text.last().filter(|byte| !byte.is_ascii()) {
        let end = (2..=4).find_map(|length| str::from_utf8(text.get(text.len().checked_sub(length)?..)?).ok());
        match whitespace_len(*last, end) {
            0 => break,
            length => text = text.split_at(text.len() - length).0.trim_ascii_end(),
        }
    }
    text
}

/// Returns the length in bytes of the whitespace that a non-ASCII byte belongs to; 0 if it is none. `character` is the
/// one that the byte belongs to, if it is UTF-8.
fn whitespace_len(byte: u8, character: Option<&str>) -> usize {
    let is_whitespace =
        |character: char| character.is_whitespace() || character.is_control() || character == '\u{feff}';
    match character {
        Some(character) if character.chars().all(is_whitespace) => character.len(),
        None if matches!(byte, 0x85 | 0xa0) => 1,
        _ => 0,
    }
}

/// Decodes the value of a cookie like most services: removes quotes, and decodes escapes in quotes and
/// percent-encoding. So a client can't get a new key by spelling a session differently.
fn decoded(value: &[u8]) -> Cow<'_, str> {
    let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let bare = match quoted {
        Some(quoted) if quoted.contains(&b'\\') => Cow::Owned(unescaped(quoted)),
        Some(quoted) => Cow::Borrowed(quoted),
        None => Cow::Borrowed(value),
    };
    match bare {
        Cow::Borrowed(bare) if !bare.contains(&b'%') => String::from_utf8_lossy(bare),
        bare => Cow::Owned(String::from_utf8_lossy(&Cow::from(percent_decode(&bare))).into_owned()),
    }
}

/// Decodes a quoted value like Python's services: `\"` is `"`, and `\101` is the byte of that octal number.
fn unescaped(quoted: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(quoted.len()), quoted);
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', tail @ ..]) => {
                plain.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                tail
            }
            (b'\\', [escaped, tail @ ..]) => {
                plain.push(*escaped);
                tail
            }
            _ => {
                plain.push(*first);
                tail
            }
        };
    }
    plain
}
