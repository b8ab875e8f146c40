//! The config server's rules take precedence over the file's, and valid rules stay active whatever happens to either.

use crate::support::*;
use diana_config::WhenRemoteIsDown;
use diana_config::{Apply, Origin, Remote, Sources};
use diana_testing::{EtcdServer, HttpServer, Misbehave, RedisServer};
use std::fs::write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A file, a config server, and a folder for the disk cache.
struct Setup {
    folder: TempDir,
    server: HttpServer,
}

impl Setup {
    fn new() -> Self {
        let setup = Self { folder: tempfile::tempdir().unwrap(), server: HttpServer::start().unwrap() };
        setup.edit(&rules("local"));
        setup.server.serve(&rules("remote"));
        setup
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("diana.yaml")
    }

    fn cache_folder(&self) -> PathBuf {
        self.folder.path().join("state/diana")
    }

    fn edit(&self, text: &str) {
        write(self.file(), text).unwrap();
    }

    fn sources(&self) -> Sources {
        let remote = Remote::parse(&self.server.url()).unwrap().poll(Duration::from_millis(100));
        Sources::new().local(self.file()).remote(remote).keep(self.cache_folder())
    }

    /// The one file of the disk cache.
    fn cache_file(&self) -> PathBuf {
        let files: Vec<_> =
            std::fs::read_dir(self.cache_folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        file.clone()
    }
}

#[tokio::test]
async fn remote_rules_are_active_when_start_returns() {
    let setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), engine.applied()), (rules("remote"), 1));
    let status = handle.status();
    assert_eq!((status.active, status.loads, status.errors, status.connected), (Origin::Remote, 1, 0, true));
}

#[tokio::test]
async fn local_rules_apply_until_an_unreachable_config_server_is_reachable() {
    let mut setup = Setup::new();
    setup.server.stop();
    let (handle, engine) = start(setup.sources()).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active, status.connected), (rules("local"), Origin::Local, false));
    assert_eq!(status.last_error.unwrap().origin, Origin::Remote);
    setup.edit(&rules("local2"));
    until_active(&engine, &rules("local2")).await;

    setup.server.restart().unwrap();
    until_active(&engine, &rules("remote")).await;
    until("the status", || handle.status().active == Origin::Remote && handle.status().connected).await;
}

#[tokio::test]
async fn start_waits_one_second_for_a_silent_config_server() {
    let setup = Setup::new();
    setup.server.misbehave(Misbehave::Silence);
    let engine = Recorder::new();
    let handle = setup.sources().start(Arc::clone(&engine) as Arc<dyn Apply>).await.unwrap();
    assert_eq!((engine.active(), handle.status().active), (rules("local"), Origin::Local));
    assert!(last_error(&handle).contains("no response within 1s"), "{}", last_error(&handle));
    setup.server.misbehave(Misbehave::No);
    until_active(&engine, &rules("remote")).await;
}

#[tokio::test]
async fn the_cached_document_is_used_when_the_config_server_is_unreachable_at_start() {
    let mut setup = Setup::new();
    let (handle, _) = start(setup.sources()).await;
    let version = handle.status().version;
    handle.stop().await;
    setup.server.stop();

    let (handle, engine) = start(setup.sources()).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active, status.version), (rules("remote"), Origin::LastGood, version.clone()));
    // The local file's other sections apply, its rules don't.
    setup.edit(&rules("local2"));
    until("the second load", || handle.status().loads == 2).await;
    assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::LastGood));

    // Reachable again with the same document: nothing to apply, but the origin is the config server again.
    setup.server.restart().unwrap();
    until("the config server", || handle.status().active == Origin::Remote).await;
    assert_eq!(handle.status().loads, 2);
    setup.server.serve(&rules("remote2"));
    until_active(&engine, &rules("remote2")).await;
}

#[tokio::test]
async fn with_when_down_local_the_local_rules_apply_while_the_config_server_is_unreachable() {
    let mut setup = Setup::new();
    let sources = |setup: &Setup| setup.sources().when_down(WhenRemoteIsDown::Local);
    let (handle, engine) = start(sources(&setup)).await;
    assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::Remote));

    setup.server.stop();
    until_active(&engine, &rules("local")).await;
    until("the status", || handle.status().active == Origin::Local && !handle.status().connected).await;
    setup.edit(&rules("local2"));
    until_active(&engine, &rules("local2")).await;

    // The same document as before, so the config server responds that it is unchanged.
    setup.server.restart().unwrap();
    until_active(&engine, &rules("remote")).await;
    until("the status", || handle.status().active == Origin::Remote && handle.status().connected).await;
    setup.server.serve(&rules("remote2"));
    until_active(&engine, &rules("remote2")).await;
    handle.stop().await;

    // No document was kept, so a later start has the local rules too.
    assert!(!setup.cache_folder().exists());
    setup.server.stop();
    let (handle, engine) = start(sources(&setup)).await;
    assert_eq!((engine.active(), handle.status().active), (rules("local2"), Origin::Local));
    setup.server.restart().unwrap();
    until_active(&engine, &rules("remote2")).await;
}

