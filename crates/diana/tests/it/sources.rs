//! Reloads from a real file and a real etcd: rules change without a restart, and counts are kept.

use crate::support::{Decides, account};
use diana::config::{Origin, Sources, WatchHandle};
use diana::rules::{Document, RuleFile};
use diana::{Engine, Reloader, registry};
use diana_testing::EtcdServer;
use std::fs::write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

struct Started {
    engine: Engine,
    reloader: Arc<Reloader>,
    running: WatchHandle,
}

/// The startup code of a program.
async fn start(path: &Path) -> Started {
    let document = Document::new(path.display().to_string(), std::fs::read_to_string(path).unwrap());
    let file = RuleFile::read(&document, &registry()).unwrap_or_else(|problems| panic!("{problems}"));
    let engine = Engine::new(&file);
    let reloader = Reloader::new(engine.clone(), registry());
    let running = Sources::new().local(path).remote_of(&file).unwrap().start(reloader.clone()).await.unwrap();
    Started { engine, reloader, running }
}

/// Waits until a condition is true, as long as a slow machine may need.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("timed out waiting for {what}");
}

fn limit(engine: &Engine) -> String {
    engine.rules().rules()[0].rule().limits[0].written.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_file_is_loaded_and_keeps_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, "rules: [{name: a, by: account, limit: 3/day}]").unwrap();
    let Started { engine, reloader, running } = start(&path).await;
    assert_eq!(running.status().active, Origin::Local);
    assert!(engine.check(&account("alice")).await.is_granted());
    assert!(engine.check(&account("alice")).await.is_granted());

    write(&path, "rules: [{name: a, by: account, limit: 2/day}]").unwrap();
    until("the new limit", || limit(&engine) == "2/day").await;
    assert!(!engine.check(&account("alice")).await.is_granted(), "both requests are still counted");
    assert_eq!(reloader.file().unwrap().rules[0].limits[0].written, "2/day");

    // An invalid file changes nothing, and is reported with its location.
    write(&path, "rules: [{name: a, by: acount, limit: 5/day}]").unwrap();
    until("the error", || running.status().errors > 0).await;
    assert_eq!(limit(&engine), "2/day");
    let error = running.status().last_error.unwrap().what;
    assert!(error.contains("did you mean `account`?"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_etcd_replace_local_rules_and_change_at_runtime() {
    let etcd = EtcdServer::start().unwrap();
    etcd.put("/diana/rules", "rules: [{name: a, by: account, limit: 3/day, status: 429}]").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    let text = format!(
        "remote: {{from: 'etcd://127.0.0.1:{}/diana/rules', keep: '{}'}}\nrules: [{{name: a, by: account, limit: 1/day}}]",
        etcd.port(),
        folder.path().join("cache").display(),
    );
    write(&path, text).unwrap();
    let Started { engine, running, .. } = start(&path).await;
    assert_eq!((running.status().active, limit(&engine)), (Origin::Remote, "3/day".to_owned()));
    for _ in 0..3 {
        assert!(engine.check(&account("alice")).await.is_granted());
    }
    assert_eq!(engine.check(&account("alice")).await.status(), Some(429));

    etcd.put("/diana/rules", "rules: [{name: a, by: account, limit: 4/day}]").unwrap();
    until("the new rules", || limit(&engine) == "4/day").await;
    assert!(engine.check(&account("alice")).await.is_granted(), "one more is allowed");
    assert!(!engine.check(&account("alice")).await.is_granted());

    // The config server cannot set sections of the machine.
    etcd.put("/diana/rules", "gateway: {listen: '0.0.0.0:1'}\nrules: [{name: a, limit: 9/day}]").unwrap();
    until("the error", || running.status().errors > 0).await;
    assert_eq!(limit(&engine), "4/day");
}
