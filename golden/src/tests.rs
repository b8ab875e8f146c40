use super::*;
use std::path::PathBuf;

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

#[test]
fn the_store_option_may_be_anywhere() {
    let args = |args: &[&str]| {
        let args = strings(args);
        arguments(&args).map(|(store, files)| format!("{store}: {}", files.join(" ")))
    };
    assert_eq!(args(&["a", "b"]).unwrap(), "memory: a b");
    assert_eq!(args(&["--store", "redis", "a"]).unwrap(), "redis: a");
    assert_eq!(args(&["a", "--store=memory"]).unwrap(), "memory: a");
    assert_eq!(args(&["a", "--store"]).unwrap_err(), "missing value of `--store`: expected memory or redis");
    assert_eq!(args(&["a", "--stores"]).unwrap_err(), "unknown option `--stores`; the only option is `--store`");
    assert!(args(&["--store", "redis"]).unwrap_err().starts_with("missing file; expected at least one"));
}

#[test]
fn an_unknown_store_is_an_error() {
    let problem = Stores::named("mysql").unwrap_err();
    assert_eq!(problem, "unknown store `mysql`; expected memory or redis");
}

/// Returns the golden files.
fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).collect();
    files.sort();
    files
}

#[test]
fn the_redis_store_is_used() {
    let stores = Stores::named("redis").unwrap();
    for file in ["lua_fixed_multi_public.jsonl", "lua_zset_002_public.jsonl", "guava_public.jsonl"] {
        let path = files().into_iter().find(|path| path.ends_with(file)).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let scenario: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let store = stores.empty().unwrap();
        assert_eq!(replay(&scenario, &store).unwrap().mismatches, [], "{file}");
        // A second replay on the same keys finds the state of the first one, which is only in this store.
        let again = replay(&scenario, &store);
        assert!(again.is_err() || again.is_ok_and(|replay| !replay.mismatches.is_empty()), "{file}");
    }
}

#[test]
fn redis_gives_the_recorded_answers() {
    let stores = Stores::named("redis").unwrap();
    let (mut steps, mut skipped) = (0, 0);
    for file in files() {
        let report = replay_file(&file, &stores).unwrap();
        assert_eq!(report.mismatches, [], "{}", file.display());
        steps += report.steps;
        skipped += report.skipped.values().map(|(_, steps)| steps).sum::<usize>();
    }
    // From Guava's edge cases: infinite rates, rates of less than a permit in 140 years, and times past the last
    // timestamp.
    assert_eq!((steps, skipped), (64_448, 107));
}
