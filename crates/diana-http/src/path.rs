//! The path of a request in the forms that rules compare, so that no spelling of a path evades a rule.
//!
//! Servers differ in what they make of a path. What all of them agree on is normalised:
//!
//! - `%73` is `s`: what needs no escape loses it, once, and what needs it has it in capitals. A `%` that escapes nothing is
//!   escaped itself.
//! - Several `/` are one.
//! - `.` and `..` go, with what `..` takes along; the root has nothing above it. (The gateway and the layer answer these with 400.)
//!
//! What they do not agree on makes a *form* for each way to read it:
//!
//! | in the path | one service | another |
//! |---|---|---|
//! | `%2F`, `%5C`, `%3B` | stays escaped: Express, Tomcat (pass through) | is `/`, `\`, `;`: nginx, Flask, Tomcat (decode) |
//! | `;x` in a segment | is cut, before or after decoding: Tomcat, Spring | is a part of the segment: nginx, Flask, Express |
//! | `\` | is `/`: IIS, and Tomcat if it is told to | is a character: nginx, Flask, Express |
//!
//! The shortest form, in which all of these are separators and all `;x` are cut, is the path of a request: keys are made of it.
//! A rule matches if it matches any form.
//!
//! # What always holds (tests/it/path.rs, tests/it/spellings.rs)
//! - The normal form of a normal form is itself.
//! - It begins with `/`, and no segment of it is empty (but for the last), `.` or `..`.
//! - A path that is normal already has one form, and is not copied.
//! - However a service of the table reads a path, one of the forms is what it reads.

use std::borrow::Cow;

/// The normal form of a path, in which escaped separators stay escaped. Routes compare it, and rules among other forms.
///
/// ```
/// use diana_http::normal_path;
///
/// assert_eq!(normal_path("/search/shoes"), "/search/shoes");
/// assert_eq!(normal_path("//x/..;v=1/%73ms"), "/sms");
/// assert_eq!(normal_path("/a%2fb"), "/a%2Fb");
/// ```
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) { Cow::Borrowed(path) } else { Reading::LITERAL.of(path) }
}

/// The shortest form of a path: escaped separators are separators, and `;x` is cut wherever a service may cut it. Keys are made
/// of it.
///
/// ```
/// use diana_http::decoded_path;
///
/// assert_eq!(decoded_path("/search/shoes"), "/search/shoes");
/// assert_eq!(decoded_path("/%2flogin%3bv=1"), "/login");
/// assert_eq!(decoded_path("/group%2Fproject"), "/group/project");
/// ```
pub fn decoded_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) { Cow::Borrowed(path) } else { Reading::SHORTEST.of(path) }
}

/// Whether a path has segments that stand for others, `.` or `..`, however they are written and in whichever form. Services
/// differ in what they make of these, so that rules and services may mean different places; nobody sends them in good faith.
///
/// ```
/// use diana_http::has_dot_segments;
///
/// assert!(has_dot_segments("/graphql/../x") && has_dot_segments("/a/%2e%2E;v=1") && has_dot_segments(r"/a\.."));
/// assert!(has_dot_segments("/x%2f..%2flogin") && has_dot_segments("/x/..%5Clogin") && has_dot_segments("/x/..%3bv/a"));
/// assert!(!has_dot_segments("/a/...") && !has_dot_segments("/.well-known/x") && !has_dot_segments("/a.b"));
/// ```
pub fn has_dot_segments(path: &str) -> bool {
    if is_normal(path) {
        return false;
    }
    // Every segment of every form, but for those that hold a separator, is one of these.
    let separated = with_separators(path);
    separated.split(['/', '\\']).any(|segment| matches!(&*unescaped(cut(segment)), "." | ".."))
}

/// Whether a path has an escaped `/` or `\` in it, which some services take for a separator and others do not.
///
/// ```
/// use diana_http::has_escaped_slash;
///
/// assert!(has_escaped_slash("/a%2fb") && has_escaped_slash("/a%5Cb"));
/// assert!(!has_escaped_slash("/a/b") && !has_escaped_slash("/a%252fb") && !has_escaped_slash(r"/a\b"));
/// ```
pub fn has_escaped_slash(path: &str) -> bool {
    !is_normal(path) && escapes(path).any(|(_, byte)| matches!(byte, b'/' | b'\\'))
}

/// Whether a path is plainly normal: without anything that would have to be looked at more closely.
#[inline]
pub(crate) fn is_normal(path: &str) -> bool {
    let bytes = path.as_bytes();
    // Folds rather than searches: these are done for many bytes at once.
    let is_odd = |odd: bool, &byte: &u8| odd | (byte == b'%') | (byte == b'\\') | (byte == b';');
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let is_odd_pair = |odd: bool, (&one, &two): (&u8, &u8)| odd | ((one == b'/') & ((two == b'/') | (two == b'.')));
    bytes.first() == Some(&b'/') && !bytes.iter().fold(false, is_odd) && !pairs.fold(false, is_odd_pair)
}

