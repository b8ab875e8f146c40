//! An HTTP server answers correctly, or misbehaves on demand.

use crate::get;
use diana_testing::{HttpServer, Misbehave, wait_until};
use std::time::Duration;

#[test]
fn a_document_has_an_etag_and_is_sent_once() {
    let server = HttpServer::start().unwrap();
    let tag = server.serve("rules: []");
    let answer = get(server.port(), "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("rules: []"), "{answer}");
    assert!(answer.contains(&format!("etag: {tag}\r\n")), "{answer}");
    let answer = get(server.port(), &format!("If-None-Match: {tag}\r\n")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 304"), "{answer}");
    assert_eq!((server.requests(), server.unchanged()), (2, 1));
    assert_eq!(server.last_header("if-none-match"), Some(tag));
}

#[test]
fn a_long_poll_is_held_until_there_is_another_document() {
    let server = HttpServer::start().unwrap();
    let tag = server.serve("old");
    std::thread::scope(|scope| {
        let poll =
            scope.spawn(|| get(server.port(), &format!("If-None-Match: {tag}\r\nPrefer: wait=600\r\n")).unwrap());
        let held = || (server.held() == 1).then_some(());
        wait_until("the poll to be held", Duration::from_secs(30), held).unwrap();
        server.serve("new");
        assert!(poll.join().unwrap().ends_with("new"));
    });
    assert_eq!(server.held(), 0);
}

#[test]
fn misbehaves_as_configured() {
    let server = HttpServer::start().unwrap();
    server.require_token("secret");
    assert!(get(server.port(), "").unwrap().starts_with("HTTP/1.1 401"));
    assert!(get(server.port(), "Authorization: Bearer secret\r\n").unwrap().starts_with("HTTP/1.1 200"));
    server.misbehave(Misbehave::Status(503));
    assert!(get(server.port(), "Authorization: Bearer secret\r\n").unwrap().starts_with("HTTP/1.1 503"));
    server.misbehave(Misbehave::Redirect("http://elsewhere/".to_owned()));
    assert!(
        get(server.port(), "Authorization: Bearer secret\r\n").unwrap().contains("location: http://elsewhere/\r\n")
    );
}

#[test]
fn restarts_on_the_same_port() {
    let mut server = HttpServer::start().unwrap();
    server.serve("rules: []");
    let port = server.port();
    server.stop();
    assert!(get(server.port(), "").is_err());
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert!(get(server.port(), "").unwrap().ends_with("rules: []"));
}
