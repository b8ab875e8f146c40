//! Several servers that share their counts on Redis.

use crate::resp_support::*;
use diana::Engine;
use diana::rules::{Document, RuleFile};
use diana_services::resp::RespState;
use diana_testing::RedisServer;

async fn server(redis: &RedisServer) -> Server {
    let text = "{store: {redis: '${URL}', timeout: 5s}, rules: [{name: each-account, by: account, limit: 10/h}]}";
    let document = Document::new("diana.yaml", text);
    let file = RuleFile::read_with(&document, &diana::registry(), |_| Some(redis.url())).unwrap();
    let store = diana::connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    Server::of(Engine::with_shared(&file, store), RespState::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_admit_exactly_the_limit() {
    let redis = RedisServer::start().unwrap();
    let servers = [server(&redis).await, server(&redis).await];
    let (mut one, mut other) = (servers[0].client().await, servers[1].client().await);
    for (command, limit) in
        [(encode(&["CL.THROTTLE", "k", "9", "10", "3600"]), "10"), (encode(&["DIANA.CHECK", "account", "alice"]), "10")]
    {
        let pipeline = command.repeat(500);
        tokio::join!(one.send(&pipeline), other.send(&pipeline));
        let (replies, others) = tokio::join!(one.replies(500), other.replies(500));
        let granted = replies.iter().chain(&others).filter(|reply| reply.starts_with("[0 "));
        assert_eq!(granted.count().to_string(), limit);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_replies_are_in_order() {
    let redis = RedisServer::start().unwrap();
    let server = server(&redis).await;
    let mut client = server.client().await;
    let calls = (0..1_000).map(|index| match index % 4 {
        3 => encode(&["ECHO", &index.to_string()]),
        2 => encode(&["CL.THROTTLE", "k", "x", "1", "1"]),
        _ => encode(&["CL.THROTTLE", "k", "100000", "1", "3600"]),
    });
    client.send(&calls.collect::<Vec<_>>().concat()).await;
    let mut remaining = 100_001;
    for index in 0..1_000 {
        let reply = client.reply().await;
        match index % 4 {
            3 => assert_eq!(reply, format!("\"{index}\"")),
            2 => assert_eq!(reply, "Cell error: Store error: Couldn't parse as integer: x"),
            _ => {
                remaining -= 1;
                assert!(reply.starts_with(&format!("[0 100001 {remaining} -1 ")), "{index}: {reply}");
            }
        }
    }
    client
        .send(
            &[encode(&["MULTI"]), encode(&["CL.THROTTLE", "t", "1", "1", "60"]).repeat(3), encode(&["EXEC"])].concat(),
        )
        .await;
    assert_eq!(client.replies(5).await[4], "[[0 2 1 -1 60] [0 2 0 -1 120] [1 2 0 60 120]]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_this_process_counts() {
    let mut redis = RedisServer::start().unwrap();
    let server = server(&redis).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("CL.THROTTLE before 9 10 3600").await, "[0 10 9 -1 360]");
    redis.kill().unwrap();
    client.send(&encode(&["CL.THROTTLE", "after", "9", "10", "3600"]).repeat(30)).await;
    let replies = client.replies(30).await;
    assert_eq!(replies.iter().filter(|reply| reply.starts_with("[0 10 ")).count(), 10);
}
