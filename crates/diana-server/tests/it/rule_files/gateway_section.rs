//! The gateway section of a file: its fields, its defaults and its problems.

use super::valid::VALID;
use crate::common::{good, problems_of};
use diana_admin::{AdminSection, Role};
use diana_gateway::section::{
    AccessLogFormat, Balance, ClientBounds, GatewaySection, HealthCheck, RetryOn, RetryPolicy, Timeouts, UpstreamGroup,
};
use diana_rules::Document;
use diana_rules::attributes::SyntheticRequest;
use diana_rules::http_settings::{RateLimitHeaders, SpellingPolicy};
use diana_rules::rule::CostOf;
use diana_rules::upstream_url::Scheme;
use std::time::Duration;

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(problems_of(&file(text)), *expected, "{text}");
    }
}

fn gateway_file(fields: &str) -> String {
    format!("gateway: {{{fields}}}\nrules: []\n")
}

#[test]
fn every_field_is_parsed() {
    let file = good(VALID[1]);
    let gateway = file.section::<GatewaySection>().unwrap().unwrap().clone();
    let tls = gateway.tls.as_ref().unwrap();
    assert_eq!(tls.listen, ["0.0.0.0:8443".parse().unwrap()]);
    assert_eq!(tls.certificates[0].certificate.to_str(), Some("cert.pem"));
    assert_eq!(tls.certificates[0].key.to_str(), Some("key.pem"));
    assert_eq!(gateway.upstream_ca.as_ref().unwrap().to_str(), Some("ca.pem"));
    assert_eq!(gateway.routes[0].matches.to_string(), "/v1/**, host api.example.com");
    assert_eq!(gateway.routes[0].upstream.endpoints.len(), 2);
    let grpc = &gateway.routes[1].upstream.endpoints[0].upstream;
    assert_eq!((grpc.scheme, &*grpc.host, grpc.port), (Scheme::H2c, "::1", 50051));
    assert!(gateway.proxy_protocol);
    assert_eq!(gateway.http.rate_limit_headers, RateLimitHeaders::Both);
    assert_eq!(gateway.access_log, AccessLogFormat::Json);
    let signature = gateway.signature.as_ref().unwrap();
    assert_eq!((signature.secret.reveal(), &*signature.header), ("hunter2", "x-signature"));
    assert_eq!(signature.max_age, Duration::from_secs(60));
    assert_eq!(gateway.workers.unwrap().get(), 2);
    let Timeouts { header, body, idle, connect, response, tunnel, stop, .. } = gateway.timeouts;
    assert_eq!([header, body, idle, connect, response, tunnel, stop].map(|time| time.as_secs()), [1, 2, 3, 4, 5, 6, 7]);
    let ClientBounds { header, headers, body, connections, streams, .. } = gateway.bounds;
    assert_eq!((header, headers, body, connections, streams), (64 << 10, 50, Some(100 << 20), 20_000, 10));
    assert_eq!((gateway.http.escaped_slash, gateway.methods.any_case), (SpellingPolicy::Deny, SpellingPolicy::Allow));
    let admin = file.section::<AdminSection>().unwrap().unwrap().clone();
    assert_eq!((admin.listen.len(), admin.token.as_ref().unwrap().reveal()), (2, "hunter2"));
    let tokens = admin.all_tokens();
    let tokens = tokens.iter().map(|token| (&*token.name, token.token.reveal(), token.role)).collect::<Vec<_>>();
    let named = [("alice@example.com", "hunter3", Role::Operate), ("grafana", "hunter4", Role::Read)];
    assert_eq!(tokens, [&[("admin", "hunter2", Role::Operate)][..], &named].concat());
    assert_eq!(admin.audit_log.unwrap().to_str(), Some("/var/log/diana/audit.jsonl"));
}

