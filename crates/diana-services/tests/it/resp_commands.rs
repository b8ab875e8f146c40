//! What clients of Redis expect when they connect.

use crate::resp_support::*;
use diana::ManualClock;
use diana::rules::Secret;
use diana_services::resp::RespState;
use std::time::Duration;

#[tokio::test]
async fn simple_commands_are_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.ask("PING").await, "PONG");
    assert_eq!(client.ask("ping hello").await, "\"hello\"");
    assert_eq!(client.ask("PING a b").await, "ERR wrong number of arguments for 'ping' command");
    assert_eq!(client.ask("Echo x").await, "\"x\"");
    assert_eq!(client.ask("ECHO").await, "ERR wrong number of arguments for 'echo' command");
    assert_eq!(client.ask("SELECT 15").await, "OK");
    assert_eq!(client.ask("SELECT 16").await, "ERR DB index is out of range");
    assert_eq!(client.ask("SELECT x").await, "ERR value is not an integer or out of range");
    assert_eq!(client.ask("CONFIG GET save appendonly maxmemory").await, "[\"save\" \"\" \"appendonly\" \"no\"]");
    assert_eq!(client.ask("CONFIG SET a b").await, "ERR unknown subcommand 'SET'. Try CONFIG HELP.");
    assert!(client.ask("INFO").await.contains(r"loading:0\r\n"));
    assert!(client.ask("INFO server").await.starts_with("\"# Server\\r\\nredis_version:"));
    assert_eq!(client.ask("COMMAND COUNT").await, "20");
    let info = client.ask("COMMAND INFO cl.throttle nope").await;
    assert_eq!(info, "[[\"cl.throttle\" -1 [write module] 1 1 1 [] [] [] []] nil]");
    assert!(client.ask("COMMAND DOCS ping").await.starts_with("[\"ping\" [\"summary\" "));
    assert_eq!(client.ask("QUIT").await, "OK");
    assert_eq!(client.try_reply().await, None);
}

#[tokio::test]
async fn unknown_commands_get_the_error_of_redis() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let error = client.ask("GET a b").await;
    assert_eq!(error, "ERR unknown command 'GET', with args beginning with: 'a' 'b' ");
    client.send(&encode(&[&b"a\r\nb"[..], &[b'x'; 300], b"y"])).await;
    let expected = format!("ERR unknown command 'a  b', with args beginning with: '{}' ", "x".repeat(128));
    assert_eq!(client.reply().await, expected);
    assert_eq!(client.ask("CLIENT KILL x").await, "ERR unknown subcommand 'KILL'. Try CLIENT HELP.");
    assert_eq!(server.metrics.totals().failed, 3);
}

#[tokio::test]
async fn hello_selects_the_protocol() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let reply = client.ask("HELLO 3 SETNAME me").await;
    assert!(reply.starts_with("{\"server\" \"redis\" \"version\" "), "{reply}");
    assert!(reply.contains("\"proto\" 3 \"id\" "), "{reply}");
    assert_eq!(client.ask("CLIENT GETNAME").await, "\"me\"");
    assert!(client.ask("CONFIG GET databases").await.starts_with('{'));
    assert!(client.ask("HELLO 2").await.starts_with("[\"server\" "));
    assert!(client.ask("HELLO").await.contains("\"proto\" 2"));
    assert_eq!(client.ask("HELLO 4").await, "NOPROTO unsupported protocol version");
    assert_eq!(client.ask("HELLO x").await, "ERR Protocol version is not an integer or out of range");
    assert_eq!(client.ask("HELLO 3 NAME x").await, "ERR Syntax error in HELLO option 'NAME'");
    assert_eq!(client.ask("RESET").await, "RESET");
    assert_eq!(client.ask("CLIENT GETNAME").await, "nil");
}

