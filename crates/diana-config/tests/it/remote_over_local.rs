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
struct Scene {
    folder: TempDir,
    centre: HttpServer,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap(), centre: HttpServer::start().unwrap() };
        scene.edit(&rules("local"));
        scene.centre.serve(&rules("remote"));
        scene
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("diana.yaml")
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("state/diana")
    }

    fn edit(&self, text: &str) {
        write(self.file(), text).unwrap();
    }

    fn sources(&self) -> Sources {
        let remote = Remote::parse(&self.centre.url()).unwrap().poll(Duration::from_millis(100));
        Sources::new().local(self.file()).remote(remote).keep(self.kept())
    }

    /// The one file of the disk cache.
    fn kept_file(&self) -> PathBuf {
        let files: Vec<_> = std::fs::read_dir(self.kept()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        file.clone()
    }
}

#[tokio::test]
async fn the_centres_rules_are_in_force_before_the_start_is_over() {
    let scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), engine.applied()), (rules("remote"), 1));
    let status = running.status();
    assert_eq!((status.in_force, status.loads, status.errors, status.connected), (Origin::Remote, 1, 0, true));
}

#[tokio::test]
async fn a_centre_that_is_away_at_the_start_leaves_the_local_file_until_it_is_back() {
    let mut scene = Scene::new();
    scene.centre.stop();
    let (running, engine) = start(scene.sources()).await;
    let status = running.status();
    assert_eq!((engine.in_force(), status.in_force, status.connected), (rules("local"), Origin::Local, false));
    assert_eq!(status.last_error.unwrap().origin, Origin::Remote);
    scene.edit(&rules("local2"));
    until_in_force(&engine, &rules("local2")).await;

    scene.centre.restart().unwrap();
    until_in_force(&engine, &rules("remote")).await;
    until("the status", || running.status().in_force == Origin::Remote && running.status().connected).await;
}

#[tokio::test]
async fn a_centre_that_never_answers_is_waited_for_a_second() {
    let scene = Scene::new();
    scene.centre.misbehave(Misbehave::Silence);
    let engine = Recorder::new();
    let running = scene.sources().start(Arc::clone(&engine) as Arc<dyn Apply>).await.unwrap();
    assert_eq!((engine.in_force(), running.status().in_force), (rules("local"), Origin::Local));
    assert!(last_error(&running).contains("no answer within 1s"), "{}", last_error(&running));
    scene.centre.misbehave(Misbehave::No);
    until_in_force(&engine, &rules("remote")).await;
}

#[tokio::test]
async fn what_was_last_good_serves_when_the_centre_is_away_at_a_later_start() {
    let mut scene = Scene::new();
    let (running, _) = start(scene.sources()).await;
    let version = running.status().version;
    running.stop().await;
    scene.centre.stop();

    let (running, engine) = start(scene.sources()).await;
    let status = running.status();
    assert_eq!(
        (engine.in_force(), status.in_force, status.version),
        (rules("remote"), Origin::LastGood, version.clone())
    );
    // The local file's other sections apply, its rules don't.
    scene.edit(&rules("local2"));
    until("the second load", || running.status().loads == 2).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::LastGood));

    // Reachable again with the same document: nothing to apply, but the origin is the config server again.
    scene.centre.restart().unwrap();
    until("the centre", || running.status().in_force == Origin::Remote).await;
    assert_eq!(running.status().loads, 2);
    scene.centre.serve(&rules("remote2"));
    until_in_force(&engine, &rules("remote2")).await;
}

#[tokio::test]
async fn where_it_is_wanted_the_local_rules_apply_while_the_config_server_is_unreachable() {
    let mut scene = Scene::new();
    let sources = |scene: &Scene| scene.sources().when_down(WhenRemoteIsDown::Local);
    let (running, engine) = start(sources(&scene)).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::Remote));

    scene.centre.stop();
    until_in_force(&engine, &rules("local")).await;
    until("the status", || running.status().in_force == Origin::Local && !running.status().connected).await;
    scene.edit(&rules("local2"));
    until_in_force(&engine, &rules("local2")).await;

    // The same document as before, so the config server responds that it is unchanged.
    scene.centre.restart().unwrap();
    until_in_force(&engine, &rules("remote")).await;
    until("the status", || running.status().in_force == Origin::Remote && running.status().connected).await;
    scene.centre.serve(&rules("remote2"));
    until_in_force(&engine, &rules("remote2")).await;
    running.stop().await;

    // No document was kept, so a later start has the local rules too.
    assert!(!scene.kept().exists());
    scene.centre.stop();
    let (running, engine) = start(sources(&scene)).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("local2"), Origin::Local));
    scene.centre.restart().unwrap();
    until_in_force(&engine, &rules("remote2")).await;
}

