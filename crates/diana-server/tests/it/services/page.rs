//! The pages about Envoy, and the reference of the services, are correct: every configuration on them is run with the real
//! gateway, except for addresses, and for limits that also slow machines reach.
//!
//! The info string of a block names its kind: `yaml` is a whole rule file, `yaml envoy` the whole configuration of an
//! Envoy, `yaml istio` an `EnvoyFilter`.

use super::client::{Envoy, descriptor};
use crate::support::client::{Client, ClientResponse};
use crate::support::http2::{certificate, connect, full, get, http1_over, request, tls};
use crate::support::json_of;
use crate::support::program::{Diana, LONG};
use crate::support::scheme;
use crate::support::upstream::Upstream;
use diana_rules::Document;
use diana_testing::{EnvoyServer, Port, wait_until};
use serde_json::json;
use std::net::Ipv6Addr;
use tempfile::TempDir;
use tokio::net::TcpStream;

const PAGES: [&str; 4] = [
    include_str!("../../../../../docs/tasks/envoy.md"),
    include_str!("../../../../../docs/tasks/envoy-costs.md"),
    include_str!("../../../../../docs/tasks/istio.md"),
    include_str!("../../../../../docs/reference/services.md"),
];

/// Returns the first block with exactly this info string on the page, or in the section, with this title.
pub(super) fn block(title: &str, info: &str) -> &'static str {
    let of_page = |page: &'static str| page.strip_prefix(&format!("# {title}\n"));
    let of_section = |page: &'static str| {
        let (_, rest) = page.split_once(&format!("\n## {title}\n"))?;
        rest.split("\n## ").next()
    };
    let text = PAGES.into_iter().find_map(|page| of_page(page).or_else(|| of_section(page)));
    let text = text.unwrap_or_else(|| panic!("no section {title}"));
    let rest = text.split(&format!("\n```{info}\n")).nth(1).unwrap_or_else(|| panic!("{title} has no {info}"));
    rest.split("```").next().unwrap()
}

/// Replaces texts that must be there.
pub(super) fn replaced(text: &str, pairs: &[(&str, String)]) -> String {
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "no {from} in\n{text}");
        text.replace(from, to)
    })
}

/// A section's Diana and Envoy, in front of a service.
pub(super) struct Setup {
    pub(super) envoy: EnvoyServer,
    pub(super) upstream: Upstream,
    diana: Option<Diana>,
}

impl Setup {
    /// Runs the files of a section, with other limits.
    pub(super) fn run(section: &str, limits: &[(&str, &str)], upstream: Upstream) -> Self {
        Self::run_with(section, limits, upstream, "", block(section, "yaml envoy"))
    }

    pub(super) fn run_with(
        section: &str,
        limits: &[(&str, &str)],
        upstream: Upstream,
        more: &str,
        config: &str,
    ) -> Self {
        let limits = limits.iter().map(|(from, to)| (*from, (*to).to_owned()));
        let pairs = limits.chain([("127.0.0.1:8081", "$LISTEN".to_owned())]).collect::<Vec<_>>();
        let diana = Diana::serve(&format!("{more}{}", replaced(block(section, "yaml"), &pairs)));
        let envoy = EnvoyServer::start(|port| {
            let port_value = |port: u16| format!("port_value: {port}}}");
            // A busy machine may need longer.
            let pairs = [
                ("port_value: 10000}", port_value(port)),
                ("port_value: 3000}", port_value(upstream.port())),
                ("port_value: 8081}", port_value(diana.port())),
                ("timeout: 0.25s", "timeout: 20s".to_owned()),
            ];
            replaced(config, &pairs)
        });
        Self { envoy: envoy.unwrap(), upstream, diana: Some(diana) }
    }

    fn send(&self, from: [u8; 4], request: &str) -> ClientResponse {
        Client::connect_from(from, self.envoy.port()).send(request).response()
    }