#[tokio::test]
async fn clients_describe_themselves() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.ask("CLIENT SETNAME app").await, "OK");
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME redis-py").await, "OK");
    assert_eq!(client.ask("CLIENT SETINFO lib-ver 8.1.0").await, "OK");
    assert_eq!(client.ask("CLIENT SETINFO other x").await, "ERR Unrecognized option 'other'");
    let (one, other) = (client.ask("CLIENT ID").await, server.client().await.ask("CLIENT ID").await);
    assert_ne!(one, other);
    assert_eq!(client.ask("CLIENT NO-EVICT on").await, "OK");
    assert_eq!(client.ask("CLIENT NO-TOUCH off").await, "OK");
    assert_eq!(client.ask("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip").await, "OK");
    let info = client.ask("CLIENT INFO").await;
    assert!(info.contains(" name=app db=0 resp=2 user=default lib-name=redis-py lib-ver=8.1.0"), "{info}");
    client.send(&encode(&["CLIENT", "SETNAME", "a b"])).await;
    let error = "ERR Client names cannot contain spaces, newlines or special characters.";
    assert_eq!(client.reply().await, error);
}

#[tokio::test]
async fn a_password_protects_every_command() {
    let state = RespState::default().password(Secret::new("hunter2"));
    let server = Server::with(RULES, ManualClock::new(), state).await;
    let mut client = server.client().await;
    for command in ["PING", "CL.THROTTLE k 1 1 1", "DIANA.RULES", "INFO", "MULTI", "EXEC"] {
        assert_eq!(client.ask(command).await, "NOAUTH Authentication required.", "{command}");
    }
    assert!(client.ask("HELLO 3").await.starts_with("NOAUTH HELLO must be called"));
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(client.ask("AUTH hunter").await, wrong);
    assert_eq!(client.ask("AUTH other hunter2").await, wrong);
    assert_eq!(client.ask("HELLO 3 AUTH default x").await, wrong);
    assert_eq!(client.ask("PING").await, "NOAUTH Authentication required.");
    assert_eq!(client.ask("AUTH hunter2").await, "OK");
    assert_eq!(client.ask("PING").await, "PONG");
    assert_eq!(client.ask("RESET").await, "RESET");
    assert_eq!(client.ask("PING").await, "NOAUTH Authentication required.");
    assert!(client.ask("HELLO 3 AUTH default hunter2").await.starts_with('{'));
    assert_eq!(client.ask("PING").await, "PONG");
    // Before the password, only short commands are read.
    let mut client = server.client().await;
    client.send(b"*11\r\n").await;
    assert_eq!(client.reply().await, "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(client.try_reply().await, None);
}

#[tokio::test]
async fn without_a_password_none_is_needed() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert!(client.ask("AUTH x").await.starts_with("ERR AUTH <password> called without any password configured"));
    assert_eq!(client.ask("AUTH default x").await, "OK");
    assert_eq!(client.ask("AUTH a b c").await, "ERR syntax error");
}

#[tokio::test]
async fn transactions_are_executed_in_order() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("EXEC").await, "ERR EXEC without MULTI");
    assert_eq!(client.ask("DISCARD").await, "ERR DISCARD without MULTI");
    assert_eq!(client.ask("MULTI").await, "OK");
    assert_eq!(client.ask("MULTI").await, "ERR MULTI calls can not be nested");
    for command in ["CL.THROTTLE k 1 1 60", "PING", "DIANA.PEEK searches 203.0.113.7", "CL.THROTTLE k x 1 60"] {
        assert_eq!(client.ask(command).await, "QUEUED", "{command}");
    }
    let replies =
        "[[0 2 1 -1 60] PONG [[0 5 5 -1 0 \"searches\"]] Cell error: Store error: Couldn't parse as integer: x]";
    assert_eq!(client.ask("EXEC").await, replies);
    assert_eq!(client.ask("MULTI").await, "OK");
    assert_eq!(client.ask("CL.THROTTLE k 1 1 60").await, "QUEUED");
    assert_eq!(client.ask("DISCARD").await, "OK");
    assert_eq!(client.ask("MULTI").await, "OK");
    assert!(client.ask("NOPE").await.starts_with("ERR unknown command"));
    assert_eq!(client.ask("CL.THROTTLE k 1 1 60").await, "QUEUED");
    assert_eq!(client.ask("EXEC").await, "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.ask("MULTI").await, "OK");
    assert_eq!(client.ask("EXEC").await, "[]");
    // Nothing of what was discarded was charged.
    assert_eq!(client.ask("CL.THROTTLE k 1 1 60 0").await, "[0 2 1 -1 60]");
}

