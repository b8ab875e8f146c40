//! The configurations for nginx, Traefik and Caddy of the pages work with the real programs, and clients
//! can't evade their limits by headers.

use crate::support::block;
use crate::support::client::{Client, ClientResponse};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use diana_testing::{CaddyServer, NginxServer, TraefikServer};
use tempfile::TempDir;

const PAGE: &str = concat!(
    include_str!("../../../../../docs/reference/http-check.md"),
    include_str!("../../../../../docs/tasks/nginx.md"),
    include_str!("../../../../../docs/tasks/traefik-and-caddy.md"),
);

/// Replaces a text that must be on the page.
pub(super) fn replace(config: &str, from: &str, to: &str) -> String {
    assert!(config.contains(from), "no {from:?} in\n{config}");
    config.replace(from, to)
}

/// Returns a configuration of the page, with the addresses of these servers.
fn config(section: &str, info: &str, diana: &Diana, upstream: &Upstream) -> String {
    let config = replace(block(PAGE, section, info), "127.0.0.1:8082", &format!("127.0.0.1:{}", diana.port()));
    replace(&config, "127.0.0.1:3000", &format!("127.0.0.1:{}", upstream.port()))
}

/// Serves the file of the page, with a limit that also slow machines reach.
pub(super) fn diana() -> Diana {
    let rules = replace(block(PAGE, "## What nginx, Traefik and Caddy get", "yaml"), "limit: 100/s", "limit: 2/h");
    Diana::serve(&replace(&rules, "127.0.0.1:8082", "$LISTEN"))
}

/// Runs the main file of the page, which includes the other one.
fn nginx(diana: &Diana, upstream: &Upstream) -> NginxServer {
    nginx_of(str::to_owned, diana, upstream)
}

/// The same, with a change to the file with the servers.
pub(super) fn nginx_of(change: impl FnOnce(&str) -> String, diana: &Diana, upstream: &Upstream) -> NginxServer {
    let servers = change(&config("# Ask Diana from nginx", "nginx", diana, upstream));
    let folder = TempDir::new().unwrap();
    let included = folder.path().join("diana.conf");
    let file = |port: u16| {
        let servers = replace(&servers, "listen 80;", &format!("listen 127.0.0.1:{port};"));
        std::fs::write(&included, servers).unwrap();
        let main = block(PAGE, "# Ask Diana from nginx", "nginx nginx.conf");
        replace(main, "/etc/nginx/diana.conf", &included.display().to_string())
    };
    NginxServer::start_file(file).unwrap()
}

fn traefik(diana: &Diana, upstream: &Upstream) -> TraefikServer {
    traefik_of("\n## Traefik", str::to_owned, diana, upstream)
}

/// Runs the static and the dynamic file of a section, the static one with a change.
pub(super) fn traefik_of(
    section: &str,
    change: impl FnOnce(&str) -> String,
    diana: &Diana,
    upstream: &Upstream,
) -> TraefikServer {
    let file = change(block(PAGE, section, "yaml traefik.yaml"));
    // The file of the page is in a folder, beside a route by which the test sees that both are loaded.
    let file = replace(&file, "filename: /etc/traefik/dynamic.yaml", "directory: dynamic");
    let dynamic = config(section, "yaml traefik", diana, upstream);
    let file = |port: u16| replace(&file, "address: :80", &format!("address: 127.0.0.1:{port}"));
    TraefikServer::start_file(file, &dynamic).unwrap()
}

fn caddy(diana: &Diana, upstream: &Upstream) -> CaddyServer {
    caddy_with("", diana, upstream)
}

/// The same, with more global options.
pub(super) fn caddy_with(options: &str, diana: &Diana, upstream: &Upstream) -> CaddyServer {
    let config = config("\n## Caddy", "caddy", diana, upstream);
    CaddyServer::start_with(options, |port| replace(&config, ":80 {", &format!(":{port} {{"))).unwrap()
}

