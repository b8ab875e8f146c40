//! The path of a request in the forms that rules compare, so that no spelling of a path evades a rule.
//!
//! Servers differ in how they read a path. Where all of them agree, it is normalised:
//!
//! - `%73` is `s`, and `|` is `%7C`: each segment is [normal](normal_segment).
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
use diana::rules::matching::normal_segment;
use std::borrow::Cow;

/// The maximum total length of the forms of a path, in bytes. A path of 10 KB may contain `%2F`, one of 1 KB everything
/// together.
pub const MAX_FORM_BYTES: usize = 64 * 1024;
/// The longest spelling of a `.` or `..` segment.
const ESCAPED_DOTS: &str = "%2e%2e";
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
    if is_normal(path) { Cow::Borrowed(path) } else { Interpretation::LITERAL.of(path) }
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
    if is_normal(path) { Cow::Borrowed(path) } else { Interpretation::DECODED.of(path) }
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
    let ambiguities = Ambiguities::of(path);
    if ambiguities.form_bytes(path) > MAX_FORM_BYTES {
        return Some("the path has too many interpretations for its length");
    }
    // Every segment of every form, except those that contain a separator, is one of these.
    let is_dots = |segment: &str| {
        segment.len() <= ESCAPED_DOTS.len()
            && segment.starts_with(['.', '%'])
            && matches!(&*normal_segment(segment), "." | "..")
    };
    if with_separators(path).split(['/', '\\']).any(|segment| is_dots(cut(segment))) {
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
    if is_normal(path) { 0 } else { Ambiguities::of(path).form_bytes(path) }
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

/// How a byte of a path is treated by [`is_normal`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Plain,
    Slash,
    /// After a slash it may be a segment `.` or `..`.
    Dot,
    /// It may be read differently by services.
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

/// How a service reads a path, where services differ. The steps are applied in this order.
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
    /// Everything after it.
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
    fn of(self, path: &str) -> Cow<'_, str> {
        if path == "*" {
            // `OPTIONS *` refers to the server, and has no path.
            return Cow::Borrowed(path);
        }
        let sent = if self.has_host { without_host(path) } else { path };
        let mut text = match self.cuts {
            Cuts::Nothing => Cow::Borrowed(sent),
            Cuts::Parameters if sent.contains(';') => {
                Cow::Owned(sent.split('/').map(cut).collect::<Vec<_>>().join("/"))
            }
            Cuts::Parameters => Cow::Borrowed(sent),
            Cuts::Rest => Cow::Borrowed(cut(sent)),
        };
        if self.decodes {
            text = Cow::Owned(with_separators(&text).into_owned());
        }
        let is_separator = |character| character == '/' || self.splits_at_backslash && character == '\\';
        let mut form = String::with_capacity(text.len() + 1);
        let mut segments = text.split(is_separator).peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            let segment = normal_segment(if self.cuts_segments { cut(segment) } else { segment });
            match &*segment {
                "" | "." => {}
                ".." => form.truncate(form.rfind('/').unwrap_or(0)),
                segment => {
                    form.push('/');
                    form.push_str(segment);
                    continue;
                }
            }
            // A path that ends in a slash, or in a dot segment, keeps the trailing slash.
            if is_last {
                form.push('/');
            }
        }
        if form == path { Cow::Borrowed(path) } else { Cow::Owned(form) }
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
}

impl Ambiguities {
    fn of(path: &str) -> Self {
        let mut found = Self { host: without_host(path).len() < path.len(), ..Self::default() };
        let mut rest = path.as_bytes();
        while let Some((first, tail)) = rest.split_first() {
            match first {
                b';' => found.semicolon = true,
                b'\\' => found.backslash = true,
                b'%' => match escaped(rest) {
                    Some(b'/') => found.escaped_slash = true,
                    Some(b';') => found.escaped_semicolon = true,
                    Some(b'\\') => found.escaped_backslash = true,
                    Some(byte) if byte.is_ascii_control() => found.control = true,
                    _ => {}
                },
                _ => {}
            }
            rest = tail;
        }
        found
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
    let decoded = Interpretation::DECODED.of(path);
    let ambiguities = Ambiguities::of(path);
    if path == "*" || ambiguities.interpretations().nth(1).is_none() {
        return (decoded, Vec::new());
    }
    let literal = match ambiguities.has_escaped_separators() {
        true => Interpretation::LITERAL.of(path).into_owned(),
        false => decoded.clone().into_owned(),
    };
    let mut others = vec![literal];
    let is_new = |other: &Interpretation| ![Interpretation::DECODED, Interpretation::LITERAL].contains(other);
    for interpretation in ambiguities.interpretations().filter(is_new) {
        let form = interpretation.of(path);
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

/// Returns the byte that is escaped at the start of a text.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Returns a path with its escaped separators decoded.
fn with_separators(path: &str) -> Cow<'_, str> {
    let mut text = String::new();
    let mut rest = 0;
    let escapes = path.match_indices('%').filter_map(|(at, _)| Some((at, escaped(path.as_bytes().get(at..)?)?)));
    for (at, byte) in escapes.filter(|(_, byte)| b"/\\;".contains(byte)) {
        text.push_str(path.get(rest..at).unwrap_or_default());
        text.push(char::from(byte));
        rest = at + ESCAPE;
    }
    if rest == 0 {
        return Cow::Borrowed(path);
    }
    text.push_str(path.get(rest..).unwrap_or_default());
    Cow::Owned(text)
}
