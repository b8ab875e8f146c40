use super::*;
use crate::store::Stores;
use crate::{Report, replay_file};
use serde_json::json;
use std::path::Path;

fn golden(file: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").join(file);
    replay_file(&path, &Stores::Memory).unwrap()
}

fn replay(scenario: &Value) -> Result<Replay, String> {
    super::replay(scenario, &Stores::Memory.empty().unwrap())
}

/// Returns the first recorded scenario of `file` with this name.
fn named(file: &str, name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut scenarios = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    scenarios.find(|scenario| scenario["name"] == name).unwrap()
}

#[test]
fn diana_gives_every_recorded_answer_of_guava() {
    for (file, scenarios, steps) in [
        ("guava_public.jsonl", 400, 24_373),
        ("guava_own_tests.jsonl", 23, 238),
        ("guava_seed_examples.jsonl", 9, 54),
        ("guava_edge.jsonl", 22, 188),
    ] {
        let report = golden(file);
        assert_eq!((report.scenarios, report.steps), (scenarios, steps), "{file}");
        assert_eq!(report.mismatches, [], "{file}");
    }
}

#[test]
fn a_tampered_wait_clock_rate_or_end_is_a_mismatch() {
    let valid = named("guava_edge.jsonl", "set_same_rate");
    assert_eq!(replay(&valid).unwrap().mismatches, []);

    type Tampering = fn(&mut Value);
    let tamperings: [(Option<usize>, Tampering); 8] = [
        (Some(2), |s| s["ops"][2]["slept_micros"] = json!(520_001)),
        (Some(3), |s| s["ops"][3]["clock"] = json!(2_520_001)),
        (Some(1), |s| s["ops"][1]["error"] = json!("rate must be positive")),
        (None, |s| s["final"]["next_free_micros"] = json!(3_400_001)),
        (None, |s| s["final"]["stored_permits_bits"] = json!("4008000000000001")),
        (None, |s| s["final"]["max_permits"] = json!(5.000_000_000_000_001)),
        (None, |s| s["final"]["stable_interval_micros"] = json!("Infinity")),
        (Some(2), |s| s["ops"][2] = json!({"op": "get_rate", "rate": 5.1, "clock": 0})),
    ];
    for (index, (step, tamper)) in tamperings.into_iter().enumerate() {
        let mut scenario = valid.clone();
        tamper(&mut scenario);
        let found = replay(&scenario).unwrap().mismatches;
        assert_eq!(found.first().map(|mismatch| mismatch.step), Some(step), "tampering {index}: {found:?}");
    }
}

#[test]
fn a_tampered_decision_is_a_mismatch() {
    let mut scenario = named("guava_edge.jsonl", "refusal_has_no_effect");
    scenario["ops"][2]["ok"] = json!(true);
    let found = replay(&scenario).unwrap().mismatches;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&*found[0].expected, &*found[0].actual),
        ("granted after 0 at 99999", "denied at 99999"),
        "later steps are not reported"
    );
}

#[test]
fn a_price_that_fits_is_compared_to_the_end() {
    // The same parameters as Guava's wrapping sum, with a cost that does not wrap.
    let mut scenario = named("guava_edge.jsonl", "guava_bug_inner_sum_wraps");
    assert_eq!(replay(&scenario).unwrap().mismatches, []);
    scenario["ops"][0]["permits"] = json!(1);
    assert_eq!(replay(&scenario).unwrap().mismatches[0].step, Some(1), "the second request must not be granted");
}

#[test]
fn arguments_with_a_guava_bug_are_rejected_and_others_are_not() {
    let bursty = |rate: &str, seconds: f64| {
        json!({"kind": "smooth_bursty", "rate": rate, "max_burst_seconds": seconds, "start_clock": 0, "ops": [],
               "final": {"clock": 0, "next_free_micros": 0, "stored_permits": 0.0, "max_permits": "NaN",
                         "stable_interval_micros": 0.0}})
    };
    assert_eq!(replay(&bursty("Infinity", 0.0)).unwrap().mismatches, [], "its store would be NaN");
    assert_eq!(replay(&bursty("Infinity", 1.0)).unwrap().mismatches.len(), 1, "its store is infinite");
    assert_eq!(replay(&bursty("NaN", 1.0)).unwrap().mismatches.len(), 1, "Guava rejects it too");
}

#[test]
fn a_store_that_overflows_in_guava_is_not_compared() {
    // 2e200 stored permits times 1e200 overflows a double, times 1e100 does not.
    let scenario = |rate: f64| {
        json!({"kind": "smooth_bursty", "rate": 2e200, "max_burst_seconds": 1.0, "start_clock": 0, "ops": [
                   {"op": "advance", "micros": 1_000_000, "clock": 1_000_000},
                   {"op": "set_rate", "rate": rate, "clock": 1_000_000}],
               "final": {"clock": 1_000_000, "next_free_micros": 1_000_000, "stored_permits": "Infinity",
                         "max_permits": rate, "stable_interval_micros": 1e6 / rate}})
    };
    assert_eq!(replay(&scenario(1e200)).unwrap().mismatches, []);
    assert_eq!(replay(&scenario(1e100)).unwrap().mismatches.len(), 1, "without overflow it is compared");
}

#[test]
fn an_invalid_scenario_is_an_error() {
    assert_eq!(replay(&json!({"kind": "smooth_bursty"})).unwrap_err(), "invalid `ops`: expected a list");
    let mut scenario = named("guava_edge.jsonl", "set_same_rate");
    scenario["ops"][0]["op"] = json!("release");
    assert_eq!(replay(&scenario).unwrap_err(), "step 0: unknown op `release`");
}
