//! Ambiguous values: a key that occurs more than once, or that services read differently.

use crate::support::{client, filter, now};
use diana_http::Filter;
use http::Request;

fn is_granted(filter: &Filter, request: &Request<()>) -> bool {
    let Ok(mut permit) = now(filter.check(request, client())) else { return false };
    permit.begin();
    true
}

/// Creates a request from a number.
type RequestOf<'a> = &'a dyn Fn(u32) -> Request<()>;

#[test]
fn added_values_make_no_new_key() {
    for real_first in [true, false] {
        let order =
            |n: u32| if real_first { ["real".into(), format!("r{n}")] } else { [format!("r{n}"), "real".into()] };
        let by_query = |n| Request::get(format!("/?k={}", order(n).join("&k="))).body(()).unwrap();
        let by_semicolon = |n| Request::get(format!("/?k=real;r{n}")).body(()).unwrap();
        let by_cookie =
            |n| Request::get("/").header("cookie", format!("k={}", order(n).join("; k="))).body(()).unwrap();
        let by_header = |n| {
            let [first, second] = order(n);
            Request::get("/").header("k", first).header("k", second).body(()).unwrap()
        };
        let requests: [(&str, RequestOf<'_>); 4] =
            [("query", &by_query), ("query", &by_semicolon), ("cookie", &by_cookie), ("header", &by_header)];
        for (by, request) in requests {
            let (filter, _) = filter(&format!("rules: [{{name: each, by: {by}(k), limit: 1/h}}]"));
            let granted = (0..10).filter(|n| is_granted(&filter, &request(*n))).count();
            assert_eq!(granted, 1, "{by}, real first: {real_first}");
        }
    }
}

#[test]
fn a_repeated_equal_value_is_one_value() {
    let (filter, _) = filter("rules: [{name: each, by: query(k), limit: 1/h}]");
    let twice = Request::get("/?k=real&k=re%61l").body(()).unwrap();
    let (once, other) = (crate::support::get("/?k=real"), crate::support::get("/?k=other"));
    assert_eq!([&twice, &once, &other].map(|request| is_granted(&filter, request)), [true, false, true]);
}

/// Returns how many of ten requests are granted.
fn granted_count(filter: &Filter, request: impl Fn(usize) -> Request<()>) -> usize {
    (0..10).filter(|n| is_granted(filter, &request(*n))).count()
}

/// Starlette and nginx use the first of several headers, others the last.
#[test]
fn a_repeated_header_matches_the_rule_of_any_value() {
    let twice =
        |one: &str, other: &str| Request::get("/").header("x-plan", one).header("x-plan", other).body(()).unwrap();
    for plan in ["free", "'f*'", "[trial, free]"] {
        let (filter, _) =
            filter(&format!("rules: [{{name: each, match: {{header: {{x-plan: {plan}}}}}, limit: 1/h}}]"));
        assert!(is_granted(&filter, &twice("free", "z")));
        assert_eq!(granted_count(&filter, |n| twice("free", &format!("z{n}"))), 0, "{plan}");
        assert_eq!(granted_count(&filter, |n| twice(&format!("z{n}"), "free")), 0, "{plan}");
        assert!(is_granted(&filter, &twice("vip", "vip")), "the same value twice is one value");
    }
}

#[test]
fn an_expression_fails_on_ambiguous_values() {
    let ambiguous = |n: usize| {
        let order = if n.is_multiple_of(2) { "key=send&key=z" } else { "key=z&key=send" };
        let request = Request::get(format!("/?{order}")).header("x-plan", "free").header("x-plan", "z");
        request.header("cookie", "c=1; c=2").body(()).unwrap()
    };
    for when in [
        r#"request.query["key"] == "send""#,
        r#"request.query["key"] != "z""#,
        r#"!has(request.query.key)"#,
        r#"request.headers["x-plan"] == "free""#,
        r#"request.headers["x-plan"] in ["free", "trial"]"#,
        r#"request.cookies["c"] == "1""#,
        r#"plan == "free""#,
    ] {
        let rules = format!("rules: [{{name: each, match: {{when: '{when}'}}, limit: 1/h}}]");
        let (filter, _) = filter(&format!("identity: {{plan: header(x-plan)}}\n{rules}"));
        assert_eq!(granted_count(&filter, ambiguous), 1, "{when}");
    }
    // An operand that decides takes precedence over one that fails.
    let (filter, _) = filter(
        r#"rules: [{name: each, match: {when: 'request.path == "/x" && request.query["key"] == "send"'}, limit: 1/h}]"#,
    );
    assert_eq!(granted_count(&filter, ambiguous), 10);
}

#[test]
fn a_repeated_parameter_costs_the_default() {
    let cost = r#"request.query["size"] == "large" ? 50 : 1"#;
    let (filter, _) = filter(&format!("rules: [{{name: each, limit: 100/h, cost: '{cost}', cost_default: 50}}]"));
    assert_eq!(granted_count(&filter, |_| crate::support::get("/?size=large&size=small")), 2);
}

#[test]
fn ambiguous_expression_keys_are_one_key_and_can_be_denied() {
    let by = r#"by: ['cel("request.headers.k")', ip], limit: 1/h"#;
    let twice = |n| Request::get("/").header("k", "thief").header("k", format!("r{n}")).body(()).unwrap();
    for (missing, expected) in [("skip", 1), ("shared", 1), ("deny", 0)] {
        let (filter, _) = filter(&format!("rules: [{{name: each, {by}, missing: {missing}}}]"));
        assert_eq!(granted_count(&filter, twice), expected, "{missing}");
        assert!(is_granted(&filter, &Request::get("/").header("k", "a").body(()).unwrap()));
    }
    let (filter, _) = filter(&format!("rules: [{{name: each, {by}, deny: [thief]}}]"));
    assert_eq!(granted_count(&filter, twice), 0);
}

/// Express and Flask run the handler of GET for HEAD.
#[test]
fn a_rule_for_get_counts_head() {
    let with = |method: &str| Request::builder().method(method).uri("/").body(()).unwrap();
    let (filter, _) = filter("rules: [{name: each, match: {method: GET}, limit: 1/h}]");
    assert_eq!(["HEAD", "GET", "POST"].map(|method| is_granted(&filter, &with(method))), [true, false, true]);
    let (filter, _) = crate::support::filter("rules: [{name: each, match: {method: HEAD}, limit: 1/h}]");
    assert_eq!(["HEAD", "GET", "HEAD"].map(|method| is_granted(&filter, &with(method))), [true, true, false]);
}

/// Starlette strips the whitespace of Latin-1, Django that of Unicode.
#[test]
fn whitespace_around_a_cookie_makes_no_new_key() {
    let (filter, _) = filter("rules: [{name: each, by: cookie(session), limit: 1/h}]");
    let with = |cookie: &[u8]| Request::get("/").header("cookie", cookie).body(()).unwrap();
    assert!(is_granted(&filter, &with(b"session=abc")));
    let blanks: [&[u8]; 7] = [b"\xa0", b"\x85", b"\xc2\xa0", b"\xc2\x85", b"\xe3\x80\x80", b" \t", b"\x85\xa0 \xa0"];
    for blank in blanks {
        for cookie in [
            [blank, b"session=abc"].concat(),
            [b"a=1;", blank, b"session", blank, b"=", blank, b"abc"].concat(),
            [b"session=abc", blank].concat(),
            [b"session=\"abc\"", blank, b"; b=1"].concat(),
        ] {
            assert!(!is_granted(&filter, &with(&cookie)), "{}", cookie.escape_ascii());
        }
    }
    assert!(is_granted(&filter, &with("session=jos\u{e9}".as_bytes())));
    assert!(is_granted(&filter, &with("session=jos\u{e0}".as_bytes())), "letters are not trimmed");
}

/// nginx compares cookie names case-insensitively, and treats a comma as a separator.
#[test]
fn cookies_that_some_services_read_have_one_key() {
    let more = format!("pad={}; ", "x".repeat(300));
    for prefix in ["", &more] {
        for cookie in [
            "a=1,session=abc",
            "a=1, session=abc",
            "SESSION=abc",
            "Session=abc",
            "session[]=abc",
            "session=abc,r",
            "session=abc; Session=r",
        ] {
            let (filter, _) = filter("rules: [{name: each, by: cookie(session), limit: 1/h}]");
            let with = |n| Request::get("/").header("cookie", format!("{prefix}{cookie}{n}")).body(()).unwrap();
            assert_eq!(granted_count(&filter, with), 1, "{cookie}");
        }
        let (filter, _) = filter("rules: [{name: each, by: cookie(session), limit: 1/h}]");
        let with =
            |n| Request::get("/").header("cookie", format!("{prefix}sess=a,ion=b; session2={n}; x")).body(()).unwrap();
        assert_eq!(granted_count(&filter, with), 10, "none of these is the cookie");
    }
}

/// Express 4 and PHP read names with brackets; nginx and ASP.NET compare names case-insensitively.
#[test]
fn parameters_that_some_services_read_have_one_key() {
    let more = format!("pad={}&", "x".repeat(300));
    for prefix in ["", &more] {
        for query in
            ["[key]=", "%5Bkey%5D=", "key[]=", "key[0]=", "key%5b1%5d=", "key[a]=", "[key][]=", "KEY=", "key=r&key[]="]
        {
            let (filter, _) = filter("rules: [{name: each, by: query(key), limit: 1/h}]");
            let with = |n| Request::get(format!("/?{prefix}{query}{n}")).body(()).unwrap();
            assert_eq!(granted_count(&filter, with), 1, "{query}");
        }
        let get = |query: &str| Request::get(format!("/?{prefix}{query}")).body(()).unwrap();
        let (filter, _) = filter("rules: [{name: each, by: 'query(filter[type])', limit: 1/h}]");
        let [one, other, same] = ["filter[type]=a&filter[name]=b", "filter[type]=b&filter[name]=b", "filter[type]=a"];
        assert_eq!([one, other, same].map(|query| is_granted(&filter, &get(query))), [true, true, false]);
        assert_eq!(granted_count(&filter, |n| get(&format!("filter[name]={n}&keyfilter=1&filters=2"))), 10);
    }
}

/// Express and PHP read the first thousand, others all of them; and reading all would take long.
#[test]
fn too_many_pairs_are_one_ambiguous_key() {
    let (filter, _) =
        filter("rules: [{name: each, by: query(key), limit: 1/h}, {name: c, by: cookie(key), limit: 1/h}]");
    let (query, cookies) = ("a&".repeat(1_000), "a=;".repeat(1_000));
    assert_eq!(granted_count(&filter, |n| Request::get(format!("/?{query}key={n}")).body(()).unwrap()), 1);
    assert_eq!(
        granted_count(&filter, |n| Request::get("/").header("cookie", format!("{cookies}key={n}")).body(()).unwrap()),
        1
    );
    let within = |n| Request::get(format!("/?{}key={n}", "a&".repeat(999))).body(()).unwrap();
    assert_eq!(granted_count(&filter, within), 10);
}
