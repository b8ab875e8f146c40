//! Start, reload and shutdown.

use crate::support::client::{Client, ClientResponse, get, get_with, send_request};
use crate::support::frames::{self, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS};
use crate::support::http2::connect;
use crate::support::program::{Diana, LONG, Stderr, serve};
use crate::support::upstream::{Gate, Upstream};
use diana_testing::wait_until;
use parking_lot::Mutex;
use rustix::process::Signal;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

pub(super) fn gateway_to(upstream: &Upstream, more: &str) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'{more}}}\nrules: []\n", upstream.url()))
}

/// Waits until no client can connect any more.
fn is_closed(port: u16) {
    wait_until("the listener to be closed", LONG, || Client::try_connect(port).is_err().then_some(())).unwrap();
}

#[test]
fn a_shutdown_drains_requests_in_flight() {
    let gate = Gate::closed();
    let mut diana = gateway_to(&gate.upstream, "");
    let mut begun: Vec<Client> = (0..20).map(|_| Client::connect(diana.port())).collect();
    for client in &mut begun {
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
    }
    let mut http2 = Frames::connect(diana.port(), &[]);
    http2.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")).unwrap();
    gate.upstream.wait_for(21);
    diana.request_stop();
    is_closed(diana.port());
    assert_eq!(diana.admin("/readyz").status, 503);
    assert_eq!(diana.admin("/healthz").status, 200);
    gate.open();
    for client in &mut begun {
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "whole"));
        assert_eq!(response.header("connection"), Some("close"));
        assert_eq!(client.rest(), b"");
    }
    // HTTP/2 clients get GOAWAY, and their response.
    let (mut goaways, mut body) = (0, Vec::new());
    while let Some(frame) = http2.next() {
        goaways += usize::from(frame.kind == GOAWAY);
        if frame.kind == frames::DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!((goaways > 0, &*body), (true, &b"whole"[..]));
    assert!(diana.wait_for_exit().success());
}

