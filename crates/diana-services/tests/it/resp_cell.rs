//! The recorded answers of redis-cell, over a socket: all of them on a clock that is set for each step, and those that
//! can be replayed in real time on the system's clock.

use crate::resp_support::*;
use diana::{ManualClock, SystemClock, Timestamp};
use diana_services::resp::RespState;
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;

/// 2026-01-01T00:00:00Z, from which the times of steps count.
const START: u64 = 1_767_225_600_000_000_000;

fn scenarios() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/cell_public.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn is_exact(scenario: &Value) -> bool {
    ["ordinary", "reconfigured", "edge"].contains(&scenario["class"].as_str().unwrap())
}

/// The arguments of a step, with a key that only this scenario has.
fn arguments(step: &Value, scenario: usize) -> Vec<Vec<u8>> {
    let mut argv: Vec<_> =
        step["argv"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().as_bytes().to_vec()).collect();
    if let Some(key) = argv.get_mut(1) {
        *key = [format!("{scenario}:").as_bytes(), key].concat();
    }
    argv
}

/// A reply, as the client shows it.
fn expected(step: &Value) -> String {
    match step["reply"].as_array() {
        Some(numbers) => format!("[{}]", numbers.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")),
        None => step["reply"]["error"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn every_step_is_answered_as_recorded() {
    let mut compared = 0;
    let clock = ManualClock::at(Timestamp::from_nanos(START));
    // A clock never goes back, so scenarios follow each other.
    let mut offset = 0;
    let server = Server::with(RULES, clock.clone(), RespState::default()).await;
    let mut client = server.client().await;
    for (index, scenario) in scenarios().iter().enumerate().filter(|(_, scenario)| is_exact(scenario)) {
        let steps = scenario["steps"].as_array().unwrap();
        for (number, step) in steps.iter().enumerate() {
            clock.set(Timestamp::from_nanos(START + offset + step["at_ns"].as_u64().unwrap()));
            client.send(&encode(&arguments(step, index))).await;
            assert_eq!(client.reply().await, expected(step), "{} step {number}", scenario["name"]);
            compared += 1;
        }
        // To the next whole millisecond, since keys expire in those.
        offset += steps.last().unwrap()["at_ns"].as_u64().unwrap().next_multiple_of(1_000_000);
    }
    assert!(compared > 12_000, "{compared}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_scenarios_are_answered_in_real_time() {
    let server = Server::with(RULES, SystemClock, RespState::default()).await;
    let live = scenarios().into_iter().enumerate();
    let live = live.filter(|(_, scenario)| is_exact(scenario) && scenario["live"] == true).collect::<Vec<_>>();
    assert!(live.len() > 150, "{}", live.len());
    let mut replays = JoinSet::new();
    for (index, scenario) in live {
        let mut client = server.client().await;
        replays.spawn(async move {
            let began = tokio::time::Instant::now();
            for step in scenario["steps"].as_array().unwrap() {
                // No step may be early, and none more than 120 ms late.
                tokio::time::sleep_until(began + Duration::from_nanos(step["at_ns"].as_u64().unwrap())).await;
                client.send(&encode(&arguments(step, index))).await;
                assert_eq!(client.reply().await, expected(step), "{} at {}", scenario["name"], step["at_ns"]);
            }
        });
    }
    while let Some(replay) = replays.join_next().await {
        replay.unwrap();
    }
}
