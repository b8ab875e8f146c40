use super::*;
use std::path::PathBuf;

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

#[test]
fn the_store_may_be_named_anywhere() {
    let args = |args: &[&str]| {
        let args = strings(args);
        arguments(&args).map(|(store, files)| format!("{store}: {}", files.join(" ")))
    };
    assert_eq!(args(&["a", "b"]).unwrap(), "memory: a b");
    assert_eq!(args(&["--store", "redis", "a"]).unwrap(), "redis: a");
    assert_eq!(args(&["a", "--store=memory"]).unwrap(), "memory: a");
    assert_eq!(args(&["a", "--store"]).unwrap_err(), "--store needs the name of one: memory or redis");
    assert_eq!(args(&["a", "--stores"]).unwrap_err(), "there is no option `--stores`; the only one is --store");
    assert!(args(&["--store", "redis"]).unwrap_err().starts_with("name at least one file"));
}

#[test]
fn a_store_that_is_not_there_is_told() {
    let problem = Stores::named("mysql").unwrap_err();
    assert_eq!(problem, "there is no store `mysql`: it is memory or redis");
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
fn it_is_redis_that_answers() {
    let stores = Stores::named("redis").unwrap();
    for file in ["lua_fixed_multi_public.jsonl", "lua_zset_002_public.jsonl", "guava_public.jsonl"] {
        let path = files().into_iter().find(|path| path.ends_with(file)).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let scenario: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let counts = stores.empty().unwrap();
        assert_eq!(replay(&scenario, &counts).unwrap().mismatches, [], "{file}");
        // A second replay on the same keys finds the state of the first one, which is only in this store.
        let again = replay(&scenario, &counts);
        assert!(again.is_err() || again.is_ok_and(|replay| !replay.mismatches.is_empty()), "{file}");
    }
}

#[test]
fn what_was_recorded_is_what_redis_answers_too() {
    let stores = Stores::named("redis").unwrap();
    let (mut steps, mut left_out) = (0, 0);
    for file in files() {
        let report = replay_file(&file, &stores).unwrap();
        assert_eq!(report.mismatches, [], "{}", file.display());
        steps += report.steps;
        left_out += report.left_out.values().map(|(_, steps)| steps).sum::<usize>();
    }
    // From Guava's edge cases: infinite rates, rates of less than a permit in 140 years, and times beyond the clock.
    assert_eq!((steps, left_out), (51_545, 107));
}