/// Returns the three cells of a row of the page after the first one.
pub(super) fn row(first: &str) -> [&'static str; 3] {
    let row = PAGE.lines().find(|line| line.starts_with(&format!("| {first}"))).unwrap();
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    [cells[1], cells[2], cells[3]]
}

/// Sends a request from this address.
fn send(port: u16, from: u8, request: &str) -> ClientResponse {
    Client::connect_from([127, 0, 0, from], port).send(request).response()
}

/// Whether clients get the `RateLimit` fields with allowed responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fields {
    Passed,
    Dropped,
}

/// Asserts that each client gets two responses of the service, and then 429.
#[track_caller]
fn assert_limits(port: u16, upstream: &Upstream, fields: Fields) {
    let post = "POST /orders?dry=1 HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 2\r\n\r\nhi";
    for (number, from) in [1, 2].into_iter().enumerate() {
        for remaining in ["r=1;", "r=0;"] {
            let allowed = send(port, from, post);
            assert_eq!(allowed.status, 200, "{}", allowed.text());
            assert_eq!((upstream.last().target(), &*upstream.last().body), ("/orders?dry=1", &b"hi"[..]));
            let expected = (fields == Fields::Passed).then_some(remaining);
            assert_eq!(allowed.header("ratelimit").is_some(), expected.is_some(), "{allowed:?}");
            if let Some(remaining) = expected {
                assert!(allowed.header("ratelimit").unwrap().contains(remaining), "{allowed:?}");
                assert_eq!(allowed.header("ratelimit-policy"), Some("\"each-client\";q=2;w=3600"));
            }
            assert_eq!(allowed.header("retry-after"), None);
        }
        for _ in 0..3 {
            let denied = send(port, from, post);
            assert_eq!(denied.status, 429, "{}", denied.text());
            let retry = denied.header("retry-after").unwrap().parse::<u32>().unwrap();
            assert!((1..=3_600).contains(&retry), "{retry}");
            assert!(denied.header("ratelimit").unwrap().contains("r=0;"), "{denied:?}");
            assert_eq!(denied.header("ratelimit-policy"), Some("\"each-client\";q=2;w=3600"));
            assert_eq!(denied.header("content-type"), Some("application/problem+json"));
            let problem: serde_json::Value = serde_json::from_slice(&denied.body).unwrap();
            assert_eq!(problem["status"], 429);
        }
        assert_eq!(upstream.count(), 2 * (number + 1), "denied requests must not reach the service");
    }
}

/// Rows of the page.
const INVALID: &str = "a path with `%01`";
const UNREACHABLE: &str = "Diana is unreachable";

