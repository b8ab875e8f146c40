//! Routing, balancing over several upstreams, and the responses when one fails.

use crate::support::client::{Client, ask, get};
use crate::support::program::Diana;
use crate::support::upstream::{Then, Upstream};
use diana_testing::Port;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |talk| {
        talk.body()?;
        talk.answer("200 OK", "", name.as_bytes())
    })
}

#[test]
fn routes_are_by_host_and_path_and_the_first_that_fits_wins() {
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
    let asks = |host: &str, path: &str| {
        ask(diana.port(), &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap().text()
    };
    assert_eq!(asks("api.example.com", "/v1/a"), "api");
    assert_eq!(asks("API.example.com:8080", "/v1/a/b"), "api");
    assert_eq!(asks("api.example.com", "/v2"), "rest");
    assert_eq!(asks("api.example.com", "/images/1"), "images");
    assert_eq!(asks("shop.example.com", "/images/1"), "images");
    assert_eq!(asks("shop.example.com", "/"), "shop");
    assert_eq!(asks("other.example.com", "/"), "rest");
    // What the address says counts, whatever `Host` says.
    let absolute = "GET http://shop.example.com/x HTTP/1.1\r\nhost: api.example.com\r\n\r\n";
    assert_eq!(ask(diana.port(), absolute).unwrap().text(), "shop");
    assert_eq!(shop.last().header("host"), Some("shop.example.com"));
    assert_eq!(shop.last().line(), "GET /x HTTP/1.1");
}

#[test]
fn what_no_route_is_for_is_not_found() {
    let api = named("api");
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, routes: [{{match: {{path: /v1/**}}, upstream: '{}'}}]}}\nrules: []\n",
        api.url()
    ));
    assert_eq!(get(diana.port(), "/v1/a").status, 200);
    let answer = get(diana.port(), "/v2/a");
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));
    assert_eq!(api.count(), 1);
}

#[test]
fn several_upstreams_are_asked_in_turn_and_a_dead_one_is_left_out() {
    let (one, two, dead) = (named("one"), named("two"), Port::claim().unwrap());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{}', 'http://127.0.0.1:{}', '{}']}}\nrules: []\n",
        one.url(),
        dead.number(),
        two.url()
    ));
    let mut client = Client::connect(diana.port());
    for _ in 0..60 {
        // Nothing was sent to the dead one, so another can have it: also what must not be sent twice.
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(one.count() + two.count(), 60);
    assert!(one.count() >= 20 && two.count() >= 20, "{} and {}", one.count(), two.count());
    assert!(diana.said().contains("is left out for a while"), "{}", diana.said());
    // Each was kept open rather than opened anew.
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[test]
fn an_upstream_that_comes_back_is_asked_again() {
    let port = Port::claim().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: 'http://127.0.0.1:{}'}}\nrules: []\n",
        port.number()
    ));
    for _ in 0..5 {
        let answer = get(diana.port(), "/");
        assert_eq!((answer.status, answer.header("content-type")), (502, Some("application/problem+json")));
        assert!(!answer.text().contains(&port.number().to_string()), "it tells strangers where: {}", answer.text());
    }
    // It is the only one, so it is tried whatever is known of it.
    let listener = std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nback").unwrap();
    });
    assert_eq!(get(diana.port(), "/").text(), "back");
    served.join().unwrap();
}

#[test]
fn an_upstream_that_takes_too_long_is_not_waited_for() {
    let upstream = Upstream::start(|talk| {
        if talk.seen.target() == "/half" {
            talk.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")?;
        }
        if talk.seen.target() == "/well" {
            return talk.answer("200 OK", "", b"well");
        }
        let _ = talk.stream.read(&mut [0; 16]);
        Ok(Then::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', timeouts: {{response: 500ms}}}}\nrules: []\n",
        upstream.url()
    ));
    assert_eq!(get(diana.port(), "/never").status, 504);
    // In the middle of an answer there is nothing left to say but that it ends.
    let mut client = Client::connect(diana.port());
    client.send("GET /half HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.rest(), b"half");
    assert_eq!(get(diana.port(), "/well").text(), "well");
}

#[test]
fn an_upstream_that_talks_nonsense_is_a_bad_gateway() {
    let upstream = Upstream::start(|talk| {
        let nonsense = match talk.seen.target() {
            "/nothing" => "",
            "/noise" => "SSH-2.0-OpenSSH_9.2\r\n",
            "/lengths" => "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
            "/status" => "HTTP/1.1 abc\r\n\r\n",
            _ => "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: what\r\n\r\n",
        };
        talk.send(nonsense)?;
        Ok(Then::Close)
    });
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    for path in ["/nothing", "/noise", "/lengths", "/status", "/unasked"] {
        assert_eq!(get(diana.port(), path).status, 502, "{path}");
    }
}

#[test]
fn a_connection_that_the_upstream_closed_meanwhile_is_no_failure() {
    let upstream = Upstream::start(|talk| {
        talk.body()?;
        // It does not say that it is going to close.
        talk.answer("200 OK", "", b"")?;
        Ok(Then::Close)
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
fn rules_divert_to_another_upstream() {
    let (first, second) = (named("first"), named("second"));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: two, limit: 2/h, over: {{divert: '{}'}}}}]\n",
        first.url(),
        second.url()
    ));
    let answers: Vec<String> = (0..4).map(|_| get(diana.port(), "/").text()).collect();
    assert_eq!(answers, ["first", "first", "second", "second"]);
}

/// Retries are only for pooled connections that were closed meanwhile.
#[test]
fn what_is_answered_badly_is_not_asked_again() {
    let asked = AtomicUsize::new(0);
    let upstream = Upstream::start(move |talk| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return talk.answer("200 OK", "", b"");
        }
        talk.send("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n")?;
        Ok(Then::Close)
    });
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{}'}}\nrules: []\n", upstream.url()));
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 502);
    assert_eq!((upstream.count(), upstream.connections()), (2, 1));
}
