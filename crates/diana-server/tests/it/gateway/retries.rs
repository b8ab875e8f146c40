//! `retries`: which failed requests reach another upstream, and the budget that bounds them.

use super::http2_interim::with_interim;
use crate::support::client::{Client, get, send_request};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::Port;

/// An upstream that fails: `/503` with this status, `/reset` by closing the connection, and `/timeout` by silence.
fn failing() -> Upstream {
    Upstream::start(|exchange| {
        exchange.body()?;
        let target = exchange.request.target().trim_start_matches('/').to_owned();
        match &*target {
            "reset" => Ok(AfterResponse::Close),
            "timeout" => {
                let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
                Ok(AfterResponse::Close)
            }
            "later" => exchange.respond("503 Later", "retry-after: 7\r\n", b"come later"),
            "partial" => {
                exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour")?;
                Ok(AfterResponse::Close)
            }
            status => exchange.respond(&format!("{status} Failing"), "", b"failing"),
        }
    })
}

fn good() -> Upstream {
    Upstream::start(|exchange| {
        exchange.body()?;
        exchange.respond("200 OK", "", b"good")
    })
}

/// A gateway whose first request goes to the first upstream, the second to the second, and so on.
fn serve(upstreams: &[&str], retries: &str, more: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: {upstreams:?}, {retries}{more}}}\n\
         rules: [{{name: all, limit: 1000000/h}}]\n"
    ))
}

fn of(diana: &Diana, name: &str, upstream: &str) -> f64 {
    diana.metric(&format!("diana_upstream_{name}{{upstream=\"{upstream}\"}}"))
}

#[test]
fn an_idempotent_request_is_sent_to_another_upstream() {
    for path in ["/502", "/503", "/504", "/reset"] {
        let (bad, good) = (failing(), good());
        let diana = serve(&[&bad.url(), &good.url()], "retries: {}", "");
        let mut client = Client::connect(diana.port());
        // The second time over a pooled connection, unless the upstream has closed it.
        for round in 1..=2 {
            for _ in 0..2 {
                assert_eq!(client.get(path).text(), "good", "{path}");
            }
            assert_eq!((bad.count(), good.count()), (round, 2 * round), "{path}");
        }
        assert_eq!(of(&diana, "retries_total", &bad.url()), 2.0, "{path}");
        assert_eq!(
            (of(&diana, "retries_total", &good.url()), of(&diana, "retries_denied_total", &bad.url())),
            (0.0, 0.0)
        );
        // Each attempt is a request of its upstream, and the rule has counted each request once.
        assert_eq!((of(&diana, "requests_total", &bad.url()), of(&diana, "requests_total", &good.url())), (2.0, 4.0));
        assert_eq!(diana.metric("diana_decisions_total{rule=\"all\",outcome=\"allowed\"}"), 4.0);
        assert_eq!(diana.metric("diana_requests_total{outcome=\"forwarded\"}"), 4.0);
    }
}

#[test]
fn without_retries_a_failure_is_the_response() {
    let (bad, good) = (failing(), good());
    let diana = serve(&[&bad.url(), &good.url()], "", "");
    let mut client = Client::connect(diana.port());
    assert_eq!([(); 4].map(|()| client.get("/503").status), [503, 200, 503, 200]);
    assert_eq!(get(diana.port(), "/reset").status, 502);
    assert_eq!(of(&diana, "retries_total", &bad.url()), 0.0);
}

#[test]
fn only_named_failures_are_retried() {
    let (bad, good) = (failing(), good());
    let more = ", timeouts: {response: 300ms}";
    let diana = serve(&[&bad.url(), &good.url()], "retries: {on: [timeout, 500]}", more);
    let mut client = Client::connect(diana.port());
    let mut pair = |path: &str| [client.get(path).status, client.get(path).status];
    assert_eq!(pair("/timeout"), [200, 200]);
    assert_eq!(pair("/500"), [200, 200]);
    assert_eq!(pair("/503"), [503, 200]);
    assert_eq!(pair("/404"), [404, 200]);
    assert_eq!(pair("/reset"), [502, 200]);
}

/// The service tells its clients to wait.
#[test]
fn a_response_with_retry_after_is_not_retried() {
    let (bad, good) = (failing(), good());
    let diana = serve(&[&bad.url(), &good.url()], "retries: {}", "");
    let response = get(diana.port(), "/later");
    assert_eq!((response.status, response.header("retry-after")), (503, Some("7")));
    assert_eq!((good.count(), of(&diana, "retries_denied_total", &bad.url())), (0, 0.0));
}

