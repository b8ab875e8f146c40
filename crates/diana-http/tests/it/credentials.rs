//! Malformed or ambiguous credentials: they never make a request one without an account, which rules would skip.

use crate::support::{client, denied, filter, now};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use diana_http::Filter;
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

fn is_granted(filter: &Filter, request: &Request<()>) -> bool {
    let Ok(mut permit) = now(filter.check(request, client())) else { return false };
    permit.begin();
    true
}

fn with(name: &str, value: &str) -> Request<()> {
    Request::get("/").header(name, value).body(()).unwrap()
}

fn authorized(value: &str) -> Request<()> {
    with("authorization", value)
}

/// Returns how many of ten requests are granted.
fn granted_count(filter: &Filter, request: impl Fn(usize) -> Request<()>) -> usize {
    (0..10).filter(|n| is_granted(filter, &request(*n))).count()
}

#[test]
fn lenient_spellings_of_a_token_are_the_same_account() {
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
        assert!(is_granted(&filter, &authorized(&format!("Bearer {alice}"))));
        assert!(!is_granted(&filter, &authorized(&spelling)), "{spelling:?} has another key");
        assert!(is_granted(&filter, &authorized(&format!("Bearer {}", of("bob")))));
    }
    // The no-break space of Latin-1.
    let filter = by_account("header(authorization)", "");
    assert!(is_granted(&filter, &authorized(&format!("Bearer {alice}"))));
    let mut blank = b"Bearer\xa0".to_vec();
    blank.extend_from_slice(alice.as_bytes());
    assert!(!is_granted(&filter, &Request::get("/").header("authorization", &*blank).body(()).unwrap()));
}

#[test]
fn all_spellings_of_a_cookie_are_one_key() {
    let alice = of("alice");
    let escaped = alice.replacen('e', "%65", 2);
    let octal = alice.replacen('e', "\\145", 1);
    for spelling in [format!("\"{alice}\""), escaped.clone(), format!("\"{escaped}\""), format!("\"{octal}\"")] {
        let filter = by_account("cookie(session)", "");
        assert!(is_granted(&filter, &with("cookie", &format!("session={alice}"))));
        assert!(!is_granted(&filter, &with("cookie", &format!("a=b; session = {spelling}"))), "{spelling}");
    }
    let (filter, _) = filter("rules: [{name: each, by: cookie(session), limit: 1/h}]");
    assert!(is_granted(&filter, &with("cookie", "session=a b")));
    for same in ["session=a%20b", "session=\"a b\"", "session=\"a\\ b\"", "session=\"a\\040b\"", "session=%61%20%62"] {
        assert!(!is_granted(&filter, &with("cookie", same)), "{same}");
    }
    assert!(is_granted(&filter, &with("cookie", "session=a+b")), "a plus in a cookie is not a space");
}

#[test]
fn repeated_tokens_share_one_key() {
    for rest in ["", ", missing: skip", ", missing: shared"] {
        for real_first in [true, false] {
            let both = |n: usize, between: &str| {
                let (real, other) =
                    (of("alice"), if n.is_multiple_of(2) { of(&format!("r{n}")) } else { format!("x{n}") });
                if real_first { format!("{real}{between}{other}") } else { format!("{other}{between}{real}") }
            };
            let filter = by_account("cookie(t)", rest);
            assert_eq!(
                granted_count(&filter, |n| with("cookie", &format!("t={}", both(n, "; t=")))),
                1,
                "cookie{rest}"
            );
            let filter = by_account("query(t)", rest);
            let query = |n| Request::get(format!("/?t={}", both(n, "&t="))).body(()).unwrap();
            assert_eq!(granted_count(&filter, query), 1, "query{rest}");
            for name in ["authorization", "x-token"] {
                let filter = by_account(&format!("header({name})"), rest);
                let twice = |n| {
                    let both = both(n, " ");
                    let mut values = both.split(' ');
                    let request = Request::get("/").header(name, values.next().unwrap());
                    request.header(name, values.next().unwrap()).body(()).unwrap()
                };
                assert_eq!(granted_count(&filter, twice), 1, "{name}{rest}");
            }
        }
    }
}

#[test]
fn an_unverified_token_is_counted() {
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
        assert_eq!(granted_count(&filter, |n| authorized(&format!("Bearer {}", token(n)))), 1, "{what}");
        let filter = by_account("cookie(t)", "");
        assert_eq!(granted_count(&filter, |n| with("cookie", &format!("t={}", token(n)))), 1, "{what}");
        // With the address in the key, each address has its own count.
        let text = "rules: [{name: each, by: [account, ip], limit: 1/h}]";
        let (each, _) = self::filter(&format!("identity: {{account: jwt(sub), jwt: {{secret: '{SECRET}'}}}}\n{text}"));
        for host in [1, 2] {
            let request = authorized(&format!("Bearer {}", token(0)));
            let check = || now(each.check(&request, Some([203, 0, 113, host].into()))).is_ok();
            assert!(check(), "{what}, {host}");
        }
    }
    // Other schemes and empty values are not tokens, and have no account.
    for other in ["Basic YTpi", "Bearer", "Bearer ", "Digest username=\"a\""] {
        let filter = by_account("header(authorization)", "");
        assert_eq!(granted_count(&filter, |_| authorized(other)), 10, "{other}");
    }
}

