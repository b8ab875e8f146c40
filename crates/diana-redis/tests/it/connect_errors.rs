//! Permanent problems are errors at startup, which contain a fix and no password.

use crate::support::*;
use diana_core::{Clock, SystemClock};
use diana_redis::{ConnectError, Options, RedisStore};
use diana_testing::{Port, RedisCluster, RedisServer};
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

async fn connect_error(url: &str) -> ConnectError {
    RedisStore::connect(url, Options::default()).await.expect_err(url)
}

#[tokio::test]
async fn an_invalid_url() {
    for (url, reason) in [
        ("", "missing scheme"),
        ("localhost", "missing scheme"),
        ("127.0.0.1:6379", "missing scheme"),
        ("http://127.0.0.1:6379", "unknown scheme `http`"),
        ("redis://", ""),
        ("redis://127.0.0.1:port", ""),
        ("redis://127.0.0.1:99999", ""),
        ("redis://127.0.0.1/database", ""),
        ("redis+cluster://", "missing host"),
        ("redis+cluster://127.0.0.1:1,", "missing host"),
        ("redis+sentinel://127.0.0.1:26379", "missing master name"),
        ("redis+sentinel://127.0.0.1:26379/m/first", "invalid database: expected a number"),
        ("redis://user:hunter2@127.0.0.1:port", ""),
        ("redis+cluster://user:hunter2@127.0.0.1:port", ""),
        ("user:hunter2@127.0.0.1", "missing scheme"),
        ("nonsense://user:hunter2@127.0.0.1", "unknown scheme `nonsense`"),
        ("user:hunter2@127.0.0.1://", "missing scheme"),
        ("redis+cluster://:hunter2/3@127.0.0.1:1", "`%2F`"),
        ("redis+sentinel://:hunter2/3@127.0.0.1:1/m", "`%2F`"),
        ("redis+cluster://user:x@hunter2/3@127.0.0.1:1", "`%2F`"),
        ("redis://:hunter2/3@127.0.0.1:1", ""),
        ("redis://:hunter2?3@127.0.0.1:1", ""),
        ("nonsense:///run/redis.sock?pass=hunter2", "unknown scheme `nonsense`"),
        ("/run/redis.sock?pass=hunter2", "missing scheme"),
    ] {
        let error = connect_error(url).await;
        assert!(matches!(error, ConnectError::Url { .. }), "{url}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("expected redis://HOST:PORT"), "{url}: {text}");
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
        measured("URL", text);
    }
}

#[tokio::test]
async fn a_prefix_that_would_put_all_keys_on_one_node() {
    for prefix in ["{shop}", "shop{", "}"] {
        for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1"] {
            let error = RedisStore::connect(url, Options::default().prefix(prefix)).await.expect_err(prefix);
            assert!(matches!(&error, ConnectError::Prefix { prefix: reported, .. } if reported == prefix), "{error:?}");
            measured("prefix", error.to_string());
        }
    }
}

#[tokio::test]
async fn a_wrong_or_missing_password() {
    let redis = RedisServer::builder().password("right").start().unwrap();
    for user in ["", ":hunter2@", "unknown:hunter2@"] {
        let error = connect_error(&format!("redis://{user}127.0.0.1:{}", redis.port())).await;
        assert!(matches!(error, ConnectError::AccessDenied { .. }), "{error:?}");
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error}");
        measured("password", error.to_string());
    }
    healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
}

#[tokio::test]
async fn a_user_without_permissions() {
    let redis = RedisServer::start().unwrap();
    redis.cli(&["ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@read", "+info"]).unwrap();
    let error = connect_error(&format!("redis://reader:hunter2@127.0.0.1:{}", redis.port())).await;
    assert!(matches!(error, ConnectError::AccessDenied { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    measured("permissions", error.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_of_a_cluster() {
    let cluster = RedisCluster::start().unwrap();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
    }
    let hosts = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect::<Vec<_>>().join(",");
    for user in ["", ":hunter2@"] {
        let error = connect_error(&format!("redis+cluster://{user}{hosts}")).await;
        assert!(matches!(error, ConnectError::AccessDenied { .. }), "{error:?}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        measured("password of a cluster", error.to_string());
    }
}

/// A server that knows enough of the protocol to report its version, and is silent after `answers` answers.
fn fake_server(version: &'static str, answers: usize) -> Port {
    let port = Port::claim().unwrap();
    let listener = port.listen().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let mut stream = stream;
            let mut remaining = answers;
            // A command is `*COUNT`, and `$LENGTH` and a text for each of its words.
            while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')?.parse::<usize>().ok()) {
                let words = (0..count).filter_map(|_| lines.nth(1)).collect::<Vec<_>>();
                let answer = match words.first().map(|word| word.to_uppercase()).as_deref() {
                    Some("INFO") => {
                        let info = format!("# Server\r\nredis_version:{version}\r\n");
                        format!("${}\r\n{info}\r\n", info.len())
                    }
                    Some("HELLO") => "-ERR unknown command\r\n".to_owned(),
                    _ => "+OK\r\n".to_owned(),
                };
                if remaining == 0 {
                    break;
                }
                remaining -= 1;
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            open.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn an_unsupported_version() {
    for version in ["6.0.9", "5.0.14", "2.8.24"] {
        let port = fake_server(version, usize::MAX);
        let error = connect_error(&format!("redis://127.0.0.1:{}", port.number())).await;
        assert!(matches!(error, ConnectError::UnsupportedVersion { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(version) && text.contains("6.2"), "{text}");
        measured("old", text);
    }
}

#[tokio::test]
async fn a_silent_server_does_not_block_startup() {
    // It falls silent after each number of answers.
    for answers in 0..6 {
        let port = fake_server("7.0.0", answers);
        let began = SystemClock.now();
        let url = format!("redis://127.0.0.1:{}", port.number());
        let store = RedisStore::connect(&url, Options::default()).await.unwrap();
        let took = SystemClock.now().since(began);
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(!is_healthy(&store));
        assert_eq!(granted_without_waiting(&store, &bucket("few", "10/h"), "x").await, 10);
    }
}