    /// Sends a GET with more headers, each with its line end.
    pub(super) fn get(&self, path: &str, headers: &str) -> ClientResponse {
        self.send([127, 0, 0, 1], &format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n{headers}\r\n"))
    }

    pub(super) fn statuses<const N: usize>(&self, path: &str, headers: &str) -> [u16; N] {
        [(); N].map(|()| self.get(path, headers).status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_services_of_the_reference_listen() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "http", &["localhost"]);
    let [other, http] = [(); 2].map(|()| Port::claim().unwrap());
    let pairs = [
        ("127.0.0.1:8081", "$LISTEN".to_owned()),
        ("[::1]:8081", format!("[::1]:{}", other.number())),
        ("0.0.0.0:8082", format!("0.0.0.0:{}", http.number())),
        ("/etc/diana/", "$FOLDER/".to_owned()),
    ];
    let diana = Diana::serve_in(folder, &replaced(block("`services`", "yaml"), &pairs));
    let on_ipv6 = TcpStream::connect((Ipv6Addr::LOCALHOST, other.number())).await.unwrap();
    for envoy in [Envoy::connect(diana.port()).await, Envoy::over(on_ipv6).await] {
        let response = envoy.ask(descriptor(&[("k", "a")])).await;
        assert_eq!(response.statuses[0].current_limit.as_ref().unwrap().name, "everyone");
    }
    let trusted = diana.folder().join("http.pem");
    let stream = tls(http.number(), &[&trusted], "localhost", &["http/1.1"]).await.unwrap();
    let check = request("GET", "/check").header("host", "diana").header("x-forwarded-uri", "/").body(full("")).unwrap();
    assert_eq!(http1_over(stream).await.send_request(check).await.unwrap().status(), 204);
}

pub(super) const RATE_LIMIT: &str = "Envoy's rate limit service";
pub(super) const SMALL: [(&str, &str); 3] =
    [("limit: 1000/min", "limit: 7/day"), ("limit: 100/min", "limit: 2/day"), ("limit: 50/s", "limit: 1/day")];

#[test]
fn the_rate_limit_service_works() {
    let setup = Setup::run(RATE_LIMIT, &SMALL, Upstream::echo());
    assert_eq!(setup.statuses("/", "x-api-key: a\r\n"), [200, 200, 429]);
    assert_eq!(setup.statuses("/", "x-api-key: b\r\n"), [200]);
    assert_eq!(setup.statuses("/checkout", ""), [200, 429]);
    // Four of seven; denied requests took nothing.
    assert_eq!(setup.statuses("/", ""), [200, 200, 200, 429]);
    let denied = setup.get("/", "");
    assert!(denied.header("retry-after").is_some() && denied.header("ratelimit").is_some(), "{denied:?}");
    assert_eq!(setup.upstream.count(), 7);
    // Its health check is answered.
    let healthy = || {
        let clusters = Client::connect(setup.envoy.admin_port()).get("/clusters").text();
        let stats = Client::connect(setup.envoy.admin_port()).get("/stats?filter=cluster.diana.health_check").text();
        let is_healthy =
            clusters.lines().any(|line| line.starts_with("diana::") && line.ends_with("health_flags::healthy"));
        (is_healthy && !stats.contains("health_check.success: 0")).then_some(())
    };
    wait_until("a health check", LONG, healthy).unwrap();
}

/// If Diana answered with an error, these would pass: Envoy accepts headers of 60 KiB.
#[test]
fn a_long_header_does_not_evade_the_rate_limit_service() {
    let setup = Setup::run(RATE_LIMIT, &SMALL, Upstream::echo());
    for end in ["a", "b"] {
        let key = format!("x-api-key: {}{end}\r\n", "k".repeat(17 << 10));
        assert_eq!(setup.statuses("/", &key), [200, 200, 429]);
    }
    let keys = (0..4).map(|number| format!("x-api-key: {}{number}\r\n", "k".repeat(50 << 10)));
    let statuses = keys.map(|key| setup.get("/", &key).status).collect::<Vec<_>>();
    assert_eq!(statuses, [200, 200, 200, 429], "each address has seven requests");
}

#[test]
fn without_the_rate_limit_service_requests_pass() {
    let mut setup = Setup::run(RATE_LIMIT, &SMALL, Upstream::echo());
    assert_eq!(setup.statuses("/checkout", ""), [200, 429]);
    drop(setup.diana.take());
    assert_eq!(setup.statuses("/checkout", ""), [200, 200]);
}

/// The keys that sign the tokens below, and tokens of these users from `https://login.example.com`.
const JWKS: &str =
    r#"{"keys": [{"kty": "oct", "alg": "HS256", "k": "YSBzZWNyZXQgZm9yIHRlc3RzLCB3aGljaCBub2JvZHkgZWxzZSBoYXM"}]}"#;
pub(super) const ALICE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJhbGljZSIsImlzcyI6Imh0dHBzOi8vbG9naW4uZXhhbXBsZS5jb20ifQ.\
    4rh1BLwfnnI8j8v-g93N3y36Piqd-gBQTMDNBHwerzE";
pub(super) const BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJib2IiLCJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIn0.\
    aXu76eb9H3jkIASM9UARBTfrCK_gKEZSC9Lh56SLQt0";
pub(super) const CAROL: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJjYXJvbCIsImlzcyI6Imh0dHBzOi8vbG9naW4uZXhhbXBsZS5jb20ifQ.\
    lfpNR_ajl4F9bHJpFE1hrSsNxVqSZImkmufV9eCM_hM";
/// Rules that count each user of these tokens; a request without one is not counted.
pub(super) const BY_TOKEN: &str = "
identity: {account: jwt(sub), jwt: {secret: 'a secret for tests, which nobody else has'}}
rules: [{name: each-account, by: account, limit: 2/h, status: 429}]
";

#[test]
fn costs_known_afterwards_are_charged_to_the_user_of_a_verified_token() {
    let section = "Costs known afterwards, with Envoy";
    let upstream = Upstream::start(|exchange| {
        exchange.body()?;
        let used = exchange.request.header("x-will-use").map(|used| format!("x-tokens-used: {used}\r\n"));
        exchange.respond("200 OK", &used.unwrap_or_default(), b"a poem")
    });
    let folder = TempDir::new().unwrap();
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, JWKS).unwrap();
    let envoy = replaced(block(section, "yaml envoy"), &[("/etc/envoy/jwks.json", jwks.display().to_string())]);
    let changes = [("limit: 100000/day", "limit: 1000/day"), ("/var/lib/diana/counts", "$FOLDER/counts")];
    let mut setup = Setup::run_with(section, &changes, upstream, "", &envoy);
    let charged = |setup: &Setup| {
        setup.diana.as_ref().unwrap().metric("diana_decisions_total{rule=\"tokens-used\",outcome=\"allowed\"}")
    };
    let ask = |setup: &Setup, token: &str, tokens: u32| {
        setup.get("/", &format!("authorization: Bearer {token}\r\nx-will-use: {tokens}\r\n")).status
    };
    // Any cost is accepted while the limit is not exceeded, and arrives after the response.
    for (number, tokens) in [(1.0, 400), (2.0, 600), (3.0, 5_000)] {
        assert_eq!(ask(&setup, ALICE, tokens), 200);
        wait_until("the cost to arrive", LONG, || (charged(&setup) == number).then_some(())).unwrap();
    }
    assert_eq!(ask(&setup, ALICE, 1), 429);
    assert_eq!(ask(&setup, BOB, 1), 200);
    // Nobody spends the tokens of another user, or has a fresh limit by another name.
    assert_eq!(ask(&setup, &format!("{ALICE}\r\nx-user: dave"), 1), 429);
    assert_eq!(ask(&setup, BOB.trim_end_matches('0'), 1), 401);
    assert_eq!(setup.get("/", "x-user: bob\r\n").status, 401);
    let peek = setup.diana.as_ref().unwrap().admin("/peek?rule=tokens&key=alice").text();
    assert!(peek.contains("\"remaining\":0"), "{peek}");
    // A response without the header costs nothing.
    assert_eq!(setup.get("/", &format!("authorization: Bearer {CAROL}\r\n")).status, 200);
    assert_eq!(ask(&setup, CAROL, 1), 200);
    wait_until("the cost to arrive", LONG, || (charged(&setup) == 5.0).then_some(())).unwrap();
    // Without an answer, requests are denied.
    drop(setup.diana.take());
    assert_eq!(ask(&setup, BOB, 1), 500);
}

pub(super) const EXT_AUTHZ: &str = "Envoy's external authorization";
pub(super) const FEW: [(&str, &str); 2] = [("limit: 5/min", "limit: 1/day"), ("limit: 100/s", "limit: 2/day")];

#[test]
fn the_external_authorization_works() {
    let mut setup = Setup::run(EXT_AUTHZ, &FEW, Upstream::echo());
    let login = "POST /login HTTP/1.1\r\nhost: example.com\r\ncontent-length: 2\r\n\r\nhi";
    for client in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let allowed = setup.send(client, login);
        assert_eq!((allowed.status, allowed.header("ratelimit-policy")), (200, Some("\"login\";q=1;w=86400")));
        let denied = setup.send(client, login);
        assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
        let retry = denied.header("retry-after").unwrap().parse::<u32>().unwrap();
        assert!((1..=86_400).contains(&retry), "{retry}");
        assert!(denied.header("ratelimit").unwrap().starts_with("\"login\";r=0;t="), "{denied:?}");
        let problem = serde_json::from_slice::<serde_json::Value>(&denied.body).unwrap();
        assert_eq!(problem["status"], 429, "{problem}");
        for name in ["content-type", "content-length", "retry-after", "ratelimit"] {
            assert_eq!(denied.headers.iter().filter(|(known, _)| known == name).count(), 1, "{name}: {denied:?}");
        }
    }
    assert_eq!(setup.statuses("/", "x-account-id: alice\r\n"), [200, 200, 429]);
    assert_eq!(setup.statuses("/", "x-account-id: bob\r\n"), [200]);
    // Neither an address of the client's choice nor two accounts evade the limits.
    let forged = login.replace("content-length", "x-forwarded-for: 192.0.2.1\r\ncontent-length");
    assert_eq!(setup.send([127, 0, 0, 1], &forged).status, 429);
    let two = setup.statuses::<3>("/", "x-account-id: alice\r\nx-account-id: carol\r\n");
    assert_eq!(two, [200, 200, 429], "both are one key");
    assert_eq!(setup.upstream.count(), 7, "denied requests reach no service");
    drop(setup.diana.take());
    assert_eq!(setup.statuses("/", "x-account-id: alice\r\n"), [200], "without an answer, requests pass");
}