#[test]
fn an_expired_token_is_counted_for_its_account_only() {
    let expired = |name: &str| authorized(&format!("Bearer {}", token(&format!(r#"{{"sub":"{name}","exp":1}}"#))));
    let filter = by_account("header(authorization)", "");
    // Neither an expired token nor those of others use up the account's limit.
    assert!(is_granted(&filter, &expired("alice")) && !is_granted(&filter, &expired("alice")));
    assert!(is_granted(&filter, &expired("bob")));
    assert!(is_granted(&filter, &authorized(&format!("Bearer {}", of("alice")))));
}

#[test]
fn with_missing_deny_an_ambiguous_or_invalid_token_is_denied() {
    let twice = format!("t={}; t={}", of("alice"), of("bob"));
    let expired = format!("t={}", token(r#"{"sub":"alice","exp":1}"#));
    for cookie in [&*twice, "t=x", &*expired, "t=", "u=v"] {
        let filter = by_account("cookie(t)", ", missing: deny");
        assert_eq!(granted_count(&filter, |_| with("cookie", cookie)), 0, "{cookie}");
    }
}

#[test]
fn added_values_do_not_evade_a_deny_list() {
    let (filter, _) = filter("rules: [{name: each, by: header(x-key), deny: [thief], limit: 100/h}]");
    let both = |one: &str, other: &str| Request::get("/").header("x-key", one).header("x-key", other).body(()).unwrap();
    assert!(is_granted(&filter, &with("x-key", "honest")));
    assert!(!is_granted(&filter, &with("x-key", "thief")));
    assert!(!is_granted(&filter, &both("thief", "honest")));
    assert!(!is_granted(&filter, &both("honest", "thief")));
    assert!(!is_granted(
        &by_account("cookie(t)", ", deny: [thief]"),
        &with("cookie", &format!("t={}; t=x", of("thief")))
    ));
    // A list of addresses does not apply to other keys.
    let (filter, _) = self::filter("rules: [{name: each, by: header(x-key), deny: [192.0.2.1], limit: 100/h}]");
    assert!(is_granted(&filter, &both("one", "other")));
}

#[test]
fn a_failed_identity_expression_is_counted() {
    let (filter, _) = filter(
        "identity: {account: 'cel(\"string(int(request.headers[''x-id'']))\")'}\n\
         rules: [{name: each, by: account, limit: 1/h}]",
    );
    assert!(is_granted(&filter, &with("x-id", "7")) && !is_granted(&filter, &with("x-id", "7")));
    assert_eq!(granted_count(&filter, |n| with("x-id", &format!("no{n}"))), 1);
    let claims = format!(
        "identity: {{account: 'cel(\"request.jwt.sub\")', jwt: {{secret: '{SECRET}'}}}}\n\
         rules: [{{name: each, by: account, limit: 1/h}}]"
    );
    let (filter, _) = self::filter(&claims);
    assert_eq!(granted_count(&filter, |n| authorized(&format!("Bearer x{n}"))), 1);
    assert_eq!(granted_count(&filter, |_| Request::new(())), 10, "without any token");
}

#[test]
fn an_unreadable_token_does_not_evade_the_rules_of_a_plan() {
    let rules = format!(
        "identity: {{account: jwt(sub), jwt: {{secret: '{SECRET}', from: cookie(t)}}}}\n\
         rules:\n  - {{name: free, match: {{when: 'request.jwt.plan == \"free\"'}}, by: account, limit: 1/h}}\n  \
         - {{name: pro, match: {{when: '\"plan\" in request.jwt && request.jwt.plan == \"pro\"'}}, by: account, limit: 9/h}}\n  \
         - {{name: anonymous, match: {{when: 'account == \"\"'}}, by: ip, limit: 4/h}}\n"
    );
    let free = token(r#"{"sub":"alice","plan":"free"}"#);
    let (plain, _) = filter(&rules);
    assert_eq!(granted_count(&plain, |_| with("cookie", &format!("t={free}"))), 1);
    assert_eq!(granted_count(&plain, |_| Request::new(())), 4);
    for twice in [format!("t={free}; t=x"), format!("t=x; t={free}"), "t=x".to_owned()] {
        let (filter, _) = filter(&rules);
        assert_eq!(granted_count(&filter, |_| with("cookie", &twice)), 1, "{twice}");
    }
}

#[test]
fn a_missing_key_and_an_exceeded_limit_can_have_different_statuses() {
    let (filter, _) = filter("rules: [{name: each, by: header(x-key), missing: {deny: 401}, status: 429, limit: 1/h}]");
    assert_eq!(denied(filter.check(&Request::new(()), client())).status(), 401);
    assert!(is_granted(&filter, &with("x-key", "a")));
    assert_eq!(denied(filter.check(&with("x-key", "a"), client())).status(), 429);
}
