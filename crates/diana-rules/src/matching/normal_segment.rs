//! The normal form of a path segment, in which rules and requests are compared.

use std::borrow::Cow;

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
    let mut text = Vec::with_capacity(segment.len() + 16);
    let mut rest = segment.as_bytes();
    while !rest.is_empty() {
        let length = push_normal(rest, &mut text);
        rest = rest.get(length..).unwrap_or_default();
    }
    Cow::Owned(String::from_utf8(text).unwrap_or_default())
}

/// Adds the normal form of the first character of a segment, or of the byte or character that is escaped there. Returns its
/// length in the segment.
///
/// ```
/// use diana_rules::matching::push_normal;
///
/// let mut text = Vec::new();
/// assert_eq!([&b"%73ms"[..], b"%c3%a9", b"|", b"%", b"%2f"].map(|segment| push_normal(segment, &mut text)), [3, 6, 1, 1, 3]);
/// assert_eq!(String::from_utf8_lossy(&text), "s\u{e9}%7C%25%2F");
/// ```
#[inline]
pub fn push_normal(segment: &[u8], text: &mut Vec<u8>) -> usize {
    let Some(&first) = segment.first() else { return 0 };
    if first != b'%' && !is_escaped_always(first) {
        text.push(first);
        return 1;
    }
    match escaped_byte(segment) {
        None => {
            push_escape(first, text);
            1
        }
        Some(byte) if byte.is_ascii() => {
            if needs_no_escape(byte) {
                text.push(byte);
            } else {
                push_escape(byte, text);
            }
            3
        }
        Some(byte) => match character(byte, segment) {
            Some((bytes, count)) => {
                text.extend_from_slice(bytes.get(..count).unwrap_or_default());
                count * 3
            }
            None => {
                push_escape(byte, text);
                3
            }
        },
    }
}

fn push_escape(byte: u8, text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Decodes the escaped non-ASCII character at the start of a text, whose first byte is `first`: its bytes, and how many they are.
fn character(first: u8, text: &[u8]) -> Option<([u8; 4], usize)> {
    let mut bytes = [first, 0, 0, 0];
    let more = (1..4).map_while(|index| escaped_byte(text.get(index * 3..)?));
    let count = 1 + bytes[1..].iter_mut().zip(more).map(|(byte, more)| *byte = more).count();
    let is_one = |count: &usize| str::from_utf8(&bytes[..*count]).is_ok_and(|text| text.chars().count() == 1);
    (2..=count).find(is_one).map(|count| (bytes, count))
}

/// Returns the byte that is escaped at the start of a text.
#[inline]
pub fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    Some(hex_digit(*high)? << 4 | hex_digit(*low)?)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Returns `true` if a byte means the same with and without an escape: RFC 3986's segment characters, except `;`.
fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b'='
                | b':'
                | b'@'
        )
}

/// Returns `true` if a byte is not valid in a path by RFC 3986, but some clients send it without an escape. (`\` is
/// excluded, since it may be a separator.)
fn is_escaped_always(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}')
}
