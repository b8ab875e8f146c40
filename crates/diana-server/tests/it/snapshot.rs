//! `store.snapshot` of a running Diana: a stop, a crash at any time, and files that can't be used.

use crate::support::client::get_with;
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

const RULES: &str = "\
gateway: {listen: $LISTEN}
store: {snapshot: $FOLDER/state/counts}
identity: {account: header(x-account-id)}
rules: [{name: daily-quota, by: account, limit: 3/day, algorithm: fixed_window, opens: first_request}]
";

fn statuses(diana: &Diana, count: usize) -> Vec<u16> {
    (0..count).map(|_| get_with(diana.port(), "/", "x-account-id: alice\r\n").status).collect()
}

fn status(diana: &Diana) -> Value {
    serde_json::from_str(&diana.admin("/status").text()).unwrap()
}

fn stop(diana: &mut Diana) {
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
}

#[test]
fn a_daily_quota_survives_a_restart() {
    let mut diana = Diana::serve(RULES);
    assert_eq!(statuses(&diana, 2), [204, 204]);
    stop(&mut diana);
    diana.restart();
    assert!(diana.output().contains("loaded the counts of 1 keys of 1 limits from "), "{}", diana.output());
    assert_eq!(statuses(&diana, 2), [204, 503]);
    assert_eq!(diana.metric("diana_degraded{part=\"snapshot\"}"), 0.0);
    assert_eq!(diana.metric("diana_snapshot_keys"), 1.0);
    let status = status(&diana);
    assert_eq!((&status["snapshot"]["keys"], &status["snapshot"]["errors"]), (&1.into(), &0.into()));
}

#[test]
fn a_file_that_is_not_a_snapshot_is_reported_and_kept() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/counts"), "somebody else's data").unwrap();
    let diana = Diana::serve_in(folder, RULES);
    let (output, kept) = (diana.output(), diana.folder().join("state/counts.ignored"));
    assert!(output.contains("counts are ignored, and kept as ") && output.contains("not a snapshot of Diana's counts"));
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "somebody else's data");
    assert_eq!(statuses(&diana, 4), [204, 204, 204, 503]);
}

#[test]
fn diana_does_not_start_without_a_place_for_the_file() {
    let rules = RULES.replace("state/counts", "diana.yaml/counts");
    let mut diana = Diana::launch(TempDir::new().unwrap(), &rules);
    assert!(!diana.wait_for_exit().success());
    let output = wait_until("the error", LONG, || {
        let output = diana.output();
        output.contains("`store.snapshot` can't be used: ").then_some(output)
    });
    output.unwrap();
}

#[test]
fn failing_writes_are_reported_until_they_work_again() {
    let rules = RULES.replace("state/counts", "state/counts, snapshot_interval: 10ms");
    let diana = Diana::serve(&rules);
    let (state, moved) = (diana.folder().join("state"), diana.folder().join("moved"));
    let degraded = || diana.metric("diana_degraded{part=\"snapshot\"}") > 0.0;
    std::fs::rename(&state, &moved).unwrap();
    // A write in between may have created the folder again.
    wait_until("a file in place of the folder", LONG, || {
        let _ = std::fs::remove_dir_all(&state);
        std::fs::write(&state, "").ok()
    })
    .unwrap();
    wait_until("a failed write", LONG, || degraded().then_some(())).unwrap();
    let reason = status(&diana)["degraded"][0].clone();
    assert_eq!(reason["part"], "snapshot");
    wait_until("several failed writes", LONG, || (diana.metric("diana_snapshot_errors_total") > 3.0).then_some(()))
        .unwrap();
    std::fs::remove_file(&state).unwrap();
    wait_until("a successful write", LONG, || (!degraded()).then_some(())).unwrap();
    let output = diana.output();
    assert_eq!(output.matches("counts are not saved: ").count(), 1, "{output}");
    assert_eq!(output.matches("counts are saved again, after ").count(), 1, "{output}");
}

#[test]
fn a_crash_at_any_time_loses_at_most_one_interval() {
    // Written all the time, so that most crashes are in the middle of a write.
    let rules = RULES.replace("state/counts", "state/counts, snapshot_interval: 1ms").replace("3/day", "1000000/day");
    let mut diana = Diana::serve(&rules);
    let sent = AtomicU64::new(0);
    let used = |diana: &Diana| {
        let response = get_with(diana.port(), "/", "x-account-id: alice\r\n");
        sent.fetch_add(1, Ordering::SeqCst);
        let limit = response.header("ratelimit").unwrap_or_else(|| panic!("{response:?}"));
        let rest = limit.split_once("r=").unwrap().1;
        1_000_000 - rest.split(';').next().unwrap().parse::<u64>().unwrap()
    };
    let saved_at = |diana: &Diana| diana.metric("diana_snapshot_saved_time_seconds");
    let mut counted = 0;
    for round in 0..12 {
        let (is_done, saved) = (AtomicBool::new(false), AtomicU64::new(0));
        let port = diana.port();
        let before_round = counted;
        sent.store(before_round, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    get_with(port, "/", "x-account-id: alice\r\n");
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
            for _ in 0..=round {
                // The second of two later snapshots was begun after this.
                let certain = sent.load(Ordering::SeqCst);
                for _ in 0..2 {
                    let before = saved_at(&diana);
                    wait_until("a snapshot", LONG, || (saved_at(&diana) > before).then_some(())).unwrap();
                }
                saved.store(certain, Ordering::SeqCst);
            }
            is_done.store(true, Ordering::SeqCst);
        });
        diana.kill();
        diana.restart();
        let total = sent.load(Ordering::SeqCst);
        let used = used(&diana);
        assert!(used > saved.load(Ordering::SeqCst) && used <= total + 1, "{used} of {total}, saved {saved:?}");
        counted = used;
    }
    assert!(!diana.output().contains("are ignored"), "{}", diana.output());
}
