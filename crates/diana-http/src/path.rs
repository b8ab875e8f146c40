//! The path of a request in the forms that rules compare, so that no spelling of a path evades a rule.
//!
//! Servers differ in how they read a path. Where all of them agree, it is normalised:
//!
//! - `%73` is `s`, and `|` is `%7C`: each segment is [normal](diana::rules::matching::normal_segment).
//! - Several `/` are one.
//! - `.` and `..` are resolved. (The gateway and the layer answer such paths with 400.)
//!
//! Where they differ, each interpretation is a *form*:
//!
//! | in the path | one service | another |
//! |---|---|---|
//! | `%2F`, `%5C`, `%3B` | stays escaped: Express, Tomcat (pass through) | is `/`, `\`, `;`: nginx, Flask, Tomcat (decode) |
//! | `;x` in a segment | is cut, before or after decoding: Tomcat, Spring | is a part of the segment: nginx, Flask, Express |
//! | `;x` and all that follows | is the query: Fastify 4 | is a part of the path: the others |
//! | `\` | is `/`: IIS, and Tomcat if configured so | is a character: nginx, Flask, Express |
//! | `//x` at the start | is a host: the JDK's server, `new URL(request.url, base)` in Node | is `/x`: nginx, Express |
//!
//! The decoded form, in which all of these are separators and `;x` is removed from every segment, is the path of a
//! request: keys use it. A rule matches if it matches any form.
//!
//! # What always holds (tests/it/path.rs, tests/it/path_forms.rs)
//! - The normal form of a normal form is itself.
//! - It starts with `/`, and no segment of it is empty (except the last), `.` or `..`.
//! - A path that is already normal has one form, and is not copied.
//! - However a service of the table reads a path, its interpretation is one of the forms.
//! - The forms of a path that is not [malformed](malformed_path) have at most [`MAX_FORM_BYTES`] together, whatever a
//!   client sends.

use diana::rules::http_settings::SpellingPolicy;
use diana::rules::matching::{escaped_byte, push_normal};
use std::borrow::Cow;

/// The maximum total length of the forms of a path, in bytes: computing them takes less than a millisecond. A path of 10 KB may
/// contain `%2F`, one of half a KB everything together.
pub const MAX_FORM_BYTES: usize = 32 * 1024;
/// The length of an escape.
const ESCAPE: usize = "%2f".len();

/// Returns the normal form of a path, in which escaped separators stay escaped. Routes compare it, and rules among
/// other forms.
///
/// ```
/// use diana_http::normal_path;
///
/// assert_eq!(normal_path("/search/shoes"), "/search/shoes");
/// assert_eq!(normal_path("//x/..;v=1/%73ms"), "/sms");
/// assert_eq!(normal_path("/a%2fb"), "/a%2Fb");
/// ```
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) { Cow::Borrowed(path) } else { Interpretation::LITERAL.read(path) }
}

/// Returns the decoded form of a path: escaped separators are separators, and `;x` is removed wherever a service may
/// remove it. Keys use this form.
///
/// ```
/// use diana_http::decoded_path;
///
/// assert_eq!(decoded_path("/search/shoes"), "/search/shoes");
/// assert_eq!(decoded_path("/%2flogin%3bv=1"), "/login");
/// assert_eq!(decoded_path("/group%2Fproject"), "/group/project");
/// ```
pub fn decoded_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) { Cow::Borrowed(path) } else { Interpretation::DECODED.read(path) }
}

/// Returns why a path is rejected with 400 before the rules are checked; `None` if it is valid. Services differ in how
/// they read such a path, so that a rule and a service could refer to different resources:
///
/// - It has the segments `.` or `..`, in any spelling and any form.
/// - It has an escaped control character. `/login%0a` is `/login` to a regular expression that ends in `$`.
/// - It has so many interpretations that comparing all of them would take too long. Legitimate paths are far below
///   that.
/// - It has an escaped slash, and `escaped_slash` denies these.
///
/// ```
/// use diana::rules::http_settings::SpellingPolicy;
/// use diana_http::malformed_path;
///
/// for path in ["/graphql/../x", "/a/%2e%2E;v=1", r"/a\..", "/x%2f..%2flogin", "/x/..%3bv/a", "/login%0a"] {
///     assert!(malformed_path(path, SpellingPolicy::Allow).is_some());
/// }
/// assert_eq!(malformed_path("/.well-known/a%2Fb/...", SpellingPolicy::Allow), None);
/// assert_eq!(malformed_path("/a%2Fb", SpellingPolicy::Deny), Some("the path contains an escaped slash"));
/// ```
pub fn malformed_path(path: &str, escaped_slash: SpellingPolicy) -> Option<&'static str> {
    if is_normal(path) { None } else { malformed(path, escaped_slash) }
}