#[tokio::test]
async fn the_cache_has_the_newest_valid_document_and_only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    setup.server.serve(&rules("remote2"));
    until_active(&engine, &rules("remote2")).await;
    setup.server.serve("gateway: {}");
    until_error(&handle, "missing `rules`").await;
    handle.stop().await;
    let cached = std::fs::read_to_string(setup.cache_file()).unwrap();
    assert!(cached.ends_with(&rules("remote2")), "{cached}");
    let mode = std::fs::metadata(setup.cache_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_cache_of_one_config_server_is_not_used_for_another() {
    let mut setup = Setup::new();
    drop(start(setup.sources()).await);
    setup.server.stop();
    let other = Remote::parse(&format!("http://127.0.0.1:{}/other.yaml", setup.server.port())).unwrap();
    let (handle, engine) = start(setup.sources().remote(other)).await;
    assert_eq!((engine.active(), handle.status().active), (rules("local"), Origin::Local));
}

#[tokio::test]
async fn a_damaged_cache_is_not_used() {
    let mut setup = Setup::new();
    drop(start(setup.sources()).await);
    let file = setup.cache_file();
    let text = std::fs::read_to_string(&file).unwrap();
    write(&file, text.get(..text.len() - 3).unwrap()).unwrap();
    setup.server.stop();
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("local"), Origin::Local));
    let error = handle.status().last_error.unwrap();
    assert!(handle.status().errors >= 2, "{error:?}");
}

#[tokio::test]
async fn rules_are_applied_even_if_the_cache_cannot_be_written() {
    let setup = Setup::new();
    std::fs::create_dir(setup.folder.path().join("state")).unwrap();
    write(setup.cache_folder(), "not a folder").unwrap();
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::Remote));
    let error = handle.status().last_error.unwrap();
    assert_eq!(error.origin, Origin::LastGood, "{error:?}");
    assert!(error.what.contains("can't be written"), "{error:?}");
}

#[tokio::test]
async fn remote_rules_stay_active_while_the_config_server_is_unreachable() {
    let mut setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    setup.server.stop();
    until("the disconnect", || !handle.status().connected).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active), (rules("remote"), Origin::Remote));
    assert_eq!(status.last_error.unwrap().origin, Origin::Remote);
    // An edit of the file does not reactivate its rules.
    setup.edit(&rules("local2"));
    until("the second load", || handle.status().loads == 2).await;
    assert_eq!(engine.active(), rules("remote"));

    setup.server.serve(&rules("newest"));
    setup.server.restart().unwrap();
    let elapsed = until_active(&engine, &rules("newest")).await;
    eprintln!("measured: the newest rules were active {elapsed:?} after the config server was reachable again");
    until("the connection", || handle.status().connected).await;
}

#[tokio::test]
async fn an_invalid_remote_document_changes_nothing() {
    let setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    for bad in ["rules: [", "gateway: {}", "", "[]"] {
        let errors = handle.status().errors;
        setup.server.serve(bad);
        until(bad, || handle.status().errors > errors).await;
        assert_eq!(handle.status().last_error.unwrap().origin, Origin::Remote);
        assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::Remote));
    }
    // A bad remote document does not block a local change.
    setup.edit(&(rules("local2")));
    until("the second load", || handle.status().loads == 2).await;
    assert_eq!(engine.active(), rules("remote"));
}

#[tokio::test]
async fn an_invalid_remote_document_at_start_falls_back_to_the_cache_then_to_the_file() {
    let setup = Setup::new();
    setup.server.serve("gateway: {}");
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("local"), Origin::Local));
    assert!(last_error(&handle).contains("missing `rules`"), "{}", last_error(&handle));
    setup.server.serve(&rules("remote"));
    until_active(&engine, &rules("remote")).await;
    handle.stop().await;

    setup.server.serve("gateway: {}");
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::LastGood));
    assert!(last_error(&handle).contains("missing `rules`"), "{}", last_error(&handle));
}

#[tokio::test]
async fn an_invalid_local_edit_does_not_block_remote_rules() {
    let setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    setup.edit("nonsense: 1\nrules: []\n");
    until_error(&handle, "`nonsense`").await;
    let status = handle.status();
    assert_eq!((status.last_error.unwrap().origin, status.active), (Origin::Local, Origin::Remote));
    assert_eq!(engine.active(), rules("remote"));
    setup.server.serve(&rules("remote2"));
    until_active(&engine, &rules("remote2")).await;
    assert_eq!(handle.status().errors, 1, "{}", last_error(&handle));
    setup.edit(&rules("local2"));
    let loads = handle.status().loads;
    until("the good edit", || handle.status().loads > loads).await;
}

