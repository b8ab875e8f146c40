//! The gateway section of a file: its fields, its defaults and its problems.

use super::good::GOOD;
use crate::common::{good, told};
use diana_admin::AdminSection;
use diana_gateway::section::{AccessLogFormat, GatewayLimits, GatewaySection, Timeouts};
use diana_rules::Document;
use diana_rules::attributes::SyntheticRequest;
use diana_rules::http_settings::{RateLimitHeaders, Spelling};
use diana_rules::rule::CostOf;
use diana_rules::upstream::Scheme;
use std::time::Duration;

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(told(&file(text)), *expected, "{text}");
    }
}

fn of_gateway(fields: &str) -> String {
    format!("gateway: {{{fields}}}\nrules: []\n")
}

#[test]
fn every_field_is_read() {
    let file = good(GOOD[1]);
    let gateway = file.section::<GatewaySection>().unwrap().unwrap().clone();
    let tls = gateway.tls.as_ref().unwrap();
    assert_eq!(tls.listen, ["0.0.0.0:8443".parse().unwrap()]);
    assert_eq!(tls.certificates[0].certificate.to_str(), Some("cert.pem"));
    assert_eq!(tls.certificates[0].key.to_str(), Some("key.pem"));
    assert_eq!(gateway.upstream_ca.as_ref().unwrap().to_str(), Some("ca.pem"));
    assert_eq!(gateway.routes[0].matches.to_string(), "/v1/**, host api.example.com");
    assert_eq!(gateway.routes[0].upstream.len(), 2);
    let grpc = &gateway.routes[1].upstream[0];
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
    let GatewayLimits { header, headers, body, connections, streams, .. } = gateway.bounds;
    assert_eq!((header, headers, body, connections, streams), (64 << 10, 50, Some(100 << 20), 20_000, 10));
    assert_eq!((gateway.http.escaped_slash, gateway.methods.any_case), (Spelling::Deny, Spelling::Allow));
    let admin = file.section::<AdminSection>().unwrap().unwrap().clone();
    assert_eq!((admin.listen.len(), admin.token.as_ref().unwrap().reveal()), (2, "hunter2"));
}

