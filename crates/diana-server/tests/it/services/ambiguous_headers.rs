//! Headers that services read as another one, or that a proxy may remove or forward: with the real proxies, what
//! `docs/reference/http-check.md` says about them.

use super::forward_auth_proxies::{caddy_with, diana, nginx_of, replace, row, traefik_of};
use super::page::{EXT_AUTHZ, FEW, RATE_LIMIT, SMALL, Setup, block, replaced};
use crate::support::client::{Client, ClientResponse};
use crate::support::http2::{connect, full, request};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

const PAGE: &str = include_str!("../../../../../docs/reference/http-check.md");

/// Rules that read `x-account-id`.
const ACCOUNTS: &str = "
services: {http: $LISTEN}
identity: {account: header(x-account-id)}
rules: [{name: each-account, by: account, limit: 2/h, status: 429}]
";

fn send(port: u16, headers: &str) -> ClientResponse {
    Client::connect(port).send(format!("GET / HTTP/1.1\r\nhost: example.com\r\n{headers}\r\n")).response()
}

/// Sends `x_account_id`, and returns the result in the words of the page: `forwarded`, `dropped`, or a status.
fn outcome(port: u16, upstream: &Upstream) -> String {
    let before = upstream.count();
    let response = send(port, "x_account_id: bob\r\n");
    if response.status != 200 {
        assert_eq!(upstream.count(), before, "a rejected request must not reach the service");
        return response.status.to_string();
    }
    assert_eq!(upstream.count(), before + 1);
    let result = if upstream.last().header("x_account_id").is_some() { "forwarded" } else { "dropped" };
    result.to_owned()
}

/// Returns the outcomes without and with a rule that reads `x-account-id`.
fn outcomes(proxied: impl Fn(&Diana, &Upstream) -> String) -> [String; 2] {
    let upstream = Upstream::echo();
    [proxied(&diana(), &upstream), proxied(&Diana::serve(ACCOUNTS), &upstream)]
}

fn nginx_outcomes(option: &str) -> [String; 2] {
    let change = |file: &str| replace(file, "listen 80;", &format!("listen 80;\n    {option}"));
    outcomes(|diana, upstream| outcome(nginx_of(change, diana, upstream).port(), upstream))
}

fn traefik_outcomes(option: &str) -> [String; 2] {
    let change = |file: &str| replace(file, "address: :80", &format!("address: :80\n    {option}"));
    outcomes(|diana, upstream| outcome(traefik_of("\n## Traefik", change, diana, upstream).port(), upstream))
}

fn caddy_outcomes(options: &str) -> [String; 2] {
    outcomes(|diana, upstream| outcome(caddy_with(options, diana, upstream).port(), upstream))
}

/// Runs a section with an option in Envoy's connection manager.
fn envoy_with(section: &str, limits: &[(&str, &str)], option: &str) -> Setup {
    let manager = ("stat_prefix: public\n", format!("stat_prefix: public\n          {option}\n"));
    Setup::run_with(section, limits, Upstream::echo(), "", &replaced(block(section, "yaml envoy"), &[manager]))
}

/// Returns the outcome with the files of a section.
fn envoy_outcome(section: &str, changes: &[(&str, &str)]) -> String {
    let setup = Setup::run(section, changes, Upstream::echo());
    outcome(setup.envoy.port(), &setup.upstream)
}

/// With this change, the rules of the external authorization read no header with `-` in its name.
const NO_DASH: [(&str, &str); 1] = [("account: header(x-account-id)", "account: header(authorization)")];

#[test]
fn proxies_forward_or_drop_headers_with_underscores_as_the_page_says() {
    let documented = |proxy: &str| [row(proxy)[0], row(proxy)[1]];
    let (nginx, traefik, caddy) = (nginx_outcomes(""), traefik_outcomes(""), caddy_outcomes(""));
    assert_eq!(nginx, documented("nginx |"));
    assert_eq!(traefik, documented("Traefik |"));
    assert_eq!(caddy, documented("Caddy |"));
    assert_eq!([nginx, traefik, caddy].map(|[without_rule, _]| without_rule), row("[headers with `_`]"));
    let authorized = [envoy_outcome(EXT_AUTHZ, &NO_DASH), envoy_outcome(EXT_AUTHZ, &FEW)];
    assert_eq!(authorized, documented("Envoy's external authorization |"));
    // The rate limit service gets descriptors only, whatever the rules read.
    let limited = envoy_outcome(RATE_LIMIT, &SMALL);
    assert_eq!([limited.clone(), limited], documented("Envoy's rate limit service |"));
}

/// Asserts that the page has this option.
#[track_caller]
fn assert_documented(option: &str) {
    assert!(PAGE.contains(option), "the page does not have {option}");
}

