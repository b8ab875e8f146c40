//! Rules see one form of a path, for all its spellings.

use diana::rules::http_settings::SpellingPolicy;
use diana_http::{decoded_path, malformed_path, normal_path};
use proptest::prelude::*;
use std::borrow::Cow;

#[test]
fn every_spelling_has_one_normal_form() {
    for (path, normal) in [
        ("/", "/"),
        ("", "/"),
        ("*", "*"),
        ("/sms", "/sms"),
        ("/sms/", "/sms/"),
        ("sms", "/sms"),
        // Slashes.
        ("//sms", "/sms"),
        ("/a//b///c", "/a/b/c"),
        ("/a//", "/a/"),
        ("/a\\b", "/a/b"),
        ("\\\\a", "/a"),
        // Dots.
        ("/a/./b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/b/../c", "/a/c"),
        ("/../../a", "/a"),
        ("/a/../../../b", "/b"),
        ("/a\\..\\b", "/b"),
        ("/.well-known/x", "/.well-known/x"),
        ("/...", "/..."),
        ("/a..b", "/a..b"),
        // Escapes.
        ("/%73ms", "/sms"),
        ("/%2e%2e/%2E/sms", "/sms"),
        ("/a/%2e%2e/b", "/b"),
        ("/users/%40me", "/users/@me"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%5cb", "/a%5Cb"),
        ("/..%2fb", "/..%2Fb"),
        ("/a%20b", "/a%20b"),
        ("/a%3bb", "/a%3Bb"),
        ("/a%00b", "/a%00b"),
        ("/p|q", "/p%7Cq"),
        ("/p%7cq[1]{}\"<>^`", "/p%7Cq%5B1%5D%7B%7D%22%3C%3E%5E%60"),
        ("/a%0ab", "/a%0Ab"),
        ("/caf%c3%a9", "/café"),
        ("/%F0%9F%A6%89", "/🦉"),
        ("/caf%c3", "/caf%C3"),
        ("/%ff%fe", "/%FF%FE"),
        ("/%c3%28", "/%C3("),
        // Decoded once.
        ("/%2573ms", "/%2573ms"),
        ("/%252e%252e/a", "/%252e%252e/a"),
        // Invalid escapes.
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%4", "/%254"),
        ("/%%34%31", "/%2541"),
        ("/%+1", "/%25+1"),
        // Parameters of segments.
        ("/sms;jsessionid=1", "/sms"),
        ("/a;x/b;y=1;z", "/a/b"),
        ("/a/..;/b", "/b"),
        ("/a/.;x/b", "/a/b"),
        ("/;x/a", "/a"),
        // A parameter ends at a slash, and is not part of the path.
        ("/a;x\\b", "/a"),
        ("/a;x%2fb/c", "/a/c"),
    ] {
        assert_eq!(normal_path(path), normal, "{path}");
    }
}

#[test]
fn the_decoded_form_has_no_escaped_separators() {
    for (path, decoded) in [
        ("/", "/"),
        ("*", "*"),
        ("/a/b", "/a/b"),
        ("/a%2fb", "/a/b"),
        ("/%2Flogin", "/login"),
        ("/a%5Cb%5c", "/a/b/"),
        ("/login%3bx", "/login"),
        ("/login%3bx%2fy", "/login/y"),
        ("/login;x%2fy", "/login"),
        ("/login;x/y", "/login/y"),
        ("//host/login", "/host/login"),
        ("/login;\\x", "/login"),
        ("/%6cogin;v=1", "/login"),
        // Decoded once.
        ("/a%252fb", "/a%252fb"),
        ("/100%%2f", "/100%25/"),
    ] {
        assert_eq!(decoded_path(path), decoded, "{path}");
    }
}

#[test]
fn dot_segments_are_malformed_in_every_form() {
    for path in [
        "/x%2f..%2flogin",
        "/x/..%2flogin",
        "/x;%2f..%2flogin",
        "/health;%2f..%2fzzz",
        "/x%5c..%5clogin",
        "/x/..%3bv/login",
        "/x/%2e%2e%2flogin",
        "/a\\b/../login",
        "/a;\\..",
        "/.%2f",
    ] {
        assert_eq!(
            malformed_path(path, SpellingPolicy::Allow),
            Some("the path contains a `.` or `..` segment"),
            "{path}"
        );
    }
    for path in ["/a%2fb", "/...%2f", "/a;..", "/..a%2f", "/%252e%252e%2f", "/a%3b.."] {
        assert_eq!(malformed_path(path, SpellingPolicy::Allow), None, "{path}");
    }
}

#[test]
fn escaped_control_characters_are_malformed() {
    for path in ["/login%0a", "/%00", "/a%7Fb", "/a%1f", "/x;%0D"] {
        let problem = Some("the path contains an escaped control character");
        assert_eq!(malformed_path(path, SpellingPolicy::Allow), problem, "{path}");
    }
    for path in ["/a%20b", "/a%0", "/a%+1", "/%250a", "/%c2%85"] {
        assert_eq!(malformed_path(path, SpellingPolicy::Allow), None, "{path}");
    }
}

#[test]
fn a_long_path_with_many_interpretations_is_malformed() {
    let long = |part: &str, bytes: usize| format!("/{}", part.repeat(bytes / part.len()));
    let problem = Some("the path has too many interpretations for its length");
    assert_eq!(malformed_path(&long("a", 60_000), SpellingPolicy::Allow), None);
    assert_eq!(malformed_path(&long("a%2Fb", 16_000), SpellingPolicy::Allow), None);
    assert_eq!(malformed_path(&long("a%2Fb", 17_000), SpellingPolicy::Allow), problem);
    assert_eq!(malformed_path(&long("/\\a;b%2fc%5cd%3bf", 600), SpellingPolicy::Allow), None);
    assert_eq!(malformed_path(&long("/\\a;b%2fc%5cd%3bf", 2_000), SpellingPolicy::Allow), problem);
    assert_eq!(malformed_path(&format!("/a;b%2fc%5cd\\e%3bf{}", "/".repeat(30_000)), SpellingPolicy::Allow), problem);
}

#[test]
fn a_normal_path_is_not_copied() {
    for path in ["/", "/a/b-c/d.pdf", "/a/", "*", "/.well-known/x", "/a..b/...", "/a%2Fb", "/é"] {
        assert!(matches!(normal_path(path), Cow::Borrowed(_)), "{path}");
    }
}

/// Paths with dangerous parts, and a few others.
fn paths() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "/", "\\", ".", "..", ";", "%", "%2e", "%2E", "%2f", "%5c", "%25", "%3b", "%c3", "%a9", "%f0", "%00", "2", "e",
        "a", "é", "🦉", "?", "#", " ", "|", "[",
    ]);
    prop_oneof![prop::collection::vec(parts, 0..16).prop_map(|parts| parts.concat()), any::<String>()]
}

