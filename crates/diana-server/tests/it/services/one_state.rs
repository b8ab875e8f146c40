//! One state: a rule counts the same key wherever the question comes from, in one process and over Redis.

use super::client::{Envoy, descriptor};
use super::messages::Code;
use super::resp_client::RespClient;
use crate::support::client::{Client, send_request};
use crate::support::program::{Diana, LONG};
use diana_testing::{Port, RedisServer, wait_until};

/// A program with a gateway and all services.
struct Everything {
    diana: Diana,
    envoy: Envoy,
    /// The port of the service `http`.
    http: Port,
    /// The port of the service `resp`.
    resp: Port,
}

impl Everything {
    async fn serve(more: &str) -> Self {
        let [http, resp] = [(); 2].map(|()| Port::claim().unwrap());
        let diana = Diana::serve(&format!(
            "
gateway: {{listen: $LISTEN}}
services: {{envoy: $TLS, http: '127.0.0.1:{}', resp: '127.0.0.1:{}'}}
identity: {{account: header(x-account-id)}}
status: 429
{more}",
            http.number(),
            resp.number()
        ));
        let envoy = Envoy::connect(diana.tls_port()).await;
        Self { diana, envoy, http, resp }
    }

    /// Whether the gateway allows a request.
    fn gateway(&self, path: &str, account: &str) -> bool {
        let request = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nx-account-id: {account}\r\n\r\n");
        is_allowed(send_request(self.diana.port(), &request).unwrap().status)
    }

    /// Whether Envoy may let it pass.
    async fn envoy(&self, path: &str, account: &str) -> bool {
        let entries = [("path", path), ("method", "GET"), ("account", account), ("remote_address", "127.0.0.1")];
        self.envoy.ask(descriptor(&entries)).await.overall_code() == Code::Ok
    }

    /// Whether nginx, Traefik or Caddy may let it pass.
    fn http(&self, path: &str, account: &str) -> bool {
        self.http_from(path, account, "127.0.0.1")
    }

    /// Whether a Redis client may let it pass.
    fn resp(&self, path: &str, account: &str) -> bool {
        let attributes = format!("method GET path {path} ip 127.0.0.1 header(x-account-id) {account}");
        RespClient::connect(self.resp.number()).allows(&attributes)
    }

    fn http_from(&self, path: &str, account: &str, address: &str) -> bool {
        let request = format!(
            "GET /check HTTP/1.1\r\nhost: diana\r\nx-forwarded-method: GET\r\nx-forwarded-uri: {path}\r\nx-forwarded-host: example.com\r\nx-forwarded-for: {address}\r\nx-account-id: {account}\r\n\r\n"
        );
        is_allowed(send_request(self.http.number(), &request).unwrap().status)
    }
}

fn is_allowed(status: u16) -> bool {
    assert!([204, 429].contains(&status), "{status}");
    status == 204
}

const RULES: &str = "
rules:
  - {name: each-account, match: {path: /account}, by: account, limit: 4/day, algorithm: fixed_window, opens: first_request}
  - {name: each-address, match: {path: /ip}, by: ip, limit: 4/day, algorithm: fixed_window, opens: first_request}
  - {name: everyone, match: {path: /all, method: GET}, by: [resource, method], limit: 4/day, algorithm: fixed_window, opens: first_request}
";

