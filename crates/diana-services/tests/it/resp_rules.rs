//! `DIANA.CHECK` and its kin: the rules of the file, through the Redis protocol.

use crate::resp_support::*;
use diana::rules::attributes::SyntheticRequest;
use diana::rules::http_settings::{HttpSettings, SpellingPolicy};
use diana::{ManualClock, Timestamp};
use diana_net::{ClientBounds, ServerSettings, Timeouts};
use diana_services::resp::RespState;
use std::sync::Arc;
use std::time::Duration;

async fn server(rules: &str) -> (Server, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    (Server::with(rules, clock.clone(), RespState::default()).await, clock)
}

#[tokio::test]
async fn a_check_asks_the_rules() {
    let (server, clock) = server(RULES).await;
    let mut client = server.client().await;
    let check = "DIANA.CHECK method GET path /api/orders?page=1 account alice";
    for remaining in (0..3).rev() {
        assert_eq!(
            client.ask(check).await,
            format!("[0 3 {remaining} -1 {} \"each-account\"]", 1_200 * (3 - remaining))
        );
    }
    assert_eq!(client.ask(check).await, "[1 3 0 1200 3600 \"each-account\"]");
    // The same count as that of every other front end.
    let request = SyntheticRequest::new("GET", "/api/orders").named("account", "alice");
    assert!(server.engine.acquire(&request).await.is_err());
    clock.advance(Duration::from_secs(1_200));
    assert!(server.engine.acquire(&request).await.is_ok());
    assert_eq!(client.ask(check).await, "[1 3 0 1200 3600 \"each-account\"]");
    assert_eq!(client.ask("DIANA.CHECK path /other account alice").await, "[0 -1 -1 -1 0 nil]");
    let totals = server.metrics.totals();
    assert_eq!((totals.allowed, totals.denied), (4, 2));
}

#[tokio::test]
async fn a_cost_multiplies_the_cost_of_the_rule() {
    let (server, _clock) = server(RULES).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("DIANA.CHECK path /search ip 203.0.113.7 COST 3").await, "[0 5 2 -1 1080 \"searches\"]");
    assert_eq!(client.ask("DIANA.CHECK path /search ip 203.0.113.7 cost 3").await, "[1 5 2 360 1080 \"searches\"]");
    // An IPv4 address in the form of IPv6 is the same client; a cost of 0 takes nothing.
    assert_eq!(
        client.ask("DIANA.CHECK path /search ip ::ffff:203.0.113.7 COST 0").await,
        "[0 5 2 -1 1080 \"searches\"]"
    );
    assert_eq!(client.ask("DIANA.CHECK path /search ip 203.0.113.7 COST 2").await, "[0 5 0 -1 1800 \"searches\"]");
    assert_eq!(
        client.ask("DIANA.CHECK path /search ip 203.0.113.7 COST -1").await,
        "ERR COST is not an integer of at least 0"
    );
}

/// The count that the essay's script returns.
#[tokio::test]
async fn a_reply_has_how_much_is_in_use_if_it_is_asked_for() {
    let (server, _) = server("rules: [{name: calls, by: account, limit: 3/h}]").await;
    let mut client = server.client().await;
    for (used, denied) in [(1, 0), (2, 0), (3, 0), (3, 1)] {
        let reply = client.ask("DIANA.CHECK path /a account alice REPLY used").await;
        assert!(
            reply.starts_with(&format!("[{denied} 3 ")) && reply.ends_with(&format!(" \"calls\" {used}]")),
            "{reply}"
        );
    }
    let peeked = client.ask("DIANA.CHECK path /a account alice reply USED COST 0").await;
    assert!(peeked.ends_with(" \"calls\" 3]"), "{peeked}");
    assert_eq!(client.ask("DIANA.CHECK path /a/../b REPLY used").await, "[1 -1 -1 -1 0 nil -1]");
    assert_eq!(client.ask("DIANA.CHECK path /a REPLY used").await, "[0 -1 -1 -1 0 nil -1]");
    assert_eq!(client.ask("DIANA.CHECK path /a account bob REPLY all").await, "ERR REPLY is not `used`");
}

