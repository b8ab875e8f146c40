//! The rules of a gateway apply to descriptors, too; and all that holds for rules elsewhere: lists, shadow rules, charges,
//! reload, reset, refund.

use super::client::{Envoy, descriptor};
use super::messages::Code;
use crate::support::client::send_request;
use crate::support::program::{Diana, LONG};
use Code::{Ok, OverLimit};
use diana_testing::{RedisServer, wait_until};

async fn serve(text: &str) -> (Diana, Envoy) {
    let diana = Diana::serve(&format!("services: {{envoy: $LISTEN}}\n{text}"));
    let envoy = Envoy::connect(diana.port()).await;
    (diana, envoy)
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_the_usual_attributes() {
    let (_diana, envoy) = serve(
        "
identity: {account: header(x-account-id)}
rules:
  - {name: each-address, match: {path: /ip}, by: ip, limit: 1/h}
  - {name: post, match: {path: /post, method: POST}, limit: 1/h}
  - {name: host, match: {host: shop.example.com}, limit: 1/h}
  - {name: query, match: {path: /query}, by: query(q), limit: 1/h}
  - {name: each-account, match: {path: /account}, by: account, limit: 1/h}
  - {name: network, match: {ip: 10.0.0.0/8}, limit: 1/h}
  - {name: plain, match: {when: 'request.scheme == \"http\"'}, limit: 1/h}
",
    )
    .await;
    let cases: [(&[(&str, &str)], &str); 16] = [
        (&[("path", "/ip"), ("remote_address", "192.0.2.1")], "each-address"),
        (&[("path", "/ip"), ("remote_address", "192.0.2.2")], "each-address"),
        // Without an address there is no `ip`.
        (&[("path", "/ip")], "-"),
        (&[("path", "/ip"), ("remote_address", "unknown")], "-"),
        (&[("path", "/post"), ("method", "POST")], "post"),
        (&[("path", "/post"), ("method", "GET")], "-"),
        (&[("path", "/post")], "-"),
        (&[("path", "/"), ("host", "shop.example.com")], "host"),
        (&[("path", "/query?q=1")], "query"),
        (&[("path", "/query?q=2")], "query"),
        (&[("path", "/account"), ("account", "alice")], "each-account"),
        // Names come from entries, not from the headers that `identity` names.
        (&[("path", "/account"), ("x-account-id", "bob")], "-"),
        (&[("remote_address", "10.1.2.3")], "network"),
        (&[("remote_address", "11.1.2.3")], "-"),
        (&[("scheme", "HTTP")], "plain"),
        (&[("scheme", "https")], "-"),
    ];
    for (entries, expected) in cases {
        let asked = descriptor(entries);
        let codes = if expected == "-" { [Ok, Ok] } else { [Ok, OverLimit] };
        for code in codes {
            let response = envoy.ask(asked.clone()).await;
            let name = response.statuses[0].current_limit.as_ref().map_or("-", |limit| &*limit.name);
            assert_eq!((name, response.overall_code()), (expected, code), "{entries:?}");
        }
    }
    // The host is matched however it is spelled, also without a path.
    let host = envoy.ask(descriptor(&[("host", "SHOP.example.com:443")])).await;
    assert_eq!(host.overall_code(), OverLimit, "{host:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_spelling_of_a_path_is_counted_by_its_rule() {
    let (_diana, envoy) = serve("rules: [{name: login, match: {path: /login, method: GET}, limit: 1/h}]").await;
    let ask = |path: &'static str, method: &'static str| descriptor(&[("path", path), ("method", method)]);
    assert_eq!(envoy.ask(ask("/login", "GET")).await.overall_code(), Ok);
    for path in ["/login?a=b", "//login", "/%6cogin", "/a/../login", "/login/", "/./login", "/login;x=1", "/login#a"] {
        assert_eq!(envoy.ask(ask(path, "GET")).await.overall_code(), OverLimit, "{path}");
    }
    // What Envoy accepts, but is not valid in a URI.
    for path in [
        "/login?<",
        "/login?\"",
        "/login?a=`>",
        "/login?a b",
        "/%6cogin?<",
        "//login?<#",
        "/login#<",
        "/a<b/../login",
        "/lo\\..\\login",
    ] {
        assert_eq!(envoy.ask(ask(path, "GET")).await.overall_code(), OverLimit, "{path}");
    }
    let long = format!("/login?{}", "a".repeat(70_000));
    let long = descriptor(&[("path", &long), ("method", "GET")]);
    assert_eq!(envoy.ask(long).await.overall_code(), OverLimit, "a long query");
    let long = "/".repeat(70_000) + "login";
    let long = descriptor(&[("path", &long), ("method", "GET")]);
    assert_eq!(envoy.ask(long).await.overall_code(), OverLimit, "a path that is too long to be parsed");
    assert_eq!(envoy.ask(ask("/login", "get")).await.overall_code(), OverLimit, "the method, too");
    for path in ["/logins", "/logins?<", "/<login", "/login<", "/", ""] {
        assert_eq!(envoy.ask(ask(path, "GET")).await.overall_code(), Ok, "{path}");
    }
}

/// As the gateway answers them with 400: services read them differently, or it would take long to compare all their forms.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_the_gateway_rejects_is_over_the_limit() {
    let rules = "gateway: {listen: $TLS, paths: {escaped_slash: deny}}\nrules: [{name: login, match: {path: /login}, limit: 1/h}]";
    let (diana, envoy) = serve(rules).await;
    let ask = |path: &str| descriptor(&[("path", path), ("remote_address", "192.0.2.1")]);
    let long = "//a/%2f%5c".repeat(5_500);
    for path in ["/login%0a", "/login\n", "/x/%2e%2e/login", "/a%2fb", "/a%5Cb?c", &long] {
        assert_eq!(envoy.ask(ask(path)).await.overall_code(), OverLimit, "{path}");
    }
    assert_eq!(envoy.ask(ask("/other?x=%2f%0a")).await.overall_code(), Ok, "a query is no path");
    // One such descriptor denies all of the call, and nothing is charged.
    assert_eq!(envoy.ask_all([ask("/login"), ask("/login%0a")]).await.overall_code(), OverLimit);
    assert_eq!(envoy.ask(ask("/login")).await.overall_code(), Ok);
    let failed = diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"failed\"}");
    assert_eq!(failed, 0.0);
}

