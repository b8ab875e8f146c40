//! The path of a request in its normal form, so that nobody gets round a rule by spelling a path otherwise.
//!
//! Servers differ in what they make of a path. This takes it as the most lenient of them would, since a rule that is about too
//! much limits a request that asks for trouble, and one that is about too little limits nobody:
//!
//! - `%73` is `s`: what needs no escape loses it, once, and what needs it has it in capitals. A `/`, `\`, `;`, `?`, `#` or `%`
//!   that is escaped stays so, since it is no separator. A `%` that escapes nothing is escaped itself.
//! - `\` is `/`, and several `/` are one.
//! - `;jsessionid=1` at the end of a segment goes.
//! - `.` and `..` go, with what `..` takes along; the root has nothing above it.
//!
//! # What always holds (tests/it/path.rs)
//! - The normal form of a normal form is itself.
//! - It begins with `/`, and no segment of it is empty (but for the last), `.` or `..`.
//! - A path that is normal already is not copied.

use std::borrow::Cow;

/// The normal form of a path, which rules compare.
///
/// ```
/// use diana_http::normal_path;
///
/// assert_eq!(normal_path("/search/shoes"), "/search/shoes");
/// assert_eq!(normal_path("//x/..;v=1/%73ms"), "/sms");
/// assert_eq!(normal_path("/a%2fb"), "/a%2Fb");
/// ```
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) { Cow::Borrowed(path) } else { normalised(path) }
}

/// Whether a path has segments that stand for others, `.` or `..`, however they are written. Services differ in what they make of
/// these, so that rules and services may mean different places; nobody sends them in good faith.
///
/// ```
/// use diana_http::has_dot_segments;
///
/// assert!(has_dot_segments("/graphql/../x") && has_dot_segments("/a/%2e%2E;v=1") && has_dot_segments(r"/a\.."));
/// assert!(!has_dot_segments("/a/...") && !has_dot_segments("/.well-known/x") && !has_dot_segments("/a.b"));
/// ```
pub fn has_dot_segments(path: &str) -> bool {
    if is_normal(path) {
        return false;
    }
    let mut segments = path.split(['/', '\\']).map(|segment| segment.split_once(';').map_or(segment, |(own, _)| own));
    segments.any(|segment| matches!(&*unescaped(segment), "." | ".."))
}

/// Whether a path is plainly normal: without anything that would have to be looked at more closely.
#[inline]
fn is_normal(path: &str) -> bool {
    let bytes = path.as_bytes();
    // Folds rather than searches: these are done for many bytes at once.
    let is_odd = |odd: bool, &byte: &u8| odd | (byte == b'%') | (byte == b'\\') | (byte == b';');
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let is_odd_pair = |odd: bool, (&one, &two): (&u8, &u8)| odd | ((one == b'/') & ((two == b'/') | (two == b'.')));
    bytes.first() == Some(&b'/') && !bytes.iter().fold(false, is_odd) && !pairs.fold(false, is_odd_pair)
}

#[cold]
fn normalised(path: &str) -> Cow<'_, str> {
    if path == "*" {
        // What `OPTIONS *` asks about is no path, but the server.
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len() + 1);
    let mut segments = path.split(['/', '\\']).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let segment = segment.split_once(';').map_or(segment, |(segment, _)| segment);
        let segment = unescaped(segment);
        match &*segment {
            "" | "." => {}
            ".." => normal.truncate(normal.rfind('/').unwrap_or(0)),
            segment => {
                normal.push('/');
                normal.push_str(segment);
                continue;
            }
        }
        // Whatever ends in a slash, or in what stands for a directory, still does.
        if is_last {
            normal.push('/');
        }
    }
    if normal == path { Cow::Borrowed(path) } else { Cow::Owned(normal) }
}

/// A segment in which nothing is escaped that need not be, and all else is in capitals.
fn unescaped(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find('%') {
        let (before, escapes) = rest.split_at(at);
        text.push_str(before);
        // Characters beyond ASCII have several escapes in a row.
        let mut bytes = [0; 4];
        let (character, length) = match escaped(escapes) {
            None => (None, 1),
            Some(first) if first.is_ascii() => (needs_no_escape(first).then_some(char::from(first)), 3),
            Some(first) => {
                bytes[0] = first;
                let more = (1..4).map_while(|nth| escaped(escapes.get(nth * 3..)?));
                let count = 1 + bytes[1..].iter_mut().zip(more).map(|(byte, more)| *byte = more).count();
                let known = (2..=count).find_map(|count| Some((str::from_utf8(&bytes[..count]).ok()?, count)));
                known.map_or((None, 3), |(known, count)| (known.chars().next(), count * 3))
            }
        };
        match character {
            Some(character) => text.push(character),
            None if length == 1 => text.push_str("%25"),
            None => text.extend(escapes.chars().take(3).map(|character| character.to_ascii_uppercase())),
        }
        rest = escapes.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// The byte that a text begins with, escaped.
fn escaped(text: &str) -> Option<u8> {
    let [b'%', high, low, ..] = text.as_bytes() else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Whether a byte means the same with and without an escape: what RFC 3986 has in a segment, but for `;`.
fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}
