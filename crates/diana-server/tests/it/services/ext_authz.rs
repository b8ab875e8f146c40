//! Envoy's external authorization, asked directly: the rules of a gateway apply to the request that Envoy describes.

use super::client::Envoy;
use super::messages::{
    Address, CheckAttributes, CheckRequest, CheckResponse, CheckedHttp, CheckedRequest, HeaderOption, HeaderValue,
    Peer, SocketAddress,
};
use super::page::{ALICE, BOB, BY_TOKEN, CAROL};
use crate::support::program::Diana;
use crate::support::scheme;
use diana_testing::RedisServer;
use std::time::Duration;

const GRPC_OK: i32 = 0;
const GRPC_RESOURCE_EXHAUSTED: i32 = 8;

/// A request as Envoy describes it.
struct Described {
    http: CheckedHttp,
    /// The address of the client; `None` if Envoy does not know it.
    from: Option<&'static str>,
}

impl Described {
    fn new(method: &str, path: &str) -> Self {
        let http = CheckedHttp {
            method: method.to_owned(),
            path: path.to_owned(),
            host: "shop.example.com".to_owned(),
            ..CheckedHttp::default()
        };
        Self { http, from: Some("192.0.2.1") }
    }

    fn from(self, from: &'static str) -> Self {
        Self { from: Some(from), ..self }
    }