/// The forms of all paths of a call are as long as those of one may be.
#[tokio::test(flavor = "multi_thread")]
async fn many_odd_paths_in_one_call_are_over_the_limit() {
    let (_diana, envoy) = serve("rules: [{name: login, match: {path: /login}, limit: 1000/h}]").await;
    let odd = |number: usize| format!("/{number}/;{}", "%2fa%5c;".repeat(60));
    let ask = |path: &str| descriptor(&[("path", path)]);
    assert_eq!(envoy.ask(ask(&odd(0))).await.overall_code(), Ok);
    assert_eq!(envoy.ask_all((0..64).map(|_| ask(&odd(0)))).await.overall_code(), Ok, "one path, read once");
    assert_eq!(envoy.ask_all((0..64).map(|number| ask(&odd(number)))).await.overall_code(), OverLimit);
    let long = format!("/{}", "a".repeat(10_000));
    assert_eq!(envoy.ask_all((0..3).map(|_| ask(&long))).await.overall_code(), Ok);
    assert_eq!(envoy.ask_all((0..4).map(|_| ask(&long))).await.overall_code(), OverLimit, "more than 32 KiB of paths");
    let usual = (0..64).map(|number| ask(&format!("/orders/{number}?page=%2f;")));
    assert_eq!(envoy.ask_all(usual).await.overall_code(), Ok, "usual paths are not bounded");
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_known_afterwards_are_charged_into_debt() {
    costs_are_charged_into_debt("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_known_afterwards_are_charged_into_debt_on_redis() {
    let redis = RedisServer::start().unwrap();
    costs_are_charged_into_debt(&format!("store: {{redis: '{}', timeout: 20s}}\n", redis.url())).await;
}

async fn costs_are_charged_into_debt(store: &str) {
    let (diana, envoy) = serve(&format!(
        "{store}
rules:
  - {{name: tokens, match: {{domain: shop, descriptor: {{user: }}}}, by: descriptor(user), limit: 100/day, cost: 10}}
  - {{name: used, match: {{domain: shop, descriptor: {{tokens_of: }}}}, by: descriptor(tokens_of), charges: tokens}}
"
    ))
    .await;
    let (ask, used) = (|user| descriptor(&[("user", user)]), |user| descriptor(&[("tokens_of", user)]));
    assert_eq!(envoy.ask(ask("a")).await.remaining(), [90]);
    let charged = envoy.ask(used("a").hits(60)).await;
    assert_eq!((charged.overall_code(), charged.statuses[0].current_limit.is_none()), (Ok, true));
    assert_eq!(envoy.ask(ask("a")).await.remaining(), [20]);
    assert_eq!(envoy.ask(used("a").hits(1_000)).await.overall_code(), Ok);
    assert_eq!(envoy.ask(ask("a")).await.overall_code(), OverLimit);
    assert_eq!(envoy.ask(ask("b")).await.remaining(), [90]);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"used\",outcome=\"allowed\"}"), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_shadow_rules_hold() {
    let (diana, envoy) = serve(
        "
rules:
  - {name: blocked, by: descriptor(k), deny: [mallory]}
  - {name: each, by: descriptor(k), allow: [admin], limit: 1/h}
  - {name: stricter, by: descriptor(k), limit: 1/day, shadow: true}
",
    )
    .await;
    let of = |key| descriptor(&[("k", key)]);
    let denied = envoy.ask_all([of("x"), of("mallory")]).await;
    assert_eq!((denied.overall_code(), denied.codes()), (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(denied.statuses[1].current_limit, None, "no limit decided");
    assert_eq!(envoy.codes::<2>(&of("x")).await, [Ok, OverLimit], "the denied request took nothing");
    assert_eq!(envoy.codes::<3>(&of("admin")).await, [Ok; 3]);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"stricter\",outcome=\"shadow_denied\"}"), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_and_reset_hold() {
    let file = |limit: &str| {
        format!(
            "services: {{envoy: $LISTEN}}\nrules: [{{name: each, by: descriptor(k), limit: {limit}, algorithm: fixed_window, opens: first_request}}]\n"
        )
    };
    let diana = Diana::serve(&file("1/day"));
    let envoy = Envoy::connect(diana.port()).await;
    let key = descriptor(&[("k", "a")]);
    assert_eq!(envoy.codes::<2>(&key).await, [Ok, OverLimit]);
    let reset = "POST /reset?rule=each&key=a HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    let reset = send_request(diana.admin_port(), reset).unwrap();
    assert_eq!(reset.status, 200, "{}", reset.text());
    assert_eq!(envoy.codes::<2>(&key).await, [Ok, OverLimit]);
    diana.rewrite(&file("3/day"));
    let is_loaded = || (diana.metric("diana_rules_loads_total") == 2.0).then_some(());
    wait_until("the new rules", LONG, is_loaded).unwrap();
    // On the same connection, and the count goes on.
    assert_eq!(envoy.codes::<3>(&key).await, [Ok, Ok, OverLimit]);
    let refund = "POST /refund?rule=each&key=a&cost=1 HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    let refund = send_request(diana.admin_port(), refund).unwrap();
    assert_eq!(refund.status, 200, "{}", refund.text());
    assert_eq!(envoy.codes::<2>(&key).await, [Ok, OverLimit]);
}
