//! A local file is watched through everything that editors and Kubernetes do to it.

use crate::support::*;
use diana_config::{Origin, Sources, StartError};
use std::fs::{create_dir, remove_file, rename, write};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;

#[tokio::test]
async fn an_edit_is_applied_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    assert_eq!(engine.active(), rules("one"));
    let first = handle.status();
    assert_eq!((first.active, first.loads, first.errors), (Origin::Local, 1, 0));
    assert_eq!(first.name, path.display().to_string());
    assert!(!first.connected);

    write(&path, rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
    until("the second load", || handle.status().loads == 2).await;
    let second = handle.status();
    assert_ne!(second.version, first.version);
    assert!(second.since > first.since);
    assert_eq!(second.errors, 0, "{second:?}");
}

#[tokio::test]
async fn an_invalid_edit_changes_nothing_and_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;

    write(&path, "gateway: {}\n").unwrap();
    until_error(&handle, "missing `rules`").await;
    let status = handle.status();
    let error = status.last_error.unwrap();
    assert_eq!((error.origin, status.errors, status.loads), (Origin::Local, 1, 1));
    assert!(error.what.contains("diana.yaml:1:1"), "{}", error.what);
    handle.reload().await;
    handle.reload().await;
    assert_eq!(handle.status().errors, 1);
    assert_eq!(engine.active(), rules("one"));

    // Back to the active content: nothing to do, and the next bad edit is reported again.
    write(&path, rules("one")).unwrap();
    handle.reload().await;
    assert_eq!(engine.applied(), 1);
    write(&path, "gateway: {}\n").unwrap();
    until("the second error", || handle.status().errors == 2).await;
    write(&path, rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_replaced_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("0")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    for round in 1..4 {
        let new = folder.path().join(".diana.yaml.swp");
        write(&new, rules(&round.to_string())).unwrap();
        rename(&new, &path).unwrap();
        until_active(&engine, &rules(&round.to_string())).await;
    }
    assert_eq!(handle.status().errors, 0, "{}", last_error(&handle));
}

#[tokio::test]
async fn a_file_truncated_before_a_write_is_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    let mut file = std::fs::File::create(&path).unwrap();
    // Long enough for the empty file to be read, but not for it to be accepted as empty.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    file.write_all(rules("two").as_bytes()).unwrap();
    drop(file);
    until_active(&engine, &rules("two")).await;
    // A machine that stalled for half a second may have accepted it as empty; the active rules did not change.
    assert_eq!(engine.applied(), 2);
    assert!(handle.status().errors <= 1, "{}", last_error(&handle));
}

#[tokio::test]
async fn an_empty_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    write(&path, "").unwrap();
    until("an error", || handle.status().errors == 1).await;
    assert_eq!(engine.active(), rules("one"));
}

#[tokio::test]
async fn the_symlink_swap_of_a_config_map_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    create_dir(at("..2026_1")).unwrap();
    write(at("..2026_1/diana.yaml"), rules("one")).unwrap();
    symlink("..2026_1", at("..data")).unwrap();
    symlink("..data/diana.yaml", at("diana.yaml")).unwrap();
    let (handle, engine) = start(Sources::new().local(at("diana.yaml"))).await;
    assert_eq!(engine.active(), rules("one"));

    for (old, new) in [("..2026_1", "..2026_2"), ("..2026_2", "..2026_3")] {
        create_dir(at(new)).unwrap();
        write(at(new).join("diana.yaml"), rules(new)).unwrap();
        symlink(new, at("..data_tmp")).unwrap();
        rename(at("..data_tmp"), at("..data")).unwrap();
        std::fs::remove_dir_all(at(old)).unwrap();
        until_active(&engine, &rules(new)).await;
    }
    assert_eq!(handle.status().errors, 0, "{}", last_error(&handle));
}

#[tokio::test]
async fn the_target_of_a_symlink_is_watched() {
    let (link_folder, target_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, file) = (link_folder.path().join("diana.yaml"), target_folder.path().join("real.yaml"));
    write(&file, rules("one")).unwrap();
    symlink(&file, &link).unwrap();
    let (_running, engine) = start(Sources::new().local(&link)).await;
    write(&file, rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn rules_stay_when_the_file_is_deleted_and_a_recreated_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config/diana.yaml");
    create_dir(path.parent().unwrap()).unwrap();
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    remove_file(&path).unwrap();
    until_error(&handle, "can't be read").await;
    assert_eq!(engine.active(), rules("one"));
    write(&path, rules("two")).unwrap();
    until_active(&engine, &rules("two")).await;

    // The folder is removed too, and recreated later.
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    until("the second error", || handle.status().errors == 2).await;
    create_dir(path.parent().unwrap()).unwrap();
    write(&path, rules("three")).unwrap();
    until_active(&engine, &rules("three")).await;
    write(&path, rules("four")).unwrap();
    until_active(&engine, &rules("four")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_a_thousand_rewrites_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("start")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    let writer = path.clone();
    let written = tokio::task::spawn_blocking(move || {
        for round in 1..=1000 {
            write(&writer, rules(&format!("r{round}"))).unwrap();
        }
    });
    written.await.unwrap();
    until_active(&engine, &rules("r1000")).await;
    handle.reload().await;
    assert_eq!(engine.active(), rules("r1000"));
    assert_eq!(engine.rejected(), 0);
    assert!(engine.applied() < 100, "{} loads", engine.applied());
}

#[tokio::test]
async fn invalid_content_is_rejected_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;

    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap(); // A sparse file of a terabyte.
    until_error(&handle, "more than 16777216 bytes").await;
    write(&path, [0xff, 0xfe, b'x']).unwrap();
    until_error(&handle, "invalid UTF-8").await;
    remove_file(&path).unwrap();
    create_dir(&path).unwrap();
    until_error(&handle, "not a regular file").await;
    assert_eq!((engine.active(), engine.rejected()), (rules("one"), 0));
}

#[tokio::test]
async fn start_fails_without_valid_rules() {
    let engine = Recorder::new();
    let nothing = Sources::new().start(Arc::clone(&engine) as _).await;
    assert!(matches!(nothing, Err(StartError::NoSource)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    let missing = Sources::new().local(&path).start(Arc::clone(&engine) as _).await.unwrap_err().to_string();
    assert!(missing.contains("local: ") && missing.contains("diana.yaml: can't be read"), "{missing}");
    write(&path, "rules: [").unwrap();
    let bad = Sources::new().local(&path).start(engine as _).await.unwrap_err().to_string();
    assert!(bad.contains("diana.yaml:1:8"), "{bad}");
}

#[tokio::test]
async fn nothing_is_applied_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    write(&path, rules("one")).unwrap();
    let (handle, engine) = start(Sources::new().local(&path)).await;
    handle.stop().await;
    let (handle, dropped) = start(Sources::new().local(&path)).await;
    drop(handle);
    // A third watcher sees the change, so the other two could have.
    let (_running, witness) = start(Sources::new().local(&path)).await;
    write(&path, rules("two")).unwrap();
    until_active(&witness, &rules("two")).await;
    assert_eq!((engine.applied(), dropped.applied()), (1, 1));
    assert_eq!(Arc::strong_count(&engine), 1, "the engine is still referenced");
}
