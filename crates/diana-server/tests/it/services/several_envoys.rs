//! Two Envoys, each with its own Diana, and a gateway share one limit on Redis, while one of them is killed and restarted: an
//! Envoy, a Diana that it asks, or the gateway.

use crate::support::client::Client;
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::{EnvoyServer, RedisServer, wait_until};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CONFIG: &str = include_str!("envoy.yaml");
const LIMIT: u64 = 10_000;
/// The number of clients of each gateway.
const CLIENTS: usize = 2;

fn rules(redis: &RedisServer, services: &str) -> String {
    format!(
        "
{services}
store: {{redis: '{}', timeout: 20s}}
rules: [{{name: each-address, by: ip, limit: {LIMIT}/day, status: 429, algorithm: fixed_window, opens: first_request}}]",
        redis.url()
    )
}

fn envoy(diana: &Diana, upstream: &Upstream) -> EnvoyServer {
    let port = |from: u16, to: u16| (format!("port_value: {from}"), format!("port_value: {to}"));
    let envoy = EnvoyServer::start(|own| {
        let ports = [port(19_000, own), port(19_001, upstream.port()), port(19_002, diana.port())];
        // Without an answer, nothing may pass.
        let config = CONFIG.replace("failure_mode_deny: false", "failure_mode_deny: true");
        ports.iter().fold(config, |config, (from, to)| config.replace(from, to))
    });
    envoy.unwrap()
}

/// The responses of one gateway to its clients.
#[derive(Default)]
struct Responses {
    allowed: AtomicU64,
    denied: AtomicU64,
    /// Responses of an Envoy whose Diana does not answer.
    failed: AtomicU64,
}

/// The load: whether it ends, and a lock that interrupts it.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    pause: RwLock<()>,
}

/// Sends requests until told to stop. Connects again if the gateway is killed.
fn send_until(load: &Load, port: u16, responses: &Responses) {
    let mut client = None;
    while !load.stop.load(Ordering::SeqCst) {
        let _running = load.pause.read();
        let Some(connected) = client.as_mut() else {
            client = Client::try_connect(port).ok();
            continue;
        };
        let sent = connected.try_send("GET /ip HTTP/1.1\r\nhost: example.com\r\n\r\n").ok();
        match sent.and_then(|()| connected.try_response()).map(|response| response.status) {
            Some(200 | 204) => drop(responses.allowed.fetch_add(1, Ordering::SeqCst)),
            Some(429) => drop(responses.denied.fetch_add(1, Ordering::SeqCst)),
            Some(500) => drop(responses.failed.fetch_add(1, Ordering::SeqCst)),
            Some(other) => panic!("unexpected status {other}"),
            None => client = None,
        }
    }
}

/// Counts at the Dianas: a killed Envoy may have asked for a request that it did not forward.
#[test]
fn two_envoys_and_a_gateway_admit_exactly_the_limit() {
    let (redis, upstream) = (RedisServer::start().unwrap(), Upstream::echo());
    let services = [(); 2].map(|()| Diana::serve(&rules(&redis, "services: {envoy: $LISTEN}")));
    let gateway = Diana::serve(&rules(&redis, "gateway: {listen: $LISTEN}"));
    let [mut one, other] = [&services[0], &services[1]].map(|diana| envoy(diana, &upstream));
    let (load, responses) = (Load::default(), [(); 3].map(|()| Responses::default()));
    let of = |outcome: &str| {
        let name = format!("diana_service_requests_total{{service=\"envoy\",outcome=\"{outcome}\"}}");
        [&services[0], &services[1]].map(|diana| diana.metric(&name))
    };
    std::thread::scope(|scope| {
        for (port, responses) in [one.port(), other.port(), gateway.port()].into_iter().zip(&responses) {
            for _ in 0..CLIENTS {
                let load = &load;
                scope.spawn(move || send_until(load, port, responses));
            }
        }
        let allowed = || responses.iter().map(|of| of.allowed.load(Ordering::SeqCst)).sum::<u64>();
        let denied = || responses.each_ref().map(|of| of.denied.load(Ordering::SeqCst));
        let until = |what: &str, is_true: &dyn Fn() -> bool| {
            let waited = wait_until(what, 4 * LONG, || is_true().then_some(()));
            if waited.is_err() {
                load.stop.store(true, Ordering::SeqCst);
            }
            waited.unwrap_or_else(|error| panic!("{error}: {} allowed, {:?} denied", allowed(), denied()));
        };
        until("some of each", &|| responses.iter().all(|of| of.allowed.load(Ordering::SeqCst) > 50));
        one.kill().unwrap();
        let before = allowed();
        assert!(before < LIMIT, "killed too late");
        until("the others to go on", &|| allowed() > before + 100);
        one.restart().unwrap();
        // Each denies after the limit is used up, and more than were active then.
        until("everyone to be denied", &|| denied().iter().all(|count| *count > 100));
        load.stop.store(true, Ordering::SeqCst);
    });
    assert!(responses.iter().all(|of| of.failed.load(Ordering::SeqCst) == 0));
    let by_gateway = responses[2].allowed.load(Ordering::SeqCst);
    let by_envoys = responses[0].allowed.load(Ordering::SeqCst) + responses[1].allowed.load(Ordering::SeqCst);
    let charged = of("allowed").iter().sum::<f64>();
    let total = charged + by_gateway as f64;
    assert_eq!(total, LIMIT as f64, "{charged} by the services, {by_gateway} by the gateway");
    assert_eq!(of("failed"), [0.0; 2]);
    // What was allowed and not forwarded was lost with the killed Envoy.
    let forwarded = upstream.count() as u64;
    assert!(by_envoys <= forwarded && forwarded as f64 <= charged, "{by_envoys} of {forwarded} of {charged}");
    assert!(charged - by_envoys as f64 <= CLIENTS as f64, "each client had one request: {by_envoys} of {charged}");
}