proptest! {
    #[test]
    fn normalization_is_idempotent(path in paths()) {
        let normal = normal_path(&path).into_owned();
        prop_assert_eq!(&*normal_path(&normal), &*normal);
    }

    #[test]
    fn a_normal_form_has_no_empty_or_dot_segments(path in paths()) {
        let normal = normal_path(&path);
        if normal != "*" {
            let segments = normal.strip_prefix('/').expect("an absolute path").split('/').collect::<Vec<_>>();
            let (last, others) = segments.split_last().unwrap();
            prop_assert!(others.iter().all(|segment| !["", ".", ".."].contains(segment)), "{normal}");
            prop_assert!(![".", ".."].contains(last), "{normal}");
        }
        prop_assert!(!normal.contains(['\\', ';']), "{normal}");
    }

    #[test]
    fn all_spellings_have_the_same_normal_form(
        segments in prop::collection::vec("[a-z0-9]{1,6}", 1..5),
        spellings in prop::collection::vec(0..6, 5),
    ) {
        let plain = format!("/{}", segments.join("/"));
        let spelled = segments.iter().zip(&spellings).map(|(segment, spelling)| match spelling {
            0 => format!("/{segment}"),
            1 => format!("//{segment}"),
            2 => format!("/x/../{segment}"),
            3 => format!("/./;v=1/{segment}"),
            4 => format!("\\{segment}"),
            _ => segment.bytes().fold("/".to_owned(), |text, byte| format!("{text}%{byte:02x}")),
        });
        let spelled = spelled.collect::<String>();
        prop_assert_eq!(normal_path(&spelled), plain);
    }
}
