//! A config server over HTTP.

use crate::support::*;
use diana_config::{Apply, Origin, Remote, Sources, StartError};
use diana_core::{Clock, SystemClock};
use diana_testing::{HttpServer, Misbehave};
use std::sync::Arc;
use std::time::Duration;

const OFTEN: Duration = Duration::from_millis(100);

fn polled(server: &HttpServer) -> Remote {
    Remote::parse(&server.url()).unwrap().poll(OFTEN)
}

#[tokio::test]
async fn a_change_is_noticed_and_an_unchanged_document_is_not_sent() {
    let server = HttpServer::start().unwrap();
    let etag = server.serve(&rules("one"));
    let (handle, engine) = start(Sources::new().remote(polled(&server))).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active), (rules("one"), Origin::Remote));
    assert_eq!((status.version, status.name, status.connected), (etag.clone(), server.url(), true));

    until("some polls", || server.unchanged() >= 3).await;
    assert_eq!(server.last_header("if-none-match"), Some(etag));
    assert_eq!(engine.applied(), 1);
    let etag = server.serve(&rules("two"));
    until_active(&engine, &rules("two")).await;
    until("the new version", || handle.status().version == etag).await;
    assert_eq!(handle.status().errors, 0);
}

#[tokio::test]
async fn without_an_etag_the_content_is_compared() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.misbehave(Misbehave::NoEtag);
    let (handle, engine) = start(Sources::new().remote(polled(&server))).await;
    let requests = server.requests();
    until("some polls", || server.requests() >= requests + 3).await;
    assert_eq!(engine.applied(), 1);
    server.serve(&rules("two"));
    until_active(&engine, &rules("two")).await;
    until("a version", || handle.status().version.len() == 12 && handle.status().loads == 2).await;
}

#[tokio::test]
async fn a_long_poll_returns_when_the_document_changes() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let remote = Remote::parse(&server.url()).unwrap().long_poll(Duration::from_secs(600));
    let (_running, engine) = start(Sources::new().remote(remote)).await;
    for name in ["two", "three"] {
        until("a pending request", || server.held() == 1).await;
        assert_eq!(server.last_header("prefer"), Some("wait=600".to_owned()));
        server.serve(&rules(name));
        until_active(&engine, &rules(name)).await;
    }
    // One request at the start, one for each change, and the pending one.
    until("a pending request", || server.held() == 1).await;
    assert!(server.requests() <= 5, "{} requests", server.requests());
}

#[tokio::test]
async fn a_token_is_sent_and_never_shown() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.require_token("s3cret");
    let engine = Recorder::new();
    let sources = Sources::new().wait(LONG).remote(polled(&server).token("wr0ng"));
    let error = sources.start(Arc::clone(&engine) as Arc<dyn Apply>).await.unwrap_err();
    assert!(matches!(error, StartError::NoValidRules(_)));
    assert!(error.to_string().contains("401"), "{error}");
    assert!(!format!("{error} {error:?}").contains("wr0ng"));

    let (handle, engine) = start(Sources::new().remote(polled(&server).token("s3cret"))).await;
    assert_eq!(engine.active(), rules("one"));
    assert!(!format!("{handle:?} {:?}", handle.status()).contains("s3cret"));
}

#[tokio::test]
async fn a_token_is_trimmed_and_an_invalid_one_is_reported() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.require_token("s3cret");
    let (_running, engine) = start(Sources::new().remote(polled(&server).token(" s3cret\r\n"))).await;
    assert_eq!(engine.active(), rules("one"));

    let sources = Sources::new().wait(LONG).remote(polled(&server).token("s3c\nret"));
    let error = sources.start(Recorder::new() as Arc<dyn Apply>).await.unwrap_err();
    assert!(error.to_string().contains("invalid token: it can't be sent in a header"), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3c"));
}

#[tokio::test]
async fn a_password_of_the_url_is_sent_as_basic_and_never_shown() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let url = server.url().replace("//", "//user:pass%3Aword@");
    let (handle, _) = start(Sources::new().remote(Remote::parse(&url).unwrap())).await;
    assert_eq!(server.last_header("authorization").unwrap(), "Basic dXNlcjpwYXNzOndvcmQ=");
    assert!(!format!("{handle:?} {:?}", handle.status()).contains("word"));
}

#[tokio::test]
async fn rules_survive_a_misbehaving_config_server() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let remote = polled(&server).timeout(Duration::from_millis(500));
    let (handle, engine) = start(Sources::new().remote(remote)).await;
    let mut round = 0;
    for (behaviour, expected) in [
        (Misbehave::Status(500), "500"),
        (Misbehave::Status(404), "404"),
        (Misbehave::Bytes(vec![0xff; 100]), "invalid UTF-8"),
        (Misbehave::Bytes(b"{[}".to_vec()), ":1:"),
        (Misbehave::Bytes(b"gateway: {}".to_vec()), "missing `rules`"),
        (Misbehave::Bytes(Vec::new()), "rules.yaml"),
        (Misbehave::Bytes(vec![b'#'; 17 << 20]), "more than 16777216 bytes"),
        (Misbehave::Endless, "more than 16777216 bytes"),
        (Misbehave::Silence, "no response within 500ms"),
        (Misbehave::Redirect(server.url()), "more than 5 redirects"),
        (Misbehave::Redirect("file:///etc/passwd".to_owned()), "redirect from http to file is not allowed"),
    ] {
        let errors = handle.status().errors;
        server.misbehave(behaviour.clone());
        until(&format!("{behaviour:?}"), || handle.status().errors > errors && last_error(&handle).contains(expected))
            .await;
        assert_eq!(engine.active(), rules(&if round == 0 { "one".to_owned() } else { round.to_string() }));
        round += 1;
        server.serve(&rules(&round.to_string()));
        server.misbehave(Misbehave::No);
        until_active(&engine, &rules(&round.to_string())).await;
    }
    until("the connection", || handle.status().connected).await;
}

#[tokio::test]
async fn a_redirect_to_another_origin_does_not_get_the_token() {
    let (first, second) = (HttpServer::start().unwrap(), HttpServer::start().unwrap());
    second.serve(&rules("elsewhere"));
    first.misbehave(Misbehave::Redirect(second.url()));
    let (_running, engine) = start(Sources::new().remote(polled(&first).token("s3cret"))).await;
    assert_eq!(engine.active(), rules("elsewhere"));
    assert_eq!(first.last_header("authorization").unwrap(), "Bearer s3cret");
    assert_eq!(second.last_header("authorization"), None);
}

#[tokio::test]
async fn a_flapping_document_is_applied_at_most_four_times_a_second() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("start"));
    let (handle, engine) = start(Sources::new().remote(polled(&server))).await;
    let start = SystemClock.now();
    for round in 0..20 {
        server.serve(&rules(&format!("r{round}")));
        handle.reload().await;
        assert_eq!(engine.active(), rules(&format!("r{round}")), "reload returns after the document was applied");
    }
    // A quarter of a second between two loads, however many changes there are; the first is not delayed.
    let elapsed = SystemClock.now().since(start);
    assert!(elapsed >= Duration::from_millis(250) * 19, "20 documents within {elapsed:?}");
}