/// Counts at the clients: a killed program loses its own counts, but not those in Redis.
#[test]
fn dianas_that_are_killed_admit_no_more_than_the_limit() {
    let (redis, upstream) = (RedisServer::start().unwrap(), Upstream::echo());
    // A killed program also loses what it has leased, until the window ends.
    let rules = |services: &str| rules(&redis, services).replace("timeout: 20s", "timeout: 20s, lease: off");
    let [mut one, other] = [(); 2].map(|()| Diana::serve(&rules("services: {envoy: $LISTEN}")));
    let mut gateway = Diana::serve(&rules("gateway: {listen: $LISTEN}"));
    let envoys = [&one, &other].map(|diana| envoy(diana, &upstream));
    let (load, responses) = (Load::default(), [(); 3].map(|()| Responses::default()));
    let count = |of: fn(&Responses) -> &AtomicU64| responses.each_ref().map(|from| of(from).load(Ordering::SeqCst));
    let (allowed, denied) = (|| count(|of| &of.allowed), || count(|of| &of.denied));
    let total = || allowed().iter().sum::<u64>();
    let until = |what: &str, is_true: &dyn Fn() -> bool| {
        let waited = wait_until(what, 4 * LONG, || is_true().then_some(()));
        if waited.is_err() {
            load.stop.store(true, Ordering::SeqCst);
        }
        waited.unwrap_or_else(|error| panic!("{error}: {:?} allowed, {:?} denied", allowed(), denied()));
    };
    std::thread::scope(|scope| {
        for (port, responses) in [envoys[0].port(), envoys[1].port(), gateway.port()].into_iter().zip(&responses) {
            for _ in 0..CLIENTS {
                let load = &load;
                scope.spawn(move || send_until(load, port, responses));
            }
        }
        for (number, killed) in [&mut one, &mut gateway].into_iter().enumerate() {
            let index = 2 * number;
            let before = allowed();
            until("some of each", &|| allowed().iter().zip(&before).all(|(now, before)| *now > before + 50));
            killed.kill();
            let before = total();
            assert!(before < LIMIT, "killed too late");
            until("the others to go on", &|| total() > before + 100);
            // The load goes on when it is ready, so that some of the limit is left then.
            let paused = load.pause.write();
            killed.restart();
            let before = allowed()[index];
            drop(paused);
            until("it to allow requests again", &|| allowed()[index] > before);
        }
        until("everyone to be denied", &|| denied().iter().all(|count| *count > 100));
        load.stop.store(true, Ordering::SeqCst);
    });
    let [by_gateway, forwarded] = [allowed()[2], upstream.count() as u64];
    assert!(total() <= forwarded + by_gateway && forwarded + by_gateway <= LIMIT, "{:?}, {forwarded}", allowed());
    // What was charged and not answered was lost with the killed programs: each of their clients had one request.
    assert!(total() + 2 * CLIENTS as u64 >= LIMIT, "{:?} of {LIMIT}", allowed());
    assert!(count(|of| &of.failed)[0] > 0, "the Envoy of the killed Diana denies");
    assert_eq!(count(|of| &of.failed)[1..], [0, 0]);
    assert!(other.admin("/peek?rule=each-address&key=127.0.0.1").text().contains("\"remaining\":0"));
}
