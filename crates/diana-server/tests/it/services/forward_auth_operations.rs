//! `services.http` in operation: connections, bodies, TLS, reload and shutdown, and what is reported.

use super::forward_auth::{check, serve};
use crate::support::client::{Client, get, send_request};
use crate::support::http2::{self, certificate, full, http1_over, over, request, tls, whole};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Gate, Upstream};
use diana_testing::{RedisServer, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

const ROOT: &str = "x-forwarded-uri: /\r\n";

/// Returns the lines of the access log, as soon as there are this many.
fn log_lines(diana: &Diana, count: usize) -> Vec<serde_json::Value> {
    let lines = || {
        let output = diana.output();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<serde_json::Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() == count).then_some(lines)
    };
    wait_until("the access log", LONG, lines).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()))
}

#[test]
fn gateway_and_checks_share_one_count() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $TLS, upstream: '{}'}}
services: {{http: $LISTEN}}
rules: [{{name: each, by: ip, limit: 3/h, status: 429}}]\n",
        upstream.url()
    ));
    let client = "x-forwarded-uri: /\r\nx-forwarded-for: 127.0.0.1\r\n";
    let door = |number: usize| match number % 2 {
        0 => get(diana.tls_port(), "/").status,
        _ => check(&diana, client).status,
    };
    assert_eq!((0..6).map(door).collect::<Vec<_>>(), [200, 204, 200, 429, 429, 429]);
}

#[test]
fn programs_share_one_count_on_redis() {
    let redis = RedisServer::start().unwrap();
    let upstream = Upstream::echo();
    let rules = format!(
        "gateway: {{listen: $TLS, upstream: '{}'}}
services: {{http: $LISTEN}}
store: {{redis: '{}', timeout: 20s, lease: off}}
rules: [{{name: each, by: ip, limit: 4/h, status: 429}}]\n",
        upstream.url(),
        redis.url()
    );
    let (one, other) = (Diana::serve(&rules), Diana::serve(&rules));
    let client = "x-forwarded-uri: /\r\nx-forwarded-for: 127.0.0.1\r\n";
    let ask = |number: usize| match number % 3 {
        0 => check(&one, client).status,
        1 => get(other.tls_port(), "/").status,
        _ => check(&other, client).status,
    };
    assert_eq!((0..7).map(ask).collect::<Vec<_>>(), [204, 200, 204, 204, 429, 429, 429]);
}

#[test]
fn shadow_rules_and_the_admin_server_work_as_for_the_gateway() {
    let diana = serve(
        "rules:
  - {name: shadow, match: {path: /shadow}, limit: 1/h, shadow: true}
  - {name: each, match: {path: /each}, by: ip, limit: 1/h, status: 429}",
    );
    let ask =
        |path: &str| check(&diana, &format!("x-forwarded-uri: {path}\r\nx-forwarded-for: 203.0.113.1\r\n")).status;
    assert_eq!([ask("/shadow"), ask("/shadow")], [204, 204]);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"shadow\",outcome=\"shadow_denied\"}"), 1.0);
    assert_eq!([ask("/each"), ask("/each")], [204, 429]);
    for change in ["reset", "refund"] {
        let post = format!("POST /{change}?rule=each&key=203.0.113.1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        assert_eq!(send_request(diana.admin_port(), &post).unwrap().status, 200, "{change}");
        assert_eq!([ask("/each"), ask("/each")], [204, 429], "{change}");
    }
}

/// As the page says: these limits need the gateway itself.
#[test]
fn limits_that_outlast_the_decision_do_not_apply() {
    let diana = serve("rules: [{name: one, concurrent: 1}, {name: slow, bandwidth: 1B/s}]");
    assert_eq!([(); 3].map(|()| check(&diana, ROOT).status), [204; 3]);
}