    fn without_address(self) -> Self {
        Self { from: None, ..self }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.http.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    fn message(self) -> CheckRequest {
        let address = |address: &str| SocketAddress { address: address.to_owned() };
        let address = Address { socket_address: self.from.map(address) };
        CheckRequest {
            attributes: Some(CheckAttributes {
                source: Some(Peer { address: Some(address) }),
                request: Some(CheckedRequest { http: Some(self.http) }),
            }),
        }
    }
}

/// The status of the response that the client gets; 200 if the request may pass.
async fn status(envoy: &Envoy, request: Described) -> i32 {
    let response = envoy.check(request.message()).await.unwrap();
    let code = response.status.as_ref().unwrap().code;
    match (&response.ok_response, &response.denied_response) {
        (Some(_), None) if code == GRPC_OK => 200,
        (None, Some(denied)) if code == GRPC_RESOURCE_EXHAUSTED => denied.status.as_ref().unwrap().code,
        _ => panic!("{response:?}"),
    }
}

fn header<'a>(headers: &'a [HeaderOption], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter().filter_map(|option| option.header.as_ref());
    headers.find(|header| header.key == name).map(|HeaderValue { value, .. }| &**value)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_a_gateway_apply() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
identity: {account: header(x-account-id)}
status: 429
rules:
  - {name: login, match: {path: /login, method: POST}, by: ip, limit: 1/h}
  - {name: each-account, match: {path: /account}, by: account, limit: 1/h}
  - {name: query, match: {path: /search}, by: query(q), limit: 1/h}
  - {name: cookie, match: {path: /cart}, by: cookie(session), limit: 1/h}
  - {name: host, match: {host: closed.example.com}, limit: 1/h}
  - {name: teapot, match: {path: /tea}, limit: 1/h, status: 418}
",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let cases = [
        (Described::new("POST", "/login"), 200),
        (Described::new("POST", "//login?x=1"), 429),
        (Described::new("GET", "/login"), 200),
        (Described::new("POST", "/login").from("192.0.2.2"), 200),
        // Without trusted proxies, a client can't choose its address.
        (Described::new("POST", "/login").header("x-forwarded-for", "192.0.2.3"), 429),
        (Described::new("GET", "/account").header("x-account-id", "alice"), 200),
        (Described::new("GET", "/account").header("x-account-id", "alice"), 429),
        (Described::new("GET", "/account").header("x-account-id", "bob"), 200),
        (Described::new("GET", "/search?q=a"), 200),
        (Described::new("GET", "/search?q=b"), 200),
        (Described::new("GET", "/search?q=a"), 429),
        (Described::new("GET", "/cart").header("cookie", "a=b; session=1"), 200),
        (Described::new("GET", "/cart").header("cookie", "session=1"), 429),
        (Described::new("GET", "/tea"), 200),
        (Described::new("GET", "/tea"), 418),
        // What the gateway rejects.
        (Described::new("GET", "/a/../b"), 400),
        (Described::new("get", "/"), 400),
    ];
    for (number, (request, expected)) in cases.into_iter().enumerate() {
        assert_eq!(status(&envoy, request).await, expected, "case {number}");
    }
    let count =
        |outcome| diana.metric(&format!("diana_service_requests_total{{service=\"envoy\",outcome=\"{outcome}\"}}"));
    assert_eq!((count("allowed"), count("denied"), count("failed")), (9.0, 8.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_is_found_behind_trusted_proxies() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, trusted_proxies: [192.0.2.0/24]}
rules: [{name: each, by: ip, limit: 1/h, status: 429}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let by = |forwarded: &str| Described::new("GET", "/").header("x-forwarded-for", forwarded);
    assert_eq!(status(&envoy, by("198.51.100.1, 203.0.113.1, 192.0.2.9")).await, 200);
    assert_eq!(status(&envoy, by("203.0.113.1")).await, 429, "the last one that is not trusted");
    assert_eq!(status(&envoy, by("198.51.100.1")).await, 200);
    assert_eq!(status(&envoy, by("198.51.100.1").from("203.0.113.1")).await, 429, "the peer itself is not trusted");
}

/// Envoy forwards them with `upgrade_configs`, and drops some otherwise: the rules can't know, so all such requests share one
/// key.
/// `X-Forwarded-Proto` wins: a client of HTTP/2 chooses the scheme of the attributes.
#[tokio::test(flavor = "multi_thread")]
async fn the_scheme_is_that_of_envoy() {
    let diana = Diana::serve(&format!("services: {{envoy: $LISTEN}}\n{}", scheme::RULES));
    let envoy = Envoy::connect(diana.port()).await;
    let described = |attribute: &str, header: &[&str]| {
        let mut request = Described::new("GET", "/");
        request.http.scheme = attribute.to_owned();
        // The names differ, so that the map has all of them.
        let names = ["x-forwarded-proto", "X-Forwarded-Proto"];
        names.iter().zip(header).fold(request, |request, (name, value)| request.header(name, value))
    };
    for (attribute, header, expected) in [
        ("", &[][..], 200),
        ("http", &[], scheme::HTTP),
        ("https", &[], scheme::HTTPS),
        ("HTTPS", &[], scheme::HTTPS),
        ("ftp", &[], scheme::AMBIGUOUS),
        ("", &["https"], scheme::HTTPS),
        ("https", &["http"], scheme::HTTP),
        ("http", &["https"], scheme::HTTPS),
        ("https", &["https,https"], scheme::AMBIGUOUS),
        ("https", &["https,http"], scheme::AMBIGUOUS),
        ("https", &["https", "https"], scheme::AMBIGUOUS),
        ("https", &["gopher"], scheme::AMBIGUOUS),
    ] {
        let found = status(&envoy, described(attribute, header)).await;
        assert_eq!(found, i32::from(expected), "{attribute} {header:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_connection_names_are_one_key() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
identity: {session: cookie(sid)}
status: 429
rules:
  - {name: each-account, match: {path: /account}, by: header(x-account-id), limit: 2/h}
  - {name: each-session, match: {path: /cart}, by: session, limit: 2/h}
  - {name: banned, match: {path: /plan, header: {x-plan: free}}, limit: 1/h}
",
    );
    let envoy = Envoy::connect(diana.port()).await;
    for (path, name, value) in [("/account", "x-account-id", ""), ("/cart", "cookie", "a=b; sid=")] {
        let upgrade = |key: usize, connection: &str| {
            let request = Described::new("GET", path).header(name, &format!("{value}{key}"));
            request.header("connection", connection).header("upgrade", "websocket")
        };
        let named = format!("upgrade, {name}");
        let mut statuses = Vec::new();
        for key in 0..4 {
            statuses.push(status(&envoy, upgrade(key, &named)).await);
        }
        assert_eq!(statuses, [200, 200, 429, 429], "{path}");
        // A header that is not named is a key.
        assert_eq!(status(&envoy, upgrade(9, "upgrade")).await, 200, "{path}");
    }
    let plan = || Described::new("GET", "/plan").header("x-plan", "paid").header("connection", "upgrade, x-plan");
    assert_eq!((status(&envoy, plan()).await, status(&envoy, plan()).await), (200, 429), "it may be any plan");
}

/// Rules with `missing: skip` don't limit a request without an account.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_connection_names_is_not_absent() {
    let diana = Diana::serve(&format!("services: {{envoy: $LISTEN}}\n{BY_TOKEN}"));
    let envoy = Envoy::connect(diana.port()).await;
    let with = |token: &str, connection: &str| {
        let request = Described::new("GET", "/").header("authorization", &format!("Bearer {token}"));
        request.header("connection", connection)
    };
    let mut statuses = Vec::new();
    for token in [ALICE, BOB, CAROL, "invalid"] {
        statuses.push(status(&envoy, with(token, "upgrade, authorization")).await);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(status(&envoy, with(ALICE, "upgrade")).await, 200, "her own count");
    for _ in 0..3 {
        let absent = Described::new("GET", "/").header("connection", "upgrade, authorization");
        assert_eq!(status(&envoy, absent).await, 200, "a request without a token");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_is_read_from_the_whole_head() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, trusted_proxies: [192.0.2.0/24]}
rules: [{name: banned, by: ip, deny: [203.0.113.7], limit: 100/h, status: 429}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    for connection in ["keep-alive", "upgrade, x-forwarded-for"] {
        let request = Described::new("GET", "/").header("x-forwarded-for", "203.0.113.7");
        assert_eq!(status(&envoy, request.header("connection", connection)).await, 429, "{connection}");
    }
}

/// WSGI, CGI and PHP read both as one header.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_services_read_as_one_of_the_rules_is_denied() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
identity: {account: header(x-account-id)}
rules: [{name: each, by: account, limit: 1/h, status: 429}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let own = |name: &str| Described::new("GET", "/").header("x-account-id", "alice").header(name, "bob");
    for name in ["x_account_id", "x-account_id", "x.account.id"] {
        assert_eq!(status(&envoy, own(name)).await, 400, "{name}");
    }
    assert_eq!(status(&envoy, own("x_request_id")).await, 200, "the rules read no header of such a name");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_the_gateway_apply() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, bounds: {headers: 50, header: 8KiB, body: 10B}}
rules: [{name: each, limit: 1000/s}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let with = |headers: usize, length: usize| {
        let value = "a".repeat(length);
        (0..headers).fold(Described::new("POST", "/"), |request, number| request.header(&format!("x-{number}"), &value))
    };
    // With the host; and more than a map of headers can have.
    for (headers, length, expected) in [(49, 1, 200), (50, 1, 431), (40_000, 0, 431), (1, 7_000, 200), (1, 9_000, 431)]
    {
        assert_eq!(status(&envoy, with(headers, length)).await, expected, "{headers} headers of {length} bytes");
    }
    assert_eq!(status(&envoy, with(1, 2 << 20)).await, 431, "a message that is not read");
    for (length, expected) in [(7_000, 200), (9_000, 431), (70_000, 431)] {
        let path = format!("/{}", "a".repeat(length));
        assert_eq!(status(&envoy, Described::new("GET", &path)).await, expected, "a path of {length} bytes");
    }
    let joined = Described::new("GET", "/").header("x-joined", &",".repeat(900_000));
    assert_eq!(status(&envoy, joined).await, 431);
    for (length, expected) in [("10", 200), ("11", 413)] {
        assert_eq!(status(&envoy, with(0, 0).header("content-length", length)).await, expected, "{length}");
    }
}

/// As for a client of Envoy on a Unix socket: it is counted, as the Envoy that asks.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_the_caller_is_the_client() {
    const RULES: &str = "
services: {envoy: $LISTEN}
rules: [{name: each, by: ip, limit: 1/h, status: 429}]";
    let diana = Diana::serve(RULES);
    let envoy = Envoy::connect(diana.port()).await;
    let by = |forwarded: &str| Described::new("GET", "/").header("x-forwarded-for", forwarded).without_address();
    assert_eq!(status(&envoy, Described::new("GET", "/").without_address()).await, 200);
    assert_eq!(status(&envoy, Described::new("GET", "/").without_address()).await, 429);
    assert_eq!(status(&envoy, by("198.51.100.1")).await, 429, "it is not trusted");
    assert_eq!(status(&envoy, Described::new("GET", "/").from("a pipe")).await, 429);
    assert_eq!(status(&envoy, Described::new("GET", "/").from("127.0.0.1")).await, 429);
    let diana = Diana::serve(&format!("gateway: {{listen: $TLS, trusted_proxies: 127.0.0.1}}{RULES}"));
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(status(&envoy, by("198.51.100.1")).await, 200);
    assert_eq!(status(&envoy, by("198.51.100.2")).await, 200);
    assert_eq!(status(&envoy, by("198.51.100.3, 198.51.100.1")).await, 429);
}

/// Without `encode_raw_headers` Envoy joins repeated headers, and a client could make a new key for each request.
#[tokio::test(flavor = "multi_thread")]
async fn joined_headers_are_one_key() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
identity: {account: header(x-account-id)}
rules:
  - {name: each-account, match: {path: /account}, by: account, limit: 1/h, status: 429}
  - {name: each-program, match: {path: /program}, by: header(user-agent), limit: 1/h, status: 429}
  - {name: each-token, match: {path: /token}, by: header(authorization), limit: 1/h, status: 429}",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let cases = [
        ("/account", "x-account-id", "alice", 200),
        ("/account", "x-account-id", "alice,1", 200),
        ("/account", "x-account-id", "alice,2", 429),
        ("/account", "x-account-id", "carol, 3", 429),
        ("/account", "x-account-id", "bob", 200),
        // One value of these may have a comma.
        ("/program", "user-agent", "One (KHTML, like Gecko)", 200),
        ("/program", "user-agent", "Other (KHTML, like Gecko)", 200),
        ("/program", "user-agent", "Other (KHTML, like Gecko)", 429),
        ("/token", "authorization", "Digest username=\"a\", realm=\"b\"", 200),
        ("/token", "authorization", "Digest username=\"b\", realm=\"b\"", 200),
        ("/token", "authorization", "Bearer a", 200),
        ("/token", "authorization", "Bearer a,Bearer 1", 400),
        ("/token", "authorization", "basic a,Bearer 2", 400),
    ];
    for (path, name, value, expected) in cases {
        let request = Described::new("GET", path).header(name, value);
        assert_eq!(status(&envoy, request).await, expected, "{path}: {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_headers_and_a_body() {
    let diana = Diana::serve("services: {envoy: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h, status: 429}]");
    let envoy = Envoy::connect(diana.port()).await;
    let CheckResponse { ok_response, .. } = envoy.check(Described::new("GET", "/").message()).await.unwrap();
    let headers = ok_response.unwrap().response_headers_to_add;
    assert_eq!(header(&headers, "ratelimit-policy"), Some("\"each\";q=1;w=3600"));
    assert!(header(&headers, "ratelimit").unwrap().starts_with("\"each\";r=0;t="), "{headers:?}");

    let CheckResponse { denied_response, .. } = envoy.check(Described::new("GET", "/").message()).await.unwrap();
    let denied = denied_response.unwrap();
    assert_eq!(header(&denied.headers, "content-type"), Some("application/problem+json"));
    let retry = header(&denied.headers, "retry-after").unwrap().parse::<u32>().unwrap();
    assert!((1..=3_600).contains(&retry), "{retry}");
    assert!(header(&denied.headers, "ratelimit").is_some() && header(&denied.headers, "ratelimit-policy").is_some());
    assert_eq!(header(&denied.headers, "content-length"), None, "Envoy computes it");
    let problem = serde_json::from_str::<serde_json::Value>(&denied.body).unwrap();
    assert_eq!(problem["status"], 429, "{problem}");
}

/// Envoy chooses the upstream, so a rule that reroutes denies.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_gateway_can_do_is_a_denial() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
status: 429
rules:
  - {name: rerouted, match: {path: /a}, limit: 1/h, over: {reroute: 'http://127.0.0.1:1'}}
  - {name: of-descriptors, match: {domain: shop}, limit: 1/h}
  - {name: late, match: {path: /b}, limit: 1/h, algorithm: token_bucket, wait: 5h}
",
    );
    let envoy = Envoy::connect(diana.port()).await;
    for expected in [200, 429] {
        assert_eq!(status(&envoy, Described::new("GET", "/a")).await, expected);
    }
    assert_eq!(status(&envoy, Described::new("GET", "/b")).await, 200);
    let late = envoy.check_within(Described::new("GET", "/b").message(), Duration::from_millis(30)).await;
    assert_eq!(late.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    for _ in 0..3 {
        assert_eq!(
            status(&envoy, Described::new("GET", "/")).await,
            200,
            "a rule for a domain applies to no other request"
        );
    }
}

/// Envoy sends no such message, whatever a client does.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_request_is_an_error() {
    let diana = Diana::serve("services: {envoy: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h, status: 429}]");
    let envoy = Envoy::connect(diana.port()).await;
    let without_http = CheckRequest { attributes: Some(CheckAttributes { source: None, request: None }) };
    for request in [CheckRequest { attributes: None }, without_http] {
        let error = envoy.check(request).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
    }
}