/// If Diana answered with an error, these would pass: Envoy accepts characters that are not valid in a URI.
#[test]
fn no_request_target_evades_the_external_authorization() {
    let setup = Setup::run(EXT_AUTHZ, &FEW, Upstream::echo());
    let login = |target: &str| {
        let request = format!("POST {target} HTTP/1.1\r\nhost: example.com\r\ncontent-length: 0\r\n\r\n");
        setup.send([127, 0, 0, 1], &request).status
    };
    assert_eq!(login("/login"), 200);
    for character in ('!'..='~').filter(|character| *character != '#') {
        for target in [format!("/login?{character}"), format!("/login?a={character}b"), format!("/login{character}")] {
            let allowed = setup.upstream.count();
            let status = login(&target);
            let is_other = target.starts_with("/login") && !target.starts_with("/login?") && status == 200;
            assert!(is_other || [400, 429].contains(&status), "{target}: {status}");
            assert_eq!(setup.upstream.count() - allowed, usize::from(is_other), "{target}");
        }
    }
    for target in ["/login<", "/login>", "/login?<", "/login?\"", "/login?>"] {
        assert_eq!(login(target), 400, "{target}");
    }
}

/// A client of gRPC gets the status of gRPC that Diana's gateway would send.
#[test]
fn a_denied_grpc_call_gets_a_grpc_status() {
    let setup = Setup::run(EXT_AUTHZ, &FEW, Upstream::echo());
    let call = |content_type: &str| {
        let head = "POST /login HTTP/1.1\r\nhost: example.com\r\ncontent-length: 0\r\nte: trailers\r\ncontent-type: ";
        setup.send([127, 0, 0, 1], &format!("{head}{content_type}\r\n\r\n"))
    };
    assert_eq!(call("application/grpc").header("grpc-status"), None, "that of the service, which has none");
    let denied = call("application/grpc");
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("8")), "{denied:?}");
    assert!(denied.header("grpc-message").unwrap().starts_with("too many requests"), "{denied:?}");
    assert!(denied.header("retry-after").is_some() && denied.header("content-type") == Some("application/grpc"));
    // Envoy treats other types as ordinary requests.
    let denied = call("application/grpc-web");
    assert_eq!((denied.status, denied.header("grpc-status")), (429, Some("8")), "{denied:?}");
}