#[test]
fn connections_are_kept_and_bodies_are_drained() {
    let diana = serve("rules: [{name: each, limit: 4/h, status: 429}]");
    let mut client = Client::connect(diana.port());
    let body = "x".repeat(100_000);
    let post = format!("POST /check HTTP/1.1\r\nhost: a\r\n{ROOT}content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!(
        "PUT /check HTTP/1.1\r\nhost: a\r\n{ROOT}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for request in [&post, &chunked, &post, &chunked] {
        assert_eq!(client.send(request).response().status, 204);
    }
    for request in [&post, &chunked] {
        assert_eq!(client.send(request).response().status, 429);
    }
    // HEAD gets the headers only: the next response follows at once.
    client.send(format!("HEAD /check HTTP/1.1\r\nhost: a\r\n{ROOT}\r\n"));
    let head = client.head().unwrap();
    assert_eq!((head.status, head.header("retry-after").is_some()), (429, true));
    client.send(format!("GET /check HTTP/1.1\r\nhost: a\r\n{ROOT}\r\n"));
    assert_eq!(client.response().status, 429);
    // Also a rejected check leaves the connection usable.
    client.send("POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 400);
    // A request for HEAD has no body in its denial.
    client.send(format!("GET /check HTTP/1.1\r\nhost: a\r\nx-forwarded-method: HEAD\r\n{ROOT}\r\n"));
    let denied = client.response();
    assert_eq!((denied.status, &*denied.body), (429, &b""[..]));
    // More than is read of a body: the response says that the connection ends.
    client.send(format!("POST /check HTTP/1.1\r\nhost: a\r\n{ROOT}content-length: 100000000\r\n\r\n"));
    let denied = client.response();
    assert_eq!((denied.status, denied.header("connection")), (429, Some("close")));
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_over_http2_are_checks_too() {
    let diana = serve("rules: [{name: each, match: {host: shop.example}, limit: 2/h, status: 429}]");
    let mut sender = http2::connect(diana.port()).await;
    let mut ask = async |host: Option<&str>, body: &'static str| {
        let mut request = request("POST", "http://shop.example/check").header("x-forwarded-uri", "/");
        if let Some(host) = host {
            request = request.header("x-forwarded-host", host);
        }
        whole(sender.send_request(request.body(full(body)).unwrap()).await.unwrap()).await.status().as_u16()
    };
    assert_eq!(ask(Some("shop.example"), "a body").await, 204);
    assert_eq!(ask(Some("shop.example"), "").await, 204);
    assert_eq!(ask(Some("shop.example"), "a body").await, 429);
    // `:authority` is the host of the check.
    assert_eq!(ask(None, "").await, 204);
}

#[test]
fn slow_clients_are_disconnected() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, timeouts: {header: 300ms, idle: 300ms, body: 300ms}}
services: {http: $LISTEN}
rules: [{name: each, by: ip, limit: 1000/s}]\n",
    );
    let mut silent = Client::connect(diana.port());
    let mut half = Client::connect(diana.port());
    half.send("GET /check HTTP/1.1\r\nx-forwarded-uri: /");
    let mut idle = Client::connect(diana.port());
    idle.send(format!("GET /check HTTP/1.1\r\nhost: a\r\n{ROOT}\r\n"));
    assert_eq!(idle.response().status, 204);
    let mut body = Client::connect(diana.port());
    body.send(format!("POST /check HTTP/1.1\r\nhost: a\r\n{ROOT}content-length: 9\r\n\r\nhalf"));
    // The answer does not wait for the body.
    assert_eq!(body.response().status, 204);
    for client in [&mut silent, &mut half, &mut idle, &mut body] {
        client.rest();
    }
    let closed = || (diana.metric("diana_service_connections{service=\"http\"}") == 0.0).then_some(());
    wait_until("all connections to be closed", LONG, closed).unwrap();
    assert_eq!(check(&diana, ROOT).status, 204);
}

#[test]
fn bounds_of_the_gateway_apply_to_checks() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, bounds: {header: 8KiB, headers: 20, body: 10B}}
services: {http: $LISTEN}
rules: [{name: each, by: ip, limit: 1000/s}]\n",
    );
    assert_eq!(check(&diana, &format!("{ROOT}x-long: {}\r\n", "x".repeat(20_000))).status, 431);
    assert_eq!(check(&diana, &format!("{ROOT}{}", "x-many: 1\r\n".repeat(30))).status, 431);
    let post = format!("POST /check HTTP/1.1\r\nhost: a\r\n{ROOT}content-length: 11\r\n\r\nhello world");
    assert_eq!(send_request(diana.port(), &post).unwrap().status, 413);
    assert_eq!(check(&diana, ROOT).status, 204);
}

