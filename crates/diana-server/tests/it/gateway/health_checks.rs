//! Active health checks of upstreams: an upstream that fails them gets no requests until it passes again.

use crate::support::client::{Client, get};
use crate::support::http2::{Protocol, Service, certificate};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::{NginxServer, Port, wait_until};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// An upstream whose checks at `/healthz` are answered with a status that can be changed.
struct Checked {
    upstream: Upstream,
    status: Arc<AtomicU16>,
}

impl Checked {
    fn start(name: &'static str) -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let checked = Arc::clone(&status);
        let upstream = Upstream::start(move |exchange| {
            exchange.body()?;
            if exchange.request.target() != "/healthz" {
                return exchange.respond("200 OK", "", name.as_bytes());
            }
            exchange.respond(&format!("{} Checked", checked.load(Ordering::SeqCst)), "", b"ok")?;
            Ok(AfterResponse::Close)
        });
        Self { upstream, status }
    }

    fn set(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Returns the number of requests that are no checks.
    fn requests(&self) -> usize {
        self.upstream.received().iter().filter(|request| request.target() != "/healthz").count()
    }

    fn checks(&self) -> usize {
        self.upstream.count() - self.requests()
    }
}

fn healthy(diana: &Diana, url: &str) -> f64 {
    diana.metric(&format!("diana_upstream_healthy{{upstream=\"{url}\"}}"))
}

fn wait_for(diana: &Diana, url: &str, state: f64) {
    wait_until("the checks to change the state", LONG, || (healthy(diana, url) == state).then_some(())).unwrap();
}

fn checks(diana: &Diana, url: &str, result: &str) -> f64 {
    diana.metric(&format!("diana_upstream_checks_total{{upstream=\"{url}\",result=\"{result}\"}}"))
}

fn reported(diana: &Diana, url: &str) -> Value {
    let status: Value = serde_json::from_str(&diana.admin("/status").text()).unwrap();
    status["upstreams"].as_array().unwrap().iter().find(|upstream| upstream["address"] == url).unwrap().clone()
}

#[test]
fn an_upstream_that_fails_its_checks_gets_no_requests_and_comes_back() {
    let (one, two) = (Checked::start("one"), Checked::start("two"));
    let (first, second) = (one.upstream.url(), two.upstream.url());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: ['{first}', '{second}'], \
         health: {{path: /healthz, interval: 100ms, status: [200, 204]}}}}\nrules: []\n"
    ));
    one.set(503);
    wait_for(&diana, &first, 0.0);
    let before = one.requests();
    let bodies: Vec<String> = (0..20).map(|_| get(diana.port(), "/").text()).collect();
    assert_eq!((bodies, one.requests()), (vec!["two".to_owned(); 20], before));
    let down = reported(&diana, &first);
    assert_eq!(
        (&down["healthy"], &down["check"]["passing"], &down["ejected_until"]),
        (&false.into(), &false.into(), &Value::Null)
    );
    assert_eq!(down["check"]["error"], "status 503", "{down}");
    assert_eq!(reported(&diana, &second)["check"]["error"], Value::Null);
    assert!(checks(&diana, &first, "failed") >= 3.0 && checks(&diana, &second, "failed") == 0.0);

    one.set(204);
    wait_for(&diana, &first, 1.0);
    assert_eq!(reported(&diana, &first)["healthy"], true);
    let mut client = Client::connect(diana.port());
    let bodies: Vec<String> = (0..4).map(|_| client.get("/").text()).collect();
    assert_eq!(bodies.iter().filter(|body| *body == "one").count(), 2, "{bodies:?}");
    let log = diana.output();
    assert_eq!(log.matches("fails its checks of /healthz: status 503").count(), 1, "{log}");
    assert_eq!(log.matches("passes its checks of /healthz again").count(), 1, "{log}");
}

