//! Costs by an expression, and requests whose expression fails.

use crate::support::{clock, decide, file, now};
use diana::rules::attributes::SyntheticRequest;
use diana::rules::rule::OverLimit;
use diana::ruleset::DenyReason;
use diana::store::MemoryStore;
use diana::{ActualCost, Engine, EngineOptions, Reason};

fn tokens(header: Option<&str>) -> SyntheticRequest {
    let request = SyntheticRequest::new("POST", "/").named("account", "alice");
    header.map_or_else(|| request.clone(), |tokens| request.clone().header("x-max-tokens", tokens))
}

/// The same rules with local and with shared counts.
fn with_both_stores(rules: &str, check: impl Fn(&dyn Costs)) {
    let (local, clock) = (file(&format!("rules: [{rules}]")), clock());
    check(&EngineOptions::of(&local).clock(clock.clone()).build(&local));
    let shared = file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules: [{rules}]"));
    check(&EngineOptions::of(&shared).clock(clock).build_shared(&shared, MemoryStore::default()));
}

/// The operations of a test on an engine with either store.
trait Costs {
    /// Returns the remaining permits of the first limit after a request with this header; else the status of its
    /// denial.
    fn remaining_after(&self, header: Option<&str>) -> Result<u64, u16>;
    /// Does the same with this actual cost.
    fn remaining_after_settling(&self, header: Option<&str>, costs: &ActualCost) -> u64;
    /// Returns the remaining permits for a request with a cost of 1.
    fn remaining(&self) -> u64;
    /// Returns the explanation of the request.
    fn explained(&self, header: Option<&str>) -> String;
}

impl Costs for Engine {
    fn remaining_after(&self, header: Option<&str>) -> Result<u64, u16> {
        let verdict = decide(self, &tokens(header));
        if let Some(status) = verdict.status() {
            return Err(status);
        }
        Ok(self.remaining())
    }

    fn remaining_after_settling(&self, header: Option<&str>, costs: &ActualCost) -> u64 {
        let mut verdict = decide(self, &tokens(header));
        verdict.settle(costs);
        now(verdict.finish());
        self.remaining()
    }

    fn remaining(&self) -> u64 {
        let explained = now(self.explain(&tokens(Some("1"))));
        explained.rules[0].limits[0].1.status().remaining
    }

    fn explained(&self, header: Option<&str>) -> String {
        now(self.explain(&tokens(header))).to_string()
    }
}

const COST: &str =
    r#"name: tokens, by: account, limit: 1000/h, status: 429, cost: 'int(request.headers["x-max-tokens"])'"#;

#[test]
fn a_cost_that_fails_denies_and_charges_nothing() {
    with_both_stores(&format!("{{{COST}}}"), |engine| {
        for invalid in
            [None, Some(""), Some("abc"), Some("-100"), Some("1e3"), Some("99999999999999999999"), Some("1,1")]
        {
            assert_eq!(engine.remaining_after(invalid), Err(400), "{invalid:?}");
            assert_eq!(engine.remaining(), 1000, "{invalid:?}");
        }
        assert_eq!(engine.remaining_after(Some("10")), Ok(990));
        assert_eq!(engine.remaining_after(Some("991")), Err(429));
    });
}

#[test]
fn a_cost_that_fails_is_the_default_cost() {
    with_both_stores(&format!("{{{COST}, cost_default: 300}}"), |engine| {
        assert_eq!(engine.remaining_after(None), Ok(700));
        assert_eq!(engine.remaining_after(Some("-1")), Ok(400));
        assert_eq!(engine.remaining_after(Some("10")), Ok(390));
        assert_eq!(engine.remaining_after(Some("x")), Ok(90));
        assert_eq!(engine.remaining_after(Some("x")), Err(429));
    });
}

#[test]
fn no_request_costs_less_than_the_minimum() {
    with_both_stores(&format!("{{{COST}}}"), |engine| assert_eq!(engine.remaining_after(Some("0")), Ok(999)));
    with_both_stores(&format!("{{{COST}, cost_min: 50}}"), |engine| {
        assert_eq!(engine.remaining_after(Some("0")), Ok(950));
        assert_eq!(engine.remaining_after(Some("49")), Ok(900));
        assert_eq!(engine.remaining_after(Some("51")), Ok(849));
    });
    with_both_stores(&format!("{{{COST}, cost_min: 0}}"), |engine| {
        assert_eq!(engine.remaining_after(Some("0")), Ok(1000));
        assert_eq!(engine.remaining_after(Some("-1")), Err(400), "a negative cost is invalid");
    });
}

