//! The machine's load is reported to the engine, while a rule needs it.

#![cfg(target_os = "linux")]

use diana::Engine;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::{Filter, LoadSampler};
use diana_testing::wait_until;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn file(rules: &str) -> RuleFile {
    RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default()).unwrap()
}

#[test]
fn samples_the_load_while_a_rule_needs_it() {
    let engine = Engine::new(&file("rules: [{name: everyone, limit: 5/s}]"));
    let sampler = LoadSampler::new(&engine);
    assert!(!sampler.is_running());

    engine.set_rules(&file("rules: [{name: overload, load: {memory: 99%}}]"));
    sampler.update();
    assert!(sampler.is_running());
    let memory = || Some(engine.load().memory()).filter(|memory| *memory > 0.0);
    wait_until("a memory sample", LONG, memory).unwrap();
}

#[test]
fn the_sampler_does_not_keep_the_engine_alive() {
    let engine = Engine::new(&file("rules: [{name: overload, load: {cpu: 99%}}]"));
    let sampler = LoadSampler::new(&engine);
    let weak = engine.downgrade();
    drop(engine);
    wait_until("the engine to be dropped", LONG, || weak.upgrade().is_none().then_some(())).unwrap();
    sampler.update();
    assert!(!sampler.is_running());
}

/// A regression: the sampler followed one `Arc` of the engine, and a worker's filter has its own.
#[test]
fn the_sampler_runs_as_long_as_any_clone_of_the_engine() {
    let engine = Engine::new(&file("rules: [{name: overload, load: {memory: 99%}}]"));
    let sampler = LoadSampler::new(&engine);
    let worker = Filter::new(engine);
    worker.engine().load().set_memory(1.0);
    wait_until("a new sample", LONG, || (worker.engine().load().memory() < 1.0).then_some(())).unwrap();
    assert!(sampler.is_running());
}