/// The checks are made by one thread for all workers, and identify themselves.
#[test]
fn an_upstream_is_checked_once_for_all_workers_and_routes() {
    let checked = Checked::start("one");
    let url = checked.upstream.url();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 8, upstream: '{url}', health: {{path: /healthz, interval: 100ms}},\n\
         routes: [{{match: {{path: /v1/**}}, upstream: '{url}', health: {{path: /healthz, interval: 100ms}}}}]}}\nrules: []\n"
    ));
    checked.upstream.wait_for(5);
    let passed = checks(&diana, &url, "passed");
    // Those that are counted have been received, and one more may be on its way.
    assert!(checked.checks() as f64 >= passed && passed >= 4.0, "{} checks, {passed} passed", checked.checks());
    assert!((checked.checks() as f64) < 8.0 * passed, "each worker checks");
    let request = checked.upstream.last();
    assert!(request.header("user-agent").unwrap().starts_with("diana-health-check/"));
    assert_eq!(request.header("host"), Some(&*url.replace("http://", "")));
    assert_eq!(
        diana.metric(&format!("diana_upstream_requests_total{{upstream=\"{url}\"}}")),
        0.0,
        "checks are no requests"
    );
}

#[test]
fn an_upstream_that_is_down_from_the_start_is_found_without_a_request() {
    let (dead, good) = (Port::claim().unwrap(), Checked::start("good"));
    let (dead, good_url) = (format!("http://127.0.0.1:{}", dead.number()), good.upstream.url());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: ['{dead}', '{good_url}'], \
         health: {{path: /healthz, interval: 100ms, unhealthy: 2}}}}\nrules: []\n"
    ));
    wait_for(&diana, &dead, 0.0);
    assert!(checks(&diana, &dead, "failed") >= 2.0 && checks(&diana, &dead, "passed") == 0.0);
    assert_eq!([(); 6].map(|()| get(diana.port(), "/").text()), ["good"; 6]);
    assert_eq!(diana.metric(&format!("diana_upstream_requests_total{{upstream=\"{dead}\"}}")), 0.0);
}

/// A check may be wrong about all upstreams at once: that must not be an outage.
#[test]
fn if_all_upstreams_fail_their_checks_all_are_tried() {
    let (one, two) = (Checked::start("one"), Checked::start("two"));
    [&one, &two].into_iter().for_each(|checked| checked.set(500));
    let urls = [one.upstream.url(), two.upstream.url()];
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{}', '{}'], \
         health: {{path: /healthz, interval: 100ms}}}}\nrules: []\n",
        urls[0], urls[1]
    ));
    urls.iter().for_each(|url| wait_for(&diana, url, 0.0));
    let before = [one.requests(), two.requests()];
    assert_eq!([(); 10].map(|()| get(diana.port(), "/").status), [200; 10]);
    assert_eq!([one.requests() - before[0], two.requests() - before[1]], [5, 5]);
}

#[test]
fn a_check_that_takes_too_long_or_is_no_http_fails() {
    let slow = Upstream::start(|exchange| {
        // Until the check gives up.
        let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
        Ok(AfterResponse::Close)
    });
    let noise = Upstream::start(|exchange| {
        exchange.send("SSH-2.0-OpenSSH_9.2\r\n")?;
        Ok(AfterResponse::Close)
    });
    let endless = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\n")?;
        while exchange.send("x-more: and more and more and more and more and more\r\n").is_ok() {}
        Ok(AfterResponse::Close)
    });
    let urls = [slow.url(), noise.url(), endless.url()];
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: {urls:?}, health: {{path: /, interval: 100ms, timeout: 200ms, unhealthy: 1}}}}\n\
         rules: []\n"
    ));
    urls.iter().for_each(|url| wait_for(&diana, url, 0.0));
    let error = |url: &str| reported(&diana, url)["check"]["error"].as_str().unwrap_or_default().to_owned();
    assert_eq!(error(&urls[0]), "no response within 200ms");
    assert_eq!(error(&urls[1]), "connection failed: invalid HTTP: invalid response head");
    assert_eq!(error(&urls[2]), "connection failed: invalid HTTP: response head too long");
}

/// Only so much of a body is read, and the status decides.
#[test]
fn an_endless_body_passes_and_is_not_read_to_its_end() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")?;
        while exchange.send([b'x'; 8 << 10]).is_ok() {}
        Ok(AfterResponse::Close)
    });
    let url = upstream.url();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{url}', health: {{path: /, interval: 100ms, timeout: 30s}}}}\nrules: []\n"
    ));
    wait_until("two checks", LONG, || (checks(&diana, &url, "passed") >= 2.0).then_some(())).unwrap();
    assert_eq!(checks(&diana, &url, "failed"), 0.0);
    upstream.wait_for_closed(2);
}

#[test]
fn upstreams_with_http2_and_tls_are_checked_as_they_are_used() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "inner", &["localhost"]);
    std::fs::copy(folder.path().join("inner.pem"), folder.path().join("ca.pem")).unwrap();
    let plain = Service::h2c();
    let secure = [Protocol::Http1, Protocol::Http2].map(|speaks| Service::https(folder.path(), "inner", speaks));
    let mut urls = vec![format!("h2c://127.0.0.1:{}", plain.port())];
    urls.extend(secure.iter().map(|service| format!("https://localhost:{}", service.port())));
    // The certificate is not valid for this name.
    let wrong = format!("https://127.0.0.1:{}", secure[0].port());
    urls.push(wrong.clone());
    let diana = Diana::serve_in(
        folder,
        &format!(
            "gateway: {{listen: $LISTEN, upstream: {urls:?}, upstream_ca: $FOLDER/ca.pem, \
             health: {{path: /healthz?deep=1, host: checks.example.com, interval: 100ms}}}}\nrules: []\n"
        ),
    );
    wait_for(&diana, &wrong, 0.0);
    for url in &urls[..3] {
        wait_until("a check to pass", LONG, || (checks(&diana, url, "passed") >= 1.0).then_some(())).unwrap();
        assert_eq!(checks(&diana, url, "failed"), 0.0, "{url}: {}", reported(&diana, url));
    }
    for (service, version) in
        [(&plain, http::Version::HTTP_2), (&secure[0], http::Version::HTTP_11), (&secure[1], http::Version::HTTP_2)]
    {
        let seen = service.last();
        assert_eq!((seen.version, &*seen.host, &*seen.target), (version, "checks.example.com", "/healthz?deep=1"));
    }
}

#[test]
fn a_real_nginx_is_checked() {
    let server = |port| {
        format!(
            "server {{ listen 127.0.0.1:{port}; location = /healthz {{ return 204; }} location / {{ return 200 nginx; }} }}"
        )
    };
    let mut nginx = NginxServer::start(server).unwrap();
    let other = Checked::start("other");
    let url = nginx.url();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{url}', '{}'], \
         health: {{path: /healthz, interval: 100ms, status: 2xx}}}}\nrules: []\n",
        other.upstream.url()
    ));
    wait_until("checks to pass", LONG, || (checks(&diana, &url, "passed") >= 2.0).then_some(())).unwrap();
    assert_eq!([(); 4].map(|()| get(diana.port(), "/").text()), ["nginx", "other", "nginx", "other"]);
    nginx.kill().unwrap();
    wait_for(&diana, &url, 0.0);
    assert_eq!([(); 4].map(|()| get(diana.port(), "/").text()), ["other"; 4]);
}

/// Changing the upstreams keeps the state of those that stay; a removed one is no longer checked.
#[test]
fn a_reload_keeps_the_health_of_upstreams_that_stay() {
    let (failing, removed, added) = (Checked::start("failing"), Checked::start("removed"), Checked::start("added"));
    failing.set(500);
    let urls = [&failing, &removed, &added].map(|checked| checked.upstream.url());
    // No check can pass in time for a failing upstream to recover.
    let file = |upstreams: &[&String], interval: &str| {
        format!(
            "gateway: {{listen: $LISTEN, workers: 1, upstream: {upstreams:?}, \
             health: {{path: /healthz, interval: {interval}, healthy: 100}}}}\nrules: []\n"
        )
    };
    let diana = Diana::serve(&file(&[&urls[0], &urls[1]], "100ms"));
    wait_for(&diana, &urls[0], 0.0);
    let failed = checks(&diana, &urls[0], "failed");
    // Another interval is another check, which starts with the state of the old one.
    for interval in ["100ms", "1h"] {
        diana.rewrite(&file(&[&urls[0], &urls[2]], interval));
        let applied = || diana.output().matches("upstreams loaded").count();
        let expected = if interval == "1h" { 2 } else { 1 };
        wait_until("the upstreams to be loaded", LONG, || (applied() == expected).then_some(())).unwrap();
        assert_eq!(healthy(&diana, &urls[0]), 0.0, "{interval}");
        assert_eq!([(); 4].map(|()| get(diana.port(), "/").text()), ["added"; 4]);
    }
    assert!(failed >= 3.0);
    let metrics = diana.admin("/metrics").text();
    assert!(!metrics.contains(&urls[1]), "the removed upstream is still reported");
    assert!(!diana.output().contains("need a restart"));
    let (before, count) = (removed.checks(), added.requests());
    assert_eq!(get(diana.port(), "/").text(), "added");
    assert_eq!((removed.checks(), added.requests()), (before, count + 1));
}

#[test]
fn checks_do_not_delay_the_stop() {
    let slow = Upstream::start(|exchange| {
        let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
        Ok(AfterResponse::Close)
    });
    let mut diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', health: {{path: /, interval: 100ms, timeout: 1h}}}}\nrules: []\n",
        slow.url()
    ));
    slow.wait_for(1);
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
}
