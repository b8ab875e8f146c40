//! Malformed or ambiguous credentials: they never make a request one without an account, which rules would skip.

use crate::support::{client, filter, now, refused};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use diana_http::{CheckResult, Filter};
use http::Request;

const SECRET: &str = "a secret of thirty-two bytes ....";

/// A token as its signer creates it.
fn token(claims: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, message.as_bytes())))
}

fn of(name: &str) -> String {
    token(&format!(r#"{{"sub":"{name}"}}"#))
}

/// One request per hour for each account with a token.
fn by_account(from: &str, rest: &str) -> Filter {
    filter(&format!(
        "identity: {{account: jwt(sub), jwt: {{secret: '{SECRET}', from: {from}}}}}\n\
         rules: [{{name: each, by: account, limit: 1/h{rest}}}]"
    ))
    .0
}

fn passes(filter: &Filter, request: &Request<()>) -> bool {
    let CheckResult::Allow(mut pass) = now(filter.check(request, client())) else { return false };
    pass.begin();
    true
}

fn with(name: &str, value: &str) -> Request<()> {
    Request::get("/").header(name, value).body(()).unwrap()
}

fn authorized(value: &str) -> Request<()> {
    with("authorization", value)
}

/// Returns how many of ten requests are granted.
fn passing(filter: &Filter, request: impl Fn(usize) -> Request<()>) -> usize {
    (0..10).filter(|n| passes(filter, &request(*n))).count()
}

#[test]
fn what_lenient_services_accept_is_the_same_account() {
    let alice = of("alice");
    let (message, signature) = alice.rsplit_once('.').unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let standard = STANDARD_NO_PAD.encode(&bytes);
    let spellings = [
        format!("Bearer\t{alice}"),
        format!("Bearer \t  {alice}"),
        format!("bearer {alice} "),
        format!("BEARER {alice}"),
        format!("JWT {alice}"),
        alice.clone(),
        format!("Bearer {alice}="),
        format!("Bearer {alice}=="),
        format!("Bearer {message}.{standard}"),
        format!("Bearer {message}.!{signature}!"),
        format!("Bearer {alice} and more"),
    ];
    for spelling in spellings {
        let filter = by_account("header(authorization)", "");
        assert!(passes(&filter, &authorized(&format!("Bearer {alice}"))));
        assert!(!passes(&filter, &authorized(&spelling)), "{spelling:?} is nobody");
        assert!(passes(&filter, &authorized(&format!("Bearer {}", of("bob")))));
    }
    // A blank that only Latin-1 knows.
    let filter = by_account("header(authorization)", "");
    assert!(passes(&filter, &authorized(&format!("Bearer {alice}"))));
    let mut blank = b"Bearer\xa0".to_vec();
    blank.extend_from_slice(alice.as_bytes());
    assert!(!passes(&filter, &Request::get("/").header("authorization", &*blank).body(()).unwrap()));
}

#[test]
fn cookies_are_the_same_however_they_are_written() {
    let alice = of("alice");
    let escaped = alice.replacen('e', "%65", 2);
    let octal = alice.replacen('e', "\\145", 1);
    for spelling in [format!("\"{alice}\""), escaped.clone(), format!("\"{escaped}\""), format!("\"{octal}\"")] {
        let filter = by_account("cookie(session)", "");
        assert!(passes(&filter, &with("cookie", &format!("session={alice}"))));
        assert!(!passes(&filter, &with("cookie", &format!("a=b; session = {spelling}"))), "{spelling}");
    }
    let (filter, _) = filter("rules: [{name: each, by: cookie(session), limit: 1/h}]");
    assert!(passes(&filter, &with("cookie", "session=a b")));
    for same in ["session=a%20b", "session=\"a b\"", "session=\"a\\ b\"", "session=\"a\\040b\"", "session=%61%20%62"] {
        assert!(!passes(&filter, &with("cookie", same)), "{same}");
    }
    assert!(passes(&filter, &with("cookie", "session=a+b")), "a plus is no blank in a cookie");
}

#[test]
fn a_doubled_token_has_one_key_with_all_others() {
    for rest in ["", ", missing: skip", ", missing: shared"] {
        for real_first in [true, false] {
            let both = |n: usize, between: &str| {
                let (real, other) =
                    (of("alice"), if n.is_multiple_of(2) { of(&format!("r{n}")) } else { format!("x{n}") });
                if real_first { format!("{real}{between}{other}") } else { format!("{other}{between}{real}") }
            };
            let filter = by_account("cookie(t)", rest);
            assert_eq!(passing(&filter, |n| with("cookie", &format!("t={}", both(n, "; t=")))), 1, "cookie{rest}");
            let filter = by_account("query(t)", rest);
            let query = |n| Request::get(format!("/?t={}", both(n, "&t="))).body(()).unwrap();
            assert_eq!(passing(&filter, query), 1, "query{rest}");
            for name in ["authorization", "x-token"] {
                let filter = by_account(&format!("header({name})"), rest);
                let twice = |n| {
                    let both = both(n, " ");
                    let mut values = both.split(' ');
                    let request = Request::get("/").header(name, values.next().unwrap());
                    request.header(name, values.next().unwrap()).body(()).unwrap()
                };
                assert_eq!(passing(&filter, twice), 1, "{name}{rest}");
            }
        }
    }
}

#[test]
fn a_token_that_cannot_be_verified_is_counted() {
    let forged = |n: usize| format!("{}x{n}", of("alice").trim_end_matches(char::is_alphanumeric));
    let garbage: [(&str, &dyn Fn(usize) -> String); 5] = [
        ("forged", &forged),
        ("no token", &|n| format!("opaque-{n}")),
        ("another key", &|n| format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.{n}")),
        ("too long", &|n| format!("{n}{}", "x".repeat(9 << 10))),
        ("glued to its scheme", &|n| format!("{n}{}", of("alice"))),
    ];
    for (what, token) in garbage {
        let filter = by_account("header(authorization)", "");
        assert_eq!(passing(&filter, |n| authorized(&format!("Bearer {}", token(n)))), 1, "{what}");
        let filter = by_account("cookie(t)", "");
        assert_eq!(passing(&filter, |n| with("cookie", &format!("t={}", token(n)))), 1, "{what}");
        // With an address beside it, each address has its own.
        let text = "rules: [{name: each, by: [account, ip], limit: 1/h}]";
        let (each, _) = self::filter(&format!("identity: {{account: jwt(sub), jwt: {{secret: '{SECRET}'}}}}\n{text}"));
        for host in [1, 2] {
            let request = authorized(&format!("Bearer {}", token(0)));
            let check = || matches!(now(each.check(&request, Some([203, 0, 113, host].into()))), CheckResult::Allow(_));
            assert!(check(), "{what}, {host}");
        }
    }
    // What is no token at all is nobody's, as before.
    for other in ["Basic YTpi", "Bearer", "Bearer ", "Digest username=\"a\""] {
        let filter = by_account("header(authorization)", "");
        assert_eq!(passing(&filter, |_| authorized(other)), 10, "{other}");
    }
}

#[test]
fn an_expired_token_is_counted_for_its_account_alone() {
    let expired = |name: &str| authorized(&format!("Bearer {}", token(&format!(r#"{{"sub":"{name}","exp":1}}"#))));
    let filter = by_account("header(authorization)", "");
    // Its owner can't be kept out by an old token, nor by those of others.
    assert!(passes(&filter, &expired("alice")) && !passes(&filter, &expired("alice")));
    assert!(passes(&filter, &expired("bob")));
    assert!(passes(&filter, &authorized(&format!("Bearer {}", of("alice")))));
}

#[test]
fn where_a_token_is_required_no_doubt_is_good_enough() {
    let twice = format!("t={}; t={}", of("alice"), of("bob"));
    let expired = format!("t={}", token(r#"{"sub":"alice","exp":1}"#));
    for cookie in [&*twice, "t=x", &*expired, "t=", "u=v"] {
        let filter = by_account("cookie(t)", ", missing: deny");
        assert_eq!(passing(&filter, |_| with("cookie", cookie)), 0, "{cookie}");
    }
}

#[test]
fn nobody_leaves_a_list_of_denied_keys_by_adding_values() {
    let (filter, _) = filter("rules: [{name: each, by: header(x-key), deny: [thief], limit: 100/h}]");
    let both = |one: &str, other: &str| Request::get("/").header("x-key", one).header("x-key", other).body(()).unwrap();
    assert!(passes(&filter, &with("x-key", "honest")));
    assert!(!passes(&filter, &with("x-key", "thief")));
    assert!(!passes(&filter, &both("thief", "honest")));
    assert!(!passes(&filter, &both("honest", "thief")));
    assert!(!passes(&by_account("cookie(t)", ", deny: [thief]"), &with("cookie", &format!("t={}; t=x", of("thief")))));
    // A list of addresses says nothing about keys.
    let (filter, _) = self::filter("rules: [{name: each, by: header(x-key), deny: [192.0.2.1], limit: 100/h}]");
    assert!(passes(&filter, &both("one", "other")));
}

#[test]
fn a_name_whose_expression_fails_is_counted() {
    let (filter, _) = filter(
        "identity: {account: 'cel(\"string(int(request.headers[''x-id'']))\")'}\n\
         rules: [{name: each, by: account, limit: 1/h}]",
    );
    assert!(passes(&filter, &with("x-id", "7")) && !passes(&filter, &with("x-id", "7")));
    assert_eq!(passing(&filter, |n| with("x-id", &format!("no{n}"))), 1);
    let claims = format!(
        "identity: {{account: 'cel(\"request.jwt.sub\")', jwt: {{secret: '{SECRET}'}}}}\n\
         rules: [{{name: each, by: account, limit: 1/h}}]"
    );
    let (filter, _) = self::filter(&claims);
    assert_eq!(passing(&filter, |n| authorized(&format!("Bearer x{n}"))), 1);
    assert_eq!(passing(&filter, |_| Request::new(())), 10, "nobody sent anything");
}

#[test]
fn nobody_leaves_the_rules_of_a_plan_by_a_token_that_cannot_be_read() {
    let rules = format!(
        "identity: {{account: jwt(sub), jwt: {{secret: '{SECRET}', from: cookie(t)}}}}\n\
         rules:\n  - {{name: free, match: {{when: 'request.jwt.plan == \"free\"'}}, by: account, limit: 1/h}}\n  \
         - {{name: pro, match: {{when: '\"plan\" in request.jwt && request.jwt.plan == \"pro\"'}}, by: account, limit: 9/h}}\n  \
         - {{name: anonymous, match: {{when: 'account == \"\"'}}, by: ip, limit: 4/h}}\n"
    );
    let free = token(r#"{"sub":"alice","plan":"free"}"#);
    let (plain, _) = filter(&rules);
    assert_eq!(passing(&plain, |_| with("cookie", &format!("t={free}"))), 1);
    assert_eq!(passing(&plain, |_| Request::new(())), 4);
    for twice in [format!("t={free}; t=x"), format!("t=x; t={free}"), "t=x".to_owned()] {
        let (filter, _) = filter(&rules);
        assert_eq!(passing(&filter, |_| with("cookie", &twice)), 1, "{twice}");
    }
}

#[test]
fn who_has_no_account_may_be_answered_otherwise_than_who_is_over_the_limit() {
    let (filter, _) = filter("rules: [{name: each, by: header(x-key), missing: {deny: 401}, status: 429, limit: 1/h}]");
    assert_eq!(refused(filter.check(&Request::new(()), client())).status(), 401);
    assert!(passes(&filter, &with("x-key", "a")));
    assert_eq!(refused(filter.check(&with("x-key", "a"), client())).status(), 429);
}
