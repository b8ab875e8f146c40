//! Weights and `least_requests`, and changes of the upstreams while requests are in flight.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Gate, Upstream};
use diana_testing::{Port, wait_until};

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |exchange| {
        exchange.body()?;
        exchange.respond("200 OK", "", name.as_bytes())
    })
}

fn bodies(diana: &Diana, count: usize) -> Vec<String> {
    let mut client = Client::connect(diana.port());
    (0..count).map(|_| client.get("/").text()).collect()
}

#[test]
fn weights_are_exact_and_spread_evenly() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, \
         upstream: [{{url: '{}', weight: 5}}, {{url: '{}'}}, {{url: '{}', weight: 1}}]}}\nrules: []\n",
        a.url(),
        b.url(),
        c.url()
    ));
    // The order of nginx's documentation.
    assert_eq!(bodies(&diana, 7), ["a", "a", "b", "a", "c", "a", "a"]);
    bodies(&diana, 700 - 7);
    assert_eq!([a.count(), b.count(), c.count()], [500, 100, 100]);
    let weight =
        |upstream: &Upstream| diana.metric(&format!("diana_upstream_weight{{upstream=\"{}\"}}", upstream.url()));
    assert_eq!([weight(&a), weight(&b)], [5.0, 1.0]);
}

#[test]
fn the_others_keep_their_proportion_if_one_is_down() {
    let ([a, b], dead) = (["a", "b"].map(named), Port::claim().unwrap());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: [{{url: '{}', weight: 2}}, \
         {{url: 'http://127.0.0.1:{}', weight: 7}}, {{url: '{}', weight: 1}}], \
         health: {{path: /, interval: 100ms, unhealthy: 1}}}}\nrules: []\n",
        a.url(),
        dead.number(),
        b.url()
    ));
    let down = format!("diana_upstream_healthy{{upstream=\"http://127.0.0.1:{}\"}}", dead.number());
    wait_until("the check to fail", LONG, || (diana.metric(&down) == 0.0).then_some(())).unwrap();
    let all = bodies(&diana, 30);
    assert_eq!(["a", "b"].map(|name| all.iter().filter(|body| *body == name).count()), [20, 10]);
}

#[test]
fn least_requests_avoids_the_upstream_that_does_not_answer() {
    let (slow, fast) = (Gate::closed(), named("fast"));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 2, upstream: ['{}', '{}'], balance: least_requests}}\nrules: []\n",
        slow.upstream.url(),
        fast.url()
    ));
    // Sent one after the other until one is at the slow upstream: from then on, it has one more than the other.
    let mut waiting = Vec::new();
    while slow.upstream.count() == 0 {
        let (before, mut client) = (fast.count(), Client::connect(diana.port()));
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let arrived = || (slow.upstream.count() + fast.count() > before).then_some(());
        wait_until("the request to arrive", LONG, arrived).unwrap();
        waiting.push(client);
    }
    let in_flight = format!("diana_upstream_in_flight{{upstream=\"{}\"}}", slow.upstream.url());
    assert_eq!(diana.metric(&in_flight), 1.0);
    // Whichever worker serves them.
    assert_eq!([(); 20].map(|()| get(diana.port(), "/").text()), ["fast"; 20]);
    assert_eq!(slow.upstream.count(), 1);
    slow.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    wait_until("the request to end", LONG, || (diana.metric(&in_flight) == 0.0).then_some(())).unwrap();
}

#[test]
fn least_requests_respects_weights() {
    let (heavy, light) = (Gate::closed(), Gate::closed());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 2, upstream: [{{url: '{}', weight: 3}}, '{}'], balance: least_requests}}\n\
         rules: []\n",
        heavy.upstream.url(),
        light.upstream.url()
    ));
    let mut clients: Vec<_> = (1..=40)
        .map(|count| {
            let mut client = Client::connect(diana.port());
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            let arrived = || (heavy.upstream.count() + light.upstream.count() == count).then_some(());
            wait_until("the request to arrive", LONG, arrived).unwrap();
            client
        })
        .collect();
    assert_eq!((heavy.upstream.count(), light.upstream.count()), (30, 10));
    [&heavy, &light].into_iter().for_each(Gate::open);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
}

/// With nothing in flight, all are equal: they are used in turn, by weight.
#[test]
fn idle_upstreams_are_used_in_turn() {
    let [a, b] = ["a", "b"].map(named);
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: [{{url: '{}', weight: 3}}, '{}'], balance: least_requests}}\n\
         rules: []\n",
        a.url(),
        b.url()
    ));
    // A client that has a response may be faster than the end of its request, so the order is not exact.
    let client = || get(diana.port(), "/").status;
    assert!((0..40).all(|_| client() == 200));
    assert!(a.count() + b.count() == 40 && b.count() >= 5, "{} and {}", a.count(), b.count());
}

#[test]
fn upstreams_and_routes_change_while_requests_are_in_flight() {
    let (old, new, route) = (Gate::closed(), named("new"), named("route"));
    let file =
        |upstream: &str, more: &str| format!("gateway: {{listen: $LISTEN, upstream: {upstream}{more}}}\nrules: []\n");
    let diana = Diana::serve(&file(&format!("'{}'", old.upstream.url()), ""));
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    old.upstream.wait_for(1);
    let routes = format!(", routes: [{{match: {{path: /v1/**}}, upstream: '{}'}}]", route.url());
    diana.rewrite(&file(&format!("[{{url: '{}', weight: 2}}]", new.url()), &routes));
    let loaded = |count| {
        let is_loaded = || (diana.output().matches("upstreams loaded").count() == count).then_some(());
        wait_until("the upstreams to be loaded", LONG, is_loaded).unwrap();
    };
    loaded(1);
    assert_eq!((get(diana.port(), "/").text(), get(diana.port(), "/v1/x").text()), ("new".into(), "route".into()));
    old.open();
    assert_eq!(client.response().text(), "whole", "the request in flight is completed by the old upstream");
    assert_eq!((client.get("/").text(), old.upstream.count()), ("new".into(), 1));
    // Its idle connection is closed, and it is not reported any more.
    old.upstream.wait_for_closed(1);
    assert!(!diana.admin("/metrics").text().contains(&old.upstream.url()));
    assert!(!diana.output().contains("need a restart"), "{}", diana.output());

    // A mistake changes nothing; other settings still need a restart.
    diana.rewrite(&file("[{url: 'http://127.0.0.1:1', weight: 0}]", ""));
    wait_until("the error", LONG, || diana.output().contains("`weight`").then_some(())).unwrap();
    assert_eq!(get(diana.port(), "/").text(), "new");
    diana.rewrite(&file(&format!("'{}'", new.url()), ", workers: 3"));
    wait_until("the warning", LONG, || diana.output().contains("need a restart: gateway.workers").then_some(()))
        .unwrap();
    loaded(2);
    assert_eq!(get(diana.port(), "/v1/x").text(), "new");
}