/// Without the option that the page tells to keep, Envoy joins repeated headers.
#[test]
fn repeated_headers_are_one_key_without_raw_headers() {
    let raw = "              encode_raw_headers: true        # repeated headers as they were sent\n";
    let config = replaced(block(EXT_AUTHZ, "yaml envoy"), &[(raw, String::new())]);
    let setup = Setup::run_with(EXT_AUTHZ, &FEW, Upstream::echo(), "", &config);
    let status = |second: &str| setup.get("/", &format!("x-account-id: alice\r\nx-account-id: {second}\r\n")).status;
    assert_eq!(["1", "2", "3", "4"].map(status), [200, 200, 429, 429]);
    assert_eq!(setup.statuses("/", "x-account-id: alice\r\n"), [200, 200, 429]);
}

#[test]
fn the_external_authorization_trusts_proxies_of_the_file() {
    let gateway = "gateway: {listen: $TLS, trusted_proxies: 127.0.0.0/8}\n";
    // Envoy would append its own address for a client on the same machine.
    let skip = ("use_remote_address: true", "use_remote_address: true\n          skip_xff_append: true".to_owned());
    let config = replaced(block(EXT_AUTHZ, "yaml envoy"), &[skip]);
    let setup = Setup::run_with(EXT_AUTHZ, &FEW, Upstream::echo(), gateway, &config);
    let login = |clients: &str| {
        let head = "POST /login HTTP/1.1\r\nhost: example.com\r\ncontent-length: 0\r\nx-forwarded-for: ";
        setup.send([127, 0, 0, 1], &format!("{head}{clients}\r\n\r\n")).status
    };
    assert_eq!(login("198.51.100.1"), 200);
    assert_eq!(login("198.51.100.1"), 429);
    assert_eq!(login("198.51.100.2"), 200);
    assert_eq!(login("198.51.100.3, 198.51.100.1"), 429, "the last one that is not trusted");
}

