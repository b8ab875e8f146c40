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
async fn a_change_is_seen_and_what_is_unchanged_is_not_sent() {
    let server = HttpServer::start().unwrap();
    let etag = server.serve(&rules("one"));
    let (running, engine) = start(Sources::new().remote(polled(&server))).await;
    let status = running.status();
    assert_eq!((engine.in_force(), status.in_force), (rules("one"), Origin::Remote));
    assert_eq!((status.version, status.name, status.connected), (etag.clone(), server.url(), true));

    until("some polls", || server.unchanged() >= 3).await;
    assert_eq!(server.last_header("if-none-match"), Some(etag));
    assert_eq!(engine.applied(), 1);
    let etag = server.serve(&rules("two"));
    until_in_force(&engine, &rules("two")).await;
    until("the new version", || running.status().version == etag).await;
    assert_eq!(running.status().errors, 0);
}

#[tokio::test]
async fn without_an_etag_the_content_tells() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.misbehave(Misbehave::NoEtag);
    let (running, engine) = start(Sources::new().remote(polled(&server))).await;
    let requests = server.requests();
    until("some polls", || server.requests() >= requests + 3).await;
    assert_eq!(engine.applied(), 1);
    server.serve(&rules("two"));
    until_in_force(&engine, &rules("two")).await;
    until("a version", || running.status().version.len() == 12 && running.status().loads == 2).await;
}

#[tokio::test]
async fn a_long_poll_is_held_until_there_is_something_new() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let remote = Remote::parse(&server.url()).unwrap().long_poll(Duration::from_secs(600));
    let (_running, engine) = start(Sources::new().remote(remote)).await;
    for name in ["two", "three"] {
        until("a request that is held", || server.held() == 1).await;
        assert_eq!(server.last_header("prefer"), Some("wait=600".to_owned()));
        server.serve(&rules(name));
        until_in_force(&engine, &rules(name)).await;
    }
    // One request at the start, one for each change, and the pending one.
    until("a request that is held", || server.held() == 1).await;
    assert!(server.requests() <= 5, "{} requests", server.requests());
}

#[tokio::test]
async fn a_token_is_sent_and_never_shown() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.require_token("s3cret");
    let engine = Recorder::new();
    let sources = Sources::new().wait(LONG).remote(polled(&server).token("wr0ng"));
    let refused = sources.start(Arc::clone(&engine) as Arc<dyn Apply>).await.unwrap_err();
    assert!(matches!(refused, StartError::NothingInForce(_)));
    assert!(refused.to_string().contains("401"), "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("wr0ng"));

    let (running, engine) = start(Sources::new().remote(polled(&server).token("s3cret"))).await;
    assert_eq!(engine.in_force(), rules("one"));
    assert!(!format!("{running:?} {:?}", running.status()).contains("s3cret"));
}

#[tokio::test]
async fn a_token_from_a_file_is_sent_without_its_newline_and_a_broken_one_is_told() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    server.require_token("s3cret");
    let (_running, engine) = start(Sources::new().remote(polled(&server).token(" s3cret\r\n"))).await;
    assert_eq!(engine.in_force(), rules("one"));

    let sources = Sources::new().wait(LONG).remote(polled(&server).token("s3c\nret"));
    let refused = sources.start(Recorder::new() as Arc<dyn Apply>).await.unwrap_err();
    assert!(refused.to_string().contains("the token can't be sent in a header"), "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("s3c"));
}

#[tokio::test]
async fn a_password_of_the_url_is_sent_as_basic_and_never_shown() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let url = server.url().replace("//", "//user:pass%3Aword@");
    let (running, _) = start(Sources::new().remote(Remote::parse(&url).unwrap())).await;
    assert_eq!(server.last_header("authorization").unwrap(), "Basic dXNlcjpwYXNzOndvcmQ=");
    assert!(!format!("{running:?} {:?}", running.status()).contains("word"));
}

#[tokio::test]
async fn whatever_the_centre_does_the_rules_stay_and_good_ones_are_found_again() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("one"));
    let remote = polled(&server).timeout(Duration::from_millis(500));
    let (running, engine) = start(Sources::new().remote(remote)).await;
    let mut round = 0;
    for (how, told) in [
        (Misbehave::Status(500), "500"),
        (Misbehave::Status(404), "404"),
        (Misbehave::Bytes(vec![0xff; 100]), "not UTF-8"),
        (Misbehave::Bytes(b"{[}".to_vec()), ":1:"),
        (Misbehave::Bytes(b"gateway: {}".to_vec()), "no `rules`"),
        (Misbehave::Bytes(Vec::new()), "rules.yaml"),
        (Misbehave::Bytes(vec![b'#'; 17 << 20]), "more than 16777216 bytes"),
        (Misbehave::Endless, "more than 16777216 bytes"),
        (Misbehave::Silence, "no answer within 500ms"),
        (Misbehave::Redirect(server.url()), "more than 5 times"),
        (Misbehave::Redirect("file:///etc/passwd".to_owned()), "redirects to where"),
    ] {
        let errors = running.status().errors;
        server.misbehave(how.clone());
        until(&format!("{how:?}"), || running.status().errors > errors && last_error(&running).contains(told)).await;
        assert_eq!(engine.in_force(), rules(&if round == 0 { "one".to_owned() } else { round.to_string() }));
        round += 1;
        server.serve(&rules(&round.to_string()));
        server.misbehave(Misbehave::No);
        until_in_force(&engine, &rules(&round.to_string())).await;
    }
    until("the link", || running.status().connected).await;
}

#[tokio::test]
async fn a_redirect_is_followed_but_takes_no_token_elsewhere() {
    let (first, second) = (HttpServer::start().unwrap(), HttpServer::start().unwrap());
    second.serve(&rules("elsewhere"));
    first.misbehave(Misbehave::Redirect(second.url()));
    let (_running, engine) = start(Sources::new().remote(polled(&first).token("s3cret"))).await;
    assert_eq!(engine.in_force(), rules("elsewhere"));
    assert_eq!(first.last_header("authorization").unwrap(), "Bearer s3cret");
    assert_eq!(second.last_header("authorization"), None);
}

#[tokio::test]
async fn a_centre_that_flaps_is_put_in_force_a_few_times_a_second_at_most() {
    let server = HttpServer::start().unwrap();
    server.serve(&rules("start"));
    let (running, engine) = start(Sources::new().remote(polled(&server))).await;
    let began = SystemClock.now();
    for round in 0..20 {
        server.serve(&rules(&format!("r{round}")));
        running.reload().await;
        assert_eq!(engine.in_force(), rules(&format!("r{round}")), "a reload returns when it is in force");
    }
    // A quarter of a second between two loads, however many changes there are; the first is not delayed.
    let passed = SystemClock.now().since(began);
    assert!(passed >= Duration::from_millis(250) * 19, "20 documents within {passed:?}");
}
