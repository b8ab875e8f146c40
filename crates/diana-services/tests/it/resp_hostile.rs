//! Bytes that are no commands, and clients that do not read: errors, and never more than that.

use crate::resp_support::*;
use diana::ManualClock;
use diana::rules::Secret;
use diana_services::resp::RespState;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn other_protocols_get_an_error() {
    let server = Server::start().await;
    for (bytes, error) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "ERR unknown command 'GET'"),
        (b"*1\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"*100000\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$1000000000\r\n", "ERR Protocol error: invalid bulk length"),
        (b"echo \"\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
            "ERR Protocol error: expected a command, got the byte 0x16",
        ),
    ] {
        let mut client = server.client().await;
        client.send(bytes).await;
        let reply = client.reply().await;
        assert!(reply.starts_with(error), "{reply}");
    }
    assert!(server.metrics.totals().failed >= 6);
}

/// A web page can make a browser send any body to a port of its own machine: the head closes the connection, as in Redis.
#[tokio::test]
async fn requests_of_browsers_close_the_connection() {
    let server = Server::start().await;
    let spent = "DIANA.CHECK path /api/x account alice COST 3";
    assert!(server.client().await.ask(spent).await.starts_with("[0 3 0 "));
    let body = "DIANA.RESET each-account alice\r\n";
    for head in [
        "POST / HTTP/1.1\r\nHost: localhost:6380\r\nContent-Type: text/plain\r\n\r\n",
        "post / HTTP/1.1\r\n\r\n",
        "PUT / HTTP/1.1\r\nhost: localhost:6380\r\n\r\n",
        "MULTI\r\nHost: localhost\r\nEXEC\r\n",
    ] {
        let mut client = server.client().await;
        client.send(format!("{head}{body}").as_bytes()).await;
        while let Some(reply) = client.try_reply().await {
            assert!(reply.starts_with("ERR unknown command 'PUT'") || reply == "OK", "{head}: {reply}");
        }
    }
    assert!(server.client().await.ask("DIANA.PEEK each-account alice").await.starts_with("[[1 3 0 "));
}

/// A server that is told to connect to this one by TLS, such as for a webhook, sends bytes of its peer's choice in the first
/// record: the session's ticket.
#[tokio::test]
async fn a_line_within_tls_is_no_command() {
    let server = Server::start().await;
    assert!(server.client().await.ask("DIANA.CHECK path /api/x account alice COST 3").await.starts_with("[0 3 0 "));
    let mut client = server.client().await;
    client.send(b"\x16\x03\x01\x00\x20\x01\x00\x00\x1c\r\nDIANA.RESET each-account alice\r\n").await;
    assert!(client.reply().await.starts_with("ERR Protocol error: expected a command"));
    assert_eq!(client.try_reply().await, None);
    assert!(server.client().await.ask("DIANA.PEEK each-account alice").await.starts_with("[[1 3 0 "));
}

#[tokio::test]
async fn a_protocol_error_ends_the_connection_after_earlier_replies() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(b"PING\r\n*1\r\nx\r\nPING\r\n").await;
    assert_eq!(client.replies(2).await, ["PONG", "ERR Protocol error: expected '$', got 'x'"]);
    assert_eq!(client.try_reply().await, None);
}

#[tokio::test]
async fn a_line_without_an_end_is_bounded() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(&vec![b'x'; 70_000]).await;
    assert_eq!(client.reply().await, "ERR Protocol error: too big inline request");
    // Before the password was given, lines are shorter.
    let server = Server::with(RULES, ManualClock::new(), RespState::default().password(Secret::new("hunter2"))).await;
    let mut client = server.client().await;
    client.send(&vec![b'x'; 17_000]).await;
    assert_eq!(client.reply().await, "ERR Protocol error: too big inline request");
}

#[tokio::test]
async fn the_words_of_a_line_are_bounded() {
    let server = Server::start().await;
    for words in ["x ".repeat(1_023), "'' ".repeat(1_023)] {
        let mut client = server.client().await;
        client.send(format!("PING {words}\r\nPING {words} x\r\n").as_bytes()).await;
        assert_eq!(client.reply().await, "ERR wrong number of arguments for 'ping' command");
        assert_eq!(client.reply().await, "ERR Protocol error: too many arguments in an inline request");
        assert_eq!(client.try_reply().await, None);
    }
    let server = Server::with(RULES, ManualClock::new(), RespState::default().password(Secret::new("hunter2"))).await;
    for words in ["x ".repeat(10), "'' ".repeat(10)] {
        let mut client = server.client().await;
        client.send(format!("PING {words}\r\n").as_bytes()).await;
        assert_eq!(client.reply().await, "ERR Protocol error: too many arguments in an inline request");
    }
}

/// Random bytes, from a fixed seed: each connection ends or answers, and the server still serves others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_do_no_harm() {
    let server = Server::start().await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let words: [&[u8]; 12] = [
        b"*3\r\n",
        b"$3\r\n",
        b"\r\n",
        b"CL.THROTTLE",
        b"$11\r\nCL.THROTTLE\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"HELLO 3\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"\"\xff\0",
        b"RESET\r\n",
    ];
    for _ in 0..300 {
        let mut client = server.client().await;
        let mut bytes = Vec::new();
        for _ in 0..next() % 40 {
            match next() % 3 {
                0 => bytes.extend_from_slice(&next().to_le_bytes()),
                _ => bytes.extend_from_slice(words[usize::try_from(next() % 12).unwrap()]),
            }
        }
        client.send(&bytes).await;
        client.end().await;
        while client.try_reply().await.is_some() {}
    }
    assert_eq!(server.client().await.ask("PING").await, "PONG");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected() {
    let file = file(RULES);
    let engine = diana::EngineOptions::of(&file).clock(ManualClock::new()).build(&file);
    let state = RespState::default().idle_timeout(Duration::from_secs(10));
    let (mut client, server) = tokio::io::duplex(1_024);
    let serving = tokio::spawn(diana_services::resp::serve(
        server,
        None,
        engine,
        std::sync::Arc::new(state),
        std::future::pending(),
    ));
    // The server reads no more once its replies are not read.
    let flood = encode(&["ECHO", &"x".repeat(500)]).repeat(10_000);
    assert!(client.write_all(&flood).await.is_err());
    assert_eq!(serving.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_client_that_leaves_is_not_queued_any_more() {
    let rules = "rules: [{name: few, concurrent: 1, wait: 1h}]";
    let file = file(rules);
    let engine = diana::Engine::new(&file);
    let server = Server::of(engine, RespState::default()).await;
    let request = diana::rules::attributes::SyntheticRequest::new("GET", "/");
    let held = server.engine.acquire(&request).await.unwrap();
    let mut leaving = server.client().await;
    leaving.send(&encode(&["DIANA.CHECK", "path", "/"])).await;
    drop(leaving);
    let mut waiting = server.client().await;
    waiting.send(&encode(&["DIANA.CHECK", "path", "/"])).await;
    drop(held);
    assert!(waiting.reply().await.starts_with("[0 1 "));
    server.stop().await;
}
