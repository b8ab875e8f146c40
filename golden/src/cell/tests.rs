//! Compares the recorded answers, checks that a wrong one is detected, and lists where Diana deviates on purpose.

use crate::store::Stores;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

fn scenarios() -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cell_public.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn replay(scenario: &Value) -> crate::Replay {
    super::replay(scenario, &Stores::Memory.empty().unwrap()).unwrap()
}

#[test]
fn diana_gives_every_recorded_answer() {
    let scenarios = scenarios();
    let replays = scenarios.iter().map(replay).collect::<Vec<_>>();
    assert_eq!((replays.len(), replays.iter().map(|replay| replay.steps).sum::<usize>()), (698, 12_903));
    for (scenario, replay) in scenarios.iter().zip(&replays) {
        assert_eq!(replay.mismatches, [], "{}", scenario["name"]);
    }
}

#[test]
fn a_wrong_answer_is_detected() {
    let mut found = 0;
    for mut scenario in scenarios().into_iter().filter(|scenario| scenario["class"] == "ordinary").take(20) {
        for number in 0..5 {
            let before = scenario["steps"][0]["reply"][number].clone();
            scenario["steps"][0]["reply"][number] = json!(before.as_i64().unwrap() + 1);
            assert_eq!(replay(&scenario).mismatches.len(), 1, "{}", scenario["name"]);
            scenario["steps"][0]["reply"][number] = before;
            found += 1;
        }
    }
    assert_eq!(found, 100);
}

#[test]
fn deviations_are_those_that_are_listed() {
    let mut listed = String::new();
    for scenario in scenarios() {
        for deviation in replay(&scenario).deviations {
            let argv = &scenario["steps"][deviation.step.unwrap()]["argv"];
            let (cell, diana) = (deviation.expected, deviation.actual);
            writeln!(
                listed,
                "{}: {argv}\n  redis-cell: {cell}\n  Diana:      {diana}",
                scenario["name"].as_str().unwrap()
            )
            .unwrap();
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cell_deviations.txt");
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(listed == expected, "{} differs; all deviations are:\n{listed}", path.display());
}
