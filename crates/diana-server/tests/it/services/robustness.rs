//! The service `envoy` under bad conditions: invalid and hostile clients, an unreachable Redis, and deadlines.

use super::client::{Envoy, descriptor, shop};
use super::messages::{Code, Descriptor, RateLimitRequest, RateLimitResponse, Unit};
use crate::support::client::Client;
use crate::support::http2::{certificate, tls};
use crate::support::program::{Diana, LONG};
use diana_testing::{RedisServer, wait_until};
use prost::Message;
use std::time::Duration;
use tempfile::TempDir;

const ONE: &str = "services: {envoy: $LISTEN}\nrules: [{name: each, by: descriptor(k), limit: 1/h}]";

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_get_an_error() {
    let diana = Diana::serve(ONE);
    let envoy = Envoy::connect(diana.port()).await;
    let one = || descriptor(&[("k", "a")]);
    let entries = vec![("k", "a"); 65];
    for (what, request) in [
        ("the domain is empty", RateLimitRequest { domain: String::new(), ..shop([one()]) }),
        ("the request has no descriptors", shop([])),
        ("65 descriptors", shop(vec![one(); 65])),
        ("65 entries", shop([descriptor(&entries)])),
    ] {
        let error = envoy.should_rate_limit(request).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{what}: {error}");
        assert!(error.message().contains(what), "{what}: {error}");
    }
    // As many as are accepted.
    let widest = envoy.ask_all(vec![descriptor(&entries[..16]); 62]).await;
    assert_eq!((widest.overall_code(), widest.statuses.len()), (Code::Ok, 62));
    let longest = envoy.ask_all(vec![descriptor(&entries[..64]); 15]).await;
    assert_eq!((longest.overall_code(), longest.statuses.len()), (Code::OverLimit, 15));
    assert_eq!(diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"failed\"}"), 4.0);
}

/// After an error, Envoy lets the request pass if `failure_mode_deny` is not set. A client chooses the values of headers.
#[tokio::test(flavor = "multi_thread")]
async fn long_values_are_counted() {
    let redis = RedisServer::start().unwrap();
    for store in [String::new(), format!("store: {{redis: '{}', timeout: 20s}}\n", redis.url())] {
        let diana = Diana::serve(&format!("{store}{ONE}"));
        let envoy = Envoy::connect(diana.port()).await;
        for length in [17_000, 70_000, 250_000] {
            let [one, other] = ["a", "b"].map(|end| "a".repeat(length) + end);
            for value in [&one, &other] {
                assert_eq!(
                    envoy.codes::<2>(&descriptor(&[("k", value)])).await,
                    [Code::Ok, Code::OverLimit],
                    "{length}"
                );
            }
            // Neither a long key nor a long domain is an error.
            let keys = descriptor(&[("k", "a"), (&one, "a")]);
            envoy.should_rate_limit(RateLimitRequest { domain: other[..8].to_owned(), ..shop([keys]) }).await.unwrap();
        }
    }
}