/// Each protocol takes one of four permits, and then all are denied.
async fn four_are_one(one: &Everything, other: &Everything) {
    for path in ["/account", "/ip", "/all"] {
        assert!(one.gateway(path, "alice"), "{path}");
        assert!(other.envoy(path, "alice").await, "{path}");
        assert!(one.http(path, "alice"), "{path}");
        assert!(other.resp(path, "alice"), "{path}");
        for each in [one, other] {
            let allowed = [each.gateway(path, "alice"), each.envoy(path, "alice").await];
            assert_eq!(allowed, [false; 2], "{path}");
            assert_eq!([each.http(path, "alice"), each.resp(path, "alice")], [false; 2], "{path}");
        }
    }
    assert!(other.envoy("/account", "bob").await && one.http("/account", "bob") && one.gateway("/account", "bob"));
    assert!(one.resp("/account", "bob") && !other.resp("/account", "bob") && !other.gateway("/account", "bob"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_protocols_count_together_in_one_process() {
    let one = Everything::serve(RULES).await;
    four_are_one(&one, &one).await;
    // Addresses are the same however they are written.
    let ask = descriptor(&[("path", "/ip"), ("remote_address", "2001:DB8:0:0::1")]);
    assert_eq!(one.envoy.codes::<2>(&ask).await, [Code::Ok; 2]);
    let mut resp = RespClient::connect(one.resp.number());
    assert!(resp.allows("path /ip ip 2001:db8:0::0:1"));
    assert!(one.http_from("/ip", "alice", "2001:db8::1"));
    assert!(!one.http_from("/ip", "alice", "2001:db8::1"));
    assert_eq!(one.envoy.ask(ask).await.overall_code(), Code::OverLimit);
    // Resets hold for all.
    let reset = "POST /reset?rule=each-account&key=alice HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(send_request(one.diana.admin_port(), reset).unwrap().status, 200);
    assert!(one.http("/account", "alice") && one.envoy("/account", "alice").await && one.gateway("/account", "alice"));
    assert!(one.resp("/account", "alice") && !one.http("/account", "alice"));
    // Also those of a Redis client, and its refunds.
    assert!(resp.ask("DIANA.REFUND each-account 1 alice").starts_with("[[0 4 1 -1 "));
    assert!(one.gateway("/account", "alice") && !one.gateway("/account", "alice"));
    assert_eq!(resp.ask("DIANA.RESET each-account alice"), "[[0 4 4 -1 0 each-account]]");
    assert!(one.http("/account", "alice") && one.envoy("/account", "alice").await && one.gateway("/account", "alice"));
    assert!(one.resp("/account", "alice") && !one.resp("/account", "alice"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_protocols_count_together_on_redis() {
    let redis = RedisServer::start().unwrap();
    let text = format!("store: {{redis: '{}', timeout: 20s}}\n{RULES}", redis.url());
    let (one, other) = (Everything::serve(&text).await, Everything::serve(&text).await);
    four_are_one(&one, &other).await;
    let mut resp = RespClient::connect(other.resp.number());
    assert!(resp.ask("DIANA.REFUND each-account 1 alice").starts_with("[[0 4 1 -1 "));
    // The other program has cached the denial until it hears of the refund.
    let hears = || one.gateway("/account", "alice").then_some(());
    wait_until("the other program to hear of the refund", LONG, hears).unwrap();
    assert!(!one.gateway("/account", "alice"));
    assert_eq!(resp.ask("DIANA.RESET each-account alice"), "[[0 4 4 -1 0 each-account]]");
    assert!(one.envoy("/account", "alice").await && one.http("/account", "alice"));
}

/// Two programs, each asked over four protocols at once.
#[tokio::test(flavor = "multi_thread")]
async fn two_programs_admit_exactly_the_limit() {
    const LIMIT: usize = 100;
    let redis = RedisServer::start().unwrap();
    let text = format!(
        "
store: {{redis: '{}', timeout: 20s}}
rules: [{{name: each-account, by: account, limit: {LIMIT}/day, algorithm: fixed_window, opens: first_request}}]
",
        redis.url()
    );
    let programs = [Everything::serve(&text).await, Everything::serve(&text).await];
    let mut asked = Vec::new();
    for program in &programs {
        let (gateway, http, envoy) = (program.diana.port(), program.http.number(), program.envoy.clone());
        let count = |port: u16, request: &'static str| {
            move || {
                let mut client = Client::connect(port);
                (0..60).filter(|_| is_allowed(client.send(request).response().status)).count()
            }
        };
        asked.push(tokio::task::spawn_blocking(count(
            gateway,
            "GET /a HTTP/1.1\r\nhost: a\r\nx-account-id: alice\r\n\r\n",
        )));
        asked.push(tokio::task::spawn_blocking(count(
            http,
            "GET /check HTTP/1.1\r\nhost: a\r\nx-forwarded-uri: /b\r\nx-account-id: alice\r\n\r\n",
        )));
        let mut resp = RespClient::connect(program.resp.number());
        asked.push(tokio::task::spawn_blocking(move || (0..60).filter(|_| resp.allows("account alice")).count()));
        asked.push(tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..60 {
                let code = envoy.ask(descriptor(&[("account", "alice")])).await.overall_code();
                allowed += usize::from(code == Code::Ok);
            }
            allowed
        }));
    }
    let mut allowed = Vec::new();
    for asked in asked {
        allowed.push(asked.await.unwrap());
    }
    assert_eq!(allowed.iter().sum::<usize>(), LIMIT, "{allowed:?}");
}