#[cold]
fn malformed(path: &str, escaped_slash: SpellingPolicy) -> Option<&'static str> {
    // A long one need not be read: there is at least one form.
    let ambiguities = (path.len() <= MAX_FORM_BYTES).then(|| Ambiguities::of(path));
    let Some(ambiguities) = ambiguities.filter(|ambiguities| ambiguities.form_bytes(path) <= MAX_FORM_BYTES) else {
        return Some("the path has too many interpretations for its length");
    };
    if ambiguities.dots {
        return Some("the path contains a `.` or `..` segment");
    }
    if ambiguities.control {
        return Some("the path contains an escaped control character");
    }
    let has_escaped_slash = ambiguities.escaped_slash || ambiguities.escaped_backslash;
    (escaped_slash == SpellingPolicy::Deny && has_escaped_slash).then_some("the path contains an escaped slash")
}

/// Returns the total length of the forms of a path; 0 if it is certainly normal.
pub fn form_bytes(path: &str) -> usize {
    match is_normal(path) {
        true => 0,
        // A lower bound suffices.
        false if path.len() > MAX_FORM_BYTES => path.len(),
        false => Ambiguities::of(path).form_bytes(path),
    }
}

/// Returns `true` if a path is certainly normal, so that it needs no further checks. (A loop with a table: paths are short,
/// and each request is checked.)
#[inline]
pub(crate) fn is_normal(path: &str) -> bool {
    let mut previous = ByteClass::Plain;
    for &byte in path.as_bytes() {
        let class = BYTE_CLASSES[usize::from(byte)];
        if class != ByteClass::Plain && (class == ByteClass::Special || previous == ByteClass::Slash) {
            return false;
        }
        previous = class;
    }
    path.starts_with('/')
}

/// The treatment of a byte of a path by [`is_normal`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Plain,
    Slash,
    /// A dot, which may be a segment `.` or `..` after a slash.
    Dot,
    /// Services may read this byte differently.
    Special,
}

const BYTE_CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Plain; 256];
    classes[b'/' as usize] = ByteClass::Slash;
    classes[b'.' as usize] = ByteClass::Dot;
    let special = b"%;[\\]{|}\"<>^`";
    let mut index = 0;
    while index < special.len() {
        classes[special[index] as usize] = ByteClass::Special;
        index += 1;
    }
    classes
};

/// A service's reading of a path, where services differ. The steps are applied in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interpretation {
    /// `//x` at the start is a host, and is removed.
    has_host: bool,
    cuts: Cuts,
    /// `%2F`, `%5C` and `%3B` are decoded.
    decodes: bool,
    /// `\` separates segments.
    splits_at_backslash: bool,
    /// `;x` is removed, up to the next separator.
    cuts_segments: bool,
}

/// The part that is removed from the raw path if it contains `;x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    Nothing,
    /// `;x`, up to the next unescaped `/`.
    Parameters,
    /// `;x` and everything after it.
    Rest,
}

impl Cuts {
    const ALL: [Self; 3] = [Self::Parameters, Self::Rest, Self::Nothing];
}

impl Interpretation {
    const DECODED: Self =
        Self { has_host: false, cuts: Cuts::Parameters, decodes: true, splits_at_backslash: true, cuts_segments: true };
    const LITERAL: Self = Self { decodes: false, ..Self::DECODED };