/// A message that is not the one that the method takes.
#[derive(Clone, PartialEq, Message)]
struct WrongMessage {
    #[prost(uint64, tag = "1")]
    domain: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_bounded_and_checked() {
    let diana = Diana::serve(ONE);
    let envoy = Envoy::connect(diana.port()).await;
    let method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let huge = RateLimitRequest { domain: "a".repeat(2 << 20), ..shop([descriptor(&[("k", "a")])]) };
    // A client of Envoy can make a message so long: after an error, its request would pass.
    assert_eq!(envoy.should_rate_limit(huge).await.unwrap().overall_code(), Code::OverLimit);
    // No client of Envoy chooses how many entries there are.
    let many = descriptor(&vec![("k", "a"); 65]);
    let error = envoy.should_rate_limit(shop([many])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
    let error = envoy.should_rate_limit(shop(vec![descriptor(&[]); 100_000])).await.unwrap_err();
    assert_eq!(error.message(), "the message has more than 3514 fields");
    let error = envoy.call::<_, RateLimitResponse>(method, WrongMessage { domain: 7 }, None).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Internal, "{error}");
    let unknown = "/envoy.service.ratelimit.v3.RateLimitService/Unknown";
    let error = envoy.call::<_, RateLimitResponse>(unknown, shop([]), None).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unimplemented, "{error}");
    // The same connection is still served.
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bytes_end_only_their_connection() {
    let diana = Diana::serve(ONE);
    let envoy = Envoy::connect(diana.port()).await;
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let settings = &[0, 0, 0, 4, 0, 0, 0, 0, 0][..];
    let attacks = [
        b"\x00\xff\x13garbage that is no protocol at all\r\n\r\n".to_vec(),
        b"GET /check HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        // A frame that is larger than allowed, one of stream 0, and headers that can't be decoded.
        [preface, settings, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
        [preface, settings, &[0, 0, 1, 0, 0, 0, 0, 0, 0, 7]].concat(),
        [preface, settings, &[0, 0, 3, 1, 5, 0, 0, 0, 1, 0xff, 0xff, 0xff]].concat(),
    ];
    for bytes in attacks {
        let mut client = Client::connect(diana.port());
        // The server may close the connection before it has read everything.
        let _ = client.try_send(&bytes);
        let _ = client.stream().shutdown(std::net::Shutdown::Write);
        client.rest();
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_be_bytes()[3]
        };
        let frames = (0..8).flat_map(|_| {
            let (kind, flags, stream, payload) = (next() % 11, next(), next() % 5, (0..16).map(|_| next()).collect());
            [vec![0, 0, 16, kind, flags, 0, 0, 0, stream], payload].concat()
        });
        let bytes = [preface, settings, &frames.collect::<Vec<_>>()].concat();
        let mut client = Client::connect(diana.port());
        let _ = client.try_send(&bytes);
        let _ = client.stream().shutdown(std::net::Shutdown::Write);
        client.rest();
    }
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    assert!(!diana.output().contains("panic"), "{}", diana.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_do_not_begin_are_closed() {
    for tls in ["", ", tls: {certificate: $FOLDER/one.pem, key: $FOLDER/one.key}"] {
        let folder = TempDir::new().unwrap();
        certificate(folder.path(), "one", &["localhost"]);
        let diana = Diana::serve_in(
            folder,
            &format!(
                "
services: {{envoy: {{listen: $LISTEN{tls}}}}}
gateway: {{listen: $TLS, timeouts: {{header: 2s}}}}
rules: [{{name: each, by: descriptor(k), limit: 1/h}}]"
            ),
        );
        let envoy = match tls {
            "" => Envoy::connect(diana.port()).await,
            _ => Envoy::connect_tls(diana.port(), &diana.folder().join("one.pem")).await,
        };
        let silent = [&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01"].map(|first| {
            let mut client = Client::connect(diana.port());
            client.send(first);
            client
        });
        silent.into_iter().for_each(|mut client| drop(client.rest()));
        // One that has begun may be idle.
        assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_each_outcome() {
    let diana = Diana::serve(ONE);
    let envoy = Envoy::connect(diana.port()).await;
    envoy.codes::<3>(&descriptor(&[("k", "a")])).await;
    envoy.should_rate_limit(shop([])).await.unwrap_err();
    let count =
        |outcome| diana.metric(&format!("diana_service_requests_total{{service=\"envoy\",outcome=\"{outcome}\"}}"));
    assert_eq!(["allowed", "denied", "failed"].map(count), [1.0, 2.0, 1.0]);
    let of = |name: &str| diana.metric(&format!("diana_service_{name}{{service=\"envoy\"}}"));
    assert_eq!((of("connections"), of("connections_accepted_total")), (1.0, 1.0));
    assert_eq!(of("connections_rejected_total"), 0.0);
    drop(envoy);
    wait_until("the connection to be closed", LONG, || (of("connections") == 0.0).then_some(())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_served_if_the_file_has_a_certificate() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "one", &["localhost"]);
    let diana = Diana::serve_in(
        folder,
        "
services: {envoy: {listen: $LISTEN, tls: {certificate: $FOLDER/one.pem, key: $FOLDER/one.key}}}
rules: [{name: each, by: descriptor(k), limit: 1/h}]",
    );
    let envoy = Envoy::connect_tls(diana.port(), &diana.folder().join("one.pem")).await;
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    // Without TLS there is no answer.
    let mut client = Client::connect(diana.port());
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(!String::from_utf8_lossy(&client.rest()).contains("HTTP"));
    let refused = || diana.metric("diana_service_connections_rejected_total{service=\"envoy\"}");
    wait_until("the failed handshake to be counted", LONG, || (refused() == 1.0).then_some(())).unwrap();
    // A new certificate is used for new connections.
    certificate(diana.folder(), "one", &["localhost"]);
    diana.signal(rustix::process::Signal::HUP);
    let (mut tries, new) = (0, diana.folder().join("one.pem"));
    while tls(diana.port(), &[&new], "localhost", &["h2"]).await.is_err() {
        tries += 1;
        assert!(tries < 3_000, "the old certificate is still used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(envoy.ask(descriptor(&[("k", "b")])).await.overall_code(), Code::Ok, "open connections stay open");
}

/// A rule with `wait` delays a call; a caller that does not wait that long must not be charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_deadline_passes_charges_nothing() {
    for algorithm in ["algorithm: token_bucket", "algorithm: fixed_window, opens: first_request"] {
        let diana = Diana::serve(&format!(
            "
services: {{envoy: $LISTEN}}
rules: [{{name: slow, by: descriptor(k), limit: 1/h, wait: 5h, {algorithm}}}, {{name: other, limit: 9/h}}]"
        ));
        let envoy = Envoy::connect(diana.port()).await;
        let key = || descriptor(&[("k", "a")]);
        assert_eq!(envoy.ask(key()).await.overall_code(), Code::Ok);
        for _ in 0..3 {
            let late = envoy.with_deadline(shop([key()]), Duration::from_millis(30)).await.unwrap_err();
            assert_eq!(late.code(), tonic::Code::DeadlineExceeded, "{algorithm}: {late}");
        }
        // The client may hear of its deadline before the call is dropped.
        let is_refunded = || {
            let other = diana.admin("/peek?rule=other").text();
            let slow = diana.admin("/peek?rule=slow&key=a").text();
            let reset = slow.split("\"reset\":").nth(1)?.split([',', '}']).next()?.parse::<f64>().ok()?;
            (other.contains("\"remaining\":8") && reset <= 3_600.0).then_some(())
        };
        wait_until("what was charged to be refunded", LONG, is_refunded)
            .unwrap_or_else(|error| panic!("{error}: {}", diana.admin("/peek?rule=slow&key=a").text()));
    }
}

/// A client that cancels a call, as Envoy does if its own client disconnects.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_charges_nothing() {
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
rules: [{name: slow, by: descriptor(k), limit: 1/h, wait: 5h, algorithm: token_bucket}, {name: other, limit: 9/h}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let key = || descriptor(&[("k", "a")]);
    assert_eq!(envoy.ask(key()).await.overall_code(), Code::Ok);
    let remaining = |count: u32| {
        let text = format!("\"remaining\":{count}");
        wait_until("what remains", LONG, || diana.admin("/peek?rule=other").text().contains(&text).then_some(()))
    };
    let waiting = tokio::spawn({
        let envoy = envoy.clone();
        async move { envoy.ask(key()).await }
    });
    remaining(7).unwrap();
    waiting.abort();
    remaining(8).unwrap();
}

fn shared(redis: &RedisServer, when_down: &str) -> Diana {
    Diana::serve(&format!(
        "
services: {{envoy: $LISTEN}}
store: {{redis: '{}', timeout: 10s, when_down: {when_down}}}
rules: [{{name: each, match: {{domain: shop}}, by: descriptor(k), limit: 1/day, algorithm: fixed_window, opens: first_request}}]",
        redis.url()
    ))
}

/// Envoy decides then, by its `failure_mode_deny`.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_call_fails_if_the_file_says_deny() {
    let mut redis = RedisServer::start().unwrap();
    let diana = shared(&redis, "deny");
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    redis.kill().unwrap();
    for key in ["b", "c"] {
        let error = envoy.should_rate_limit(shop([descriptor(&[("k", key)])])).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    }
    // Also one that only looks, or brings its limit along.
    let others = [descriptor(&[("k", "d")]).hits(0), descriptor(&[("k", "d")]).limit(5, Unit::Day)];
    for other in others {
        let error = envoy.should_rate_limit(shop([other.clone()])).await.expect_err(&format!("{other:?}"));
        assert_eq!(error.code(), tonic::Code::Unavailable, "{other:?}: {error}");
    }
    // One that no shared rule matches needs no Redis.
    assert_eq!(envoy.ask(descriptor(&[("x", "y")])).await.overall_code(), Code::Ok);
    assert_eq!(diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"failed\"}"), 4.0);
    redis.restart().unwrap();
    wait_until("Redis to be used again", LONG, || (diana.metric("diana_store_up") == 1.0).then_some(())).unwrap();
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "d")])).await, [Code::Ok, Code::OverLimit]);
}

