//! Compares the regions of limits with a direct implementation of nginx's location selection.

use super::super::limit_directives::Use;
use super::super::notes::Notes;
use super::super::scope;
use super::super::syntax::parse;
use super::*;
use proptest::prelude::*;

/// A location in a trial: its modifier, its path, and whether it has the limit.
type TestLocation = (&'static str, String, bool);

/// Returns the location that nginx selects: exact, the longest prefix if it is `^~`, the first pattern, else that
/// prefix.
fn selected<'a>(locations: &'a [TestLocation], path: &str) -> Option<&'a TestLocation> {
    if let Some(exact) = locations.iter().find(|(sign, text, _)| *sign == "=" && text == path) {
        return Some(exact);
    }
    let prefixes =
        locations.iter().filter(|(sign, text, _)| matches!(*sign, "" | "^~") && path.starts_with(text.as_str()));
    let longest = prefixes.max_by_key(|(_, text, _)| text.len());
    if longest.is_some_and(|(sign, ..)| *sign == "^~") {
        return longest;
    }
    // The patterns of these trials are a single letter anywhere in the path.
    locations.iter().find(|(sign, text, _)| *sign == "~" && path.contains(text.as_str())).or(longest)
}

/// Returns whether a path matches globs of the kinds used here.
fn is_in(paths: &[String], path: &str) -> bool {
    paths.is_empty()
        || paths.iter().any(|glob| match glob.strip_suffix("**") {
            Some(prefix) => path.starts_with(prefix.trim_end_matches("*/")),
            None => glob.strip_suffix('*').map_or(path == glob, |prefix| path.starts_with(prefix)),
        })
}

/// Evaluates a condition for a path.
fn holds(expression: &Expression, path: &str) -> bool {
    match expression {
        Expression::True => true,
        Expression::False => false,
        Expression::Not(inner) => !holds(inner, path),
        Expression::And(parts) => parts.iter().all(|part| holds(part, path)),
        Expression::Or(parts) => parts.iter().any(|part| holds(part, path)),
        Expression::Test(test) => {
            let text = test.split('"').nth(1).unwrap();
            if test.contains(".startsWith(") {
                path.starts_with(text)
            } else if test.contains(".matches(") {
                path.contains(text)
            } else {
                assert!(test.contains(" == "), "{test}");
                path == text
            }
        }
    }
}

fn locations() -> impl Strategy<Value = Vec<TestLocation>> {
    let text = prop_oneof![3 => "/[ab/]{0,4}", 1 => Just("/".to_owned())];
    let fixed = (prop_oneof![Just(""), Just("^~"), Just("=")], text, any::<bool>());
    let pattern = (Just("~"), prop_oneof![Just("a".to_owned()), Just("b".to_owned())], any::<bool>());
    proptest::collection::vec(prop_oneof![4 => fixed, 1 => pattern], 0..7).prop_map(
        |mut locations: Vec<TestLocation>| {
            // nginx rejects two locations with the same path, `^~` or not.
            let mut known = std::collections::BTreeSet::new();
            locations.retain(|(sign, text, _)| known.insert((if *sign == "^~" { "" } else { *sign }, text.clone())));
            locations
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_limit_applies_where_nginx_selects_a_location_that_has_it(locations in locations(), server in any::<bool>(), paths in proptest::collection::vec("/[abc/]{0,5}", 1..20)) {
        let mut text = String::from("server { ");
        for (sign, path, has) in &locations {
            // An own limit, so that none is inherited.
            let count = if *has { 1 } else { 2 };
            text.push_str(&format!("location {sign} {path} {{ limit_conn z {count}; }} "));
        }
        text.push_str(&format!("limit_conn z {}; }}", if server { 1 } else { 2 }));
        let mut notes = Notes::default();
        let http = scope::read(&parse(&text, 0).unwrap(), &mut notes);
        let items = choices(&http.servers[0], &mut notes);
        let limit = Use::Connections { zone: "z".to_owned(), count: 1, denial: Default::default() };
        let location_set = location_set(&items, &limit).unwrap();
        for path in paths {
            let expected = selected(&locations, &path).map_or(server, |(_, _, has)| *has);
            let actual = location_set.as_ref().is_some_and(|location_set| is_in(&location_set.paths, &path) && holds(&location_set.when, &path));
            prop_assert_eq!(actual, expected, "{}\n{:?}\n{}", path, location_set, text);
            prop_assert_eq!(holds(&condition(&items, &limit).unwrap(), &path), expected, "{}\n{}", path, text);
        }
    }
}

#[test]
fn reports_locations_that_alternate_too_often() {
    let mut text = String::new();
    for depth in 1..60 {
        text.push_str(&format!("location /{} {{ limit_conn z {}; }}\n", "a".repeat(depth), depth % 2 + 1));
    }
    let mut notes = Notes::default();
    let http = scope::read(&parse(&text, 0).unwrap(), &mut notes);
    let items = choices(&http.servers[0], &mut notes);
    let limit = Use::Connections { zone: "z".to_owned(), count: 1, denial: Default::default() };
    assert!(location_set(&items, &limit).unwrap_err().contains("alternate too often"));
}