/// Asserts that neither an invalid request nor one without Diana reaches the service, and that the page has the statuses.
#[track_caller]
fn assert_rejects_and_fails_closed(port: u16, mut diana: Diana, upstream: &Upstream, documented: [&str; 2]) {
    let before = upstream.count();
    let status = |path: &str| send(port, 3, &format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n")).status;
    let invalid = status("/a%01");
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
    assert_eq!([invalid, status("/")].map(|status| status.to_string()), documented);
    assert_eq!(upstream.count(), before);
}

#[test]
fn the_nginx_example_limits() {
    let (diana, upstream) = (diana(), Upstream::echo());
    let nginx = nginx(&diana, &upstream);
    assert_limits(nginx.port(), &upstream, Fields::Passed);
    assert_eq!(send(nginx.port(), 3, "GET /diana HTTP/1.1\r\nhost: a\r\n\r\n").status, 404);
    assert_rejects_and_fails_closed(nginx.port(), diana, &upstream, [INVALID, UNREACHABLE].map(|first| row(first)[0]));
}

#[test]
fn the_traefik_example_limits() {
    let (diana, upstream) = (diana(), Upstream::echo());
    let traefik = traefik(&diana, &upstream);
    assert_limits(traefik.port(), &upstream, Fields::Dropped);
    assert_rejects_and_fails_closed(
        traefik.port(),
        diana,
        &upstream,
        [INVALID, UNREACHABLE].map(|first| row(first)[1]),
    );
}

#[test]
fn the_caddy_example_limits() {
    let (diana, upstream) = (diana(), Upstream::echo());
    let caddy = caddy(&diana, &upstream);
    assert_limits(caddy.port(), &upstream, Fields::Passed);
    assert_rejects_and_fails_closed(caddy.port(), diana, &upstream, [INVALID, UNREACHABLE].map(|first| row(first)[2]));
}

/// Asserts that many concurrent clients get exactly what the limit allows, and no errors.
#[track_caller]
fn assert_exact_under_load(port: u16) {
    let each = |_| {
        std::thread::spawn(move || {
            let mut client = Client::connect(port);
            (0..50).map(|_| client.get("/").status).collect::<Vec<_>>()
        })
    };
    let clients: Vec<_> = (0..8).map(each).collect();
    let statuses: Vec<u16> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let of = |status: u16| statuses.iter().filter(|known| **known == status).count();
    assert_eq!((of(200), of(429)), (150, 250), "{statuses:?}");
}

#[test]
fn concurrent_clients_get_exactly_the_limit() {
    let rules = "services: {http: $LISTEN}\nrules: [{name: all, limit: {rate: 1/day, burst: 150}, status: 429}]\n";
    let upstream = Upstream::echo();
    let diana = Diana::serve(rules);
    assert_exact_under_load(nginx(&diana, &upstream).port());
    let diana = Diana::serve(rules);
    assert_exact_under_load(traefik(&diana, &upstream).port());
    let diana = Diana::serve(rules);
    assert_exact_under_load(caddy(&diana, &upstream).port());
}

/// The rules for [`assert_not_evaded`].
const LOGIN: &str = "
services: {http: $LISTEN}
gateway: {listen: $TLS, trusted_proxies: [127.0.0.1]}
rules:
  - name: login
    match: {path: /login, method: POST, host: shop.example}
    by: ip
    limit: 1/h
    status: 429
";

/// How clients reach a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    /// From their own addresses.
    Nothing,
    /// By a load balancer, which passes on all that they send and adds their addresses.
    LoadBalancer,
}

impl Via {
    /// The address of a client.
    fn address(self, client: u8) -> String {
        match self {
            Self::Nothing => format!("127.0.0.{client}"),
            Self::LoadBalancer => format!("203.0.113.{client}"),
        }
    }

    /// Sends a request of a client, and returns the status of the response.
    fn status(self, port: u16, client: u8, line: &str, headers: &str) -> u16 {
        let head = format!("{line} HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n{headers}");
        match self {
            Self::Nothing => send(port, client, &format!("{head}\r\n")).status,
            Self::LoadBalancer => {
                let forwarded = format!("x-forwarded-for: {}\r\n", self.address(client));
                send(port, 1, &format!("{head}{forwarded}\r\n")).status
            }
        }
    }
}