#[test]
fn a_shutdown_under_load_loses_no_request() {
    let upstream = Upstream::echo();
    let mut diana = gateway_to(&upstream, "");
    let port = diana.port();
    let (answered, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let clients: Vec<_> = (0..8)
        .map(|thread| {
            let (answered, lost) = (Arc::clone(&answered), Arc::clone(&lost));
            std::thread::spawn(move || {
                for n in 0.. {
                    let path = format!("/{thread}/{n}");
                    // A failed connect means that no request was sent.
                    let Ok(mut client) = Client::try_connect(port) else { return };
                    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
                    match client.try_send(request).ok().and_then(|()| client.try_response()) {
                        Some(ClientResponse { status: 200, .. }) => answered.fetch_add(1, Ordering::SeqCst),
                        _ => {
                            lost.lock().push(path);
                            return;
                        }
                    };
                }
            })
        })
        .collect();
    wait_until("some load", LONG, || (answered.load(Ordering::SeqCst) > 500).then_some(())).unwrap();
    diana.request_stop();
    for client in clients {
        client.join().unwrap();
    }
    assert!(diana.wait_for_exit().success());
    // A connection that was not accepted yet is closed unread; each request that was read must have been answered.
    let lost = lost.lock();
    let heard: Vec<_> =
        upstream.received().iter().map(|seen| seen.target().to_owned()).filter(|path| lost.contains(path)).collect();
    assert!(heard.is_empty(), "{heard:?} reached the upstream without a response to the client");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_the_shutdown() {
    let upstream = Upstream::echo();
    let mut diana = gateway_to(&upstream, ", timeouts: {stop: 300s, idle: 300s, header: 300s}");
    let mut idle = Client::connect(diana.port());
    assert_eq!(idle.get("/").status, 200);
    let silent = Client::connect(diana.port());
    let http2 = connect(diana.port()).await;
    let connected = || (diana.metric("diana_connections") == 3.0).then_some(());
    wait_until("all to be connected", LONG, connected).unwrap();
    diana.request_stop();
    // The HTTP/2 client gets GOAWAY, and closes.
    let ended = tokio::task::spawn_blocking(move || diana.wait_for_exit());
    assert!(ended.await.unwrap().success());
    assert_eq!(idle.rest(), b"");
    drop((silent, http2));
}

#[test]
fn the_stop_timeout_aborts_requests() {
    let gate = Gate::closed();
    let mut diana = gateway_to(&gate.upstream, ", timeouts: {stop: 500ms}");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    gate.upstream.wait_for(1);
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
    assert!(client.try_response().is_none());
    assert!(diana.output().contains("did not end within `timeouts.stop`"), "{}", diana.output());
    gate.open();
}

#[test]
fn a_second_signal_stops_immediately() {
    let gate = Gate::closed();
    let mut diana = gateway_to(&gate.upstream, ", timeouts: {stop: 300s}");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    gate.upstream.wait_for(1);
    diana.request_stop();
    is_closed(diana.port());
    diana.request_stop();
    assert_eq!(diana.wait_for_exit().code(), Some(130));
    gate.open();
}

#[test]
fn during_the_drain_delay_requests_are_served_though_it_is_not_ready() {
    let upstream = Gate::closed();
    upstream.open();
    // Longer than the test may take: only the second signal ends it.
    let mut diana = gateway_to(&upstream.upstream, ", timeouts: {drain: 300s}");
    diana.request_stop();
    wait_until("not ready", LONG, || (diana.admin("/readyz").status == 503).then_some(())).unwrap();
    assert_eq!(diana.admin("/healthz").status, 200);
    assert_eq!(get(diana.port(), "/").status, 200);
    diana.request_stop();
    assert_eq!(diana.wait_for_exit().code(), Some(130));
}

#[test]
fn after_the_drain_delay_it_stops() {
    let upstream = Gate::closed();
    let mut diana = gateway_to(&upstream.upstream, ", timeouts: {drain: 50ms}");
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
    let output = diana.output();
    let steps =
        ["not ready, and accepting requests for another 50ms", "draining 0 connections (at most 30s)", "stopped"];
    let found = steps.map(|step| output.find(step).unwrap_or_else(|| panic!("no `{step}`: {output}")));
    assert!(found.is_sorted(), "{output}");
    upstream.open();
}

pub(super) const ONE: &str =
    "gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 1/h, status: 429}]\n";
pub(super) const TWO: &str =
    "gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 2/h, status: 430}]\n";

/// Returns how many requests of a new key are allowed, and the status of the next one.
fn passes(diana: &Diana, keys: &AtomicUsize) -> (usize, u16) {
    let key = format!("x-key: {}\r\n", keys.fetch_add(1, Ordering::SeqCst));
    let mut passed = 0;
    loop {
        match get_with(diana.port(), "/", &key).status {
            204 if passed < 10 => passed += 1,
            status => return (passed, status),
        }
    }
}

#[test]
fn a_changed_file_is_loaded_and_an_invalid_one_is_not() {
    let diana = Diana::serve(ONE);
    let keys = AtomicUsize::new(0);
    assert_eq!(passes(&diana, &keys), (1, 429));
    diana.rewrite(TWO);
    wait_until("the new rules", LONG, || (passes(&diana, &keys) == (2, 430)).then_some(())).unwrap();
    diana.rewrite("gateway: {listen: $LISTEN}\nrules: [{name: each, by: unknown-attribute, limit: 5/h}]\n");
    let logged = || diana.output().contains("unknown-attribute").then_some(());
    wait_until("the log line", LONG, logged).unwrap();
    assert_eq!(passes(&diana, &keys), (2, 430));
    diana.rewrite(ONE);
    wait_until("the first rules again", LONG, || (passes(&diana, &keys) == (1, 429)).then_some(())).unwrap();
}

#[test]
fn sighup_reloads_and_keeps_connections() {
    let diana = Diana::serve(ONE);
    let keys = AtomicUsize::new(0);
    let mut open = Client::connect(diana.port());
    assert_eq!(open.get("/").status, 204);
    diana.rewrite(TWO);
    diana.signal(Signal::HUP);
    wait_until("the new rules", LONG, || (passes(&diana, &keys) == (2, 430)).then_some(())).unwrap();
    wait_until("the log line", LONG, || diana.output().contains("reloading rules and certificates").then_some(()))
        .unwrap();
    assert_eq!(open.get("/").status, 204);
}

#[test]
fn a_reload_keeps_the_counts_of_unchanged_limits() {
    let diana = Diana::serve(ONE);
    assert_eq!(get_with(diana.port(), "/", "x-key: spent\r\n").status, 204);
    let with_another = ONE.replace("rules: [", "rules: [{name: other, by: header(x-other), limit: 1/h}, ");
    diana.rewrite(&with_another);
    let is_loaded = || diana.admin("/rules").text().contains("other").then_some(());
    wait_until("the new rules", LONG, is_loaded).unwrap();
    assert_eq!(get_with(diana.port(), "/", "x-key: spent\r\n").status, 429);
}

#[test]
fn reports_an_address_in_use() {
    let diana = Diana::serve(ONE);
    let taken = format!("127.0.0.1:{}", diana.port());
    let mut second = Diana::launch(TempDir::new().unwrap(), &ONE.replace("$LISTEN", &taken));
    assert_eq!(second.wait_for_exit().code(), Some(1));
    wait_until("the log line", LONG, || second.output().contains(&taken).then_some(())).unwrap();
    assert!(second.output().contains("in use"), "{}", second.output());
    // The first is not affected.
    assert_eq!(get(diana.port(), "/").status, 204);
}

#[test]
fn reports_all_problems_of_a_file() {
    let bad =
        "gateway: {listen: nowhere}\nrules: [{name: a, by: unknown-attribute, limit: 1/s}, {name: b, limit: many}]\n";
    let mut diana = Diana::launch(TempDir::new().unwrap(), bad);
    assert_eq!(diana.wait_for_exit().code(), Some(1));
    let all =
        || ["nowhere", "unknown-attribute", "many"].iter().all(|word| diana.output().contains(word)).then_some(());
    wait_until("all problems", LONG, all).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    let mut none = Diana::launch(TempDir::new().unwrap(), ONE);
    none.request_stop();
    none.wait_for_exit();
}

#[test]
fn reports_missing_certificates() {
    let rules = "gateway: {listen: $LISTEN, tls: {listen: $TLS, certificates: {certificate: $FOLDER/none.pem, key: $FOLDER/none.key}}}\nrules: []\n";
    let mut diana = Diana::launch(TempDir::new().unwrap(), rules);
    assert_eq!(diana.wait_for_exit().code(), Some(1));
    wait_until("the log line", LONG, || diana.output().contains("none.pem").then_some(())).unwrap();
}

/// Regression: without a file descriptor for the next connection, SIGTERM was ignored, `/healthz` did not respond, and
/// the log was flooded.
#[test]
fn stays_healthy_without_free_descriptors() {
    let rules = "gateway: {listen: $LISTEN, workers: 2, timeouts: {header: 300s, stop: 300s}}\nrules: []\n";
    let mut diana = Diana::serve_by(rules, Stderr::Read, |file| {
        let program = serve(file);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
        command
    });
    // Clients do not get the last descriptors.
    let mut clients: Vec<Client> = (0..200).map(|_| Client::connect(diana.port())).collect();
    for client in &mut clients {
        let _ = client.try_send("GET / HTTP/1.1\r\n");
    }
    let refused = || (diana.metric("diana_connections_rejected_total") > 0.0).then_some(());
    wait_until("some to be closed", LONG, refused).unwrap();
    assert_eq!(diana.admin("/healthz").status, 200);
    // The admin connections use the last ones.
    let held: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect(diana.admin_port());
            client.send("GET /status HTTP/1.1\r\n");
            client
        })
        .collect();
    clients.extend((0..50).map(|_| Client::connect(diana.port())));
    for _ in 0..20 {
        assert_eq!(diana.admin("/healthz").status, 200);
    }
    let logged = diana.output().lines().filter(|line| line.contains("WARN")).count();
    assert!(logged < 60, "{logged} warnings");
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
    drop((clients, held));
}