/// The deadline passes while Redis decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_decision_of_redis_is_refunded() {
    let redis = RedisServer::start().unwrap();
    let diana = shared(&redis, "local");
    let envoy = Envoy::connect(diana.port()).await;
    let own = || descriptor(&[("x", "y")]).limit(7, Unit::Year);
    let rule = || descriptor(&[("k", "b")]);
    assert_eq!(envoy.ask(own()).await.remaining(), [6]);
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.remaining(), [0]);
    for asked in [vec![own()], vec![rule()], vec![rule(), own()], vec![descriptor(&[("k", "a")]).refund(1)]] {
        redis.freeze().unwrap();
        let late = envoy.with_deadline(shop(asked), Duration::from_millis(100)).await;
        redis.thaw().unwrap();
        assert_eq!(late.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    }
    // Redis has decided before it answers these; the refunds follow.
    let remaining = |descriptor: Descriptor, expected: u32| {
        let envoy = envoy.clone();
        async move {
            let is_expected = async || envoy.ask(descriptor.clone().hits(0)).await.remaining() == [expected];
            let mut tries = 0;
            while !is_expected().await {
                tries += 1;
                assert!(tries < 3_000, "{descriptor:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    remaining(own(), 6).await;
    remaining(rule(), 1).await;
    // A refund is finished instead.
    remaining(descriptor(&[("k", "a")]), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_call_is_answered_if_the_file_says_local() {
    let mut redis = RedisServer::start().unwrap();
    let diana = shared(&redis, "local");
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.overall_code(), Code::Ok);
    redis.kill().unwrap();
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "b")])).await, [Code::Ok, Code::OverLimit]);
}