#[test]
fn envoy_rejects_or_drops_headers_with_underscores_by_the_option_of_the_page() {
    assert_documented("`common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}`");
    assert_documented("`DROP_HEADER`");
    for (action, expected) in [("REJECT_REQUEST", "400"), ("DROP_HEADER", "dropped")] {
        let option = format!("common_http_protocol_options: {{headers_with_underscores_action: {action}}}");
        for (section, limits) in [(RATE_LIMIT, SMALL.as_slice()), (EXT_AUTHZ, FEW.as_slice())] {
            let setup = envoy_with(section, limits, &option);
            assert_eq!(outcome(setup.envoy.port(), &setup.upstream), expected, "{section} {action}");
            assert_eq!(setup.get("/", "x-account-id: bob\r\n").status, 200, "{section} {action}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_resets_the_stream_of_a_request_with_an_underscore() {
    let option = "common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}";
    let setup = envoy_with(EXT_AUTHZ, &FEW, option);
    let mut sender = connect(setup.envoy.port()).await;
    let get = |name: &str| request("GET", "http://example.com/").header(name, "bob").body(full("")).unwrap();
    assert!(sender.send_request(get("x_account_id")).await.is_err());
    assert_eq!(sender.send_request(get("x-account-id")).await.unwrap().status(), 200, "the connection is open");
    assert_eq!(setup.upstream.count(), 1);
}

#[test]
fn traefik_rejects_or_drops_headers_with_underscores_by_the_option_of_the_page() {
    assert_documented("`http: {aliasHeadersStrategy: reject}`");
    assert_documented("`aliasHeadersStrategy: delete`");
    assert_eq!(traefik_outcomes("http: {aliasHeadersStrategy: reject}"), ["400"; 2]);
    assert_eq!(traefik_outcomes("http: {aliasHeadersStrategy: delete}"), ["dropped"; 2]);
}

/// What the page says about each proxy that drops them: by which option it does not, and what Diana answers then.
#[test]
fn diana_rejects_a_header_with_underscores_that_nginx_or_caddy_forwards() {
    for option in ["underscores_in_headers on;", "ignore_invalid_headers off;"] {
        assert_documented(option.split(' ').next().unwrap());
        assert_eq!(nginx_outcomes(option), ["forwarded", "403"], "{option}");
    }
    assert_documented("`expected_underscore_headers`");
    let option = "\tservers {\n\t\texpected_underscore_headers x_account_id\n\t}\n";
    assert_eq!(caddy_outcomes(option), ["forwarded", "400"]);
    let (diana, upstream) = (diana(), Upstream::echo());
    let caddy = caddy_with(option, &diana, &upstream);
    assert_eq!(send(caddy.port(), "x-account-id: bob\r\n").status, 200);
    assert_eq!(upstream.last().header("x-account-id"), None, "Caddy drops the one with `-` instead");
}

/// A service that reads `x_api_key` as `x-api-key` would serve a key without its limit.
#[test]
fn the_rate_limit_service_counts_no_key_of_a_header_with_underscores() {
    let setup = Setup::run(RATE_LIMIT, &SMALL, Upstream::echo());
    assert_eq!(setup.statuses("/", "x-api-key: a\r\n"), [200, 200, 429]);
    assert_eq!(setup.statuses("/", "x_api_key: a\r\n"), [200; 3]);
    assert_eq!(setup.upstream.last().header("x_api_key"), Some("a"));
}

/// With upgrades, Envoy forwards the headers that `Connection` names, so they must not be keys of a client's choice.
#[test]
fn headers_that_connection_names_do_not_evade_the_external_authorization() {
    let limits = [FEW[0], ("limit: 100/s", "limit: 2/h"), ("by: account", "by: header(x-account-id)")];
    let setup = envoy_with(EXT_AUTHZ, &limits, "upgrade_configs: [{upgrade_type: websocket}]");
    let upgrade = |connection: &str, account: &str| {
        let headers = format!("connection: {connection}\r\nupgrade: websocket\r\nx-account-id: {account}\r\n");
        setup.get("/", &headers).status
    };
    let named = |account: &str| upgrade("upgrade, x-account-id", account);
    assert_eq!([named("a"), named("b")], [200, 200]);
    assert_eq!(setup.upstream.last().header("x-account-id"), Some("b"), "Envoy forwards it");
    assert_eq!([named("c"), named("d")], [429, 429]);
    assert_eq!(setup.upstream.count(), 2, "denied requests must not reach the service");
    // A header that is not named is a key.
    assert_eq!(["e", "f", "g"].map(|account| upgrade("upgrade", account)), [200; 3]);
}