#[tokio::test]
async fn what_is_kept_is_the_newest_good_one_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    scene.centre.serve(&rules("remote2"));
    until_in_force(&engine, &rules("remote2")).await;
    scene.centre.serve("gateway: {}");
    until_told(&running, "no `rules`").await;
    running.stop().await;
    let kept = std::fs::read_to_string(scene.kept_file()).unwrap();
    assert!(kept.ends_with(&rules("remote2")), "{kept}");
    let mode = std::fs::metadata(scene.kept_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn what_is_kept_of_one_centre_does_not_serve_for_another() {
    let mut scene = Scene::new();
    drop(start(scene.sources()).await);
    scene.centre.stop();
    let other = Remote::parse(&format!("http://127.0.0.1:{}/other.yaml", scene.centre.port())).unwrap();
    let (running, engine) = start(scene.sources().remote(other)).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("local"), Origin::Local));
}

#[tokio::test]
async fn what_was_kept_and_is_damaged_is_not_used() {
    let mut scene = Scene::new();
    drop(start(scene.sources()).await);
    let file = scene.kept_file();
    let whole = std::fs::read_to_string(&file).unwrap();
    write(&file, whole.get(..whole.len() - 3).unwrap()).unwrap();
    scene.centre.stop();
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("local"), Origin::Local));
    let error = running.status().last_error.unwrap();
    assert!(running.status().errors >= 2, "{error:?}");
}

#[tokio::test]
async fn where_nothing_can_be_kept_the_rules_are_in_force_all_the_same() {
    let scene = Scene::new();
    std::fs::create_dir(scene.folder.path().join("state")).unwrap();
    write(scene.kept(), "a file where a folder should be").unwrap();
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::Remote));
    let error = running.status().last_error.unwrap();
    assert_eq!(error.origin, Origin::LastGood, "{error:?}");
    assert!(error.what.contains("can't be written"), "{error:?}");
}

#[tokio::test]
async fn a_centre_that_goes_away_leaves_its_rules_and_brings_the_newest_when_it_is_back() {
    let mut scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    scene.centre.stop();
    until("the loss", || !running.status().connected).await;
    let status = running.status();
    assert_eq!((engine.in_force(), status.in_force), (rules("remote"), Origin::Remote));
    assert_eq!(status.last_error.unwrap().origin, Origin::Remote);
    // An edit of the file does not reactivate its rules.
    scene.edit(&rules("local2"));
    until("the second load", || running.status().loads == 2).await;
    assert_eq!(engine.in_force(), rules("remote"));

    scene.centre.serve(&rules("newest"));
    scene.centre.restart().unwrap();
    let took = until_in_force(&engine, &rules("newest")).await;
    eprintln!("measured: the newest rules were in force {took:?} after the centre was back");
    until("the link", || running.status().connected).await;
}

#[tokio::test]
async fn a_bad_remote_document_changes_nothing() {
    let scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    for bad in ["rules: [", "gateway: {}", "", "[]"] {
        let errors = running.status().errors;
        scene.centre.serve(bad);
        until(bad, || running.status().errors > errors).await;
        assert_eq!(running.status().last_error.unwrap().origin, Origin::Remote);
        assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::Remote));
    }
    // A bad remote document does not block a local change.
    scene.edit(&(rules("local2")));
    until("the second load", || running.status().loads == 2).await;
    assert_eq!(engine.in_force(), rules("remote"));
}

#[tokio::test]
async fn a_bad_remote_document_at_the_start_gives_way_to_the_last_good_one_and_else_to_the_file() {
    let scene = Scene::new();
    scene.centre.serve("gateway: {}");
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("local"), Origin::Local));
    assert!(last_error(&running).contains("no `rules`"), "{}", last_error(&running));
    scene.centre.serve(&rules("remote"));
    until_in_force(&engine, &rules("remote")).await;
    running.stop().await;

    scene.centre.serve("gateway: {}");
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::LastGood));
    assert!(last_error(&running).contains("no `rules`"), "{}", last_error(&running));
}

#[tokio::test]
async fn a_bad_local_edit_neither_disturbs_the_centres_rules_nor_keeps_new_ones_out() {
    let scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    scene.edit("nonsense: 1\nrules: []\n");
    until_told(&running, "`nonsense`").await;
    let status = running.status();
    assert_eq!((status.last_error.unwrap().origin, status.in_force), (Origin::Local, Origin::Remote));
    assert_eq!(engine.in_force(), rules("remote"));
    scene.centre.serve(&rules("remote2"));
    until_in_force(&engine, &rules("remote2")).await;
    assert_eq!(running.status().errors, 1, "{}", last_error(&running));
    scene.edit(&rules("local2"));
    let loads = running.status().loads;
    until("the good edit", || running.status().loads > loads).await;
}

