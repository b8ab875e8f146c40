//! Compares the recorded answers, and checks that a wrong one is detected.

use crate::store::Stores;
use crate::{Replay, replay_file};
use serde_json::{Value, json};
use std::path::PathBuf;

const SCRIPTS: [&str; 11] = [
    "count_003",
    "counter_004",
    "fixed_multi",
    "fixed_simple",
    "fixed_single",
    "sliding_log",
    "sliding_window",
    "sliding_window_multi",
    "token_bucket_004",
    "token_bucket_hm",
    "zset_002",
];

fn replay(scenario: &Value) -> Result<Replay, String> {
    super::replay(scenario, &Stores::Memory.empty().unwrap())
}

fn file(script: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../golden/lua_{script}_public.jsonl"))
}

/// Returns a scenario with denials and grants, so that it can be tampered with.
fn scenario(script: &str) -> Value {
    let text = std::fs::read_to_string(file(script)).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

#[test]
fn diana_gives_every_recorded_answer() {
    for script in SCRIPTS {
        let report = replay_file(&file(script), &Stores::Memory).unwrap();
        assert_eq!((report.scenarios, report.steps), (60, 2_400), "{script}");
        assert_eq!(report.mismatches, [], "{script}");
    }
}

#[test]
fn a_tampered_answer_is_reported_at_its_step() {
    for script in SCRIPTS {
        let mut tampered = scenario(script);
        let intended = &mut tampered["steps"][7]["intended"];
        match intended {
            Value::Array(fields) => *fields.last_mut().unwrap() = json!(77),
            other => *other = json!(77),
        }
        let replay = replay(&tampered).unwrap();
        assert_eq!(replay.steps, 40);
        assert_eq!(replay.mismatches.iter().map(|mismatch| mismatch.step).collect::<Vec<_>>(), [Some(7)], "{script}");
    }
}

#[test]
fn a_tampered_time_is_reported() {
    for script in SCRIPTS {
        let mut tampered = scenario(script);
        // All steps at the same time: then every script denies a request that it had granted.
        let (now_ms, argv) = (tampered["steps"][0]["now_ms"].clone(), tampered["steps"][0]["argv"].clone());
        for step in tampered["steps"].as_array_mut().unwrap() {
            step["now_ms"] = now_ms.clone();
            step["argv"] = argv.clone();
        }
        assert!(!replay(&tampered).unwrap().mismatches.is_empty(), "{script}");
    }
}

#[test]
fn a_tampered_decision_in_the_reply_is_reported_only_before_the_divergence() {
    let flip = |first_divergence: Value| {
        let mut tampered = scenario("count_003");
        let reply = &mut tampered["steps"][3]["reply"];
        *reply = json!(1 - reply.as_i64().unwrap());
        tampered["first_divergence"] = first_divergence;
        replay(&tampered).unwrap().mismatches.len()
    };
    assert_eq!(flip(Value::Null), 1);
    assert_eq!(flip(json!(4)), 1);
    assert_eq!(flip(json!(3)), 0);
}

fn one(script: &str, keys: &Value, argv: &Value, intended: &Value) -> usize {
    let step = json!({"now_ms": 1_700_000_000_000_u64, "keys": keys, "argv": argv, "intended": intended});
    replay(&json!({"script": script, "steps": [step]})).unwrap().mismatches.len()
}

#[test]
fn an_invalid_limit_grants_nothing() {
    let u = json!(["u"]);
    assert_eq!(one("counter_004", &u, &json!([0, 60]), &json!(-1)), 0);
    assert_eq!(one("counter_004", &u, &json!([0, 60]), &json!(1)), 1);
    assert_eq!(one("count_003", &u, &json!([1, 0]), &json!(0)), 0);
    assert_eq!(one("token_bucket_004", &u, &json!([0, 1, 1, 1_700_000_000]), &json!(-1)), 0);
    assert_eq!(
        one(
            "token_bucket_hm",
            &json!([]),
            &json!(["u", 10, 1000, 1, -5, 1_700_000_000_000_u64]),
            &json!([0, 10, 10, null])
        ),
        0
    );
    let rules = json!(["[[\"a\",0,10,1],[\"b\",5,60,10]]", 1_700_000_000]);
    assert_eq!(one("sliding_window_multi", &json!([]), &rules, &json!([0, 0, 0, 10, 1, 5, 5, 60])), 0);
    assert_eq!(one("fixed_single", &json!([]), &json!(["u", 0, 60, 1_700_000_000]), &json!([0, 0, 0, 40])), 0);
}

#[test]
fn keys_are_counted_separately_and_equal_rules_once() {
    let step = |key: &str, intended: i64| json!({"now_ms": 1_700_000_000_000_u64, "keys": [key], "argv": ["1", "60"], "intended": intended});
    let steps = [step("a", 1), step("b", 1), step("a", -1), step("b", -1)];
    assert_eq!(replay(&json!({"script": "counter_004", "steps": steps})).unwrap().mismatches, []);

    let rules = json!(["[[\"u\",4,60],[\"u\",4,60]]", "1700000000"]);
    assert_eq!(one("fixed_multi", &json!([]), &rules, &json!([1, 3, 4, 40, 1, 3, 4, 40])), 0);
}

#[test]
fn times_may_have_sixteen_digits_and_fractions() {
    let step = |argv: Value, intended: Value| json!({"now_ms": 0, "keys": [], "argv": argv, "intended": intended});
    let micros = [
        step(json!(["u", 1, 1, 1_700_000_000_000_001_u64]), json!([1, 0, 1, 1])),
        step(json!(["u", 1, 1, 1_700_000_000_000_049_u64]), json!([1, 0, 1, 1])),
    ];
    assert_eq!(replay(&json!({"script": "fixed_single", "steps": micros})).unwrap().mismatches, []);
    let halves = [
        step(json!(["v", 1, 1.5, 0.5, 1_700_000_000]), json!([1, 0, 1, 1.5])),
        step(json!(["v", 1, 1.5, 0.5, 1_700_000_001]), json!([0, 0, 1, 0.5])),
    ];
    assert_eq!(replay(&json!({"script": "sliding_window", "steps": halves})).unwrap().mismatches, []);
}

#[test]
fn an_invalid_scenario_is_an_error() {
    assert_eq!(replay(&json!({"script": "x", "steps": []})).unwrap_err(), "unknown script `x`",);
    let step = json!({"now_ms": 0, "keys": ["u"], "argv": []});
    assert_eq!(
        replay(&json!({"script": "count_003", "steps": [step]})).unwrap_err(),
        "step 0: missing argv[0] or parameter `limit`",
    );
}
