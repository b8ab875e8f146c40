//! The machine's load is reported to the engine, while a rule needs it.

#![cfg(target_os = "linux")]

use diana::Engine;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::LoadSampler;
use diana_testing::wait_until;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn file(rules: &str) -> RuleFile {
    RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default()).unwrap()
}

#[test]
fn the_engine_hears_of_the_machine_while_a_rule_asks() {
    let engine = Arc::new(Engine::new(&file("rules: [{name: everyone, limit: 5/s}]")));
    let sampler = LoadSampler::new(&engine);
    assert!(!sampler.is_running());

    engine.set_rules(&file("rules: [{name: overload, load: {memory: 99%}}]"));
    sampler.follow();
    assert!(sampler.is_running());
    let memory = || Some(engine.load().memory()).filter(|memory| *memory > 0.0);
    wait_until("a share of the memory", LONG, memory).unwrap();
}

#[test]
fn who_looks_does_not_keep_the_engine() {
    let engine = Arc::new(Engine::new(&file("rules: [{name: overload, load: {cpu: 99%}}]")));
    let sampler = LoadSampler::new(&engine);
    let watched = Arc::downgrade(&engine);
    drop(engine);
    wait_until("the engine to be gone", LONG, || watched.upgrade().is_none().then_some(())).unwrap();
    sampler.follow();
    assert!(!sampler.is_running());
}
