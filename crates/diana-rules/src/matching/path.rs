//! Path patterns: `/search/**`, `/users/{id}/*.pdf`.
//!
//! A path is a list of segments. Empty ones are ignored, both in a pattern and in a path: most servers treat `//sms/`
//! as `/sms`, and its limit must apply to both.

use super::glob::{Glob, covers};
use super::normal_segment;
use smallvec::SmallVec;
use std::fmt;

/// The maximum number of segments in a pattern. A path may have more; only `**` covers them.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This text, which may contain stars.
    Text(Glob),
    /// Any single segment, with an optional name.
    One(Option<Box<str>>),
    /// Any number of segments, including none.
    Any,
}

/// The segments of a path, from first to last.
#[derive(Clone, Debug)]
pub(crate) struct Segments<'a>(&'a str);

/// The segments of a path, from first to last.
pub(crate) fn segments(path: &str) -> Segments<'_> {
    Segments(path)
}

/// Returns a path without its leading slashes.
#[inline]
pub(super) fn without_slashes(mut path: &str) -> &str {
    while let Some(rest) = path.strip_prefix('/') {
        path = rest;
    }
    path
}

/// Returns what follows the first segment of a path, if that is `name`. The path must not start with a slash.
#[inline]
pub(super) fn after_segment<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    path.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl<'a> Segments<'a> {
    /// Returns the part of the path that follows.
    #[inline]
    pub(super) fn remaining(&self) -> &'a str {
        self.0
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let remaining = without_slashes(self.0);
        let end = remaining.bytes().position(|byte| byte == b'/').unwrap_or(remaining.len());
        // A slash is never a part of another character.
        let (segment, rest) = remaining.split_at_checked(end)?;
        self.0 = rest;
        (!segment.is_empty()).then_some(segment)
    }
}

impl PathPattern {
    /// Parses a pattern. The error is the problem, and what was expected.
    pub(crate) fn read(text: &str) -> Result<Self, (String, &'static str)> {
        if !text.starts_with('/') {
            return Err((format!("invalid path `{text}`"), "expected a leading `/`, as in `/search/**`"));
        }
        if let Some(invalid) = text.chars().find(|character| matches!(character, '?' | '#')) {
            let expected = "remove the query, and match it in `when`";
            return Err((format!("path `{text}` never matches: a path has no `{invalid}`"), expected));
        }
        let read = segments(text).map(|segment| Self::segment(text, segment)).collect::<Result<Vec<_>, _>>()?;
        let is_dots = |glob: &Glob| [".", ".."].contains(&glob.literal().unwrap_or_default());
        if read.iter().any(|segment| matches!(segment, Segment::Text(glob) if is_dots(glob))) {
            let what = format!("path `{text}` never matches: `.` and `..` are resolved before matching");
            return Err((what, "expected the resolved path"));
        }
        if read.len() > MAX_SEGMENTS {
            return Err((format!("path `{text}` has {} segments", read.len()), "expected at most 64"));
        }
        let mut pattern = Self { text: text.into(), segments: Vec::new() };
        for segment in read {
            // `/**/**` is the same as `/**`.
            if segment != Segment::Any || pattern.segments.last() != Some(&Segment::Any) {
                pattern.segments.push(segment);
            }
        }
        pattern.check_parameters()?;
        Ok(pattern)
    }

    fn segment(text: &str, segment: &str) -> Result<Segment, (String, &'static str)> {
        if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            let is_name = |name: &str| {
                name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') && !name.is_empty()
            };
            if !is_name(name) {
                return Err((
                    format!("invalid parameter name in `{segment}`"),
                    "expected letters, digits and `_`, as in `{id}`",
                ));
            }
            return Ok(Segment::One(Some(name.into())));
        }
        if segment.contains(['{', '}']) {
            let expected = "use `{name}` for a whole segment, `*` for a part of one";
            return Err((
                format!("invalid segment `{segment}` in `{text}`: a parameter must be a whole segment"),
                expected,
            ));
        }
        match segment {
            "**" => Ok(Segment::Any),
            "*" => Ok(Segment::One(None)),
            _ if segment.contains("**") => Err((
                format!("invalid segment `{segment}` in `{text}`: `**` must be a whole segment"),
                "use `/**/` or `*`",
            )),
            // Normalises the file's spelling. (`%2A` becomes `*`, which matches itself, too.)
            _ => Ok(Segment::Text(Glob::new(&normal_segment(segment)))),
        }
    }

    /// Checks that each parameter has a fixed position: counted from the start, or from the end after the last `**`.
    fn check_parameters(&self) -> Result<(), (String, &'static str)> {
        let names = self.segments.iter().enumerate().filter_map(|(at, segment)| match segment {
            Segment::One(Some(name)) => Some((at, name)),
            _ => None,
        });
        for (at, name) in names.clone() {
            if names.clone().any(|(other, same)| other < at && same == name) {
                return Err((format!("duplicate parameter `{{{name}}}` in `{}`", self.text), "use another name"));
            }
            let any_before = self.segments[..at].contains(&Segment::Any);
            if any_before && self.segments[at..].contains(&Segment::Any) {
                let what = format!("ambiguous parameter `{{{name}}}` between two `**` in `{}`", self.text);
                return Err((what, "use `*` instead"));
            }
        }
        Ok(())
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let path = segments(path).collect::<SmallVec<[&str; 16]>>();
        covers(&self.segments, &path, |segment| *segment == Segment::Any, |segment, text| segment.fits(text))
    }

    /// Returns the parameter `name` of a path that matches.
    pub(crate) fn parameter<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let named = |segment: &Segment| matches!(segment, Segment::One(Some(parameter)) if **parameter == *name);
        let at = self.segments.iter().position(named)?;
        if self.segments[..at].contains(&Segment::Any) {
            let from_back = self.segments.len() - 1 - at;
            return path.rsplit('/').filter(|segment| !segment.is_empty()).nth(from_back);
        }
        segments(path).nth(at)
    }

    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::One(Some(parameter)) if **parameter == *name))
    }
}