    /// Returns the form of a path for this interpretation.
    #[cold]
    fn read(self, path: &str) -> Cow<'_, str> {
        if path == "*" {
            // `OPTIONS *` refers to the server, and has no path.
            return Cow::Borrowed(path);
        }
        let sent = if self.has_host { without_host(path) } else { path };
        let sent = if self.cuts == Cuts::Rest { cut(sent) } else { sent }.as_bytes();
        let mut form = Form::new(sent.len());
        let (mut at, mut skipped) = (0, Skipped::Nothing);
        while let Some(&first) = sent.get(at) {
            let rest = &sent[at..];
            let escaped = if first == b'%' && self.decodes { separator(rest) } else { None };
            let (byte, is_raw) = (escaped.unwrap_or(first), escaped.is_none());
            let length = if is_raw { 1 } else { ESCAPE };
            let is_separator = byte == b'/' || byte == b'\\' && self.splits_at_backslash;
            match skipped {
                // Parameters are removed before anything is decoded.
                Skipped::ToSlash if first != b'/' => {}
                Skipped::ToSeparator if !is_separator => {}
                _ if is_separator => {
                    form.end_segment();
                    skipped = Skipped::Nothing;
                }
                _ if byte == b';' && is_raw && self.cuts == Cuts::Parameters => skipped = Skipped::ToSlash,
                _ if byte == b';' && self.cuts_segments => skipped = Skipped::ToSeparator,
                _ if !is_raw => form.text.push(byte),
                _ => {
                    at += form.push_text(rest);
                    continue;
                }
            }
            at += length;
        }
        let form = form.finish();
        if form == path { Cow::Borrowed(path) } else { Cow::Owned(form) }
    }
}

/// The part of a path that is being skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skipped {
    Nothing,
    /// `;x`, up to the next unescaped `/`.
    ToSlash,
    /// `;x`, up to the next separator.
    ToSeparator,
}

/// A form that is being written, segment by segment.
struct Form {
    text: Vec<u8>,
    /// The start of the last segment, with its slash.
    segment: usize,
}

impl Form {
    fn new(length: usize) -> Self {
        let mut text = Vec::with_capacity(length + 1);
        text.push(b'/');
        Self { text, segment: 0 }
    }

    /// Adds the normal form of the text at the start of `rest`; returns its length.
    fn push_text(&mut self, rest: &[u8]) -> usize {
        let is_plain =
            |byte: &u8| matches!(BYTE_CLASSES[usize::from(*byte)], ByteClass::Plain | ByteClass::Dot) && *byte != b' ';
        let plain = rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
        if plain == 0 {
            return push_normal(rest, &mut self.text);
        }
        self.text.extend_from_slice(&rest[..plain]);
        plain
    }

    /// Ends a segment: an empty one and `.` are removed, and `..` with the one before. Returns `true` if it was removed.
    #[inline]
    fn resolve(&mut self) -> bool {
        match self.text.len() - self.segment {
            1 => {}
            2 if self.text.ends_with(b".") => {}
            3 if self.text.ends_with(b"..") => {
                self.text.truncate(self.segment);
                self.segment = self.text.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            _ => return false,
        }
        self.text.truncate(self.segment);
        true
    }

    /// Ends a segment, and begins the next one.
    fn end_segment(&mut self) {
        self.resolve();
        self.segment = self.text.len();
        self.text.push(b'/');
    }

    /// Ends the last segment. A path that ends in a slash, or in a dot segment, keeps the trailing slash.
    fn finish(mut self) -> String {
        if self.resolve() {
            self.text.push(b'/');
        }
        String::from_utf8(self.text).unwrap_or_default()
    }
}

/// The parts of a path that services read differently, found in one pass.
#[derive(Clone, Copy, Debug, Default)]
struct Ambiguities {
    host: bool,
    semicolon: bool,
    backslash: bool,
    escaped_slash: bool,
    escaped_semicolon: bool,
    escaped_backslash: bool,
    /// An escaped control character.
    control: bool,
    /// A segment `.` or `..`, in any spelling and any form.
    dots: bool,
}

impl Ambiguities {
    fn of(path: &str) -> Self {
        let mut ambiguities = Self { host: without_host(path).len() < path.len(), ..Self::default() };
        // Every segment of every form, except those that contain a separator, consists of these up to its parameters.
        let (mut dots, mut others, mut is_cut) = (0_usize, false, false);
        let (bytes, mut at) = (path.as_bytes(), 0);
        while let Some(&first) = bytes.get(at) {
            at += 1;
            let mut byte = first;
            if first == b'%'
                && let Some(escaped) = escaped_byte(&bytes[at - 1..])
            {
                at += ESCAPE - 1;
                byte = escaped;
                ambiguities.escaped_slash |= byte == b'/';
                ambiguities.escaped_semicolon |= byte == b';';
                ambiguities.escaped_backslash |= byte == b'\\';
                ambiguities.control |= byte.is_ascii_control();
            }
            match byte {
                b'/' | b'\\' => {
                    ambiguities.backslash |= first == b'\\';
                    ambiguities.dots |= !others && matches!(dots, 1 | 2);
                    (dots, others, is_cut) = (0, false, false);
                }
                b';' => {
                    ambiguities.semicolon |= first == b';';
                    is_cut = true;
                }
                b'.' => dots += usize::from(!is_cut),
                _ => others |= !is_cut,
            }
        }
        ambiguities.dots |= !others && matches!(dots, 1 | 2);
        ambiguities
    }

