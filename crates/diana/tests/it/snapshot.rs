//! Counts that survive a restart: an engine that was saved and loaded answers as one that was not.

use crate::support::{account, clock, decide, decision_text, file};
use diana::{Engine, EngineOptions, ManualClock, Snapshot, SnapshotError, SnapshotSize};
use std::path::Path;
use std::time::Duration;

const MAX_BYTES: u64 = 1 << 30;
const MINUTE: Duration = Duration::from_secs(60);

fn engine(text: &str, clock: &ManualClock) -> Engine {
    let file = file(text);
    EngineOptions::of(&file).clock(clock.clone()).build(&file)
}

/// Saves the counts, and loads them into an engine of its own, as a restart does.
fn restarted(engine: &Engine, text: &str, clock: &ManualClock, path: &Path) -> (Engine, SnapshotSize) {
    engine.save_snapshot(path).unwrap();
    loaded(text, clock, path).unwrap()
}

fn loaded(text: &str, clock: &ManualClock, path: &Path) -> Result<(Engine, SnapshotSize), SnapshotError> {
    let (file, snapshot) = (file(text), Snapshot::read(path, MAX_BYTES)?.expect("it was saved"));
    let engine = EngineOptions::of(&file).clock(clock.clone()).snapshot(&snapshot).build(&file);
    let size = engine.load_snapshot(&snapshot)?;
    Ok((engine, size))
}

fn accounts(engine: &Engine, name: &str, count: usize) -> Vec<bool> {
    (0..count).map(|_| decide(engine, &account(name)).is_granted()).collect()
}

/// A rule of each algorithm with a state that lasts.
const ALGORITHMS: [&str; 10] = [
    "limit: {rate: 40/h, burst: 7}",
    "limit: {rate: 30/h, burst: 5, algorithm: leaky_bucket}",
    "limit: 9/h, algorithm: fixed_window",
    "limit: 9/h, algorithm: fixed_window, opens: first_request",
    "limit: 9/h, algorithm: sliding_window",
    "limit: 9/h, algorithm: sliding_log",
    "limit: 20/day",
    "every: 5min",
    "total: 30",
    "limit: [9/h, 20/day]",
];

#[test]
fn answers_are_those_of_an_engine_that_was_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counts");
    for rule in ALGORITHMS {
        let text = format!("rules: [{{name: limited, by: account, {rule}}}]");
        let clock = clock();
        let (unbroken, mut tested) = (engine(&text, &clock), engine(&text, &clock));
        let mut random = 7_u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mut denied = 0;
        for step in 0..400 {
            let request = account(&format!("account-{}", next(2)));
            let expected = decide(&unbroken, &request);
            denied += u32::from(!expected.is_granted());
            assert_eq!(decision_text(&tested, &request), expected.to_string(), "{rule}, step {step}");
            clock.advance(Duration::from_millis(next(30_000)));
            if next(10) == 0 {
                tested.save_snapshot(&path).unwrap();
                // What is in use for less than a minute is not saved.
                clock.advance(MINUTE);
                tested = loaded(&text, &clock, &path).unwrap().0;
            }
        }
        assert!(denied > 20, "{rule}: {denied}");
    }
}

#[test]
fn only_what_lasts_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("new/folder/counts"), clock());
    let text = "rules: [{name: short, by: account, limit: 10/s}, {name: minute, by: account, limit: 10/min, \
                algorithm: fixed_window}, {name: day, by: account, limit: 10/day}]";
    let engine = engine(text, &clock);
    assert_eq!(engine.save_snapshot(&path).unwrap(), SnapshotSize::default());
    for name in ["a", "b", "c"] {
        assert!(decide(&engine, &account(name)).is_granted());
    }
    assert_eq!(engine.save_snapshot(&path).unwrap(), SnapshotSize { limits: 1, keys: 3 });
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(engine.save_snapshot(&path).unwrap(), SnapshotSize::default());
}

#[test]
fn changed_limits_keep_what_was_used() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("counts"), clock());
    let rules = |limit: &str| format!("rules: [{{name: quota, by: account, limit: {limit}, algorithm: fixed_window}}]");
    let before = engine(&rules("10/day"), &clock);
    accounts(&before, "alice", 7);
    before.save_snapshot(&path).unwrap();
    for (limit, expected) in [("10/day", 3), ("12/day", 5), ("7/day", 0), ("5/day", 0)] {
        let (after, size) = loaded(&rules(limit), &clock, &path).unwrap();
        assert_eq!(size, SnapshotSize { limits: 1, keys: 1 });
        let granted = accounts(&after, "alice", 20).into_iter().filter(|granted| *granted).count();
        assert_eq!(granted, expected, "{limit}");
    }
}

