//! Limits of a single task, for tests that run in parallel.
//!
//! These do, too: each sees its own counts, and none those of the others.

use diana::limited::{Cause, Limits};
use diana::rules::{Document, Registry, RuleFile};
use diana::{Engine, Limited, ManualClock, count_limit, limited};

#[count_limit(limit = 2, period = "1h")]
fn plain() -> Result<(), Limited> {
    Ok(())
}

#[count_limit(limit = 1, period = "1h", by = "{id}", in = "other")]
async fn named(id: u8) -> Result<(), Limited> {
    tokio::task::yield_now().await;
    Ok(())
}

#[limited("rule")]
fn by_rule() -> Result<(), Limited> {
    Ok(())
}

fn limits() -> Limits {
    Limits::new().with_clock(ManualClock::new())
}

fn two_are_granted() {
    assert_eq!([plain().is_ok(), plain().is_ok(), plain().is_ok()], [true, true, false]);
}

#[test]
fn sync_code_uses_the_limits_of_its_scope() {
    limits().enter(two_are_granted);
    let limits_again = limits();
    limits_again.enter(two_are_granted);
    assert!(limits_again.enter(plain).is_err());
    assert_eq!(limits_again.len(), 1);
}

#[test]
fn parallel_scopes_are_independent() {
    for _ in 0..100 {
        limits().enter(two_are_granted);
    }
}

#[test]
fn an_inner_scope_hides_the_outer_one() {
    limits().enter(|| {
        assert!(plain().is_ok());
        limits().enter(two_are_granted);
        assert!(plain().is_ok());
        assert!(plain().is_err());
    });
}

#[tokio::test]
async fn futures_use_the_limits_of_their_scope_for_every_instance_name() {
    let both = [limits(), limits()];
    let calls = futures_util::future::join(
        both[0].scope(async { (named(1).await.is_ok(), named(1).await.is_ok()) }),
        both[1].scope(async { (named(1).await.is_ok(), named(1).await.is_ok()) }),
    );
    assert_eq!(calls.await, ((true, false), (true, false)));
    // A spawned task has no scope, and this instance is not installed.
    let spawned = limits().scope(async { tokio::spawn(named(1)).await.unwrap() }).await;
    assert_eq!(spawned.unwrap_err().cause(), &Cause::NotInstalled { instance: Some("other"), rule: None });
}

#[test]
fn a_scope_has_its_own_rules() {
    let file = Document::new("diana.yaml", "rules: [{name: rule, match: {call: true}, limit: 1/h}]");
    let file = RuleFile::read(&file, &Registry::default()).unwrap();
    for _ in 0..2 {
        let limits = Limits::new().with_rules(Engine::new(&file));
        assert_eq!(limits.enter(|| (by_rule().is_ok(), by_rule().is_ok())), (true, false));
    }
    assert_eq!(limits().enter(by_rule).unwrap_err().cause(), &Cause::NoRules { rule: "rule" });
}
