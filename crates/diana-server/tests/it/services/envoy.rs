//! A real Envoy that asks Diana's rate limit service, with every kind of descriptor that it can send.

use crate::support::client::{Client, ClientResponse};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::{EnvoyServer, wait_until};

const CONFIG: &str = include_str!("envoy.yaml");

const RULES: &str = "
services: {envoy: $LISTEN}
rules:
  - {name: each-address, match: {domain: shop, descriptor: [remote_address]}, by: ip, limit: 2/day}
  - {name: checkout, match: {domain: shop, descriptor: [{generic_key: checkout}]}, limit: 2/day}
  - {name: each-key, match: {domain: shop, descriptor: [api_key]}, by: descriptor(api_key), limit: 2/day}
  - {name: plan, match: {domain: shop, descriptor: [{plan: free}]}, limit: 3/day}
  - {name: plan-of-address, match: {domain: shop, descriptor: {plan: free, remote_address: }}, by: ip, limit: 2/day}
  - {name: cost, match: {domain: shop, descriptor: {generic_key: cost}}, limit: 10/day}
";

struct Gateway {
    envoy: EnvoyServer,
    upstream: Upstream,
    diana: Diana,
}

impl Gateway {
    fn start() -> Self {
        let (diana, upstream) = (Diana::serve(RULES), Upstream::echo());
        let config = CONFIG.replace("port_value: 19001", &format!("port_value: {}", upstream.port()));
        let config = config.replace("port_value: 19002", &format!("port_value: {}", diana.port()));
        let envoy = EnvoyServer::start(|port| config.replace("port_value: 19000", &format!("port_value: {port}")));
        Self { envoy: envoy.unwrap(), upstream, diana }
    }

    /// Sends a GET with more headers, each with its line end.
    fn get(&self, path: &str, headers: &str) -> ClientResponse {
        self.get_from([127, 0, 0, 1], path, headers)
    }

    fn get_from(&self, from: [u8; 4], path: &str, headers: &str) -> ClientResponse {
        let request = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n{headers}\r\n");
        let response = Client::connect_from(from, self.envoy.port()).send(request).response();
        assert!([200, 429].contains(&response.status), "{response:?}\n{}", self.envoy.log());
        response
    }

    fn statuses<const N: usize>(&self, path: &str, headers: &str) -> [u16; N] {
        [(); N].map(|()| self.get(path, headers).status)
    }
}

#[test]
fn descriptors_of_every_kind_are_limited() {
    let gateway = Gateway::start();
    // The client's address.
    assert_eq!(gateway.statuses("/ip", ""), [200, 200, 429]);
    assert_eq!(gateway.get_from([127, 0, 0, 2], "/ip", "").status, 200);
    assert_eq!(gateway.get("/ip", "x-forwarded-for: 192.0.2.1\r\n").status, 429, "a client can't choose its address");
    // A constant, and the value of a header.
    assert_eq!(gateway.statuses("/generic", ""), [200, 200, 429]);
    assert_eq!(gateway.statuses("/key", "x-api-key: a\r\n"), [200, 200, 429]);
    assert_eq!(gateway.statuses("/key", "x-api-key: b\r\n"), [200, 200, 429]);
    assert_eq!(gateway.statuses("/key", ""), [200; 3], "without the header there is no descriptor");
    // Two descriptors, all or nothing.
    assert_eq!(gateway.statuses("/two", "x-api-key: a\r\n"), [429]);
    assert_eq!(gateway.statuses("/two", "x-api-key: c\r\n"), [200, 200, 429]);
    assert_eq!(gateway.statuses("/two", "x-api-key: d\r\n"), [200, 429], "the denied ones took nothing of the plan");
    // One descriptor with two entries.
    assert_eq!(gateway.statuses("/pair", ""), [200, 200, 429]);
    assert_eq!(gateway.get_from([127, 0, 0, 3], "/pair", "").status, 200);
    assert_eq!(gateway.statuses("/free", ""), [200; 3], "without `rate_limits` Diana is not asked");
    assert_eq!(gateway.diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"failed\"}"), 0.0);
    let denied = gateway.diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"denied\"}");
    assert_eq!((denied, gateway.upstream.received().len()), (9.0, 21), "denied requests reach no service");
}

#[test]
fn clients_get_the_headers_of_envoy_and_of_diana() {
    let gateway = Gateway::start();
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let response = gateway.get("/key", "x-api-key: a\r\n");
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (status, Some(remaining)));
        let limit = response.header("x-ratelimit-limit").unwrap();
        assert!(limit.starts_with("2, 2;w=86400"), "{limit}");
        assert_eq!(response.header("ratelimit-policy"), Some("\"each-key\";q=2;w=86400"));
        let ratelimit = response.header("ratelimit").unwrap();
        assert!(ratelimit.starts_with(&format!("\"each-key\";r={remaining};t=")), "{ratelimit}");
        let retry = response.header("retry-after").map(|seconds| seconds.parse::<u32>().unwrap());
        assert_eq!(retry.is_some_and(|seconds| (1..=86_400).contains(&seconds)), status == 429, "{retry:?}");
    }
}

#[test]
fn costs_refunds_and_overrides_come_from_envoy() {
    let gateway = Gateway::start();
    assert_eq!(gateway.get("/cost", "x-cost: 7\r\n").status, 200);
    assert_eq!(gateway.get("/cost", "x-cost: 4\r\n").status, 429);
    assert_eq!(gateway.get("/cost", "x-cost: 3\r\n").status, 200);
    assert_eq!(gateway.get("/cost", "x-cost: 1\r\n").status, 429);
    assert_eq!(gateway.get("/refund", "").status, 200, "gives back 2");
    assert_eq!(gateway.get("/cost", "x-cost: 3\r\n").status, 429);
    assert_eq!(gateway.get("/cost", "x-cost: 2\r\n").status, 200);
    // The hits of the whole request.
    assert_eq!(gateway.get("/generic", "x-hits: 3\r\n").status, 429);
    assert_eq!(gateway.get("/generic", "x-hits: 2\r\n").status, 200);
    assert_eq!(gateway.get("/generic", "").status, 429);
    // A limit of 2 in the metadata, for a descriptor that no rule matches.
    assert_eq!(gateway.statuses("/override", ""), [200, 200, 429]);
}

#[test]
fn without_the_service_envoy_decides_until_it_is_back() {
    let gateway = Gateway::start();
    assert_eq!(gateway.statuses("/generic", ""), [200, 200, 429]);
    let Gateway { envoy, diana, .. } = &gateway;
    let errors = || {
        let stats = Client::connect(envoy.admin_port()).get("/stats?filter=ratelimit.error").text();
        stats.split(':').next_back().and_then(|count| count.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    assert_eq!(errors(), 0);
    diana.signal(rustix::process::Signal::STOP);
    diana.signal(rustix::process::Signal::CONT);
    assert_eq!(gateway.statuses("/generic", ""), [429], "a pause is no failure");
    diana.request_stop();
    let fails = || (gateway.get("/generic", "").status == 200).then_some(());
    wait_until("requests to pass without the service", LONG, fails).unwrap();
    assert!(errors() > 0);
}