#[tokio::test]
async fn attributes_are_those_of_the_rule_file() {
    let rules = "
rules:
  - {name: header, match: {header: {x-plan: free}}, by: header(x-key), limit: 2/h}
  - {name: host, match: {host: shop.example, method: POST}, by: cookie(session), limit: 2/h}
  - {name: query, by: query(q), missing: skip, limit: 2/h}
  - {name: domain, match: {domain: shop, descriptor: {plan: free}}, by: descriptor(key), limit: 2/h}
";
    let (server, _clock) = server(rules).await;
    let mut client = server.client().await;
    for (check, rule) in [
        ("header(X-Plan) free header(x-key) a", "header"),
        ("host shop.example method POST cookie(session) a", "host"),
        ("resource / query(q) a", "query"),
        ("domain shop descriptor(plan) free descriptor(key) a", "domain"),
    ] {
        assert_eq!(client.ask(&format!("DIANA.CHECK {check}")).await, format!("[0 2 1 -1 1800 \"{rule}\"]"));
    }
    assert_eq!(
        client.ask("DIANA.CHECK domain shop descriptor(plan) paid descriptor(key) a").await,
        "[0 -1 -1 -1 0 nil]"
    );
}

/// A request has the attributes that it has for the gateway, however it is written.
#[tokio::test]
async fn no_spelling_evades_a_rule() {
    let rules = "
rules:
  - {name: logins, match: {path: /login, method: POST}, by: ip, limit: 1000/h}
  - {name: shop, match: {host: shop.example}, limit: 1000/h}
  - {name: query, match: {path: /q}, by: query(q), limit: 1000/h}
  - {name: session, match: {path: /s}, by: cookie(session), limit: 1000/h}
  - {name: accents, match: {path: /café}, limit: 1000/h}
";
    let (server, _clock) = server(rules).await;
    let mut client = server.client().await;
    let mut check = async |args: &[&str], rule: &str| {
        client.send(&encode(&[&["DIANA.CHECK"], args].concat())).await;
        let reply = client.reply().await;
        assert!(reply.ends_with(&format!(" \"{rule}\"]")), "{args:?}: {reply}");
    };
    let paths = [
        "/login",
        "/login?<",
        "/login#x",
        "/%6cogin",
        "//login",
        "/login;v=1",
        "/%2flogin",
        "http://shop.example/login",
        "HTTP://shop.example/login?q=1",
    ];
    for path in paths {
        for method in ["POST", "post", "pOsT"] {
            check(&["ip", "203.0.113.7", "path", path, "method", method], "logins").await;
        }
    }
    for host in ["shop.example", "SHOP.example:8443", "shop.example."] {
        check(&["host", host], "shop").await;
        check(&["header(Host)", host], "shop").await;
    }
    check(&["path", "/q?q=a"], "query").await;
    check(&["path", "/s", "header(Cookie)", "session=a"], "session").await;
    for path in ["/café", "/caf%C3%A9", "/caf%c3%a9"] {
        check(&["path", path], "accents").await;
    }
}

#[tokio::test]
async fn one_key_has_one_count_however_it_is_written() {
    let rules = "rules: [{name: each, by: [resource, method, host], limit: 3/h}]";
    let (server, _clock) = server(rules).await;
    let mut client = server.client().await;
    for (request, remaining) in [
        ("path /a/b method GET host a.example", 2),
        ("path /%61//b?x method get host A.example:80", 1),
        ("path http://a.example/a%2Fb method GET", 0),
    ] {
        let reply = client.ask(&format!("DIANA.CHECK {request}")).await;
        assert!(reply.starts_with(&format!("[0 3 {remaining} ")), "{request}: {reply}");
    }
}

#[tokio::test]
async fn an_escaped_slash_is_denied_if_the_gateway_denies_it() {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let mut http = HttpSettings::default();
    http.escaped_slash = SpellingPolicy::Deny;
    let settings = ServerSettings::new(http, ClientBounds::default(), Timeouts::default(), SpellingPolicy::Deny);
    let server = Server::with(RULES, clock, RespState::default().settings(Arc::new(settings))).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("DIANA.CHECK path /api/a%2Fb").await, "[1 -1 -1 -1 0 nil]");
    assert_eq!(client.ask("DIANA.CHECK path /api/a%5Cb COST 0").await, "[1 -1 -1 -1 0 nil]");
    assert!(client.ask("DIANA.CHECK path /api/a/b account alice").await.starts_with("[0 3 2 "));
}