/// Asserts that no header of a client changes who or what is counted.
#[track_caller]
fn assert_not_evaded(port: u16, via: Via) {
    let login = |client, headers: &str| via.status(port, client, "POST /login", headers);
    assert_eq!(login(11, ""), 200);
    for forged in [
        "x-forwarded-uri: /free\r\n",
        "x-forwarded-uri: /free\r\nx-forwarded-uri: /other\r\n",
        "x-forwarded-uri: /x/../y\r\n",
        "x-forwarded-method: GET\r\n",
        "x-forwarded-host: free.example\r\n",
        "x-forwarded-for: 192.0.2.1\r\n",
        "x-forwarded-for: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2, 192.0.2.3\r\n",
        "x-forwarded-for: nobody\r\n",
        "x-original-uri: /free\r\nx-original-url: /free\r\nx-rewrite-url: /free\r\nx-forwarded-path: /free\r\n",
        "x-original-method: GET\r\nx-http-method-override: GET\r\n",
        "x-real-ip: 192.0.2.1\r\n",
        "forwarded: for=192.0.2.1;host=free.example\r\n",
        "connection: x-forwarded-for, x-forwarded-uri, x-forwarded-method, x-forwarded-host\r\n",
        "content-type: application/grpc\r\n",
    ] {
        // A load balancer does not pass on `Connection`.
        if via == Via::Nothing || !forged.starts_with("connection") {
            assert_eq!(login(11, forged), 429, "{forged}");
        }
    }
    for target in ["/login?status=204&uri=/free", "/%6Cogin", "//login", "/login/"] {
        assert_eq!(via.status(port, 11, &format!("POST {target}"), ""), 429, "{target}");
    }
    // Nor is another client charged, or another request counted.
    let other = via.address(9);
    let forged = ["x-forwarded-for: ", "x-real-ip: ", "forwarded: for="].map(|name| format!("{name}{other}\r\n"));
    for (forged, client) in forged.iter().zip(2..) {
        assert_eq!([login(client, forged), login(client, forged)], [200, 429], "{forged}");
    }
    assert_eq!(login(9, ""), 200);
    let forged = "x-forwarded-uri: /login\r\nx-original-uri: /login\r\nx-forwarded-method: POST\r\n";
    assert_eq!(via.status(port, 10, "GET /free", forged), 200);
    assert_eq!(login(10, ""), 200);
}

#[test]
fn clients_cannot_evade_limits_behind_nginx() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(nginx(&diana, &upstream).port(), Via::Nothing);
}

#[test]
fn clients_cannot_evade_limits_behind_traefik() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(traefik(&diana, &upstream).port(), Via::Nothing);
}

#[test]
fn clients_cannot_evade_limits_behind_caddy() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(caddy(&diana, &upstream).port(), Via::Nothing);
}

/// A client in `deny` would wait in vain, so nginx does not answer 429.
#[test]
fn nginx_answers_403_if_waiting_does_not_help() {
    let diana =
        Diana::serve("services: {http: $LISTEN}\nrules: [{name: each, by: ip, limit: 9/h, deny: [127.0.0.2]}]\n");
    let upstream = Upstream::echo();
    let nginx = nginx(&diana, &upstream);
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!([1, 2].map(|from| send(nginx.port(), from, get).status), [200, 403]);
}

/// Serves the file of the page for proxies behind a load balancer, which is 127.0.0.1 in these tests.
fn diana_behind_load_balancer() -> Diana {
    let rules = replace(block(PAGE, "## Behind a load balancer", "yaml"), "limit: 100/s", "limit: 1/h");
    let rules = replace(&replace(&rules, "127.0.0.1:8082", "$LISTEN"), "127.0.0.1:8080", "$TLS");
    Diana::serve(&replace(&rules, "10.0.0.0/8", "127.0.0.1"))
}

/// Asserts that the client is the address that the load balancer reports.
#[track_caller]
fn assert_trusts_load_balancer(port: u16) {
    let statuses = |from: u8, clients: &[&str]| {
        let each = clients.iter().map(|client| {
            send(port, from, &format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {client}\r\n\r\n")).status
        });
        each.collect::<Vec<_>>()
    };
    assert_eq!(
        statuses(1, &["203.0.113.1", "203.0.113.2", "203.0.113.1", "192.0.2.1, 203.0.113.2"]),
        [200, 200, 429, 429]
    );
    // Others are not trusted.
    assert_eq!(statuses(2, &["203.0.113.3", "203.0.113.4"]), [200, 429]);
}

const BEHIND: &str = "## Behind a load balancer";

/// Returns a proxy that trusts a load balancer on 127.0.0.1, as on the page.
fn traefik_behind_load_balancer(diana: &Diana, upstream: &Upstream) -> TraefikServer {
    traefik_of(BEHIND, |file| replace(file, "10.0.0.0/8", "127.0.0.1"), diana, upstream)
}

fn caddy_behind_load_balancer(diana: &Diana, upstream: &Upstream) -> CaddyServer {
    let sites = replace(&config(BEHIND, "caddy", diana, upstream), "10.0.0.0/8", "127.0.0.1");
    CaddyServer::start(|port| replace(&sites, ":80 {", &format!(":{port} {{"))).unwrap()
}

#[test]
fn proxies_behind_a_load_balancer_report_its_clients() {
    let upstream = Upstream::echo();
    let diana = diana_behind_load_balancer();
    assert_trusts_load_balancer(nginx(&diana, &upstream).port());
    let diana = diana_behind_load_balancer();
    assert_trusts_load_balancer(traefik_behind_load_balancer(&diana, &upstream).port());
    let diana = diana_behind_load_balancer();
    assert_trusts_load_balancer(caddy_behind_load_balancer(&diana, &upstream).port());
}

/// A load balancer passes on the `X-Forwarded` headers of clients that it does not set itself.
#[test]
fn clients_of_a_load_balancer_cannot_evade_limits_behind_nginx() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(nginx(&diana, &upstream).port(), Via::LoadBalancer);
}