#[test]
fn bytes_that_are_not_http_get_an_error() {
    let diana = serve("rules: [{name: each, by: ip, limit: 1000/s}]");
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01"[..], b"*1\r\n$4\r\nPING\r\n", b"\0\0\0\0\0\0\0\0\r\n\r\n", &[0xff; 1_000]]
    {
        let mut client = Client::connect(diana.port());
        client.send(bytes);
        client.stream().shutdown(std::net::Shutdown::Write).unwrap();
        let answer = client.rest();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
    }
    assert_eq!(check(&diana, ROOT).status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_over_tls_use_renewed_certificates() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "own", &["diana.example"]);
    let diana = Diana::serve_in(
        folder,
        "services: {http: {listen: $LISTEN, tls: {certificate: $FOLDER/own.pem, key: $FOLDER/own.key}}}
rules: [{name: each, by: ip, limit: 2/h, status: 429}]\n",
    );
    let own = diana.folder().join("own.pem");
    let stream = tls(diana.port(), &[&own], "diana.example", &["http/1.1"]).await.unwrap();
    let mut sender = http1_over(stream).await;
    let ask =
        || request("GET", "/check").header("host", "diana").header("x-forwarded-uri", "/").body(full("")).unwrap();
    assert_eq!(whole(sender.send_request(ask()).await.unwrap()).await.status(), 204);
    let stream = tls(diana.port(), &[&own], "diana.example", &["h2"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = over(stream).await;
    let ask = || request("GET", "https://diana/check").header("x-forwarded-uri", "/").body(full("")).unwrap();
    for status in [204, 429] {
        assert_eq!(whole(sender.send_request(ask()).await.unwrap()).await.status(), status);
    }
    certificate(diana.folder(), "own", &["diana.example"]);
    diana.signal(Signal::HUP);
    let mut tries = 0;
    while tls(diana.port(), &[&own], "diana.example", &["h2"]).await.is_err() {
        tries += 1;
        assert!(tries < 3_000, "the old certificate is still used");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[test]
fn reloaded_rules_apply_and_counts_stay() {
    let diana = serve("rules: [{name: each, limit: 2/h, status: 429}]");
    assert_eq!([check(&diana, ROOT).status, check(&diana, ROOT).status, check(&diana, ROOT).status], [204, 204, 429]);
    diana.rewrite("services: {http: $LISTEN}\nrules: [{name: each, limit: 3/h, status: 503}]\n");
    wait_until("the new rules", LONG, || (diana.metric("diana_rules_loads_total") == 2.0).then_some(())).unwrap();
    assert_eq!([check(&diana, ROOT).status, check(&diana, ROOT).status], [204, 503]);
    // Another address needs a restart, and the log says so.
    diana.rewrite("services: {http: 127.0.0.1:0}\nrules: [{name: each, limit: 4/h, status: 503}]\n");
    let logged = || diana.output().contains("need a restart: services.http").then_some(());
    wait_until("the warning", LONG, logged).unwrap();
    assert_eq!([check(&diana, ROOT).status, check(&diana, ROOT).status], [204, 503]);
}

#[test]
fn a_request_that_may_wait_waits_and_is_logged() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, access_log: json}
services: {http: $LISTEN}
rules: [{name: paced, limit: 10/s, burst: 1, wait: 60s}]\n",
    );
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(diana.port())).collect();
    for client in &mut clients {
        client.send(format!("GET /check/403 HTTP/1.1\r\nhost: a\r\n{ROOT}\r\n"));
    }
    assert!(clients.iter_mut().all(|client| client.response().status == 204));
    let waited = log_lines(&diana, 5).into_iter().filter(|line| line["wait_ms"].as_f64() > Some(0.0)).count();
    assert!(waited >= 1, "{}", diana.output());
}