#[test]
fn missing_fields_have_defaults() {
    assert_eq!(good("gateway: {}\nrules: []\n").section().unwrap(), Some(&GatewaySection::default()));
    assert_eq!(good("admin: {}\nrules: []\n").section().unwrap(), Some(&AdminSection::default()));
    let default = GatewaySection::default();
    assert_eq!(default.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!((default.http.rate_limit_headers, default.access_log), (RateLimitHeaders::Ietf, AccessLogFormat::Off));
    let Timeouts { header, body, idle, connect, response, tunnel, stop, .. } = default.timeouts;
    let times = [header, body, idle, connect, response, tunnel, stop].map(|time| time.as_secs());
    assert_eq!(times, [10, 30, 60, 3, 60, 3_600, 30]);
    let ClientBounds { header, headers, body, connections, streams, memory, .. } = default.bounds;
    assert_eq!((header, headers, body, connections, streams), (32 << 10, 100, None, 10_000, 100));
    assert_eq!((default.http.escaped_slash, default.methods.any_case), (SpellingPolicy::Allow, SpellingPolicy::Deny));
    assert_eq!(good(&gateway_file("paths: {}, methods: {}")).section().unwrap(), Some(&GatewaySection::default()));
    assert_eq!(memory, 1 << 30);
    assert_eq!(AdminSection::default().listen, ["127.0.0.1:9090".parse().unwrap()]);
    let signed = good(&gateway_file("signature: {secret: s}"))
        .section::<GatewaySection>()
        .unwrap()
        .unwrap()
        .clone()
        .signature
        .unwrap();
    assert_eq!((&*signed.header, signed.max_age.as_secs()), ("x-signature", 300));
    // With only `tls`, there is no listener without TLS.
    let tls = "tls: {listen: '0.0.0.0:443', certificates: {certificate: a, key: b}}";
    assert!(good(&gateway_file(tls)).section::<GatewaySection>().unwrap().unwrap().clone().listen.is_empty());
    // One setting leaves the others at their defaults.
    let gateway = good(&gateway_file("timeouts: {stop: 5s, drain: 0s}, bounds: {body: 1MiB}"))
        .section::<GatewaySection>()
        .unwrap()
        .unwrap()
        .clone();
    assert_eq!((gateway.timeouts.stop.as_secs(), gateway.timeouts.header.as_secs()), (5, 10));
    assert_eq!((gateway.bounds.body, gateway.bounds.streams), (Some(1 << 20), 100));
    assert_eq!(
        good(&gateway_file("bounds: {memory: 64MiB}"))
            .section::<GatewaySection>()
            .unwrap()
            .unwrap()
            .clone()
            .bounds
            .memory,
        64 << 20
    );
}

#[test]
fn the_first_matching_route_is_selected() {
    let gateway = good(&gateway_file(
        "upstream: http://z, routes: [{match: {host: api.example.com, path: /v1/**}, upstream: http://a}, \
         {match: {host: '*.example.com'}, upstream: http://b}, {match: {path: [/v1/x, /v2/**]}, upstream: http://c}]",
    ));
    let gateway = gateway.section::<GatewaySection>().unwrap().unwrap().clone();
    let route = |host: &str, path| gateway.route(&SyntheticRequest::new("GET", path).host(host));
    assert_eq!(route("api.example.com", "/v1/x"), Some(0));
    assert_eq!(route("API.example.com:8080", "//v1"), Some(0));
    assert_eq!(route("api.example.com", "/v2/x"), Some(1));
    assert_eq!(route("example.com", "/v2"), Some(2));
    assert_eq!(route("example.com", "/v1"), None);
    assert_eq!(gateway.route(&SyntheticRequest::default()), None);
    assert_eq!(GatewaySection::default().route(&SyntheticRequest::new("GET", "/")), None);
}

#[test]
fn tls_needs_certificates() {
    check(
        &[
            ("tls: {}", &["[{] missing `listen` in `tls`", "[{] missing `certificates` in `tls`"]),
            ("tls: {listen: 0.0.0.0:443, certificates: [{certificate: a}]}", &["[{] missing `key` in certificate"]),
            ("tls: {listen: 0.0.0.0:443, certificates: []}", &["[[] `certificates` is empty: expected at least one"]),
            (
                "tls: {listen: 0.0.0.0:443, certificates: {certificate: '', key: '-----BEGIN PRIVATE KEY-----'}}",
                &[
                    "[''] invalid value `` for `certificate`: expected the path of a PEM file",
                    "['-----BEGIN PRIVATE KEY-----'] invalid `key`: found PEM text: expected the path of a PEM file",
                ],
            ),
            (
                "listen: 0.0.0.0:443, tls: {listen: 0.0.0.0:443, certificates: {certificate: a, key: b}}",
                &["[0.0.0.0:443] 0.0.0.0:443 is used both with and without TLS: use another address for one of them"],
            ),
            ("upstream_ca: ''", &["[''] invalid value `` for `upstream_ca`: expected the path of a PEM file"]),
        ],
        gateway_file,
    );
}

#[test]
fn a_route_matches_host_and_path() {
    check(
        &[
            (
                "routes: {}",
                &["[{] invalid `routes`: expected a list, found a map: start each route with `- match: ...`"],
            ),
            ("routes: [{}]", &["[{] missing `match` in route", "[{] missing `upstream` in route"]),
            (
                "routes: [{match: {}, upstream: http://a}]",
                &["[{] this route matches all requests: use `upstream` beside `routes`, or add a `host` or `path`"],
            ),
            (
                "routes: [{match: {method: GET}, upstream: http://a}]",
                &["[method] unknown route `match` field `method`: expected one of `host`, `path`"],
            ),
            (
                "routes: [{match: {path: v1}, upstream: a}]",
                &[
                    "[v1] invalid path `v1`: expected a leading `/`, as in `/search/**`",
                    "[a] invalid value `a` for `upstream`: expected a URL such as http://127.0.0.1:3000",
                ],
            ),
            (
                "routes: [{match: {path: /a}, upstream: http://a}, {match: {path: /a}, upstream: http://b}]",
                &["[{] unreachable route: an earlier route matches /a: remove one of the two"],
            ),
            (
                "routes: [{match: {path: /**}, upstream: http://a}, {match: {host: b}, upstream: http://b}]",
                &["[{] unreachable route: an earlier route matches /**: remove one of the two"],
            ),
        ],
        gateway_file,
    );
    let routes =
        (0..=1_000).map(|number| format!("{{match: {{path: /{number}}}, upstream: http://a}}")).collect::<Vec<_>>();
    assert_eq!(
        problems_of(&gateway_file(&format!("routes: [{}]", routes.join(", ")))),
        ["[[] too many routes: 1001: expected at most 1000"]
    );
    good(&gateway_file(&format!("routes: [{}]", routes[1..].join(", "))));
}

#[test]
fn upstreams_have_weights_checks_and_retries() {
    let group = |fields: &str| -> UpstreamGroup {
        good(&gateway_file(fields)).section::<GatewaySection>().unwrap().unwrap().upstream.clone()
    };
    let full = group(
        "upstream: [{url: http://a, weight: 3}, http://b, {url: http://a}], balance: least_requests, \
         health: {path: '/healthz?a=b', host: 'a.com:81', interval: 100ms, timeout: 2s, healthy: 1, unhealthy: 5, \
         status: [204, 3xx]}, retries: {on: [timeout, 500], attempts: 1, budget: 12.5%, min_per_second: 0}",
    );
    assert_eq!(full.endpoints.iter().map(|endpoint| endpoint.weight).collect::<Vec<_>>(), [3, 1, 1]);
    assert_eq!(full.weight_of(&full.endpoints[0].upstream), Some(4));
    assert_eq!(full.balance, Balance::LeastRequests);
    let health = full.health.unwrap();
    assert_eq!((&*health.path, health.host.as_deref()), ("/healthz?a=b", Some("a.com:81")));
    assert_eq!([health.interval, health.timeout].map(|time| time.as_millis()), [100, 2_000]);
    assert_eq!((health.healthy, health.unhealthy, health.status), (1, 5, vec![204..=204, 300..=399]));
    let retries = full.retries.unwrap();
    assert_eq!(retries.on, [RetryOn::Timeout, RetryOn::Status(500)]);
    assert_eq!((retries.attempts, retries.budget.tenths(), retries.min_per_second), (1, 125, 0));

    let short = group("upstream: http://a, health: /up, retries: {}");
    assert_eq!((short.health, short.retries), (Some(HealthCheck::new("/up")), Some(RetryPolicy::default())));
    assert_eq!(HealthCheck::new("/").status, [200..=299, 300..=399]);
    let none = group("upstream: {url: http://a}");
    assert_eq!((none.balance, none.health, none.retries), (Balance::RoundRobin, None, None));
    // Routes inherit nothing.
    let file = good(&gateway_file(
        "upstream: http://a, health: /up, routes: [{match: {path: /b}, upstream: http://b, balance: least_requests}]",
    ));
    let route = file.section::<GatewaySection>().unwrap().unwrap().routes[0].upstream.clone();
    assert_eq!((route.balance, route.health), (Balance::LeastRequests, None));
}

#[test]
fn invalid_weights_checks_and_retries_are_reported() {
    check(
        &[
            (
                "upstream: [{url: http://a, weight: 0}, {url: b, weigth: 2}, {weight: 2}]",
                &[
                    "[0] invalid value `0` for `weight`: expected a whole number from 1 to 1000",
                    "[b] invalid value `b` for `url`: expected a URL such as http://127.0.0.1:3000",
                    "[weigth] unknown `upstream` field `weigth`: did you mean `weight`?",
                    "[weight] missing `url` in `upstream`",
                ],
            ),
            (
                "upstream: http://a, balance: least_request",
                &["[least_request] invalid value `least_request` for `balance`: did you mean `least_requests`?"],
            ),
            (
                "upstream: http://a, balance: random",
                &["[random] invalid value `random` for `balance`: expected one of `round_robin`, `least_requests`"],
            ),
            (
                "balance: round_robin, health: /up",
                &[
                    "[balance] `balance` needs `upstream` beside it: it applies to that `upstream`: routes have their own",
                    "[health] `health` needs `upstream` beside it: it applies to that `upstream`: routes have their own",
                ],
            ),
            (
                "upstream: http://a, health: healthz",
                &["[healthz] invalid value `healthz` for `health`: expected a path such as /healthz"],
            ),
            (
                "upstream: http://a, health: {intervall: 5s}",
                &[
                    "[intervall] missing `path` in `health`",
                    "[intervall] unknown `health` field `intervall`: did you mean `interval`?",
                ],
            ),
            (
                "upstream: http://a, health: {path: /a b, host: a b, interval: 50ms, timeout: 0s, healthy: 0, status: [99, 6xx]}",
                &[
                    "[/a b] invalid value `/a b` for `path`: expected a path such as /healthz",
                    "[a b] invalid value `a b` for `host`: expected a host such as api.example.com",
                    "[50ms] invalid value `50ms` for `interval`: expected at least 100ms",
                    "[0s] `timeout` must be greater than 0: expected a time such as 20ms",
                    "[0] invalid value `0` for `healthy`: expected a whole number from 1 to 100",
                    "[99] invalid value `99` for `status`: expected a status such as 200, or a class such as 2xx",
                    "[6xx] invalid value `6xx` for `status`: expected a status such as 200, or a class such as 2xx",
                ],
            ),
            (
                "upstream: http://a, retries: 2",
                &[
                    "[2] invalid `retries`: expected a map, found a number: expected fields such as `on`, `attempts`, `budget`",
                ],
            ),
            (
                "upstream: http://a, retries: {on: [connect-failure, error, 404], attempts: 11, budget: 20, min_per_second: -1}",
                &[
                    "[connect-failure] invalid value `connect-failure` for `on`: did you mean `connect_failure`?",
                    "[error] invalid value `error` for `on`: expected one of `connect_failure`, `reset`, `timeout`, `502`, `503`, `504`",
                    "[404] invalid value `404` for `on`: expected a whole number from 500 to 599",
                    "[11] invalid value `11` for `attempts`: expected a whole number from 1 to 10",
                    "[20] invalid value `20` for `budget`: expected a percentage such as 85% or 99.5%",
                    "[-1] invalid value `-1` for `min_per_second`: expected a whole number from 0 to 100000",
                ],
            ),
        ],
        gateway_file,
    );
}

#[test]
fn proxy_protocol_needs_trusted_proxies() {
    let expected: &[&str] = &[
        "[proxy_protocol] `proxy_protocol` needs `trusted_proxies`: add the load balancers, such as `trusted_proxies: [10.0.0.0/8]`",
    ];
    check(
        &[
            ("proxy_protocol: true", expected),
            ("proxy_protocol: true, trusted_proxies: []", expected),
            ("proxy_protocol: 1", &["[1] invalid value `1` for `proxy_protocol`: expected true or false"]),
            (
                "proxy_protocol: true, trusted_proxies: x",
                &["[x] invalid trusted proxy `x`: expected an address or a network, such as 10.0.0.0/8"],
            ),
        ],
        gateway_file,
    );
    good(&gateway_file("proxy_protocol: false"));
    assert!(
        good(&gateway_file("echo: true")).section::<GatewaySection>().unwrap().unwrap().clone().echo
            && !GatewaySection::default().echo
    );
}

#[test]
fn values_are_validated() {
    check(
        &[
            (
                "rate_limit_headers: draft",
                &["[draft] invalid value `draft` for `rate_limit_headers`: expected one of `ietf`, `x`, `both`, `off`"],
            ),
            ("access_log: jsn", &["[jsn] invalid value `jsn` for `access_log`: did you mean `json`?"]),
            ("workers: 0", &["[0] invalid value `0` for `workers`: expected a whole number from 1 to 1024"]),
            ("workers: auto", &["[auto] invalid value `auto` for `workers`: expected a whole number from 1 to 1024"]),
            ("timeouts: {header: 0s}", &["[0s] `header` must be greater than 0: expected a time such as 20ms"]),
            ("timeouts: {headers: 5s}", &["[headers] unknown `timeouts` field `headers`: did you mean `header`?"]),
            (
                "paths: {escaped_slash: denny}",
                &["[denny] invalid value `denny` for `escaped_slash`: did you mean `deny`?"],
            ),
            (
                "paths: deny",
                &["[deny] invalid `paths`: expected a map, found a string: expected fields such as `escaped_slash`"],
            ),
            (
                "methods: {any_case: true}",
                &["[true] invalid `any_case`: found a boolean: expected one of `allow`, `deny`"],
            ),
            ("bounds: {header: 4KiB}", &["[4KiB] invalid value `4KiB` for `header`: expected 8KiB to 1MiB"]),
            ("bounds: {header: 2MiB}", &["[2MiB] invalid value `2MiB` for `header`: expected 8KiB to 1MiB"]),
            (
                "bounds: {headers: 1001}",
                &["[1001] invalid value `1001` for `headers`: expected a whole number from 1 to 1000"],
            ),
            ("bounds: {memory: 512KiB}", &["[512KiB] invalid value `512KiB` for `memory`: expected at least 1MiB"]),
            (
                "bounds: {streams: 0}",
                &["[0] invalid value `0` for `streams`: expected a whole number from 1 to 2147483647"],
            ),
            (
                "bounds: {body: 5}",
                &[
                    "[5] invalid value `5` for `body`: missing unit in `5`; expected one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            ("signature: {header: x}", &["[header] missing `secret` in `signature`"]),
            (
                "signature: {secret: '', header: 'a b', max_age: 0s}",
                &[
                    "[…] empty `secret`: expected a long random text, such as '${SECRET}'",
                    "['a b'] invalid value `a b` for `header`: expected a name such as x-signature",
                    "[0s] `max_age` must be greater than 0: expected a time such as 20ms",
                ],
            ),
        ],
        gateway_file,
    );
}

#[test]
fn admin_needs_a_token_on_public_addresses() {
    check(
        &[
            (
                "admin: {listen: 0.0.0.0:9090}",
                &[
                    "[0.0.0.0:9090] `admin` needs a `token`: other machines can reach 0.0.0.0:9090: add `token: '${ADMIN_TOKEN}'`, or listen on 127.0.0.1",
                ],
            ),
            (
                "admin: {listen: [127.0.0.1:1, '[::]:2']}",
                &[
                    "[[] `admin` needs a `token`: other machines can reach [::]:2: add `token: '${ADMIN_TOKEN}'`, or listen on 127.0.0.1",
                ],
            ),
            (
                "admin: {listen: 0.0.0.0:9090, token: ''}",
                &["[…] invalid `token`: it cannot be sent in a header: expected a text on one line"],
            ),
            (
                "gateway: {listen: 127.0.0.1:80}\nadmin: {listen: 127.0.0.1:80}",
                &["[{] address 127.0.0.1:80 is already used by `gateway`: use another address for `admin`"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
    good("admin: {listen: [127.0.0.1:1, '[::1]:2', '[::ffff:127.0.0.1]:3']}\nrules: []\n");
    good("admin: {listen: 0.0.0.0:9090, tokens: [{name: a, token: b, role: read}]}\nrules: []\n");
    // Port 0 is a different port each time.
    good("gateway: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\nrules: []\n");
}

#[test]
fn tokens_have_a_name_of_their_own_a_value_of_their_own_and_a_role() {
    check(
        &[
            (
                "admin: {tokens: {name: a}}",
                &["[{] invalid `tokens`: expected a list, found a map: start each token with `- name: ...`"],
            ),
            ("admin: {tokens: []}", &["[[] invalid `tokens`: it has 0: expected 1 to 100"]),
            ("admin: {tokens: [{name: a, token: b}]}", &["[{] missing `role` in token"]),
            (
                "admin: {tokens: [{name: a, token: b, role: write}]}",
                &["[write] invalid value `write` for `role`: expected one of `read`, `operate`"],
            ),
            (
                "admin: {tokens: [{name: a b, token: b, role: read}]}",
                &["[a b] invalid token name `a b`: expected at most 64 letters, digits, `.`, `_`, `-` and `@`"],
            ),
            (
                "admin: {tokens: [{name: a, token: b, role: read}, {name: a, token: c, role: read}]}",
                &["[a] duplicate token name `a`: use another name"],
            ),
            (
                "admin: {token: b, tokens: [{name: admin, token: c, role: read}]}",
                &["[admin] duplicate token name `admin`: `token` has it: use another name"],
            ),
            (
                "admin:\n  tokens:\n  - {name: a, token: b, role: read}\n  - {name: c, role: read, token: b}",
                &["[…] `a` and `c` have the same token: use another token for one of them"],
            ),
            (
                "admin:\n  token: b\n  tokens:\n  - {name: c, role: read, token: b}",
                &["[…] `admin` and `c` have the same token: use another token for one of them"],
            ),
            (
                "admin: {audit_log: ''}",
                &[
                    "[''] invalid value `` for `audit_log`: expected the path of a file, such as /var/log/diana/audit.jsonl",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

/// The values of variables are not known to `check`, so those of two tokens are not compared.
#[test]
fn variables_of_tokens_are_not_compared_without_an_environment() {
    let text =
        "admin: {tokens: [{name: a, token: '${A}', role: read}, {name: b, token: '${B}', role: read}]}\nrules: []\n";
    let document = Document::new("diana.yaml", text);
    let (file, not_checked) =
        diana_rules::RuleFile::read_without_environment(&document, &diana_server::registry()).unwrap();
    assert_eq!((file.rules.len(), not_checked.len()), (0, 2));
}

#[test]
fn a_rule_overrides_the_response_of_the_file() {
    let file = good(
        "answer: {type: text/plain, text: slow down}\n\
         rules: [{name: a, limit: 1/s}, {name: b, limit: 2/s, answer: {type: text/html; charset=utf-8, text: ''}}]\n",
    );
    let answer = |number: usize| file.rules[number].answer.as_ref().map(|own| (&*own.content_type, &*own.text));
    assert_eq!(answer(0), Some(("text/plain", "slow down")));
    assert_eq!(answer(1), Some(("text/html; charset=utf-8", "")));
    assert_eq!(good("rules: [{name: a, limit: 1/s}]").rules[0].answer, None);
    // The config server's settings take precedence; the others are the file's.
    let with_remote = |text: &str| file.with_remote(&Document::new("remote", text), &diana_server::registry()).unwrap();
    let text = |text: &str| with_remote(text).rules[0].answer.as_ref().unwrap().text.clone();
    assert_eq!(text("rules: [{name: a, limit: 1/s}]"), "slow down");
    assert_eq!(text("answer: {type: text/plain, text: later}\nrules: [{name: a, limit: 1/s}]"), "later");
    assert_eq!(text("rules: [{name: a, limit: 1/s, answer: {type: text/plain, text: no}}]"), "no");
    // The response texts of two rules do not affect which requests they deny.
    assert_eq!(
        problems_of("rules: [{name: a, limit: 1/s}, {name: b, limit: 1/s, answer: {type: text/plain, text: no}}]"),
        ["[b] rule `b` has no effect: it is identical to `a`: remove one of the two"]
    );
}

#[test]
fn a_custom_response_has_a_type_and_a_text() {
    let long = format!("answer: {{type: text/plain, text: {}}}", "x".repeat((64 << 10) + 1));
    let problems = problems_of(&format!("{long}\nrules: []\n")).concat();
    assert!(problems.ends_with("`text` is too large: 65537 bytes: expected at most 65536"), "{problems}");
    let media = "expected a media type such as text/plain or application/json";
    let check_type = |written: &str, shown: &str| {
        let problems = problems_of(&format!("answer: {{type: {written}, text: a}}\nrules: []\n"));
        assert_eq!(problems, [format!("[{written}] invalid value `{shown}` for `type`: {media}")]);
    };
    check_type("text", "text");
    check_type("/plain", "/plain");
    check_type("'text/plain x'", "text/plain x");
    check_type("'text/plain; é'", "text/plain; é");
    check(
        &[
            (
                "answer: slow down",
                &[
                    "[slow down] invalid `answer`: expected a map, found a string: expected fields such as `type`, `text`",
                ],
            ),
            ("answer: {text: a}", &["[text] missing `type` in `answer`"]),
            ("answer: {type: a/b}", &["[{] missing `text` in `answer`"]),
            (
                "answer: {type: a/b, body: a}",
                &[
                    "[body] missing `text` in `answer`",
                    "[body] unknown `answer` field `body`: expected one of `type`, `text`",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
    good(&format!("answer: {{type: text/plain, text: {}}}\nrules: []\n", "x".repeat(64 << 10)));
}

#[test]
fn an_explicit_cost_differs_from_the_default() {
    let file = good("rules: [{name: a, limit: 1/s}, {name: b, limit: 1/s, cost: 1}]");
    assert_eq!(file.rules[0].cost, CostOf::Request);
    assert!(matches!(&file.rules[1].cost, CostOf::Fixed(cost) if cost.get() == 1));
}