#[test]
fn a_post_or_a_body_is_never_sent_twice() {
    let retries = "retries: {on: [connect_failure, reset, timeout, 503]}, timeouts: {response: 300ms}";
    for (target, status) in [("/503", 503), ("/reset", 502), ("/timeout", 504)] {
        for (method, body) in [("POST", ""), ("POST", "hi"), ("PATCH", ""), ("PUT", "hi"), ("DELETE", "hi")] {
            let (bad, good) = (failing(), good());
            let diana = serve(&[&bad.url(), &good.url()], retries, "");
            let length = body.len();
            let request = format!("{method} {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
            let statuses = [(); 2].map(|()| send_request(diana.port(), &request).unwrap().status);
            assert_eq!(statuses, [status, 200], "{method} {target}");
            assert_eq!((bad.count(), good.count()), (1, 1), "{method} {target}");
            assert_eq!(of(&diana, "retries_total", &bad.url()), 0.0);
        }
    }
    // Without a body, these are idempotent.
    let (bad, good) = (failing(), good());
    let diana = serve(&[&bad.url(), &good.url()], "retries: {}", "");
    for method in ["PUT", "DELETE", "OPTIONS"] {
        let request = format!("{method} /503 HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!([(); 2].map(|()| send_request(diana.port(), &request).unwrap().status), [200; 2], "{method}");
    }
    assert_eq!((bad.count(), good.count()), (3, 6));
}

/// Nothing was sent, so any request can be retried: within the attempts, and only if it is named.
#[test]
fn a_request_that_was_not_sent_is_retried_with_its_body() {
    let ([one, two], good) = ([(); 2].map(|()| Port::claim().unwrap()), good());
    let [one, two] = [one, two].map(|port| format!("http://127.0.0.1:{}", port.number()));
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    for (retries, status) in
        [("", 200), ("retries: {attempts: 2}", 200), ("retries: {attempts: 1}", 502), ("retries: {on: 503}", 502)]
    {
        let diana = serve(&[&one, &two, &good.url()], retries, "");
        let before = good.count();
        assert_eq!(send_request(diana.port(), request).unwrap().status, status, "{retries}");
        assert_eq!(good.count() - before, usize::from(status == 200));
        if status == 200 {
            assert_eq!(good.last().body, b"hi");
        }
    }
}

#[test]
fn nothing_is_retried_after_the_client_got_a_part() {
    let (bad, good) = (failing(), good());
    let diana = serve(&[&bad.url(), &good.url()], "retries: {}", "");
    let mut client = Client::connect(diana.port());
    client.send("GET /partial HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(client.try_response().is_none(), "the response is complete");
    assert_eq!((bad.count(), good.count()), (1, 0));
}

/// The client has got Early Hints, which belong to a response of the first upstream.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_retried_after_an_interim_response() {
    let bad = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n")?;
        exchange.respond("503 Failing", "", b"")
    });
    let good = good();
    let diana = serve(&[&bad.url(), &good.url()], "retries: {}", "");
    let (interim, status) = tokio::time::timeout(LONG, with_interim(diana.port(), || {})).await.unwrap();
    assert_eq!((interim.len(), status, good.count()), (1, 503, 0));
}

#[test]
fn the_last_failure_is_the_response_and_no_upstream_gets_a_request_twice() {
    let all = [(); 3].map(|()| failing());
    let urls = all.each_ref().map(Upstream::url);
    let diana = serve(&urls.each_ref().map(|url| &**url), "retries: {attempts: 10}", "");
    let response = get(diana.port(), "/502");
    assert_eq!((response.status, response.text()), (502, "failing".to_owned()));
    assert_eq!(all.each_ref().map(Upstream::count), [1; 3]);
}

/// All upstreams fail: the load on them grows by the budget, not by the attempts.
#[test]
fn the_budget_bounds_retries_during_an_outage() {
    const REQUESTS: usize = 200;
    let all = [(); 3].map(|()| failing());
    let urls = all.each_ref().map(Upstream::url);
    let retries = "retries: {attempts: 2, budget: 10%, min_per_second: 0}";
    let diana = serve(&urls.each_ref().map(|url| &**url), retries, "");
    let mut client = Client::connect(diana.port());
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/503").status, 503);
    }
    let sent: usize = all.iter().map(Upstream::count).sum();
    let sum = |name: &str| urls.iter().map(|url| of(&diana, name, url)).sum::<f64>();
    assert_eq!(sent as f64, REQUESTS as f64 + sum("retries_total"));
    // A retry needs ten requests. Those that leave the window of ten seconds take their share along.
    assert!((1..=REQUESTS / 10).contains(&(sent - REQUESTS)), "{} retries", sent - REQUESTS);
    assert!(sum("retries_denied_total") >= (REQUESTS - 2 * REQUESTS / 10) as f64, "{}", sum("retries_denied_total"));
    assert_eq!(diana.metric("diana_decisions_total{rule=\"all\",outcome=\"allowed\"}"), REQUESTS as f64);
}

#[test]
fn an_unhealthy_upstream_gets_no_retries() {
    let (bad, dead) = (failing(), Port::claim().unwrap());
    let dead = format!("http://127.0.0.1:{}", dead.number());
    let diana = serve(&[&bad.url(), &dead], "retries: {on: 503}", "");
    // Three requests that can't be sent eject it.
    assert_eq!([(); 6].map(|()| get(diana.port(), "/200").status).iter().filter(|status| **status == 502).count(), 3);
    assert_eq!(get(diana.port(), "/503").status, 503);
    assert_eq!((of(&diana, "requests_total", &dead), of(&diana, "retries_total", &bad.url())), (3.0, 0.0));
}