#[test]
fn a_settlement_always_applies() {
    for rest in ["", ", cost_min: 0"] {
        with_both_stores(&format!("{{{COST}{rest}}}"), |engine| {
            assert_eq!(
                engine.remaining_after_settling(Some("0"), &ActualCost::new().rule("tokens", 40)),
                960,
                "{rest}"
            );
            assert_eq!(engine.remaining_after_settling(Some("0"), &ActualCost::all(60)), 900, "{rest}");
            assert_eq!(
                engine.remaining_after_settling(Some("7"), &ActualCost::new().rule("tokens", 100)),
                800,
                "{rest}"
            );
            assert_eq!(engine.remaining_after_settling(Some("0"), &ActualCost::new().rule("tokens", 0)), 800, "{rest}");
            assert_eq!(
                engine.remaining_after_settling(Some("0"), &ActualCost::new().rule("tokens", 5_000)),
                0,
                "{rest}"
            );
        });
    }
    with_both_stores(&format!("{{{COST}}}"), |engine| {
        assert_eq!(engine.remaining_after_settling(Some("1"), &ActualCost::all(u64::MAX)), 0, "clamped to the maximum");
    });
    // The same cost again changes nothing, and a higher cost is charged only for the difference.
    let (engine, _) = crate::support::engine(&format!("rules: [{{{COST}, cost_min: 0}}]"));
    let mut verdict = decide(&engine, &tokens(Some("0")));
    for (cost, remaining) in [(40, 960), (40, 960), (100, 900), (10, 900)] {
        verdict.settle(&ActualCost::all(cost));
        assert_eq!(engine.remaining(), remaining);
    }
}

#[test]
fn an_explanation_includes_the_cost() {
    with_both_stores(&format!("{{{COST}}}"), |engine| {
        let text = engine.explained(Some("abc"));
        assert!(
            text.starts_with(
                "✗ tokens: denied with 400: `cost` failed (invalid number), and there is no `cost_default`"
            ),
            "{text}"
        );
        assert!(text.ends_with("=> denied by `tokens`\n"), "{text}");
    });
    with_both_stores(&format!("{{{COST}, cost_default: 300}}"), |engine| {
        let text = engine.explained(Some("abc"));
        let expected = "✓ tokens: counted for alice at a cost of 300 (`cost` failed, `cost_default` is used)";
        assert!(text.starts_with(expected), "{text}");
    });
    with_both_stores(&format!("{{{COST}, cost_min: 0}}"), |engine| {
        assert!(engine.explained(Some("0")).contains("cost 0, not counted"));
    });
}

#[test]
fn a_request_with_an_invalid_cost_is_never_rerouted() {
    let rules = format!("{{{COST}, over: {{reroute: 'http://127.0.0.1:3001'}}}}");
    let (engine, _) = crate::support::engine(&format!("rules: [{rules}]"));
    let denied = decide(&engine, &tokens(Some("abc")));
    assert!(matches!(denied.reason(), Some(Reason::Rule { why: DenyReason::Cost, .. })));
    assert_eq!((denied.over_limit(), denied.status()), (Some(&OverLimit::Deny), Some(400)));
    assert_eq!(denied.to_string(), "denied by `tokens`: its cost can't be computed, and there is no `cost_default`");
    assert!(matches!(decide(&engine, &tokens(Some("2000"))).over_limit(), Some(OverLimit::Reroute(_))));
    assert_eq!(engine.rules().rules()[0].failures(), 1);
}

#[test]
fn a_shadow_rule_denies_no_request_for_its_cost() {
    let (engine, _) = crate::support::engine(&format!("rules: [{{{COST}, shadow: true}}]"));
    assert!(decide(&engine, &tokens(Some("abc"))).is_granted());
    assert_eq!(engine.rules().rules()[0].shadow_denials(), 1);
}
