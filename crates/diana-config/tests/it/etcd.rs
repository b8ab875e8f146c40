//! A config server on etcd.

use crate::support::*;
use diana_config::{Apply, Origin, Remote, Sources};
use diana_testing::{EtcdServer, Port, Proxy};
use std::sync::Arc;
use std::time::Duration;

const KEY: &str = "/diana/rules";

fn remote(port: u16) -> Remote {
    Remote::parse(&format!("etcd://127.0.0.1:{port}{KEY}")).unwrap()
}

#[tokio::test]
async fn a_change_comes_through_the_watch() {
    let etcd = EtcdServer::start().unwrap();
    let revision = etcd.put(KEY, &rules("one")).unwrap();
    let (running, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    let status = running.status();
    assert_eq!((engine.in_force(), status.in_force, status.connected), (rules("one"), Origin::Remote, true));
    assert_eq!(status.version, revision.to_string());
    assert_eq!(status.name, format!("etcd://127.0.0.1:{}/diana/rules", etcd.port()));
    for name in ["two", "three", "four"] {
        let revision = etcd.put(KEY, &rules(name)).unwrap();
        // Another key is ignored.
        etcd.put("/diana/rules/other", &rules("other")).unwrap();
        until_in_force(&engine, &rules(name)).await;
        until("the version", || running.status().version == revision.to_string()).await;
    }
    assert_eq!(running.status().errors, 0, "{}", last_error(&running));
}

#[tokio::test]
async fn a_key_that_is_deleted_leaves_its_rules_and_is_told() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let (running, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    etcd.delete(KEY).unwrap();
    until_told(&running, "nothing under the key").await;
    assert_eq!(engine.in_force(), rules("one"));
    assert!(running.status().connected);
    etcd.put(KEY, &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_bad_value_changes_nothing_and_is_told() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let (running, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    for (bad, told) in [("rules: [", ":1:8"), ("gateway: {}", "no `rules`"), ("", "/diana/rules")] {
        let errors = running.status().errors;
        etcd.put(KEY, bad).unwrap();
        until(told, || running.status().errors > errors && last_error(&running).contains(told)).await;
        assert_eq!((engine.in_force(), running.status().in_force), (rules("one"), Origin::Remote));
    }
    etcd.put(KEY, &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
}

#[tokio::test]
async fn after_a_restart_and_a_compaction_the_newest_is_found() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let proxy = Proxy::to(etcd.port()).unwrap();
    let (running, engine) = start(Sources::new().remote(remote(proxy.port()))).await;
    etcd.put(KEY, &rules("watched")).unwrap();
    until_in_force(&engine, &rules("watched")).await;

    proxy.refuse().unwrap();
    proxy.drop_connections();
    until("the loss", || !running.status().connected).await;
    for round in 0..5 {
        etcd.put(KEY, &rules(&format!("r{round}"))).unwrap();
    }
    let revision = etcd.put(KEY, &rules("two")).unwrap();
    etcd.compact(revision).unwrap();
    assert_eq!(engine.in_force(), rules("watched"));
    proxy.pass().unwrap();
    until_in_force(&engine, &rules("two")).await;
    until("the link", || running.status().connected).await;

    etcd.kill().unwrap();
    until("the loss", || !running.status().connected).await;
    assert_eq!(engine.in_force(), rules("two"));
    etcd.restart().unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_in_force(&engine, &rules("three")).await;
    etcd.put(KEY, &rules("four")).unwrap();
    until_in_force(&engine, &rules("four")).await;
}

#[tokio::test]
async fn a_watch_that_died_without_a_word_is_noticed() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let remote = remote(etcd.port()).poll(Duration::from_millis(200)).timeout(Duration::from_millis(500));
    let (running, engine) = start(Sources::new().remote(remote)).await;
    etcd.freeze().unwrap();
    until("the loss", || !running.status().connected).await;
    assert_eq!(engine.in_force(), rules("one"));
    etcd.thaw().unwrap();
    etcd.put(KEY, &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
    until("the link", || running.status().connected).await;
}

#[tokio::test]
async fn of_several_endpoints_one_that_answers_is_enough() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let dead = Port::claim().unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", dead.number(), etcd.port());
    let several = Remote::parse(&format!("etcd://{hosts}{KEY}")).unwrap();
    let (running, engine) = start(Sources::new().remote(several)).await;
    assert_eq!(engine.in_force(), rules("one"));
    etcd.put(KEY, &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
    etcd.restart().unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_in_force(&engine, &rules("three")).await;
    assert!(running.status().connected);
}

#[tokio::test]
async fn a_user_logs_in_and_again_when_the_token_is_forgotten() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    etcd.require_password("s3cret").unwrap();
    let engine = Recorder::new();
    let nobody = Sources::new().wait(LONG).remote(remote(etcd.port()));
    let nobody = nobody.start(Arc::clone(&engine) as Arc<dyn Apply>).await;
    assert!(nobody.unwrap_err().to_string().contains("user name is empty"));
    let wrong = remote(etcd.port()).credentials("root", "wr0ng").timeout(LONG);
    let wrong = Sources::new().wait(LONG).remote(wrong).start(engine as _).await.unwrap_err();
    assert!(wrong.to_string().contains("authentication failed"), "{wrong}");
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"), "{wrong}");

    let url = format!("etcd://root:s3cret@127.0.0.1:{}{KEY}", etcd.port());
    // Password hashing is slow on purpose.
    let remote = Remote::parse(&url).unwrap().timeout(LONG);
    let (running, engine) = start(Sources::new().remote(remote)).await;
    etcd.put(KEY, &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
    etcd.restart().unwrap();
    etcd.log_in("s3cret").unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_in_force(&engine, &rules("three")).await;
    assert!(!format!("{running:?} {:?}", running.status()).contains("s3cret"));
}

#[tokio::test]
async fn a_storm_of_changes_ends_with_the_last() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("start")).unwrap();
    let (running, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    let written = tokio::task::spawn_blocking(move || {
        for round in 0..200 {
            etcd.put(KEY, &rules(&format!("r{round}"))).unwrap();
        }
        etcd
    });
    let _etcd = written.await.unwrap();
    until_in_force(&engine, &rules("r199")).await;
    assert!(engine.applied() < 100, "{} loads", engine.applied());
    assert_eq!(running.status().errors, 0);
}

#[tokio::test]
async fn somebody_who_is_no_etcd_is_told_as_such() {
    let web = diana_testing::HttpServer::start().unwrap();
    web.serve("hello");
    let engine = Recorder::new();
    let error = Sources::new().wait(LONG).remote(remote(web.port())).start(engine as Arc<dyn Apply>).await.unwrap_err();
    assert!(error.to_string().contains("does not answer as etcd does"), "{error}");
}