/// The gateway answers these with 400, whatever the rules are.
#[tokio::test]
async fn a_path_that_services_read_differently_is_denied() {
    let (server, _clock) = server(RULES).await;
    let mut client = server.client().await;
    let long = format!("/{}", ";%2f%5c\\".repeat(3_500));
    let paths = ["/api/../x", "/api/%2e%2e/x", "/login%0a", &long];
    for path in paths {
        assert_eq!(client.ask(&format!("DIANA.CHECK path {path}")).await, "[1 -1 -1 -1 0 nil]");
        assert_eq!(client.ask(&format!("DIANA.CHECK path {path} COST 0")).await, "[1 -1 -1 -1 0 nil]");
    }
    client.send(&encode(&["DIANA.CHECK", "path", "/login\n"])).await;
    assert_eq!(client.reply().await, "[1 -1 -1 -1 0 nil]");
    assert_eq!(server.metrics.totals().denied, 9);
}

/// The gateway answers them with 431.
#[tokio::test]
async fn a_request_that_is_too_long_for_the_gateway_is_an_error() {
    let mut small = ServerSettings::default();
    small.bounds.header = 8 << 10;
    for (settings, max) in [(ServerSettings::default(), 32 << 10), (small, 8 << 10)] {
        let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let server = Server::with(RULES, clock, RespState::default().settings(Arc::new(settings))).await;
        let mut client = server.client().await;
        let rest = |length: usize| "x".repeat(length);
        let path = rest(max - "path".len());
        assert_eq!(client.ask(&format!("DIANA.CHECK path {path}")).await, "[0 -1 -1 -1 0 nil]");
        let error = format!("ERR the request has {} bytes, more than the {max} of `gateway.bounds.header`", max + 1);
        for check in [
            format!("path x{path}"),
            format!("path x{path} COST 0"),
            format!("resource /{}", rest(max - "resource".len())),
            format!("header(cookie) a={}", rest(max - "header(cookie)a".len())),
            format!("path /{} query(q) {}", rest(max / 2), rest(max / 2 - "pathquery(q)".len())),
        ] {
            let end = check.chars().rev().take(10).collect::<String>();
            assert_eq!(client.ask(&format!("DIANA.CHECK {check}")).await, error, "{end}");
        }
        // These are not in the head of a request.
        assert_eq!(client.ask(&format!("DIANA.CHECK account {path} path /")).await, "[0 -1 -1 -1 0 nil]");
    }
}

#[tokio::test]
async fn a_request_of_as_many_attributes_as_possible_is_answered() {
    let (server, _clock) = server(RULES).await;
    let mut client = server.client().await;
    // Names that differ in the last bytes only: the most work for a search for duplicates.
    let name = |index: usize| format!("header({}{index:03})", "X".repeat(50));
    let mut attributes = (0..511).flat_map(|index| [name(index), "v".to_owned()]).collect::<Vec<_>>();
    attributes.insert(0, "DIANA.CHECK".to_owned());
    client.send(&encode(&attributes)).await;
    assert_eq!(client.reply().await, "[0 -1 -1 -1 0 nil]");
    attributes[1_021] = name(0).to_ascii_lowercase();
    client.send(&encode(&attributes)).await;
    assert!(client.reply().await.starts_with("ERR attribute 'header("));
}

#[tokio::test]
async fn invalid_requests_are_errors() {
    let (server, _clock) = server(RULES).await;
    let mut client = server.client().await;
    for (check, error) in [
        ("a", "ERR wrong number of arguments for 'diana.check' command"),
        ("a b c", "ERR syntax error: expected pairs of name and value"),
        ("ip x", "ERR ip is not an address"),
        ("account a account b", "ERR attribute 'account' is given twice"),
        ("path /a resource /b", "ERR attribute 'resource' is given twice"),
        ("header(x-a) 1 header(X-A) 2", "ERR attribute 'header(X-A)' is given twice"),
        ("a b COST x", "ERR COST is not an integer of at least 0"),
    ] {
        assert_eq!(client.ask(&format!("DIANA.CHECK {check}")).await, error, "{check}");
    }
    client.send(&encode(&[&b"DIANA.CHECK"[..], b"account", b"\xff"])).await;
    assert_eq!(client.reply().await, "ERR attribute 'account' is not UTF-8");
}

