//! Requests, failures, ejections and connections of each upstream.

use super::{log_lines, status};
use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::{Port, wait_until};
use serde_json::Value;

/// Returns a metric of an upstream.
fn of(diana: &Diana, name: &str, upstream: &str) -> f64 {
    diana.metric(&format!("diana_upstream_{name}{{upstream=\"{upstream}\"}}"))
}

/// Returns an upstream of `/status`.
fn reported(diana: &Diana, address: &str) -> Value {
    let status = status(diana);
    let upstreams = status["upstreams"].as_array().unwrap();
    upstreams.iter().find(|upstream| upstream["address"] == address).unwrap_or_else(|| panic!("{status}")).clone()
}

#[test]
fn an_unreachable_upstream_is_counted_and_ejected_for_a_while() {
    let (dead, good) = (Port::claim().unwrap(), Upstream::echo());
    let (dead, good_url) = (format!("http://127.0.0.1:{}", dead.number()), good.url());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{dead}', '{good_url}'],\n\
         routes: [{{match: {{path: /v1/**}}, upstream: '{good_url}'}}]}}\nrules: []\n",
    ));
    assert_eq!((of(&diana, "requests_total", &dead), of(&diana, "ejected", &dead)), (0.0, 0.0));
    let statuses: Vec<u16> = (0..10).map(|_| get(diana.port(), "/").status).collect();
    assert_eq!(statuses, [200; 10]);
    // It is ejected after three failures in a row.
    assert_eq!(of(&diana, "requests_total", &dead), 3.0);
    assert_eq!(of(&diana, "request_failures_total", &dead), 3.0);
    assert_eq!((of(&diana, "ejected", &dead), of(&diana, "ejections_total", &dead)), (1.0, 1.0));
    assert_eq!(of(&diana, "response_seconds_count", &dead), 0.0);
    assert_eq!((of(&diana, "requests_total", &good_url), of(&diana, "request_failures_total", &good_url)), (10.0, 0.0));
    assert_eq!((of(&diana, "response_seconds_count", &good_url), of(&diana, "ejected", &good_url)), (10.0, 0.0));
    assert_eq!(diana.metric("diana_upstream_seconds_count"), 10.0);

    let down = reported(&diana, &dead);
    assert_eq!(
        (&down["healthy"], &down["requests"], &down["failures"]),
        (&false.into(), &3.into(), &3.into()),
        "{down}"
    );
    assert!(down["ejected_until"].as_str().unwrap().ends_with('Z') && down["p50_ms"].is_null(), "{down}");
    let up = reported(&diana, &good_url);
    assert_eq!(
        (&up["healthy"], &up["failures"], &up["ejected_until"]),
        (&true.into(), &0.into(), &Value::Null),
        "{up}"
    );
    assert_eq!(up["route"], "/, /v1/**", "{up}");
    assert!(up["p50_ms"].as_f64().unwrap() <= up["p99_ms"].as_f64().unwrap(), "{up}");

    wait_until("the ejection to end", LONG, || (of(&diana, "ejected", &dead) == 0.0).then_some(())).unwrap();
    assert_eq!(reported(&diana, &dead)["healthy"], true);
    assert_eq!(log_lines(&diana, "WARN", "ejected").len(), 1);
}

#[test]
fn an_aborted_response_is_a_failure_of_its_upstream() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour")?;
        Ok(AfterResponse::Close)
    });
    let url = upstream.url();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{url}'}}\nrules: []\n"));
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(client.try_response().is_none(), "the response is complete");
    let counted = || (of(&diana, "request_failures_total", &url) == 1.0).then_some(());
    wait_until("it to be counted", LONG, counted).unwrap();
    assert_eq!((of(&diana, "requests_total", &url), of(&diana, "response_seconds_count", &url)), (1.0, 1.0));
    let closed = || (of(&diana, "connections", &url) == 0.0).then_some(());
    wait_until("its connection to be closed", LONG, closed).unwrap();
}

#[test]
fn open_connections_to_an_upstream_are_counted() {
    let upstream = Upstream::echo();
    let url = upstream.url();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{url}'}}\nrules: []\n"));
    assert_eq!(of(&diana, "connections", &url), 0.0);
    let mut client = Client::connect(diana.port());
    assert_eq!([client.get("/").status, client.get("/").status], [200, 200]);
    assert_eq!(of(&diana, "connections", &url), 1.0);
    assert_eq!(reported(&diana, &url)["connections"], 1);
}

/// An upstream that only a rule names has no route.
#[test]
fn an_upstream_of_a_rule_is_reported() {
    let (main, other) = (Upstream::echo(), Upstream::echo());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules: [{{name: cheap, limit: 1/h, over: {{reroute: '{}'}}}}]\n",
        main.url(),
        other.url()
    ));
    assert_eq!([(); 3].map(|()| get(diana.port(), "/").status), [200; 3]);
    assert_eq!((of(&diana, "requests_total", &main.url()), of(&diana, "requests_total", &other.url())), (1.0, 2.0));
    assert_eq!(reported(&diana, &other.url())["route"], "reroute");
}

/// The gateway answers 502, but the upstream has responded.
#[test]
fn an_upgrade_that_no_client_asked_for_is_counted() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: what\r\n\r\n")?;
        Ok(AfterResponse::Close)
    });
    let url = upstream.url();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{url}'}}\nrules: []\n"));
    assert_eq!(get(diana.port(), "/").status, 502);
    assert_eq!((of(&diana, "requests_total", &url), upstream.count()), (1.0, 1));
}
