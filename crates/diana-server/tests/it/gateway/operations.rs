//! Start, reload and shutdown.

use crate::support::client::{Client, ClientResponse, get, get_with, send_request};
use crate::support::frames::{self, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS};
use crate::support::http2::connect;
use crate::support::program::{Diana, LONG, Stderr, serve};
use crate::support::upstream::{AfterResponse, Upstream};
use diana::{Clock, SystemClock};
use diana_testing::{Port, wait_until};
use parking_lot::{Condvar, Mutex};
use rustix::process::Signal;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// An upstream that responds when it is released.
struct Gate {
    upstream: Upstream,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    fn closed() -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = Arc::clone(&open);
        let upstream = Upstream::start(move |exchange| {
            exchange.body()?;
            let mut is_open = gate.0.lock();
            while !*is_open {
                gate.1.wait(&mut is_open);
            }
            drop(is_open);
            exchange.respond("200 OK", "", b"whole")
        });
        Self { upstream, open }
    }

    fn open(&self) {
        *self.open.0.lock() = true;
        self.open.1.notify_all();
    }
}

fn gateway_to(upstream: &Upstream, more: &str) -> Diana {
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

const ONE: &str = "gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 1/h, status: 429}]\n";
const TWO: &str = "gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 2/h, status: 430}]\n";

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

#[test]
fn requests_are_counted_and_logged() {
    let upstream = Upstream::start(|exchange| match exchange.request.target() {
        "/break" => Ok(AfterResponse::Close),
        _ => exchange.respond("200 OK", "", b"hello"),
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', access_log: json}}\n\
         rules: [{{name: each-key, by: header(x-key), limit: 2/h, status: 429}}]\n",
        upstream.url()
    ));
    let key = "x-key: a\r\nuser-agent: te\"st\\\r\n";
    let statuses: Vec<u16> = (0..5).map(|_| get_with(diana.port(), "/a?b=c", key).status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    assert_eq!(get(diana.port(), "/break").status, 502);
    assert_eq!(send_request(diana.port(), "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n").unwrap().status, 405);
    let counted = |outcome: &str| diana.metric(&format!("diana_requests_total{{outcome=\"{outcome}\"}}"));
    let all = || (counted("refused") == 3.0 && counted("forwarded") == 2.0 && counted("failed") == 1.0).then_some(());
    wait_until("all to be counted", LONG, all).unwrap();
    assert_eq!(counted("rejected"), 1.0);
    let refused = "diana_decisions_total{rule=\"each-key\",outcome=\"refused\"}";
    assert_eq!(diana.metric(refused), 3.0);
    let lines = || {
        let output = diana.output();
        let lines: Vec<serde_json::Value> = output
            .lines()
            .filter(|line| line.starts_with('{'))
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (lines.len() == 7).then_some(lines)
    };
    let lines = wait_until("seven lines", LONG, lines).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    // The order of lines of different workers is undefined.
    let of = |status: u64| lines.iter().filter(move |line| line["status"].as_u64() == Some(status)).collect::<Vec<_>>();
    assert_eq!([200, 429, 502, 405].map(|status| of(status).len()), [2, 3, 1, 1]);
    assert!(of(200).iter().all(|line| line["outcome"] == "forwarded"), "{lines:?}");
    assert!(of(429).iter().all(|line| line["rule"] == "each-key" && line["user_agent"] == "te\"st\\"), "{lines:?}");
}

/// Regression: the time in the queue was not logged, and counted as decision time.
#[test]
fn queue_time_is_logged_and_is_not_decision_time() {
    let gate = Gate::closed();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', access_log: json}}\n\
         rules: [{{name: plenty, limit: 1000/s}}, {{name: concurrent, concurrent: 1, wait: 60s}}]\n",
        gate.upstream.url()
    ));
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(diana.port())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    // One request is queued for a while.
    let connected = || (diana.metric("diana_connections") >= 2.0).then_some(());
    wait_until("both to be connected", LONG, connected).unwrap();
    let began = SystemClock.now();
    wait_until("a while", LONG, || (SystemClock.now().since(began).as_millis() >= 1_500).then_some(())).unwrap();
    gate.open();
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    let lines = || {
        let output = diana.output();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<serde_json::Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() == 2).then_some(lines)
    };
    let lines = wait_until("two lines", LONG, lines).unwrap();
    let waited: Vec<_> = lines.iter().filter(|line| line["rule"] == "concurrent").collect();
    let [waited] = waited[..] else { panic!("{lines:?}") };
    let wait = waited["wait_ms"].as_f64().unwrap();
    assert!(wait > 0.0, "{waited}");
    // Both responses were delayed equally, so the rest of the queued request's time is not decision time.
    let took = diana.metric("diana_decision_seconds_sum");
    assert!(took < wait / 1_000.0, "{took} s, {waited}");
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
    let refused = || (diana.metric("diana_connections_refused_total") > 0.0).then_some(());
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

