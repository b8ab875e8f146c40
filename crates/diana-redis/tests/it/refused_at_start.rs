//! Permanent problems are errors at startup, which contain a fix and no password.

use crate::support::*;
use diana_core::{Clock, SystemClock};
use diana_redis::{ConnectError, Options, RedisStore};
use diana_testing::{Port, RedisCluster, RedisServer};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

async fn refusal(url: &str) -> ConnectError {
    RedisStore::connect(url, Options::default()).await.expect_err(url)
}

#[tokio::test]
async fn a_url_that_makes_no_sense() {
    for (url, told) in [
        ("", "it has no scheme"),
        ("localhost", "it has no scheme"),
        ("127.0.0.1:6379", "it has no scheme"),
        ("http://127.0.0.1:6379", "`http` is no scheme"),
        ("redis://", ""),
        ("redis://127.0.0.1:port", ""),
        ("redis://127.0.0.1:99999", ""),
        ("redis://127.0.0.1/database", ""),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://127.0.0.1:1,", "a host is missing"),
        ("redis+sentinel://127.0.0.1:26379", "does not name the master"),
        ("redis+sentinel://127.0.0.1:26379/m/first", "the database is no number"),
        ("redis://user:hunter2@127.0.0.1:port", ""),
        ("redis+cluster://user:hunter2@127.0.0.1:port", ""),
        ("user:hunter2@127.0.0.1", "it has no scheme"),
        ("nonsense://user:hunter2@127.0.0.1", "`nonsense` is no scheme"),
        ("user:hunter2@127.0.0.1://", "it has no scheme"),
        ("redis+cluster://:hunter2/3@127.0.0.1:1", "`%2F`"),
        ("redis+sentinel://:hunter2/3@127.0.0.1:1/m", "`%2F`"),
        ("redis+cluster://user:x@hunter2/3@127.0.0.1:1", "`%2F`"),
        ("redis://:hunter2/3@127.0.0.1:1", ""),
        ("redis://:hunter2?3@127.0.0.1:1", ""),
        ("nonsense:///run/redis.sock?pass=hunter2", "`nonsense` is no scheme"),
        ("/run/redis.sock?pass=hunter2", "it has no scheme"),
    ] {
        let error = refusal(url).await;
        assert!(matches!(error, ConnectError::Url { .. }), "{url}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(told) && text.contains("expected redis://HOST:PORT"), "{url}: {text}");
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
        measured("URL", text);
    }
}

#[tokio::test]
async fn a_prefix_that_would_put_all_keys_on_one_node() {
    for prefix in ["{shop}", "shop{", "}"] {
        for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1"] {
            let error = RedisStore::connect(url, Options::default().prefix(prefix)).await.expect_err(prefix);
            assert!(matches!(&error, ConnectError::Prefix { prefix: told, .. } if told == prefix), "{error:?}");
            measured("prefix", error.to_string());
        }
    }
}

#[tokio::test]
async fn a_wrong_password_and_none() {
    let redis = RedisServer::builder().password("right").start().unwrap();
    for user in ["", ":hunter2@", "nobody:hunter2@"] {
        let error = refusal(&format!("redis://{user}127.0.0.1:{}", redis.port())).await;
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error}");
        measured("password", error.to_string());
    }
    healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
}

#[tokio::test]
async fn a_user_without_the_rights() {
    let redis = RedisServer::start().unwrap();
    redis.cli(&["ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@read", "+info"]).unwrap();
    let error = refusal(&format!("redis://reader:hunter2@127.0.0.1:{}", redis.port())).await;
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    measured("rights", error.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_of_a_cluster() {
    let cluster = RedisCluster::start().unwrap();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
    }
    let hosts = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect::<Vec<_>>().join(",");
    for user in ["", ":hunter2@"] {
        let error = refusal(&format!("redis+cluster://{user}{hosts}")).await;
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        measured("password of a cluster", error.to_string());
    }
}

/// A server that knows enough of the protocol to report its version, and is silent after `answers` answers.
fn pretend(version: &'static str, answers: usize) -> Port {
    let port = Port::claim().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let mut stream = stream;
            let mut left = answers;
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
                if left == 0 {
                    break;
                }
                left -= 1;
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            kept.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn a_redis_that_is_too_old() {
    for version in ["6.0.9", "5.0.14", "2.8.24"] {
        let port = pretend(version, usize::MAX);
        let error = refusal(&format!("redis://127.0.0.1:{}", port.number())).await;
        assert!(matches!(error, ConnectError::TooOld { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(version) && text.contains("6.2"), "{text}");
        measured("old", text);
    }
}

#[tokio::test]
async fn what_is_no_redis_is_no_reason_to_hang() {
    // It falls silent after each number of answers.
    for answers in 0..6 {
        let port = pretend("7.0.0", answers);
        let began = SystemClock.now();
        let url = format!("redis://127.0.0.1:{}", port.number());
        let store = RedisStore::connect(&url, Options::default()).await.unwrap();
        let took = SystemClock.now().since(began);
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(!is_healthy(&store));
        assert_eq!(granted_without_waiting(&store, &bucket("few", "10/h"), "x").await, 10);
    }
}