/// Regression: SIGTERM waited until the config server had responded or timed out.
#[test]
fn a_hanging_reload_does_not_delay_the_shutdown() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let from = format!("http://{}/rules", silent.local_addr().unwrap());
    let mut diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nremote: {{from: '{from}', timeout: 300s, keep: $FOLDER/kept}}\nrules: []\n"
    ));
    for _ in 0..3 {
        diana.signal(Signal::HUP);
    }
    wait_until("the log line", LONG, || diana.output().contains("reloading rules and certificates").then_some(()))
        .unwrap();
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
}

/// Regression: a queued request was not woken when a permit became available.
#[test]
fn a_reset_and_a_reload_wake_queued_requests() {
    let gate = Gate::closed();
    let rules = |permits: u32| {
        let gateway = format!("gateway: {{listen: $LISTEN, upstream: '{}'}}", gate.upstream.url());
        format!("{gateway}\nrules: [{{name: concurrent, concurrent: {permits}, wait: 10min}}]\n")
    };
    let diana = Diana::serve(&rules(1));
    let begin = || {
        let mut client = Client::connect(diana.port());
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        client
    };
    let mut clients = vec![begin()];
    gate.upstream.wait_for(1);
    clients.push(begin());
    let is_queued = |connections: f64| (diana.metric("diana_connections") == connections).then_some(());
    wait_until("the second", LONG, || is_queued(2.0)).unwrap();
    let reset = "POST /reset?rule=concurrent HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(send_request(diana.admin_port(), reset).unwrap().status, 200);
    gate.upstream.wait_for(2);
    clients.push(begin());
    wait_until("the third", LONG, || is_queued(3.0)).unwrap();
    diana.rewrite(&rules(9));
    gate.upstream.wait_for(3);
    gate.open();
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
}

#[test]
fn the_memory_of_closed_connections_is_returned() {
    let rules = "gateway: {listen: $LISTEN}\nrules: [{name: one, by: ip, limit: 1/h}]\n";
    let diana = Diana::serve_by(rules, Stderr::Read, |file| {
        let mut command = serve(file);
        // Soon, so that the test does not wait for it.
        command.env("_RJEM_MALLOC_CONF", "dirty_decay_ms:100,muzzy_decay_ms:0");
        command
    });
    let connect = || {
        let mut client = Client::connect(diana.port());
        client.get("/");
        client
    };
    drop((0..50).map(|_| connect()).collect::<Vec<_>>());
    let before = diana.memory();
    let clients = (0..4_000).map(|_| connect()).collect::<Vec<_>>();
    let grown = diana.memory() - before;
    assert!(grown > 2 << 20, "{grown} bytes");
    drop(clients);
    let is_returned = || (diana.memory() < before + grown / 3).then_some(());
    wait_until("the memory to be returned", LONG, is_returned).unwrap();
}