impl Segment {
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self {
            Self::Text(glob) => glob.matches(text),
            Self::One(_) | Self::Any => true,
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        PathPattern::read(pattern).unwrap().matches(path)
    }

    #[test]
    fn two_stars_match_any_number_of_segments() {
        for path in ["/search", "/search/", "/search/a", "/search/a/b/c", "//search//a"] {
            assert!(matches("/search/**", path), "{path}");
        }
        assert!(!matches("/search/**", "/searching") && !matches("/search/**", "/a/search"));
        assert!(matches("/a/**/z", "/a/z") && matches("/a/**/z", "/a/b/z/c/z") && !matches("/a/**/z", "/a/b"));
        assert!(matches("/**", "/") && matches("/", "/") && !matches("/", "/a"));
    }

    #[test]
    fn one_star_matches_within_a_segment() {
        assert!(matches("/files/*.pdf", "/files/a.pdf") && !matches("/files/*.pdf", "/files/a/b.pdf"));
        assert!(matches("/users/*/orders", "/users/7/orders") && !matches("/users/*/orders", "/users/orders"));
    }

    #[test]
    fn escapes_do_not_change_a_segment() {
        for pattern in ["/my files/**", "/my%20files/**", "/%6Dy%20files/**"] {
            assert!(matches(pattern, "/my%20files/a") && !matches(pattern, "/my"), "{pattern}");
        }
        assert!(matches("/caf%C3%A9", "/café") && matches("/café", "/café") && matches("/a%2fb", "/a%2Fb"));
        assert!(
            matches("/p|q[1]*", "/p%7Cq%5B1%5D-z") && matches("/%7Ba%7D", "/%7Ba%7D") && matches("/100%", "/100%25")
        );
    }

    #[test]
    fn slashes_do_not_evade_a_limit() {
        assert!(matches("/sms", "/sms/") && matches("/sms", "//sms") && matches("/sms/", "/sms"));
    }

    #[test]
    fn parameters_are_found_from_the_front_and_from_the_back() {
        let parameter = |pattern: &str, name: &str, path| PathPattern::read(pattern).unwrap().parameter(name, path);
        assert_eq!(parameter("/users/{id}/**", "id", "/users/7/orders"), Some("7"));
        assert_eq!(parameter("/**/orders/{order}", "order", "/a/b/orders/9/"), Some("9"));
        assert_eq!(parameter("/users/{id}", "other", "/users/7"), None);
    }

    #[test]
    fn reports_invalid_paths() {
        let invalid = |text: &str| PathPattern::read(text).unwrap_err().0;
        assert_eq!(invalid("search"), "invalid path `search`");
        assert_eq!(invalid("/search?q=1"), "path `/search?q=1` never matches: a path has no `?`");
        assert_eq!(invalid("/a/../b"), "path `/a/../b` never matches: `.` and `..` are resolved before matching");
        assert_eq!(invalid("/a**"), "invalid segment `a**` in `/a**`: `**` must be a whole segment");
        assert_eq!(invalid("/x-{id}"), "invalid segment `x-{id}` in `/x-{id}`: a parameter must be a whole segment");
        assert_eq!(invalid("/{}"), "invalid parameter name in `{}`");
        assert_eq!(invalid("/{id}/{id}"), "duplicate parameter `{id}` in `/{id}/{id}`");
        assert!(invalid("/**/{id}/**").starts_with("ambiguous parameter `{id}` between two `**`"));
        assert!(invalid(&"/a".repeat(65)).ends_with("has 65 segments"));
    }
}