    fn has_escaped_separators(self) -> bool {
        self.escaped_slash || self.escaped_semicolon || self.escaped_backslash
    }

    /// Returns the interpretations of the path: [`Interpretation::DECODED`] first, all different.
    fn interpretations(self) -> impl Iterator<Item = Interpretation> {
        let yes_and_no = |occurs: bool| if occurs { &[true, false][..] } else { &[true][..] };
        let cuts = if self.semicolon { &Cuts::ALL[..] } else { &Cuts::ALL[..1] };
        let hosts = if self.host { &[false, true][..] } else { &[false][..] };
        let starts = cuts.iter().flat_map(move |&cuts| hosts.iter().map(move |&has_host| (cuts, has_host)));
        starts.flat_map(move |(cuts, has_host)| {
            yes_and_no(self.has_escaped_separators()).iter().flat_map(move |&decodes| {
                let backslashes = yes_and_no(self.backslash || decodes && self.escaped_backslash).iter();
                backslashes.flat_map(move |&splits_at_backslash| {
                    let segments = yes_and_no(self.semicolon || decodes && self.escaped_semicolon).iter();
                    segments.map(move |&cuts_segments| Interpretation {
                        has_host,
                        cuts,
                        decodes,
                        splits_at_backslash,
                        cuts_segments,
                    })
                })
            })
        })
    }

    /// Returns the total length of the forms of the path.
    fn form_bytes(self, path: &str) -> usize {
        self.interpretations().count().saturating_mul(path.len())
    }
}

/// Returns the [decoded](decoded_path) form of a path, and the others: the [normal form](normal_path) first. There are no
/// others for almost every path.
#[cold]
pub(crate) fn forms(path: &str) -> (Cow<'_, str>, Vec<String>) {
    let decoded = Interpretation::DECODED.read(path);
    let ambiguities = Ambiguities::of(path);
    if path == "*" || ambiguities.interpretations().nth(1).is_none() {
        return (decoded, Vec::new());
    }
    let literal = match ambiguities.has_escaped_separators() {
        true => Interpretation::LITERAL.read(path).into_owned(),
        false => decoded.clone().into_owned(),
    };
    let mut others = vec![literal];
    let is_new = |other: &Interpretation| ![Interpretation::DECODED, Interpretation::LITERAL].contains(other);
    for interpretation in ambiguities.interpretations().filter(is_new) {
        let form = interpretation.read(path);
        if form != decoded && others.iter().all(|other| **other != *form) {
            others.push(form.into_owned());
        }
    }
    let is_alone = matches!(&*others, [literal] if **literal == *decoded);
    (decoded, if is_alone { Vec::new() } else { others })
}

/// Returns a text without its parameters: `;x`.
fn cut(text: &str) -> &str {
    text.split_once(';').map_or(text, |(text, _)| text)
}

/// Returns a path without its leading host, if it has the form `//host/path`.
fn without_host(path: &str) -> &str {
    const SLASHES: [char; 2] = ['/', '\\'];
    let host = path.trim_start_matches(SLASHES);
    if path.len() < host.len() + 2 {
        return path;
    }
    host.find(SLASHES).and_then(|end| host.get(end..)).unwrap_or("/")
}

/// Returns the separator that is escaped at the start of a text.
fn separator(text: &[u8]) -> Option<u8> {
    escaped_byte(text).filter(|byte| matches!(byte, b'/' | b'\\' | b';'))
}
