//! Every plan decides alike.

use super::{AcquireFuture, DecideMode};
use crate::engine::{Engine, EngineOptions, Verdict};
use crate::ruleset::{Plan, Purpose};
use diana_core::{ManualClock, Timestamp};
use diana_rules::attributes::SyntheticRequest;
use diana_rules::{Document, Registry, RuleFile};
use proptest::prelude::*;
use std::time::Duration;

/// Rules of which each request matches none, one or several.
const RULES: &str = "
rules:
  - {name: everyone, match: {path: /a/**}, limit: 7/s}
  - {name: each, match: {path: /**/b}, by: account, limit: [3/s, {rate: 20/min, algorithm: sliding_log}]}
  - {name: windows, match: {path: /c}, by: account, limit: 4/s, algorithm: fixed_window}
  - {name: delayed, match: {path: /d}, by: account, limit: 2/s, algorithm: leaky_bucket, burst: 3}
  - {name: permits, match: {path: /a/b}, by: account, concurrent: 4}
  - {name: listed, match: {path: /c}, by: account, deny: [mallory]}
  - {name: costly, match: {path: /e}, by: account, limit: 9/s, cost: 'size(request.path)'}
";

const PATHS: [&str; 7] = ["/a", "/a/b", "/b", "/c", "/d", "/e", "/none"];
const ACCOUNTS: [&str; 3] = ["alice", "bob", "mallory"];

fn engine() -> (Engine, ManualClock) {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default());
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    (EngineOptions::of(&file).clock(clock.clone()).build(&file), clock)
}

/// Returns the decision about a request, by the given plan or that of the engine, and the plan of the engine.
fn decide(engine: &Engine, request: &SyntheticRequest, plan: Option<Plan>) -> (AcquireFuture, Plan) {
    let mut verdict = engine.new_verdict();
    verdict.find(&[request], Purpose::Charge);
    let engine_plan = engine.state.plan(&verdict);
    verdict.plan = plan.unwrap_or(engine_plan);
    (AcquireFuture::decide_as_planned(engine, verdict, DecideMode::Deny), engine_plan)
}

/// The visible parts of a verdict.
fn shown(verdict: &Verdict) -> String {
    let limits = verdict.checked_limits().map(|limit| format!("{} {:?}", limit.limit.name(), limit.answer));
    let denied_by = verdict.denied_by().map(|rule| rule.name.clone());
    format!("{verdict} {:?} {:?} {denied_by:?} {:?}", verdict.wait(), verdict.status(), limits.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn the_plan_decides_as_all_steps_do(
        requests in prop::collection::vec((0..PATHS.len(), 0..ACCOUNTS.len(), 0..700_u64, any::<bool>()), 1..60)
    ) {
        let ((planned, clock), (stepwise, other_clock)) = (engine(), engine());
        // The permits of requests that are still served.
        let mut held = Vec::new();
        for (path, account, pause, is_done) in requests {
            clock.advance(Duration::from_millis(pause));
            other_clock.advance(Duration::from_millis(pause));
            let request = SyntheticRequest::new("GET", PATHS[path]).named("account", ACCOUNTS[account]);
            let (by_plan, plan) = decide(&planned, &request, None);
            let (by_steps, _) = decide(&stepwise, &request, Some(Plan::Steps));
            let (by_plan, by_steps) = (by_plan.now().unwrap(), by_steps.now().unwrap());
            prop_assert_eq!(shown(Verdict::of(&by_plan)), shown(Verdict::of(&by_steps)), "{:?} as {:?}", request, plan);
            if !is_done {
                held.push((by_plan, by_steps));
            }
        }
    }
}

#[test]
fn each_plan_is_made() {
    let (engine, _) = engine();
    let plan_of = |path: &str, account: &str| {
        decide(&engine, &SyntheticRequest::new("GET", path).named("account", account), None).1
    };
    assert_eq!(plan_of("/none", "alice"), Plan::Nothing);
    assert_eq!([plan_of("/a", "alice"), plan_of("/d", "alice"), plan_of("/e", "alice")], [Plan::OneLimit; 3]);
    assert_eq!([plan_of("/b", "alice"), plan_of("/a/b", "alice")], [Plan::Limits; 2]);
    assert_eq!(plan_of("/c", "mallory"), Plan::Steps);
}
