//! The normal form of a path segment, in which rules and requests are compared.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the normal form of one path segment: only characters that need an escape are escaped, in upper case. A `%`
/// that escapes nothing is escaped itself.
///
/// ```
/// use diana_rules::matching::normal_segment;
///
/// assert_eq!(normal_segment("%73ms"), "sms");
/// assert_eq!(normal_segment("caf%c3%a9"), "café");
/// assert_eq!(normal_segment("a%2fb|c"), "a%2Fb%7Cc");
/// assert_eq!(normal_segment("100%"), "100%25");
/// ```
pub fn normal_segment(segment: &str) -> Cow<'_, str> {
    if !segment.bytes().any(|byte| byte == b'%' || is_escaped_always(byte)) {
        return Cow::Borrowed(segment);
    }
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.bytes().position(|byte| byte == b'%' || is_escaped_always(byte)) {
        let (before, odd) = rest.split_at(at);
        text.push_str(before);
        let length = match escaped(odd) {
            None => {
                // The character is ASCII, one byte.
                let _ = write!(text, "%{:02X}", odd.as_bytes()[0]);
                1
            }
            Some(first) if first.is_ascii() => {
                if needs_no_escape(first) {
                    text.push(char::from(first));
                } else {
                    let _ = write!(text, "%{first:02X}");
                }
                3
            }
            Some(first) => match character(first, odd) {
                Some((character, length)) => {
                    text.push(character);
                    length
                }
                None => {
                    let _ = write!(text, "%{first:02X}");
                    3
                }
            },
        };
        rest = odd.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Decodes the escaped non-ASCII character at the start of a text, whose first byte is `first`; also returns the length
/// of its escapes.
fn character(first: u8, text: &str) -> Option<(char, usize)> {
    let mut bytes = [first, 0, 0, 0];
    let more = (1..4).map_while(|index| escaped(text.get(index * 3..)?));
    let count = 1 + bytes[1..].iter_mut().zip(more).map(|(byte, more)| *byte = more).count();
    let known = |count: usize| Some((str::from_utf8(&bytes[..count]).ok()?.chars().next()?, count * 3));
    (2..=count).find_map(known)
}

/// Decodes the escaped byte at the start of a text.
fn escaped(text: &str) -> Option<u8> {
    let [b'%', high, low, ..] = text.as_bytes() else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Returns `true` if a byte means the same with and without an escape: RFC 3986's segment characters, except `;`.
fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

/// Returns `true` if a byte is not valid in a path by RFC 3986, but some clients send it without an escape. (`\` is
/// excluded, since it may be a separator.)
fn is_escaped_always(byte: u8) -> bool {
    b" \"<>[]^`{|}".contains(&byte)
}
