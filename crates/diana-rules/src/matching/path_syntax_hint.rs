//! Path syntax of other systems: `/users/:id`, `^/api/[0-9]+$`. It would match nothing in Diana, so the right form is
//! suggested.

use super::path::{PathPattern, segments};

/// Parses a path of `match`. The error is the problem, and a suggested fix.
pub(super) fn path(text: &str) -> Result<PathPattern, (String, String)> {
    if is_regex(text) {
        let what = format!("regular expression `{text}` never matches: paths are compared literally");
        let expected = "use `*` for a part of a segment, `{id}` for a whole one, `**` for any number; or `when: \
                        'request.path.matches(\"...\")'`";
        return Err((what, expected.to_owned()));
    }
    if let Some(parameter) = segments(text).find(|segment| is_colon_parameter(segment)) {
        let what = format!("unknown parameter syntax `{parameter}`: `{text}` never matches");
        return Err((what, format!("did you mean `{}`?", with_braces(text))));
    }
    PathPattern::read(text).map_err(|(what, expected)| (what, expected.to_owned()))
}

/// Returns `true` for `:id`, as in Express, Rails and many routers. A colon elsewhere (`/jobs/7:cancel`) is a plain
/// character.
fn is_colon_parameter(segment: &str) -> bool {
    segment.strip_prefix(':').is_some_and(|name| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Converts the parameters of a path to rule syntax.
fn with_braces(text: &str) -> String {
    let each = text.split('/').map(|segment| match segment.strip_prefix(':') {
        Some(name) if is_colon_parameter(segment) => format!("{{{name}}}"),
        _ => segment.to_owned(),
    });
    each.collect::<Vec<_>>().join("/")
}

/// Returns `true` if the text has syntax that only a regular expression has: an anchor, a backslash (which no path
/// keeps), a repeated class or group, alternatives. Brackets and dots alone are plain characters.
fn is_regex(text: &str) -> bool {
    let is_repeated = |close: &str| ["+", "*", "?", "{"].iter().any(|sign| text.contains(&format!("{close}{sign}")));
    let has_alternatives = || {
        let inside = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        inside.is_some_and(|(inside, _)| inside.contains('|'))
    };
    text.starts_with(['^', '~'])
        || text.starts_with("/^")
        || text.ends_with('$')
        || text.contains(['\\'])
        || text.contains("(?")
        || text.contains("[^")
        || text.contains(".+")
        || is_repeated("]")
        || is_repeated(")")
        || has_alternatives()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::path;

    #[test]
    fn parameters_of_other_routers_are_suggested_in_braces() {
        let invalid = |text: &str| path(text).unwrap_err();
        assert_eq!(
            invalid("/users/:id/orders/:order_2"),
            (
                "unknown parameter syntax `:id`: `/users/:id/orders/:order_2` never matches".to_owned(),
                "did you mean `/users/{id}/orders/{order_2}`?".to_owned()
            )
        );
        assert!(invalid("/:_").1.contains("`/{_}`"));
    }

    #[test]
    fn reports_regular_expressions() {
        for text in [
            "^/api/.*$",
            "/api/.*$",
            "~ ^/api",
            "/users/[0-9]+",
            "/users/\\d+",
            "/a/(b|c)",
            "/a(/b)?",
            "/(?i)a",
            "/[^/]+",
            "/a/.+",
            "/^a",
            "/v[12]{1}",
            "/a(bc)*",
        ] {
            assert!(path(text).unwrap_err().0.starts_with("regular expression"), "{text}");
        }
    }

    #[test]
    fn accepts_paths_with_special_characters() {
        for text in [
            "/jobs/7:cancel",
            "/a:b/*",
            "/a(b)",
            "/a[0]",
            "/report.*",
            "/.well-known/**",
            "/a+b",
            "/$batch",
            "/a|b",
            "/~me/**",
        ] {
            assert!(path(text).is_ok(), "{text}");
        }
    }
}