#[test]
fn counts_upstream_failures_hidden_by_retries() {
    let (dead, good) = (Port::claim().unwrap(), Upstream::echo());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['http://127.0.0.1:{}', '{}']}}\nrules: []\n",
        dead.number(),
        good.url()
    ));
    let statuses: Vec<u16> = (0..10).map(|_| get(diana.port(), "/").status).collect();
    assert_eq!(statuses, [200; 10]);
    // It is ejected after three failures in a row.
    assert_eq!(diana.metric("diana_upstream_failures_total"), 3.0);
    assert_eq!(diana.metric("diana_requests_total{outcome=\"failed\"}"), 0.0);
}

#[test]
fn an_aborted_response_is_a_failure() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour")?;
        Ok(AfterResponse::Close)
    });
    let diana = gateway_to(&upstream, ", access_log: json");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(client.try_response().is_none(), "the response is complete");
    let counted = || (diana.metric("diana_requests_total{outcome=\"failed\"}") == 1.0).then_some(());
    wait_until("it to be counted", LONG, counted).unwrap();
    assert_eq!(diana.metric("diana_upstream_failures_total"), 1.0);
    assert_eq!(diana.metric("diana_requests_total{outcome=\"forwarded\"}"), 0.0);
    let line = || diana.output().lines().find(|line| line.starts_with('{')).map(str::to_owned);
    let line: serde_json::Value = serde_json::from_str(&wait_until("its line", LONG, line).unwrap()).unwrap();
    assert_eq!((line["status"].as_u64(), line["outcome"].as_str()), (Some(200), Some("failed")), "{line}");
}

/// Regression: an error in the file was reported forever, and a config server was reported as down although none was
/// configured.
#[test]
fn rule_errors_are_reported_until_fixed() {
    let diana = Diana::serve(ONE);
    let failing = |is: f64| (diana.metric("diana_rules_failing") == is).then_some(());
    failing(0.0).unwrap();
    assert!(!diana.admin("/metrics").text().contains("diana_rules_remote_up"));
    let source =
        || serde_json::from_str::<serde_json::Value>(&diana.admin("/status").text()).unwrap()["source"].clone();
    assert!(source()["connected"].is_null());
    for good in [ONE, TWO] {
        diana.rewrite("gateway: {listen: $LISTEN}\nrules: [{name: each, by: unknown-attribute, limit: 5/h}]\n");
        wait_until("the error", LONG, || failing(1.0)).unwrap();
        assert!(source()["failing"][0]["what"].as_str().unwrap().contains("unknown-attribute"), "{}", source());
        diana.rewrite(good);
        wait_until("the error to be resolved", LONG, || failing(0.0)).unwrap();
        assert_eq!(source()["failing"].as_array().map(Vec::len), Some(0));
        assert!(source()["last_error"]["what"].as_str().unwrap().contains("unknown-attribute"));
    }
}

#[test]
fn reports_an_unreachable_config_server() {
    let nowhere = Port::claim().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nremote: {{from: 'http://127.0.0.1:{}/rules', keep: $FOLDER/kept}}\nrules: []\n",
        nowhere.number()
    ));
    assert_eq!((diana.metric("diana_rules_remote_up"), diana.metric("diana_rules_failing")), (0.0, 1.0));
}

/// Regression: a failed change was logged as done.
#[test]
fn logs_successful_admin_changes_only() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 1/h}, {name: all, match: {path: /all}, limit: 1/h}]\n",
    );
    let post = |path: &str| {
        let request = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n");
        send_request(diana.admin_port(), &request).unwrap()
    };
    assert_eq!(get(diana.port(), "/all").status, 204);
    assert_eq!(get(diana.port(), "/all").status, 503);
    let refused = post("/reset?rule=each");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!([post("/reset?rule=unknown").status, post("/charge?rule=each").status], [404, 400]);
    // A rule without `by` has one count.
    assert_eq!(post("/reset?rule=all").status, 200);
    assert_eq!(get(diana.port(), "/all").status, 204);
    let logged = || diana.output().contains("admin: reset").then_some(());
    wait_until("the change", LONG, logged).unwrap();
    let output = diana.output();
    let logged: Vec<&str> = output.lines().filter(|line| line.contains("admin: ")).collect();
    assert!(logged.len() == 1 && logged[0].contains("all"), "{logged:?}");
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
