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
async fn the_watch_reports_changes() {
    let etcd = EtcdServer::start().unwrap();
    let revision = etcd.put(KEY, &rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active, status.connected), (rules("one"), Origin::Remote, true));
    assert_eq!(status.version, revision.to_string());
    assert_eq!(status.name, format!("etcd://127.0.0.1:{}/diana/rules", etcd.port()));
    for name in ["two", "three", "four"] {
        let revision = etcd.put(KEY, &rules(name)).unwrap();
        // Another key is ignored.
        etcd.put("/diana/rules/other", &rules("other")).unwrap();
        until_active(&engine, &rules(name)).await;
        until("the version", || handle.status().version == revision.to_string()).await;
    }
    assert_eq!(handle.status().errors, 0, "{}", last_error(&handle));
}

#[tokio::test]
async fn rules_stay_when_the_key_is_deleted_and_it_is_reported() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    etcd.delete(KEY).unwrap();
    until_error(&handle, "missing key `/diana/rules`").await;
    assert_eq!(engine.active(), rules("one"));
    assert!(handle.status().connected);
    etcd.put(KEY, &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn an_invalid_value_changes_nothing_and_is_reported() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    for (invalid, expected) in [("rules: [", ":1:8"), ("gateway: {}", "missing `rules`"), ("", "/diana/rules")] {
        let errors = handle.status().errors;
        etcd.put(KEY, invalid).unwrap();
        until(expected, || handle.status().errors > errors && last_error(&handle).contains(expected)).await;
        assert_eq!((engine.active(), handle.status().active), (rules("one"), Origin::Remote));
    }
    etcd.put(KEY, &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn finds_the_newest_value_after_a_compaction_and_a_restart() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let proxy = Proxy::to(etcd.port()).unwrap();
    let (handle, engine) = start(Sources::new().remote(remote(proxy.port()))).await;
    etcd.put(KEY, &rules("watched")).unwrap();
    until_active(&engine, &rules("watched")).await;

    proxy.refuse().unwrap();
    proxy.drop_connections();
    until("the disconnect", || !handle.status().connected).await;
    for round in 0..5 {
        etcd.put(KEY, &rules(&format!("r{round}"))).unwrap();
    }
    let revision = etcd.put(KEY, &rules("two")).unwrap();
    etcd.compact(revision).unwrap();
    assert_eq!(engine.active(), rules("watched"));
    proxy.pass().unwrap();
    until_active(&engine, &rules("two")).await;
    until("the connection", || handle.status().connected).await;

    etcd.kill().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    assert_eq!(engine.active(), rules("two"));
    etcd.restart().unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_active(&engine, &rules("three")).await;
    etcd.put(KEY, &rules("four")).unwrap();
    until_active(&engine, &rules("four")).await;
}

#[tokio::test]
async fn a_silently_failed_watch_is_noticed() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let remote = remote(etcd.port()).poll(Duration::from_millis(200)).timeout(Duration::from_millis(500));
    let (handle, engine) = start(Sources::new().remote(remote)).await;
    etcd.freeze().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    assert_eq!(engine.active(), rules("one"));
    etcd.thaw().unwrap();
    etcd.put(KEY, &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
    until("the connection", || handle.status().connected).await;
}

#[tokio::test]
async fn one_responding_endpoint_is_enough() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    let dead = Port::claim().unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", dead.number(), etcd.port());
    let several = Remote::parse(&format!("etcd://{hosts}{KEY}")).unwrap();
    let (handle, engine) = start(Sources::new().remote(several)).await;
    assert_eq!(engine.active(), rules("one"));
    etcd.put(KEY, &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
    etcd.restart().unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_active(&engine, &rules("three")).await;
    assert!(handle.status().connected);
}

#[tokio::test]
async fn authenticates_again_when_the_token_is_invalid() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("one")).unwrap();
    etcd.require_password("s3cret").unwrap();
    let engine = Recorder::new();
    let anonymous = Sources::new().wait(LONG).remote(remote(etcd.port()));
    let anonymous = anonymous.start(Arc::clone(&engine) as Arc<dyn Apply>).await;
    assert!(anonymous.unwrap_err().to_string().contains("user name is empty"));
    let wrong = remote(etcd.port()).credentials("root", "wr0ng").timeout(LONG);
    let wrong = Sources::new().wait(LONG).remote(wrong).start(engine as _).await.unwrap_err();
    assert!(wrong.to_string().contains("authentication failed"), "{wrong}");
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"), "{wrong}");

    let url = format!("etcd://root:s3cret@127.0.0.1:{}{KEY}", etcd.port());
    // Password hashing is slow on purpose.
    let remote = Remote::parse(&url).unwrap().timeout(LONG);
    let (handle, engine) = start(Sources::new().remote(remote)).await;
    etcd.put(KEY, &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
    etcd.restart().unwrap();
    etcd.log_in("s3cret").unwrap();
    etcd.put(KEY, &rules("three")).unwrap();
    until_active(&engine, &rules("three")).await;
    assert!(!format!("{handle:?} {:?}", handle.status()).contains("s3cret"));
}

#[tokio::test]
async fn the_last_of_many_changes_is_applied() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put(KEY, &rules("start")).unwrap();
    let (handle, engine) = start(Sources::new().remote(remote(etcd.port()))).await;
    let written = tokio::task::spawn_blocking(move || {
        for round in 0..200 {
            etcd.put(KEY, &rules(&format!("r{round}"))).unwrap();
        }
        etcd
    });
    let _etcd = written.await.unwrap();
    until_active(&engine, &rules("r199")).await;
    assert!(engine.applied() < 100, "{} loads", engine.applied());
    assert_eq!(handle.status().errors, 0);
}

#[tokio::test]
async fn a_server_other_than_etcd_is_reported() {
    let web = diana_testing::HttpServer::start().unwrap();
    web.serve("hello");
    let engine = Recorder::new();
    let error = Sources::new().wait(LONG).remote(remote(web.port())).start(engine as Arc<dyn Apply>).await.unwrap_err();
    assert!(error.to_string().contains("not an etcd response"), "{error}");
}
