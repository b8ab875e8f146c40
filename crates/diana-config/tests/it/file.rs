//! A local file is watched through everything that editors and Kubernetes do to it.

use crate::support::*;
use diana_config::{Origin, Sources, StartError};
use std::fs::{create_dir, remove_file, rename, write};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;

#[tokio::test]
async fn an_edit_is_put_in_force_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    assert_eq!(engine.in_force(), rules("one"));
    let first = running.status();
    assert_eq!((first.in_force, first.loads, first.errors), (Origin::Local, 1, 0));
    assert_eq!(first.name, path.display().to_string());
    assert!(!first.connected);

    write(&path, rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
    until("the second load", || running.status().loads == 2).await;
    let second = running.status();
    assert_ne!(second.version, first.version);
    assert!(second.since > first.since);
    assert_eq!(second.errors, 0, "{second:?}");
}

#[tokio::test]
async fn a_bad_edit_changes_nothing_and_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;

    write(&path, "gateway: {}\n").unwrap();
    until_told(&running, "there is no `rules`").await;
    let status = running.status();
    let error = status.last_error.unwrap();
    assert_eq!((error.origin, status.errors, status.loads), (Origin::Local, 1, 1));
    assert!(error.what.contains("diana.yaml:1:1"), "{}", error.what);
    running.reload().await;
    running.reload().await;
    assert_eq!(running.status().errors, 1);
    assert_eq!(engine.in_force(), rules("one"));

    // Back to the active content: nothing to do, and the next bad edit is reported again.
    write(&path, rules("one")).unwrap();
    running.reload().await;
    assert_eq!(engine.applied(), 1);
    write(&path, "gateway: {}\n").unwrap();
    until("the second telling", || running.status().errors == 2).await;
    write(&path, rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_file_that_is_replaced_as_editors_do_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("0")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    for round in 1..4 {
        let new = folder.path().join(".diana.yaml.swp");
        write(&new, rules(&round.to_string())).unwrap();
        rename(&new, &path).unwrap();
        until_in_force(&engine, &rules(&round.to_string())).await;
    }
    assert_eq!(running.status().errors, 0, "{}", last_error(&running));
}

#[tokio::test]
async fn a_file_that_is_truncated_before_it_is_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    let mut file = std::fs::File::create(&path).unwrap();
    // Long enough for the empty file to be read, but not for it to be accepted as empty.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    file.write_all(rules("two").as_bytes()).unwrap();
    drop(file);
    until_in_force(&engine, &rules("two")).await;
    // A machine that stalled for half a second may have accepted it as empty; the active rules did not change.
    assert_eq!(engine.applied(), 2);
    assert!(running.status().errors <= 1, "{}", last_error(&running));
}

#[tokio::test]
async fn a_file_that_stays_empty_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    write(&path, "").unwrap();
    until("an error", || running.status().errors == 1).await;
    assert_eq!(engine.in_force(), rules("one"));
}

#[tokio::test]
async fn the_swap_of_links_of_a_config_map_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    create_dir(at("..2026_1")).unwrap();
    write(at("..2026_1/diana.yaml"), rules("one")).unwrap();
    symlink("..2026_1", at("..data")).unwrap();
    symlink("..data/diana.yaml", at("diana.yaml")).unwrap();
    let (running, engine) = start(Sources::new().local(at("diana.yaml"))).await;
    assert_eq!(engine.in_force(), rules("one"));

    for (old, new) in [("..2026_1", "..2026_2"), ("..2026_2", "..2026_3")] {
        create_dir(at(new)).unwrap();
        write(at(new).join("diana.yaml"), rules(new)).unwrap();
        symlink(new, at("..data_tmp")).unwrap();
        rename(at("..data_tmp"), at("..data")).unwrap();
        std::fs::remove_dir_all(at(old)).unwrap();
        until_in_force(&engine, &rules(new)).await;
    }
    assert_eq!(running.status().errors, 0, "{}", last_error(&running));
}

#[tokio::test]
async fn the_file_behind_a_link_is_watched_too() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, file) = (here.path().join("diana.yaml"), there.path().join("real.yaml"));
    write(&file, rules("one")).unwrap();
    symlink(&file, &link).unwrap();
    let (_running, engine) = start(Sources::new().local(&link)).await;
    write(&file, rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_file_that_vanishes_leaves_its_rules_and_is_followed_when_it_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config/diana.yaml");
    create_dir(path.parent().unwrap()).unwrap();
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    remove_file(&path).unwrap();
    until_told(&running, "can't be read").await;
    assert_eq!(engine.in_force(), rules("one"));
    write(&path, rules("two")).unwrap();
    until_in_force(&engine, &rules("two")).await;

    // The folder is removed too, and recreated later.
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    until("the second telling", || running.status().errors == 2).await;
    create_dir(path.parent().unwrap()).unwrap();
    write(&path, rules("three")).unwrap();
    until_in_force(&engine, &rules("three")).await;
    write(&path, rules("four")).unwrap();
    until_in_force(&engine, &rules("four")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_quick_rewrites_the_last_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("start")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    let writer = path.clone();
    let written = tokio::task::spawn_blocking(move || {
        for round in 1..=1000 {
            write(&writer, rules(&format!("r{round}"))).unwrap();
        }
    });
    written.await.unwrap();
    until_in_force(&engine, &rules("r1000")).await;
    running.reload().await;
    assert_eq!(engine.in_force(), rules("r1000"));
    assert_eq!(engine.refused(), 0);
    assert!(engine.applied() < 100, "{} loads", engine.applied());
}

#[tokio::test]
async fn what_is_no_document_is_refused_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;

    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap(); // A sparse file of a terabyte.
    until_told(&running, "more than 16777216 bytes").await;
    write(&path, [0xff, 0xfe, b'x']).unwrap();
    until_told(&running, "not UTF-8").await;
    remove_file(&path).unwrap();
    create_dir(&path).unwrap();
    until_told(&running, "not a file").await;
    assert_eq!((engine.in_force(), engine.refused()), (rules("one"), 0));
}

#[tokio::test]
async fn without_anything_to_put_in_force_there_is_no_start() {
    let engine = Recorder::new();
    let nothing = Sources::new().start(Arc::clone(&engine) as _).await;
    assert!(matches!(nothing, Err(StartError::NoSource)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    let missing = Sources::new().local(&path).start(Arc::clone(&engine) as _).await.unwrap_err().to_string();
    assert!(missing.contains("local: ") && missing.contains("diana.yaml: it can't be read"), "{missing}");
    write(&path, "rules: [").unwrap();
    let bad = Sources::new().local(&path).start(engine as _).await.unwrap_err().to_string();
    assert!(bad.contains("diana.yaml:1:8"), "{bad}");
}

#[tokio::test]
async fn nothing_is_put_in_force_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (running, engine) = start(Sources::new().local(&path)).await;
    running.stop().await;
    let (running, dropped) = start(Sources::new().local(&path)).await;
    drop(running);
    // A third watcher sees the change, so the other two could have.
    let (_running, witness) = start(Sources::new().local(&path)).await;
    write(&path, rules("two")).unwrap();
    until_in_force(&witness, &rules("two")).await;
    assert_eq!((engine.applied(), dropped.applied()), (1, 1));
    assert_eq!(Arc::strong_count(&engine), 1, "somebody still holds the engine");
}