#[tokio::test]
async fn a_rejected_document_is_retried_when_the_other_source_changes() {
    let setup = Setup::new();
    let (handle, engine) = start(setup.sources()).await;
    let by_tenant = "rules: [{name: each, by: tenant, limit: 1/s}]\n";
    setup.server.serve(by_tenant);
    until_error(&handle, "unknown attribute `tenant`").await;
    assert_eq!(engine.active(), rules("remote"));
    setup.edit(&format!("identity: {{tenant: header(x)}}\n{}", rules("local")));
    until_active(&engine, by_tenant).await;

    // The edit removes a section that the active remote rules need, so the edit is rejected.
    until("the status", || handle.status().loads == 2).await;
    setup.edit(&rules("local2"));
    until("the error", || handle.status().last_error.is_some_and(|error| error.origin == Origin::Local)).await;
    assert_eq!(engine.active(), by_tenant);
    setup.server.serve(&rules("remote2"));
    until_active(&engine, &rules("remote2")).await;
    let (errors, loads) = (handle.status().errors, handle.status().loads);
    assert!(errors == 2 && loads >= 2, "{:?}", handle.status());
}

#[tokio::test]
async fn an_invalid_local_file_fails_the_start_despite_remote_rules() {
    let setup = Setup::new();
    setup.edit("nonsense: 1\nrules: []\n");
    let error = setup.sources().start(Recorder::new() as Arc<dyn Apply>).await.unwrap_err().to_string();
    assert!(error.contains("local: ") && error.contains("diana.yaml:1:1: unknown field `nonsense`"), "{error}");
}

#[tokio::test]
async fn a_missing_local_file_is_reported_and_remote_rules_apply() {
    let setup = Setup::new();
    std::fs::remove_file(setup.file()).unwrap();
    let (handle, engine) = start(setup.sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("remote"), Origin::Remote));
    assert_eq!(handle.status().last_error.unwrap().origin, Origin::Local);
    setup.edit(&rules("local"));
    until("the file", || handle.status().loads == 2).await;
    assert_eq!(engine.active(), rules("remote"));
}

#[tokio::test]
async fn reload_polls_all_sources() {
    let setup = Setup::new();
    let rarely_polled = Remote::parse(&setup.server.url()).unwrap().poll(Duration::from_secs(3600));
    let (handle, engine) = start(setup.sources().remote(rarely_polled)).await;
    setup.server.serve(&rules("remote2"));
    handle.reload().await;
    assert_eq!(engine.active(), rules("remote2"));
    setup.server.serve("gateway: {}");
    handle.reload().await;
    assert!(last_error(&handle).contains("missing `rules`"), "{}", last_error(&handle));
    setup.server.misbehave(Misbehave::Status(500));
    handle.reload().await;
    assert!(last_error(&handle).contains("500"), "{}", last_error(&handle));
    assert_eq!(engine.active(), rules("remote2"));
}

#[tokio::test]
async fn works_with_etcd() {
    let setup = Setup::new();
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put("/rules", &rules("one")).unwrap();
    let url = format!("etcd://127.0.0.1:{}/rules", etcd.port());
    let sources = || setup.sources().remote(Remote::parse(&url).unwrap());
    let (handle, engine) = start(sources()).await;
    assert_eq!(engine.active(), rules("one"));
    etcd.kill().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    assert_eq!(engine.active(), rules("one"));
    handle.stop().await;

    let (handle, engine) = start(sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("one"), Origin::LastGood));
    etcd.restart().unwrap();
    etcd.put("/rules", &rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
    until("the status", || handle.status().active == Origin::Remote).await;
}

#[tokio::test]
async fn works_with_redis() {
    let setup = Setup::new();
    let mut redis = RedisServer::start().unwrap();
    redis.cli(&["SET", "diana:rules", &rules("one")]).unwrap();
    let url = redis.url();
    let sources = || setup.sources().remote(Remote::parse(&url).unwrap());
    let (handle, engine) = start(sources()).await;
    assert_eq!(engine.active(), rules("one"));
    redis.kill().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    assert_eq!(engine.active(), rules("one"));
    handle.stop().await;

    let (handle, engine) = start(sources()).await;
    assert_eq!((engine.active(), handle.status().active), (rules("one"), Origin::LastGood));
    redis.restart().unwrap();
    redis.cli(&["SET", "diana:rules", &rules("two")]).unwrap();
    until_active(&engine, &rules("two")).await;
    until("the status", || handle.status().active == Origin::Remote).await;
}
