//! Routing, balancing over several upstreams, and the responses when one fails.

use crate::support::client::{Client, get, send_request};
use crate::support::program::Diana;
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::Port;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |exchange| {
        exchange.body()?;
        exchange.respond("200 OK", "", name.as_bytes())
    })
}

#[test]
fn the_first_matching_route_is_used() {
    let [api, images, shop, rest] = ["api", "images", "shop", "rest"].map(named);
    let diana = Diana::serve(&format!(
        "
gateway:
  listen: $LISTEN
  upstream: {}
  routes:
    - {{match: {{host: api.example.com, path: /v1/**}}, upstream: '{}'}}
    - {{match: {{path: /images/**}}, upstream: '{}'}}
    - {{match: {{host: shop.example.com}}, upstream: '{}'}}
rules: []
",
        rest.url(),
        api.url(),
        images.url(),
        shop.url()
    ));
    let body_of = |host: &str, path: &str| {
        send_request(diana.port(), &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap().text()
    };
    assert_eq!(body_of("api.example.com", "/v1/a"), "api");
    assert_eq!(body_of("API.example.com:8080", "/v1/a/b"), "api");
    assert_eq!(body_of("api.example.com", "/v2"), "rest");
    assert_eq!(body_of("api.example.com", "/images/1"), "images");
    assert_eq!(body_of("shop.example.com", "/images/1"), "images");
    assert_eq!(body_of("shop.example.com", "/"), "shop");
    assert_eq!(body_of("other.example.com", "/"), "rest");
    // The authority takes precedence over `Host`.
    let absolute = "GET http://shop.example.com/x HTTP/1.1\r\nhost: api.example.com\r\n\r\n";
    assert_eq!(send_request(diana.port(), absolute).unwrap().text(), "shop");
    assert_eq!(shop.last().header("host"), Some("shop.example.com"));
    assert_eq!(shop.last().line(), "GET /x HTTP/1.1");
}

#[test]
fn without_a_route_the_response_is_404() {
    let api = named("api");
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, routes: [{{match: {{path: /v1/**}}, upstream: '{}'}}]}}\nrules: []\n",
        api.url()
    ));
    assert_eq!(get(diana.port(), "/v1/a").status, 200);
    let response = get(diana.port(), "/v2/a");
    assert_eq!((response.status, response.header("content-type")), (404, Some("application/problem+json")));
    assert_eq!(api.count(), 1);
}

#[test]
fn balances_over_upstreams_and_ejects_a_dead_one() {
    let (one, two, dead) = (named("one"), named("two"), Port::claim().unwrap());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{}', 'http://127.0.0.1:{}', '{}']}}\nrules: []\n",
        one.url(),
        dead.number(),
        two.url()
    ));
    let mut client = Client::connect(diana.port());
    for _ in 0..60 {
        // Nothing was sent to the dead upstream, so even unsafe requests can be retried.
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(one.count() + two.count(), 60);
    assert!(one.count() >= 20 && two.count() >= 20, "{} and {}", one.count(), two.count());
    assert!(diana.output().contains(" ejected: "), "{}", diana.output());
    // The connections were reused.
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[test]
fn an_upstream_that_recovers_is_used_again() {
    let port = Port::claim().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: 'http://127.0.0.1:{}'}}\nrules: []\n",
        port.number()
    ));
    for _ in 0..5 {
        let response = get(diana.port(), "/");
        assert_eq!((response.status, response.header("content-type")), (502, Some("application/problem+json")));
        assert!(
            !response.text().contains(&port.number().to_string()),
            "the response reveals the address: {}",
            response.text()
        );
    }
    // The only upstream is tried even if it is ejected.
    let listener = port.listen().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nback").unwrap();
    });
    assert_eq!(get(diana.port(), "/").text(), "back");
    served.join().unwrap();
}

#[test]
fn the_response_timeout_ends_slow_upstreams() {
    let upstream = Upstream::start(|exchange| {
        if exchange.request.target() == "/half" {
            exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")?;
        }
        if exchange.request.target() == "/well" {
            return exchange.respond("200 OK", "", b"well");
        }
        let _ = exchange.stream.read(&mut [0; 16]);
        Ok(AfterResponse::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', timeouts: {{response: 500ms}}}}\nrules: []\n",
        upstream.url()
    ));
    assert_eq!(get(diana.port(), "/never").status, 504);
    // During a response, only the connection can be closed.
    let mut client = Client::connect(diana.port());
    client.send("GET /half HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.rest(), b"half");
    assert_eq!(get(diana.port(), "/well").text(), "well");
}

#[test]
fn invalid_responses_are_a_bad_gateway() {
    let upstream = Upstream::start(|exchange| {
        let invalid = match exchange.request.target() {
            "/nothing" => "",
            "/noise" => "SSH-2.0-OpenSSH_9.2\r\n",
            "/lengths" => "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
            "/status" => "HTTP/1.1 abc\r\n\r\n",
            _ => "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: what\r\n\r\n",
        };
        exchange.send(invalid)?;
        Ok(AfterResponse::Close)
    });
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    for path in ["/nothing", "/noise", "/lengths", "/status", "/unasked"] {
        assert_eq!(get(diana.port(), path).status, 502, "{path}");
    }
}

#[test]
fn a_closed_pooled_connection_is_not_a_failure() {
    let upstream = Upstream::start(|exchange| {
        exchange.body()?;
        // Without `Connection: close`.
        exchange.respond("200 OK", "", b"")?;
        Ok(AfterResponse::Close)
    });
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{}'}}\nrules: []\n", upstream.url()));
    let mut client = Client::connect(diana.port());
    for n in 0..30 {
        assert_eq!(client.get("/").status, 200, "{n}");
        upstream.wait_for_closed(n + 1);
    }
    assert_eq!(upstream.count(), 30);
}

#[test]
fn rules_reroute_to_another_upstream() {
    let (first, second) = (named("first"), named("second"));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: two, limit: 2/h, over: {{reroute: '{}'}}}}]\n",
        first.url(),
        second.url()
    ));
    let responses: Vec<String> = (0..4).map(|_| get(diana.port(), "/").text()).collect();
    assert_eq!(responses, ["first", "first", "second", "second"]);
}

/// Retries are only for pooled connections that were closed meanwhile.
#[test]
fn an_invalid_response_is_not_retried() {
    let requests = AtomicUsize::new(0);
    let upstream = Upstream::start(move |exchange| {
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            return exchange.respond("200 OK", "", b"");
        }
        exchange.send("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n")?;
        Ok(AfterResponse::Close)
    });
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{}'}}\nrules: []\n", upstream.url()));
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 502);
    assert_eq!((upstream.count(), upstream.connections()), (2, 1));
}