/// A client of HTTP/2 chooses the `:scheme`, which is the scheme of the attributes; but not `X-Forwarded-Proto`.
#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_choose_the_scheme_of_the_external_authorization() {
    let rules = block(EXT_AUTHZ, "yaml");
    let login = rules.split("  - name: login").next().unwrap();
    let denied = scheme::RULES.trim_start().trim_start_matches("rules:\n");
    let rules = login.replace("127.0.0.1:8081", "$LISTEN") + denied;
    let (diana, upstream) = (Diana::serve(&rules), Upstream::echo());
    let envoy = EnvoyServer::start(|port| {
        let port_value = |port: u16| format!("port_value: {port}}}");
        let pairs = [
            ("port_value: 10000}", port_value(port)),
            ("port_value: 3000}", port_value(upstream.port())),
            ("port_value: 8081}", port_value(diana.port())),
            ("timeout: 0.25s", "timeout: 20s".to_owned()),
        ];
        replaced(block(EXT_AUTHZ, "yaml envoy"), &pairs)
    });
    let envoy = envoy.unwrap();
    let mut sender = connect(envoy.port()).await;
    for target in ["http://example.com/", "https://example.com/"] {
        assert_eq!(get(&mut sender, target).await.status(), scheme::HTTP, "{target}");
    }
    for forged in ["", "x-forwarded-proto: https\r\n"] {
        let head = format!("GET / HTTP/1.1\r\nhost: example.com\r\n{forged}\r\n");
        assert_eq!(Client::connect(envoy.port()).send(head).response().status, scheme::HTTP, "{forged}");
    }
    assert_eq!(upstream.count(), 0);
}

/// The patches are applied to an Envoy as Istio applies them.
#[test]
fn the_envoy_filter_of_istio_works() {
    let filter = json_of(&Document::new("istio.yaml", block("Limits in Istio", "yaml istio")).parse().unwrap());
    let mut http_filters = vec![json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    })];
    let address = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": address(3_000)}}]}]);
    let load_assignment = json!({"cluster_name": "service", "endpoints": endpoints});
    let mut clusters = vec![json!({"name": "service", "type": "STATIC", "load_assignment": load_assignment})];
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "service"}}]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    for patch in filter["spec"]["configPatches"].as_array().unwrap() {
        let value = patch["patch"]["value"].clone();
        match (patch["applyTo"].as_str().unwrap(), patch["patch"]["operation"].as_str().unwrap()) {
            ("HTTP_FILTER", "INSERT_BEFORE") => http_filters.insert(0, value),
            ("CLUSTER", "ADD") => clusters.push(value),
            ("VIRTUAL_HOST", "MERGE") => host.as_object_mut().unwrap().extend(value.as_object().unwrap().clone()),
            other => panic!("{other:?}"),
        }
    }
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "use_remote_address": true,
        "route_config": {"virtual_hosts": [host]},
        "http_filters": http_filters,
    });
    let filters = json!([{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]);
    let listener = json!({"name": "in", "address": address(10_000), "filter_chains": [{"filters": filters}]});
    let config = json!({"static_resources": {"listeners": [listener], "clusters": clusters}}).to_string();
    // As in the files of the page.
    let config = config.replace("\"port_value\":", "\"port_value\": ").replace("\"port_value\"", "port_value");
    let config = config.replace("\"timeout\":\"0.25s\"", "timeout: 0.25s");
    let config = replaced(&config, &[("diana.default.svc.cluster.local", "127.0.0.1".to_owned())]);
    let setup = Setup::run_with(RATE_LIMIT, &SMALL, Upstream::echo(), "", &config);
    assert_eq!(setup.statuses("/", "x-api-key: a\r\n"), [200, 200, 429]);
    assert_eq!(setup.statuses("/", ""), [200, 200, 200, 200, 200, 429]);
}