#[test]
fn a_rule_that_is_gone_or_counts_by_something_else_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("counts"), clock());
    let before = engine("rules: [{name: quota, by: account, limit: 2/day}]", &clock);
    assert_eq!(accounts(&before, "alice", 3), [true, true, false]);
    for rules in ["[{name: quota, by: ip, limit: 2/day}]", "[{name: other, by: account, limit: 2/day}]"] {
        let (after, size) = restarted(&before, &format!("rules: {rules}"), &clock, &path);
        assert_eq!(size, SnapshotSize::default());
        assert_eq!(accounts(&after, "alice", 3), [true, true, false]);
    }
}

#[test]
fn shared_counts_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counts");
    let file = file(
        "store: {redis: 'redis://127.0.0.1'}\nrules: [{name: a, by: account, limit: 2/day}, \
                     {name: b, by: account, limit: 2/day, store: local}]",
    );
    let engine = EngineOptions::of(&file).clock(clock()).build_shared(&file, diana::store::MemoryStore::default());
    assert!(decide(&engine, &account("alice")).is_granted());
    assert_eq!(engine.save_snapshot(&path).unwrap(), SnapshotSize { limits: 1, keys: 1 });
}

#[test]
fn a_file_that_was_damaged_or_cut_off_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("counts"), clock());
    let text = "rules: [{name: quota, by: account, limit: [2/day, {rate: 5/h, algorithm: sliding_log}]}]";
    let engine = engine(text, &clock);
    accounts(&engine, "alice", 2);
    accounts(&engine, "bob", 1);
    engine.save_snapshot(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        std::fs::write(&path, &damaged).unwrap();
        let error = Snapshot::read(&path, MAX_BYTES).unwrap_err();
        let is_expected = match position {
            0..8 => matches!(error, SnapshotError::Foreign { .. }),
            8..16 => matches!(error, SnapshotError::Version { .. }),
            _ => matches!(error, SnapshotError::Damaged { .. }),
        };
        assert!(is_expected, "{position}: {error}");
        std::fs::write(&path, &bytes[..position]).unwrap();
        let error = Snapshot::read(&path, MAX_BYTES).unwrap_err();
        assert!(matches!(error, SnapshotError::Foreign { .. } | SnapshotError::Damaged { .. }), "{position}: {error}");
    }
    std::fs::write(&path, &bytes).unwrap();
    assert!(Snapshot::read(&path, bytes.len() as u64).unwrap().is_some());
    let error = Snapshot::read(&path, bytes.len() as u64 - 1).unwrap_err();
    assert!(error.to_string().ends_with(&format!("counts: larger than {} bytes", bytes.len() - 1)), "{error}");
    let (after, size) = loaded(text, &clock, &path).unwrap();
    assert_eq!(size.limits, 2);
    assert_eq!((accounts(&after, "alice", 1), accounts(&after, "bob", 2)), (vec![false], vec![true, false]));
}

#[test]
fn counts_from_the_future_and_of_another_secret_are_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (path, later) = (folder.path().join("counts"), clock());
    let text = "rules: [{name: quota, by: account, limit: 2/day}]";
    later.advance(Duration::from_secs(90));
    let before = engine(text, &later);
    accounts(&before, "alice", 2);
    before.save_snapshot(&path).unwrap();
    let error = loaded(text, &clock(), &path).unwrap_err();
    assert_eq!(error.to_string(), "the counts are from the future, by 90s: the clock was set back");
    let slightly_earlier = clock();
    slightly_earlier.advance(Duration::from_secs(40));
    let (after, _) = loaded(text, &slightly_earlier, &path).unwrap();
    assert_eq!(accounts(&after, "alice", 1), [false]);
    let snapshot = Snapshot::read(&path, MAX_BYTES).unwrap().unwrap();
    assert!(matches!(engine(text, &later).load_snapshot(&snapshot), Err(SnapshotError::OtherSecret)));
}

#[test]
fn the_file_is_replaced_at_once_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("counts"), clock());
    let engine = engine("rules: [{name: quota, by: account, limit: 2/day}]", &clock);
    assert!(Snapshot::read(&path, MAX_BYTES).unwrap().is_none());
    // What a crash leaves.
    std::fs::write(folder.path().join("counts.tmp"), "half").unwrap();
    std::fs::write(&path, "a file that others can read").unwrap();
    engine.save_snapshot(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the temporary file is gone");
    let error = engine.save_snapshot(&path.join("below")).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { .. }), "{error}");
}
