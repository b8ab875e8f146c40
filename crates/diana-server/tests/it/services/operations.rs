//! The services in operation: readiness, health, warnings and shutdown.

use super::client::{Envoy, descriptor};
use super::messages::{Code, ReflectionRequest};
use crate::support::client::{Client, send_request};
use crate::support::program::{Diana, LONG};
use diana_testing::{Port, wait_until};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tempfile::TempDir;

const ONE: &str = "services: {envoy: $LISTEN}\nrules: [{name: each, by: descriptor(k), limit: 1/h}]";

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_are_served() {
    let diana = Diana::serve(ONE);
    let envoy = Envoy::connect(diana.port()).await;
    let services = ["envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization"];
    for name in ["", services[0], services[1]] {
        assert_eq!(envoy.health(name).await.unwrap(), 1, "{name}");
    }
    assert_eq!(envoy.health("shop.Orders").await.unwrap_err().code(), tonic::Code::NotFound);
    let request = ReflectionRequest { list_services: "*".to_owned() };
    let response = envoy.reflect(request).await;
    let names = response.list.unwrap().service.into_iter().map(|service| service.name).collect::<Vec<_>>();
    for name in services {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_only_wait_do_not_delay_a_stop() {
    let mut diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, timeouts: {stop: 1h, body: 1h}}
rules: [{name: each, by: descriptor(k), limit: 1/h}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    let mut watched = envoy.watch_health("envoy.service.ratelimit.v3.RateLimitService").await;
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1, "serving");
    let mut unknown = envoy.watch_health("shop.Orders").await;
    assert_eq!(unknown.message().await.unwrap().unwrap().status, 3, "unknown");
    let mut reflection = envoy.open_reflection(ReflectionRequest { list_services: "*".to_owned() }).await;
    diana.request_stop();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2, "not serving");
    assert!(watched.message().await.unwrap().is_none() && reflection.message().await.unwrap().is_none());
    let stopped = tokio::task::spawn_blocking(move || diana.wait_for_exit()).await.unwrap();
    assert!(stopped.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_answers_waiting_calls() {
    let mut diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, timeouts: {stop: 1h}}
rules: [{name: slow, limit: 2/s, algorithm: token_bucket, burst: 1, wait: 1h}]",
    );
    let (envoy, idle) = (Envoy::connect(diana.port()).await, Envoy::connect(diana.port()).await);
    let silent = Client::connect(diana.port());
    assert_eq!(idle.ask(descriptor(&[("k", "a")])).await.overall_code(), Code::Ok);
    let mut calls = (0..6).map(|_| envoy.ask(descriptor(&[("k", "a")]))).collect::<FuturesUnordered<_>>();
    assert_eq!(calls.next().await.unwrap().overall_code(), Code::Ok);
    diana.request_stop();
    wait_until("the program not to be ready", LONG, || (diana.admin("/readyz").status == 503).then_some(())).unwrap();
    let mut answered = 1;
    while let Some(response) = calls.next().await {
        assert_eq!(response.overall_code(), Code::Ok);
        answered += 1;
    }
    assert_eq!(answered, 6);
    // Neither an idle client nor one that never sent a byte keeps it.
    let stopped = tokio::task::spawn_blocking(move || diana.wait_for_exit()).await.unwrap();
    assert!(stopped.success());
    drop((idle, silent));
}

/// Returns whether it is ready, if it answers at all.
fn is_ready(diana: &Diana) -> Option<bool> {
    let request = "GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    send_request(diana.admin_port(), request).map(|response| response.status == 200)
}

#[test]
fn a_program_is_ready_when_every_service_listens() {
    let [envoy, resp, http] = [(); 3].map(|()| Port::claim().unwrap());
    let ports = [&envoy, &resp, &http].map(Port::number);
    let [envoy, resp, http] = ports.map(|port| format!("'127.0.0.1:{port}'"));
    let diana = Diana::launch(
        TempDir::new().unwrap(),
        &format!("services: {{envoy: {envoy}, resp: {resp}, http: {http}}}\nrules: [{{name: all, limit: 9/h}}]"),
    );
    let ready = || {
        let is_ready = is_ready(&diana) == Some(true);
        // Asked after it was ready.
        is_ready.then(|| ports.map(|port| Client::try_connect(port).is_ok()))
    };
    assert_eq!(wait_until("diana to be ready", LONG, ready).unwrap(), [true; 3]);
}

#[test]
fn a_program_without_one_of_its_services_is_never_ready() {
    for name in ["envoy", "resp", "http"] {
        let port = Port::claim().unwrap();
        let _used = port.listen().unwrap();
        let address = format!("127.0.0.1:{}", port.number());
        let rules = format!("services: {{{name}: '{address}'}}\nrules: [{{name: all, limit: 9/h}}]");
        let mut diana = Diana::launch(TempDir::new().unwrap(), &rules);
        let ended = std::thread::scope(|scope| {
            let admin = diana.admin_port();
            let ended = scope.spawn(move || {
                let ready = "GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
                send_request(admin, ready).is_none_or(|response| response.status == 503)
            });
            assert!(ended.join().unwrap(), "{name} is ready");
            diana.wait_for_exit()
        });
        assert!(!ended.success(), "{name}");
        let named =
            || (diana.output().contains(&format!("`{name}`")) && diana.output().contains(&address)).then_some(());
        wait_until("the error", LONG, named).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    }
}

/// As `diana check` does.
#[test]
fn services_that_other_machines_reach_are_warned_about() {
    let port = Port::claim().unwrap();
    let address = format!("0.0.0.0:{}", port.number());
    let warning = |name: &str| format!("every machine that reaches {address} can use the service `{name}`");
    for name in ["envoy", "resp", "http"] {
        let diana = Diana::serve(&format!("services: {{{name}: '{address}'}}\nrules: [{{name: all, limit: 9/h}}]"));
        let warned = || diana.output().contains(&warning(name)).then_some(());
        wait_until("the warning", LONG, warned).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    }
    let diana = Diana::serve(&format!(
        "services: {{resp: {{listen: '{address}', password: secret}}}}\nrules: [{{name: all, limit: 9/h}}]"
    ));
    wait_until("the start", LONG, || diana.output().contains("the Redis protocol").then_some(())).unwrap();
    assert!(!diana.output().contains("every machine"), "{}", diana.output());
}