/// After an error, Envoy lets the request pass if `failure_mode_allow` is set.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_request_is_denied_rather_than_an_error() {
    let diana = Diana::serve("services: {envoy: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h, status: 429}]");
    let envoy = Envoy::connect(diana.port()).await;
    let get = |path: &str| Described::new("GET", path);
    for (what, request) in [
        ("method", Described::new("not a method", "/")),
        ("path", get("no path at all")),
        ("path", get("/login?<")),
        ("path", get("/login<")),
        ("path", get("")),
        ("path", get("login")),
        ("path", get("&:")),
        ("header", get("/").header("bad name", "a")),
        ("header", get("/").header("name", "bad\nvalue")),
    ] {
        let path = request.http.path.chars().take(20).collect::<String>();
        let response = envoy.check(request.message()).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let denied = response.denied_response.unwrap_or_else(|| panic!("{path} is allowed"));
        assert_eq!(denied.status.unwrap().code, 400, "{path}");
        assert!(denied.body.contains(&format!("invalid {what}")), "{path}: {}", denied.body);
    }
    let count =
        |outcome| diana.metric(&format!("diana_service_requests_total{{service=\"envoy\",outcome=\"{outcome}\"}}"));
    assert_eq!((count("denied"), count("failed")), (9.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_grpc_call_has_the_status_of_the_rule_and_a_grpc_status() {
    let diana = Diana::serve("services: {envoy: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h, status: 429}]");
    let envoy = Envoy::connect(diana.port()).await;
    let call = || Described::new("POST", "/shop.Orders/Add").header("content-type", "application/grpc");
    assert_eq!(status(&envoy, call()).await, 200);
    let denied = envoy.check(call().message()).await.unwrap().denied_response.unwrap();
    assert_eq!(denied.status.unwrap().code, 429, "200 would be that of an allowed request");
    assert_eq!(header(&denied.headers, "grpc-status"), Some("8"));
    assert!(header(&denied.headers, "retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_check_fails_if_the_file_says_deny() {
    let mut redis = RedisServer::start().unwrap();
    let diana = Diana::serve(&format!(
        "
services: {{envoy: $LISTEN}}
store: {{redis: '{}', timeout: 10s, when_down: deny}}
rules: [{{name: each, by: ip, limit: 1/day, status: 429}}]",
        redis.url()
    ));
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(status(&envoy, Described::new("GET", "/")).await, 200);
    assert_eq!(status(&envoy, Described::new("GET", "/")).await, 429);
    redis.kill().unwrap();
    let error = envoy.check(Described::new("GET", "/").from("192.0.2.7").message()).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
}
