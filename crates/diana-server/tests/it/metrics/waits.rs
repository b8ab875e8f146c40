//! Requests that wait for a rule, and the keys that a rule holds.

use crate::support::client::{Client, get_with};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Gate;
use diana_testing::wait_until;

fn of(diana: &Diana, name: &str, rule: &str) -> f64 {
    diana.metric(&format!("diana_rule_{name}{{rule=\"{rule}\"}}"))
}

fn until_waiting(diana: &Diana, rule: &str, requests: f64) {
    wait_until("requests to wait", LONG, || (of(diana, "waiting", rule) == requests).then_some(())).unwrap();
}

#[test]
fn queued_requests_are_counted_until_they_are_allowed() {
    let gate = Gate::closed();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules: [{{name: plenty, limit: 1000/s}}, {{name: concurrent, concurrent: 1, wait: 60s}}]\n",
        gate.upstream.url()
    ));
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(diana.port())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    until_waiting(&diana, "concurrent", 2.0);
    assert_eq!((of(&diana, "waiting", "plenty"), of(&diana, "wait_seconds_count", "concurrent")), (0.0, 0.0));
    gate.open();
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    until_waiting(&diana, "concurrent", 0.0);
    assert_eq!(of(&diana, "wait_seconds_count", "concurrent"), 2.0);
    assert!(of(&diana, "wait_seconds_sum", "concurrent") > 0.0);
    assert_eq!((of(&diana, "wait_seconds_count", "plenty"), of(&diana, "wait_seconds_sum", "plenty")), (0.0, 0.0));
    assert_eq!(diana.metric("diana_wait_seconds_count"), 2.0);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"concurrent\",outcome=\"delayed\"}"), 2.0);
}

#[test]
fn a_request_that_waits_for_its_reserved_time_is_counted_until_its_client_leaves() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: [{name: slow, limit: 1/h, wait: 2h}]\n");
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(diana.port())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    until_waiting(&diana, "slow", 1.0);
    drop(clients);
    until_waiting(&diana, "slow", 0.0);
}

#[test]
fn a_denied_request_that_was_queued_has_waited() {
    let gate = Gate::closed();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: short, concurrent: 1, wait: 50ms, status: 429}}]\n",
        gate.upstream.url()
    ));
    let mut first = Client::connect(diana.port());
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    gate.upstream.wait_for(1);
    assert_eq!(get_with(diana.port(), "/", "").status, 429);
    assert_eq!((of(&diana, "wait_seconds_count", "short"), of(&diana, "waiting", "short")), (1.0, 0.0));
    assert!(of(&diana, "wait_seconds_sum", "short") >= 0.05);
    gate.open();
    assert_eq!(first.response().status, 200);
}

#[test]
fn the_keys_and_the_memory_of_each_rule_are_reported() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\n\
         rules: [{name: many, by: header(x-key), limit: [10/h, 100/day]}, {name: one, limit: 1000/h}, {name: none, by: cookie(c), limit: 1/h}]\n",
    );
    for key in 0..5 {
        assert_eq!(get_with(diana.port(), "/", &format!("x-key: {key}\r\n")).status, 204);
    }
    // Each key has a count for each of the two limits.
    assert_eq!(["many", "one", "none"].map(|rule| of(&diana, "keys", rule)), [10.0, 1.0, 0.0]);
    let bytes = ["many", "one", "none"].map(|rule| of(&diana, "keys_bytes", rule));
    assert!(bytes[0] > 0.0 && bytes[1] > 0.0 && bytes[2] == 0.0, "{bytes:?}");
    assert_eq!((diana.metric("diana_keys"), diana.metric("diana_keys_bytes")), (11.0, bytes.iter().sum()));
}