#[test]
fn clients_of_a_load_balancer_cannot_evade_limits_behind_traefik() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(traefik_behind_load_balancer(&diana, &upstream).port(), Via::LoadBalancer);
}

#[test]
fn clients_of_a_load_balancer_cannot_evade_limits_behind_caddy() {
    let (diana, upstream) = (Diana::serve(LOGIN), Upstream::echo());
    assert_not_evaded(caddy_behind_load_balancer(&diana, &upstream).port(), Via::LoadBalancer);
}

/// Rules that deny what has the scheme `https`, and `/plain` if it has `http`.
const SCHEMES: &str = r#"
rules:
  - {name: https, match: {when: 'request.scheme == "https"'}, limit: 1/h, cost: 2, status: 429}
  - {name: plain, match: {path: /plain, when: 'request.scheme == "http"'}, limit: 1/h, cost: 2, status: 429}
"#;

#[test]
fn clients_cannot_choose_the_scheme_that_the_examples_report() {
    let diana = Diana::serve(&format!("services: {{http: $LISTEN}}\n{SCHEMES}"));
    let upstream = Upstream::echo();
    let (nginx, traefik, caddy) = (nginx(&diana, &upstream), traefik(&diana, &upstream), caddy(&diana, &upstream));
    for (name, port) in [("nginx", nginx.port()), ("Traefik", traefik.port()), ("Caddy", caddy.port())] {
        for forged in ["", "x-forwarded-proto: https\r\n", "x-forwarded-proto: ftp\r\nx-forwarded-proto: a\r\n"] {
            let get = |path: &str| send(port, 1, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n{forged}\r\n"));
            assert_eq!(get("/").status, 200, "{name} {forged}");
            assert_ne!(get("/plain").status, 200, "{name} {forged}");
        }
    }
    assert_eq!(upstream.count(), 9, "denied requests must not reach the service");
}

/// Traefik and Caddy believe the load balancer, and no other address, about the scheme.
#[test]
fn the_load_balancer_reports_the_scheme_to_traefik_and_caddy() {
    let gateway = "gateway: {listen: $TLS, trusted_proxies: [127.0.0.1]}";
    let diana = Diana::serve(&format!("services: {{http: $LISTEN}}\n{gateway}\n{SCHEMES}"));
    let upstream = Upstream::echo();
    let traefik = traefik_behind_load_balancer(&diana, &upstream);
    let caddy = caddy_behind_load_balancer(&diana, &upstream);
    for (name, port) in [("Traefik", traefik.port()), ("Caddy", caddy.port())] {
        let status = |from: u8, headers: &str| {
            send(port, from, &format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 203.0.113.1\r\n{headers}\r\n"))
                .status
        };
        let https = "x-forwarded-proto: https\r\n";
        assert_eq!([status(1, ""), status(1, https), status(2, https)], [200, 429, 200], "{name}");
    }
}