#[test]
fn what_is_left_out_is_usual() {
    assert_eq!(good("gateway: {}\nrules: []\n").section().unwrap(), Some(&GatewaySection::default()));
    assert_eq!(good("admin: {}\nrules: []\n").section().unwrap(), Some(&AdminSection::default()));
    let usual = GatewaySection::default();
    assert_eq!(usual.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!((usual.http.rate_limit_headers, usual.access_log), (RateLimitHeaders::Ietf, AccessLogFormat::Off));
    let Timeouts { header, body, idle, connect, response, tunnel, stop, .. } = usual.timeouts;
    let times = [header, body, idle, connect, response, tunnel, stop].map(|time| time.as_secs());
    assert_eq!(times, [10, 30, 60, 3, 60, 3_600, 30]);
    let GatewayLimits { header, headers, body, connections, streams, memory, .. } = usual.bounds;
    assert_eq!((header, headers, body, connections, streams), (32 << 10, 100, None, 10_000, 100));
    assert_eq!((usual.http.escaped_slash, usual.methods.any_case), (Spelling::Allow, Spelling::Deny));
    assert_eq!(good(&of_gateway("paths: {}, methods: {}")).section().unwrap(), Some(&GatewaySection::default()));
    assert_eq!(memory, 1 << 30);
    assert_eq!(AdminSection::default().listen, ["127.0.0.1:9090".parse().unwrap()]);
    let signed = good(&of_gateway("signature: {secret: s}"))
        .section::<GatewaySection>()
        .unwrap()
        .unwrap()
        .clone()
        .signature
        .unwrap();
    assert_eq!((&*signed.header, signed.max_age.as_secs()), ("x-signature", 300));
    // With only `tls`, there is no listener without TLS.
    let tls = "tls: {listen: '0.0.0.0:443', certificates: {certificate: a, key: b}}";
    assert!(good(&of_gateway(tls)).section::<GatewaySection>().unwrap().unwrap().clone().listen.is_empty());
    // One setting leaves the others at their defaults.
    let gateway = good(&of_gateway("timeouts: {stop: 5s}, bounds: {body: 1MiB}"))
        .section::<GatewaySection>()
        .unwrap()
        .unwrap()
        .clone();
    assert_eq!((gateway.timeouts.stop.as_secs(), gateway.timeouts.header.as_secs()), (5, 10));
    assert_eq!((gateway.bounds.body, gateway.bounds.streams), (Some(1 << 20), 100));
    assert_eq!(
        good(&of_gateway("bounds: {memory: 64MiB}"))
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
fn the_first_route_that_matches_counts() {
    let gateway = good(&of_gateway(
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
            ("tls: {}", &["[{] `tls` has no `listen`", "[{] `tls` has no `certificates`"]),
            ("tls: {listen: 0.0.0.0:443, certificates: [{certificate: a}]}", &["[{] a certificate has no `key`"]),
            ("tls: {listen: 0.0.0.0:443, certificates: []}", &["[[] `certificates` is empty: at least one"]),
            (
                "tls: {listen: 0.0.0.0:443, certificates: {certificate: '', key: '-----BEGIN PRIVATE KEY-----'}}",
                &[
                    "[''] `certificate` can't be ``: the path of a PEM file",
                    "['-----BEGIN PRIVATE KEY-----'] `key` is no file: the path of a PEM file",
                ],
            ),
            (
                "listen: 0.0.0.0:443, tls: {listen: 0.0.0.0:443, certificates: {certificate: a, key: b}}",
                &["[0.0.0.0:443] 0.0.0.0:443 can't be both with and without TLS: another address for one of them"],
            ),
            ("upstream_ca: ''", &["[''] `upstream_ca` can't be ``: the path of a PEM file"]),
        ],
        of_gateway,
    );
}

#[test]
fn a_route_goes_by_host_and_path() {
    check(
        &[
            ("routes: {}", &["[{] `routes` is a list, but this is a map: routes, each with `- match: ...` in front"]),
            ("routes: [{}]", &["[{] a route has no `match`", "[{] a route has no `upstream`"]),
            (
                "routes: [{match: {}, upstream: http://a}]",
                &["[{] this route is for all requests: `upstream` beside `routes`, or a `host` or `path` here"],
            ),
            (
                "routes: [{match: {method: GET}, upstream: http://a}]",
                &["[method] `method` is no field of the `match` of a route: expected one of `host`, `path`"],
            ),
            (
                "routes: [{match: {path: v1}, upstream: a}]",
                &[
                    "[v1] `v1` is no path: a path begins with `/`, as in `/search/**`",
                    "[a] `upstream` can't be `a`: a URL such as http://127.0.0.1:3000",
                ],
            ),
            (
                "routes: [{match: {path: /a}, upstream: http://a}, {match: {path: /a}, upstream: http://b}]",
                &["[{] no request can reach this route: /a went another way before: leave one of the two out"],
            ),
            (
                "routes: [{match: {path: /**}, upstream: http://a}, {match: {host: b}, upstream: http://b}]",
                &["[{] no request can reach this route: /** went another way before: leave one of the two out"],
            ),
        ],
        of_gateway,
    );
    let routes = (0..=1_000).map(|nth| format!("{{match: {{path: /{nth}}}, upstream: http://a}}")).collect::<Vec<_>>();
    assert_eq!(
        told(&of_gateway(&format!("routes: [{}]", routes.join(", ")))),
        ["[[] there are 1001 routes: at most 1000"]
    );
    good(&of_gateway(&format!("routes: [{}]", routes[1..].join(", "))));
}

#[test]
fn who_asks_is_said_by_those_who_are_trusted() {
    let expected: &[&str] = &[
        "[proxy_protocol] `proxy_protocol` lets anybody say who they are: `trusted_proxies: [10.0.0.0/8]` beside it: those who may",
    ];
    check(
        &[
            ("proxy_protocol: true", expected),
            ("proxy_protocol: true, trusted_proxies: []", expected),
            ("proxy_protocol: 1", &["[1] `proxy_protocol` can't be `1`: true or false"]),
            (
                "proxy_protocol: true, trusted_proxies: x",
                &["[x] a trusted proxy can't be `x`: an address or a network, such as 10.0.0.0/8"],
            ),
        ],
        of_gateway,
    );
    good(&of_gateway("proxy_protocol: false"));
    assert!(
        good(&of_gateway("echo: true")).section::<GatewaySection>().unwrap().unwrap().clone().echo
            && !GatewaySection::default().echo
    );
}

#[test]
fn words_numbers_and_times_are_what_they_can_be() {
    check(
        &[
            (
                "rate_limit_headers: draft",
                &["[draft] `rate_limit_headers` can't be `draft`: expected one of `ietf`, `x`, `both`, `off`"],
            ),
            ("access_log: jsn", &["[jsn] `access_log` can't be `jsn`: did you mean `json`?"]),
            ("workers: 0", &["[0] `workers` can't be `0`: a whole number from 1 to 1024"]),
            ("workers: auto", &["[auto] `workers` can't be `auto`: a whole number from 1 to 1024"]),
            ("timeouts: {header: 0s}", &["[0s] `header` can't be 0: a time such as 20ms"]),
            ("timeouts: {headers: 5s}", &["[headers] `headers` is no field of `timeouts`: did you mean `header`?"]),
            ("paths: {escaped_slash: denny}", &["[denny] `escaped_slash` can't be `denny`: did you mean `deny`?"]),
            ("paths: deny", &["[deny] `paths` is a map, but this is a text: fields such as `escaped_slash`"]),
            (
                "methods: {any_case: true}",
                &["[true] `any_case` can't be true or false: expected one of `allow`, `deny`"],
            ),
            ("bounds: {header: 4KiB}", &["[4KiB] `header` can't be `4KiB`: 8KiB to 1MiB"]),
            ("bounds: {header: 2MiB}", &["[2MiB] `header` can't be `2MiB`: 8KiB to 1MiB"]),
            ("bounds: {headers: 1001}", &["[1001] `headers` can't be `1001`: a whole number from 1 to 1000"]),
            ("bounds: {memory: 512KiB}", &["[512KiB] `memory` can't be `512KiB`: at least 1MiB"]),
            ("bounds: {streams: 0}", &["[0] `streams` can't be `0`: a whole number from 1 to 2147483647"]),
            (
                "bounds: {body: 5}",
                &[
                    "[5] `body` can't be `5`: `5` has no unit; write one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            ("signature: {header: x}", &["[header] `signature` has no `secret`"]),
            (
                "signature: {secret: '', header: 'a b', max_age: 0s}",
                &[
                    "[…] `secret` is empty, so anybody could sign: a long random text, as in '${SECRET}'",
                    "['a b'] `header` can't be `a b`: a name such as x-signature",
                    "[0s] `max_age` can't be 0: a time such as 20ms",
                ],
            ),
        ],
        of_gateway,
    );
}

#[test]
fn admin_needs_a_token_where_others_can_reach_it() {
    check(
        &[
            (
                "admin: {listen: 0.0.0.0:9090}",
                &[
                    "[0.0.0.0:9090] other machines reach 0.0.0.0:9090, and `admin` has no `token`: `token: '${ADMIN_TOKEN}'` beside it, or 127.0.0.1",
                ],
            ),
            (
                "admin: {listen: [127.0.0.1:1, '[::]:2']}",
                &[
                    "[[] other machines reach [::]:2, and `admin` has no `token`: `token: '${ADMIN_TOKEN}'` beside it, or 127.0.0.1",
                ],
            ),
            (
                "admin: {listen: 0.0.0.0:9090, token: ''}",
                &["[…] `token` can't be sent in a header: a text on one line"],
            ),
            (
                "gateway: {listen: 127.0.0.1:80}\nadmin: {listen: 127.0.0.1:80}",
                &["[{] `gateway` listens on 127.0.0.1:80 already: another address for `admin`"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
    good("admin: {listen: [127.0.0.1:1, '[::1]:2', '[::ffff:127.0.0.1]:3']}\nrules: []\n");
    // Port 0 is a different port each time.
    good("gateway: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\nrules: []\n");
}

#[test]
fn a_rule_answers_in_its_own_words_else_in_those_of_the_file() {
    let file = good(
        "answer: {type: text/plain, text: slow down}\n\
         rules: [{name: a, limit: 1/s}, {name: b, limit: 2/s, answer: {type: text/html; charset=utf-8, text: ''}}]\n",
    );
    let said = |nth: usize| file.rules[nth].answer.as_ref().map(|own| (&*own.content_type, &*own.text));
    assert_eq!(said(0), Some(("text/plain", "slow down")));
    assert_eq!(said(1), Some(("text/html; charset=utf-8", "")));
    assert_eq!(good("rules: [{name: a, limit: 1/s}]").rules[0].answer, None);
    // The config server's settings take precedence; the others are the file's.
    let over = |text: &str| file.with_remote(&Document::new("centre", text), &diana_server::registry()).unwrap();
    let text = |text: &str| over(text).rules[0].answer.as_ref().unwrap().text.clone();
    assert_eq!(text("rules: [{name: a, limit: 1/s}]"), "slow down");
    assert_eq!(text("answer: {type: text/plain, text: later}\nrules: [{name: a, limit: 1/s}]"), "later");
    assert_eq!(text("rules: [{name: a, limit: 1/s, answer: {type: text/plain, text: no}}]"), "no");
    // The response texts of two rules do not affect which requests they deny.
    assert_eq!(
        told("rules: [{name: a, limit: 1/s}, {name: b, limit: 1/s, answer: {type: text/plain, text: no}}]"),
        ["[b] rule `b` can never refuse anybody: `a` says the same: leave one of the two out"]
    );
}

#[test]
fn an_answer_has_a_type_and_a_text() {
    let long = format!("answer: {{type: text/plain, text: {}}}", "x".repeat((64 << 10) + 1));
    let said = told(&format!("{long}\nrules: []\n")).concat();
    assert!(said.ends_with("this answer has 65537 bytes: at most 65536"), "{said}");
    let media = "a media type such as text/plain or application/json";
    let wrong = |written: &str, shown: &str| {
        let said = told(&format!("answer: {{type: {written}, text: a}}\nrules: []\n"));
        assert_eq!(said, [format!("[{written}] `type` can't be `{shown}`: {media}")]);
    };
    wrong("text", "text");
    wrong("/plain", "/plain");
    wrong("'text/plain x'", "text/plain x");
    wrong("'text/plain; é'", "text/plain; é");
    check(
        &[
            (
                "answer: slow down",
                &["[slow down] `answer` is a map, but this is a text: fields such as `type`, `text`"],
            ),
            ("answer: {text: a}", &["[text] `answer` has no `type`"]),
            ("answer: {type: a/b}", &["[{] `answer` has no `text`"]),
            (
                "answer: {type: a/b, body: a}",
                &[
                    "[body] `answer` has no `text`",
                    "[body] `body` is no field of `answer`: expected one of `type`, `text`",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
    good(&format!("answer: {{type: text/plain, text: {}}}\nrules: []\n", "x".repeat(64 << 10)));
}

#[test]
fn a_cost_that_nobody_wrote_is_told_from_one() {
    let file = good("rules: [{name: a, limit: 1/s}, {name: b, limit: 1/s, cost: 1}]");
    assert_eq!(file.rules[0].cost, CostOf::Request);
    assert!(matches!(&file.rules[1].cost, CostOf::Fixed(cost) if cost.get() == 1));
}