#[tokio::test]
async fn listed_keys_are_denied_without_a_limit() {
    let (server, _clock) = server("rules: [{name: a, by: account, deny: [mallory], limit: 5/s}]").await;
    let mut client = server.client().await;
    assert_eq!(client.ask("DIANA.CHECK account mallory").await, "[1 0 0 -1 0 \"a\"]");
}

#[tokio::test]
async fn concurrent_requests_are_finished_at_once() {
    let (server, _clock) = server("rules: [{name: a, concurrent: 1}]").await;
    let mut client = server.client().await;
    for _ in 0..3 {
        assert_eq!(client.ask("DIANA.CHECK path /").await, "[0 1 0 -1 0 \"a\"]");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_as_the_rule_says() {
    let rules = "rules: [{name: paced, limit: 1/10s, wait: 1min}]";
    let file = file(rules);
    let clock = diana::TokioClock::new();
    let engine = diana::EngineOptions::of(&file).clock(clock).build(&file);
    let server = Server::of(engine, RespState::default()).await;
    let mut client = server.client().await;
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        assert!(client.ask("DIANA.CHECK path /").await.starts_with("[0 1 0 "));
    }
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn single_keys_are_read_and_changed() {
    let (server, _clock) = server(RULES).await;
    let mut client = server.client().await;
    let check = "DIANA.CHECK path /api/x account alice COST 3";
    assert!(client.ask(check).await.starts_with("[0 3 0 "));
    assert_eq!(client.ask("DIANA.PEEK each-account alice").await, "[[1 3 0 1200 3600 \"each-account\"]]");
    assert_eq!(client.ask("DIANA.REFUND each-account 2 alice").await, "[[0 3 2 -1 1200 \"each-account\"]]");
    assert_eq!(client.ask("DIANA.RESET each-account alice").await, "[[0 3 3 -1 0 \"each-account\"]]");
    assert_eq!(client.ask("DIANA.PEEK nope alice").await, "ERR unknown rule `nope`");
    assert!(client.ask("DIANA.PEEK each-account").await.starts_with("ERR "));
    assert_eq!(client.ask("DIANA.REFUND each-account 0 alice").await, "ERR cost is not an integer of at least 1");
    let rules = client.ask("DIANA.RULES").await;
    assert!(rules.starts_with("[\"each-account\" \"each account, "), "{rules}");
    assert!(client.ask("HELLO 3").await.starts_with('{'));
    assert!(client.ask("DIANA.RULES").await.starts_with("{\"each-account\" "));
}

#[tokio::test]
async fn the_scheme_is_an_attribute() {
    let rules = "
rules:
  - {name: ambiguous, match: {when: 'request.scheme == \"other\"'}, limit: 1/h, cost: 2}
  - {name: http, match: {when: 'request.scheme == \"http\"'}, limit: 1/h, cost: 2}
  - {name: https, match: {when: 'request.scheme == \"https\"'}, limit: 1/h, cost: 2}
";
    let (server, _clock) = server(rules).await;
    let mut client = server.client().await;
    for (attributes, rule) in [
        ("path /a", None),
        ("path /a scheme http", Some("http")),
        ("path /a scheme https", Some("https")),
        ("path /a scheme HTTPS", Some("https")),
        ("path /a scheme ftp", Some("ambiguous")),
        // Neither a header nor the path.
        ("path https://a/b header(x-forwarded-proto) https", None),
    ] {
        let answer = client.ask(&format!("DIANA.CHECK {attributes}")).await;
        let expected = rule.map_or("nil]".to_owned(), |rule| format!("\"{rule}\"]"));
        assert!(answer.ends_with(&expected), "{attributes}: {answer}");
    }
}

/// Regression: a file may have used the name for itself.
#[tokio::test]
async fn scheme_may_be_a_name_of_the_file() {
    let rules = "
identity: {scheme: header(x-scheme)}
rules: [{name: each, by: scheme, limit: 1/h}]
";
    let (server, _clock) = server(rules).await;
    let mut client = server.client().await;
    for (scheme, denied) in [("gold", '0'), ("gold", '1'), ("silver", '0')] {
        let answer = client.ask(&format!("DIANA.CHECK scheme {scheme}")).await;
        assert!(answer.starts_with(&format!("[{denied} ")), "{scheme}: {answer}");
    }
}