#[tokio::test]
async fn inline_commands_are_commands() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let mut client = server.client().await;
    client.send(b"PING\r\n\r\necho 'a b'\ncl.throttle \"k\\x00\" 15 30 60\r\n").await;
    assert_eq!(client.replies(3).await, ["PONG", "\"a b\"", "[0 16 15 -1 2]"]);
    client.send(&encode(&[&b"CL.THROTTLE"[..], b"k\0", b"15", b"30", b"60"])).await;
    assert_eq!(client.reply().await, "[0 16 14 -1 4]");
}

#[tokio::test]
async fn key_spaces_are_separate() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let (mut one, mut other) = (server.client().await, server.client().await);
    assert_eq!(one.ask("CL.THROTTLE k 0 1 60").await, "[0 1 0 -1 60]");
    assert_eq!(other.ask("CL.THROTTLE k 0 1 60").await, "[1 1 0 60 60]");
    assert_eq!(other.ask("SELECT 1").await, "OK");
    assert_eq!(other.ask("CL.THROTTLE k 0 1 60").await, "[0 1 0 -1 60]");
}

/// The server remembers the parameters of the last call; these differ in a single byte, or in where an argument ends.
#[tokio::test]
async fn similar_calls_are_different_calls() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let mut client = server.client().await;
    let limit = |reply: &str| reply.split(' ').nth(1).unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(limit(&client.ask("CL.THROTTLE a 15 30 60").await), "16");
        assert_eq!(limit(&client.ask("CL.THROTTLE a 15 30 61").await), "16");
        assert_eq!(limit(&client.ask("CL.THROTTLE a 15 30 60 0").await), "16");
        assert_eq!(limit(&client.ask("CL.THROTTLE a 5 30 60").await), "6");
        client.send(b"CL.THROTTLE b 1 5 30\r\nCL.THROTTLE b 15 30 60\r\nCL.THROTTLE b 15 30 60\r\n").await;
        assert_eq!(limit(&client.reply().await), "2");
        assert_eq!(limit(&client.reply().await), "16");
        assert_eq!(limit(&client.reply().await), "16");
        client.send(&encode(&["CL.THROTTLE", "b", "15\r\n$2\r\n30", "60", "1"])).await;
        assert!(client.reply().await.starts_with("Cell error"));
        assert!(client.ask("CL.THROTTLE a 15 30 x").await.starts_with("Cell error"));
        assert!(client.ask("CL.THROTTLE a").await.starts_with("Cell error: Store error: Usage"));
        assert_eq!(client.ask("RESET").await, "RESET");
    }
}

/// Arguments of a transaction, and of a line with quotes, are joined: these have the same digits, split differently.
#[tokio::test]
async fn joined_arguments_are_different_calls() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let mut client = server.client().await;
    client.send(b"CL.THROTTLE 'a' 5 15 110\r\nCL.THROTTLE 'b' 5 151 10\r\nCL.THROTTLE 'c' 5 1 5110\r\n").await;
    let expected = ["[0 6 5 -1 8]", "[0 6 5 -1 1]", "[0 6 5 -1 5110]"];
    assert_eq!(client.replies(3).await, expected);
    for command in ["MULTI", "CL.THROTTLE d 5 15 110", "CL.THROTTLE e 5 151 10", "CL.THROTTLE f 5 1 5110"] {
        client.ask(command).await;
    }
    assert_eq!(client.ask("EXEC").await, format!("[{}]", expected.join(" ")));
}

#[tokio::test(start_paused = true)]
async fn idle_clients_are_disconnected() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let file = file(RULES);
    let (engine, state) = (diana::Engine::new(&file), RespState::default().idle_timeout(Duration::from_secs(60)));
    let (mut client, server) = tokio::io::duplex(1_024);
    let serving = tokio::spawn(diana_services::resp::serve(
        server,
        None,
        engine,
        std::sync::Arc::new(state),
        std::future::pending(),
    ));
    let mut reply = [0; 7];
    for _ in 0..5 {
        // Paused time advances while nothing happens.
        tokio::time::sleep(Duration::from_secs(59)).await;
        client.write_all(b"PING\r\n").await.unwrap();
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
    assert_eq!(client.read(&mut reply).await.unwrap(), 0);
    serving.await.unwrap().unwrap();
}