#[test]
fn a_shutdown_drains_waiting_checks() {
    let gate = Gate::closed();
    let mut diana = Diana::serve(&format!(
        "gateway: {{listen: $TLS, upstream: '{}'}}
services: {{http: $LISTEN}}
rules: [{{name: one, match: {{path: /}}, concurrent: 1, wait: 60s}}]\n",
        gate.upstream.url()
    ));
    // The gateway has the only permit, so the check has to wait.
    let mut first = Client::connect(diana.tls_port());
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    gate.upstream.wait_for(1);
    // Both checks arrive at once, so the second one has been read when the first one is answered.
    let mut waiting = Client::connect(diana.port());
    let ask = |uri: &str| format!("GET /check HTTP/1.1\r\nhost: a\r\nx-forwarded-uri: {uri}\r\n\r\n");
    assert_eq!(waiting.send(ask("/free") + &ask("/")).response().status, 204);
    diana.request_stop();
    let is_closed = || Client::try_connect(diana.port()).is_err().then_some(());
    wait_until("the listener to be closed", LONG, is_closed).unwrap();
    assert_eq!(diana.admin("/readyz").status, 503);
    gate.open();
    assert_eq!(first.response().status, 200);
    let response = waiting.response();
    assert_eq!((response.status, response.header("connection")), (204, Some("close")));
    waiting.rest();
    assert!(diana.wait_for_exit().success());
}

#[test]
fn checks_are_counted_by_outcome() {
    let diana = serve("rules: [{name: each, limit: 2/h, status: 429}]");
    let mut client = Client::connect(diana.port());
    for headers in [ROOT, ROOT, ROOT, "", "x-forwarded-uri: /..\r\n", ROOT] {
        client.send(format!("GET /check/403 HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).response();
    }
    client.send("GET /other HTTP/1.1\r\nhost: a\r\n\r\n").response();
    let counted =
        |outcome| diana.metric(&format!("diana_service_requests_total{{service=\"http\",outcome=\"{outcome}\"}}"));
    let all = || (["allowed", "denied", "failed"].map(counted) == [2.0, 2.0, 3.0]).then_some(());
    wait_until("all to be counted", LONG, all).unwrap();
    assert_eq!(diana.metric("diana_service_connections{service=\"http\"}"), 1.0);
    assert_eq!(diana.metric("diana_service_connections_accepted_total{service=\"http\"}"), 1.0);
    assert_eq!(diana.metric("diana_service_connections_rejected_total{service=\"http\"}"), 0.0);
    // The gateway's own metrics are about its clients.
    assert_eq!(diana.metric("diana_requests_total{outcome=\"answered\"}"), 0.0);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"each\",outcome=\"denied\"}"), 2.0);
}

#[test]
fn the_access_log_has_the_request_of_the_client() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, access_log: json}
services: {http: $LISTEN}
rules: [{name: each, by: ip, limit: 1/h, status: 429}]\n",
    );
    let headers = "x-forwarded-method: POST\r\nx-forwarded-uri: /orders?dry=1\r\nx-forwarded-host: shop.example\r\n\
                   x-forwarded-for: 203.0.113.9\r\nuser-agent: test\r\n";
    let mut client = Client::connect(diana.port());
    for (headers, status) in [(headers, 204), (headers, 403), ("x-forwarded-for: 203.0.113.9\r\n", 403)] {
        client.send(format!("GET /check/403 HTTP/1.1\r\nhost: diana\r\n{headers}\r\n"));
        assert_eq!(client.response().status, status);
    }
    let lines = log_lines(&diana, 3);
    for (line, status, outcome) in [(&lines[0], 204, "answered"), (&lines[1], 403, "denied")] {
        assert_eq!((line["method"].as_str(), line["target"].as_str()), (Some("POST"), Some("/orders?dry=1")), "{line}");
        assert_eq!((line["host"].as_str(), line["client"].as_str()), (Some("shop.example"), Some("203.0.113.9")));
        assert_eq!((line["status"].as_u64(), line["outcome"].as_str()), (Some(status), Some(outcome)), "{line}");
        assert_eq!(line["user_agent"], "test");
    }
    assert_eq!(lines[1]["rule"], "each");
    // A check that describes no request is logged as it is.
    assert_eq!((lines[2]["method"].as_str(), lines[2]["target"].as_str()), (Some("GET"), Some("/check/403")));
    assert_eq!(lines[2]["outcome"], "rejected");
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_service() {
    let first = serve("rules: []");
    let mut second = Diana::launch(
        TempDir::new().unwrap(),
        &format!("services: {{http: '127.0.0.1:{}'}}\nrules: []\n", first.port()),
    );
    assert!(!second.wait_for_exit().success());
    let said = || second.output().contains("the service `http` can't start: cannot listen on").then_some(());
    wait_until("the error", LONG, said).unwrap_or_else(|error| panic!("{error}\n{}", second.output()));
}