#[tokio::test]
async fn what_was_refused_is_tried_again_when_the_other_side_changes() {
    let scene = Scene::new();
    let (running, engine) = start(scene.sources()).await;
    let by_tenant = "rules: [{name: each, by: tenant, limit: 1/s}]\n";
    scene.centre.serve(by_tenant);
    until_told(&running, "what `tenant` is").await;
    assert_eq!(engine.in_force(), rules("remote"));
    scene.edit(&format!("identity: {{tenant: header(x)}}\n{}", rules("local")));
    until_in_force(&engine, by_tenant).await;

    // The edit removes a section that the active remote rules need, so the edit is rejected.
    until("the status", || running.status().loads == 2).await;
    scene.edit(&rules("local2"));
    until("the telling", || running.status().last_error.is_some_and(|error| error.origin == Origin::Local)).await;
    assert_eq!(engine.in_force(), by_tenant);
    scene.centre.serve(&rules("remote2"));
    until_in_force(&engine, &rules("remote2")).await;
    let (errors, loads) = (running.status().errors, running.status().loads);
    assert!(errors == 2 && loads >= 2, "{:?}", running.status());
}

#[tokio::test]
async fn a_bad_local_file_at_the_start_is_not_saved_by_the_centre() {
    let scene = Scene::new();
    scene.edit("nonsense: 1\nrules: []\n");
    let error = scene.sources().start(Recorder::new() as Arc<dyn Apply>).await.unwrap_err().to_string();
    assert!(error.contains("local: ") && error.contains("diana.yaml:1:1: `nonsense`"), "{error}");
}

#[tokio::test]
async fn a_missing_local_file_is_told_and_the_centre_serves() {
    let scene = Scene::new();
    std::fs::remove_file(scene.file()).unwrap();
    let (running, engine) = start(scene.sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("remote"), Origin::Remote));
    assert_eq!(running.status().last_error.unwrap().origin, Origin::Local);
    scene.edit(&rules("local"));
    until("the file", || running.status().loads == 2).await;
    assert_eq!(engine.in_force(), rules("remote"));
}

#[tokio::test]
async fn a_reload_looks_at_everything_now() {
    let scene = Scene::new();
    let seldom = Remote::parse(&scene.centre.url()).unwrap().poll(Duration::from_secs(3600));
    let (running, engine) = start(scene.sources().remote(seldom)).await;
    scene.centre.serve(&rules("remote2"));
    running.reload().await;
    assert_eq!(engine.in_force(), rules("remote2"));
    scene.centre.serve("gateway: {}");
    running.reload().await;
    assert!(last_error(&running).contains("no `rules`"), "{}", last_error(&running));
    scene.centre.misbehave(Misbehave::Status(500));
    running.reload().await;
    assert!(last_error(&running).contains("500"), "{}", last_error(&running));
    assert_eq!(engine.in_force(), rules("remote2"));
}

#[tokio::test]
async fn it_is_the_same_with_etcd() {
    let scene = Scene::new();
    let mut etcd = EtcdServer::start().unwrap();
    etcd.put("/rules", &rules("one")).unwrap();
    let url = format!("etcd://127.0.0.1:{}/rules", etcd.port());
    let sources = || scene.sources().remote(Remote::parse(&url).unwrap());
    let (running, engine) = start(sources()).await;
    assert_eq!(engine.in_force(), rules("one"));
    etcd.kill().unwrap();
    until("the loss", || !running.status().connected).await;
    assert_eq!(engine.in_force(), rules("one"));
    running.stop().await;

    let (running, engine) = start(sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("one"), Origin::LastGood));
    etcd.restart().unwrap();
    etcd.put("/rules", &rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
    until("the status", || running.status().in_force == Origin::Remote).await;
}

#[tokio::test]
async fn it_is_the_same_with_redis() {
    let scene = Scene::new();
    let mut redis = RedisServer::start().unwrap();
    redis.cli(&["SET", "diana:rules", &rules("one")]).unwrap();
    let url = redis.url();
    let sources = || scene.sources().remote(Remote::parse(&url).unwrap());
    let (running, engine) = start(sources()).await;
    assert_eq!(engine.in_force(), rules("one"));
    redis.kill().unwrap();
    until("the loss", || !running.status().connected).await;
    assert_eq!(engine.in_force(), rules("one"));
    running.stop().await;

    let (running, engine) = start(sources()).await;
    assert_eq!((engine.in_force(), running.status().in_force), (rules("one"), Origin::LastGood));
    redis.restart().unwrap();
    redis.cli(&["SET", "diana:rules", &rules("two")]).unwrap();
    until_in_force(&engine, &rules("two")).await;
    until("the status", || running.status().in_force == Origin::Remote).await;
}