/// How a service reads a path, where services differ. The steps are done in this order.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// `;x` goes, up to the next `/` that is not escaped.
    cuts: bool,
    /// `%2F`, `%5C` and `%3B` become what they stand for.
    decodes: bool,
    /// `\` separates segments.
    splits_at_backslash: bool,
    /// `;x` goes, up to the next separator.
    cuts_segments: bool,
}

impl Reading {
    const SHORTEST: Self = Self { cuts: true, decodes: true, splits_at_backslash: true, cuts_segments: true };
    const LITERAL: Self = Self { decodes: false, ..Self::SHORTEST };

    /// The form of a path that this makes of it.
    #[cold]
    fn of(self, path: &str) -> Cow<'_, str> {
        if path == "*" {
            // What `OPTIONS *` asks about is no path, but the server.
            return Cow::Borrowed(path);
        }
        let mut text = Cow::Borrowed(path);
        if self.cuts && path.contains(';') {
            text = Cow::Owned(path.split('/').map(cut).collect::<Vec<_>>().join("/"));
        }
        if self.decodes {
            text = Cow::Owned(with_separators(&text).into_owned());
        }
        let is_separator = |character| character == '/' || self.splits_at_backslash && character == '\\';
        let mut form = String::with_capacity(text.len() + 1);
        let mut segments = text.split(is_separator).peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            let segment = unescaped(if self.cuts_segments { cut(segment) } else { segment });
            match &*segment {
                "" | "." => {}
                ".." => form.truncate(form.rfind('/').unwrap_or(0)),
                segment => {
                    form.push('/');
                    form.push_str(segment);
                    continue;
                }
            }
            // Whatever ends in a slash, or in what stands for a directory, still does.
            if is_last {
                form.push('/');
            }
        }
        if form == path { Cow::Borrowed(path) } else { Cow::Owned(form) }
    }
}

/// The other forms of a path than its [shortest](decoded_path), the [normal form](normal_path) first. Empty for almost every path.
#[cold]
pub(crate) fn other_paths(path: &str) -> Vec<String> {
    let has = |byte: u8| path.bytes().any(|own| own == byte);
    let escaped = |byte: u8| escapes(path).any(|(_, own)| own == byte);
    let (semicolon, backslash) = (has(b';'), has(b'\\'));
    let (escaped_semicolon, escaped_backslash) = (escaped(b';'), escaped(b'\\'));
    let has_escapes = escaped_semicolon || escaped_backslash || escaped(b'/');
    if path == "*" || !(semicolon || backslash || has_escapes) {
        return Vec::new();
    }
    // What does not occur in the path need not be read in two ways.
    let both = |occurs: bool| if occurs { &[true, false][..] } else { &[true][..] };
    let shortest = Reading::SHORTEST.of(path);
    let mut forms = vec![Reading::LITERAL.of(path).into_owned()];
    for &decodes in both(has_escapes) {
        for &cuts in both(semicolon) {
            for &splits_at_backslash in both(backslash || decodes && escaped_backslash) {
                for &cuts_segments in both(semicolon || decodes && escaped_semicolon) {
                    let form = Reading { cuts, decodes, splits_at_backslash, cuts_segments }.of(path);
                    if form != shortest && forms.iter().all(|known| **known != *form) {
                        forms.push(form.into_owned());
                    }
                }
            }
        }
    }
    let is_alone = matches!(&*forms, [literal] if **literal == *shortest);
    if is_alone { Vec::new() } else { forms }
}

/// A segment without its parameters: `;x`.
fn cut(segment: &str) -> &str {
    segment.split_once(';').map_or(segment, |(segment, _)| segment)
}

/// The separators that are escaped in a path, and where.
fn escapes(path: &str) -> impl Iterator<Item = (usize, u8)> {
    let places = path.bytes().enumerate().filter(|(_, byte)| *byte == b'%');
    places.filter_map(|(at, _)| Some((at, escaped(path.get(at..)?)?))).filter(|(_, byte)| b"/\\;".contains(byte))
}

/// A path whose escaped separators stand for themselves.
fn with_separators(path: &str) -> Cow<'_, str> {
    let mut text = String::new();
    let mut rest = 0;
    for (at, byte) in escapes(path) {
        text.push_str(path.get(rest..at).unwrap_or_default());
        text.push(char::from(byte));
        rest = at + 3;
    }
    if rest == 0 {
        return Cow::Borrowed(path);
    }
    text.push_str(path.get(rest..).unwrap_or_default());
    Cow::Owned(text)
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
