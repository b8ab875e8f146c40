//! What the program reports: metrics, the access log, and its own log.

use super::operations::{ONE, TWO, gateway_to};
use crate::support::client::{Client, get, get_with, send_request};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Gate, Upstream};
use diana::{Clock, SystemClock};
use diana_testing::{Port, wait_until};

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
    let all = || (counted("denied") == 3.0 && counted("forwarded") == 2.0 && counted("failed") == 1.0).then_some(());
    wait_until("all to be counted", LONG, all).unwrap();
    assert_eq!(counted("rejected"), 1.0);
    let refused = "diana_decisions_total{rule=\"each-key\",outcome=\"denied\"}";
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
    let logged = || diana.output().contains("audit: reset").then_some(());
    wait_until("the change", LONG, logged).unwrap();
    let output = diana.output();
    let logged: Vec<&str> = output.lines().filter(|line| line.contains("audit: ")).collect();
    assert!(logged.len() == 1 && logged[0].contains("all"), "{logged:?}");
}
