//! Rules of a file on functions: the key of a call, its permits, its wait, and its errors.
//!
//! Each test has its own named limits, since all tests share one process.

use diana::limited::{Caller, Cause, Limits};
use diana::rules::{Document, Registry, RuleFile};
use diana::{Clock, Engine, EngineOptions, Limited, ManualClock, Timestamp, TokioClock, limited};
use futures_util::future::{FutureExt, join_all};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn file(rules: &str) -> RuleFile {
    let document = Document::new("diana.yaml", format!("rules:\n{rules}"));
    RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Creates an engine with these rules on this clock, and installs it under this name.
fn rules(name: &str, clock: impl Clock, rules: &str) -> Arc<Engine> {
    let file = file(rules);
    let engine = Arc::new(EngineOptions::of(&file).clock(clock).build(&file));
    Limits::new().with_rules(Arc::clone(&engine)).install_as(name);
    engine
}

fn heard<T>(answer: Result<T, Limited>) -> String {
    answer.map_or_else(|limited| limited.to_string(), |_| "ran".to_owned())
}

struct Order {
    item: u32,
    pieces: u64,
}

#[limited("orders", item = "{order.item}", pieces = "{order.pieces}", in = "told")]
fn buy(order: &Order) -> Result<u32, Limited> {
    Ok(order.item)
}

#[test]
fn a_rule_counts_by_what_it_is_told_and_by_who_calls() {
    let clock = ManualClock::new();
    rules(
        "told",
        clock.clone(),
        "  - {name: orders, match: {call: [item, pieces]}, by: [account, item, ip], cost: int(pieces), limit: 10/min, status: 420}",
    );
    let ann = || Caller::new().with_user("ann").with_ip([192, 0, 2, 1]);
    let ask = |caller: Caller, item, pieces| caller.enter(|| buy(&Order { item, pieces }));
    let buy = |caller, item, pieces| heard(ask(caller, item, pieces));
    assert_eq!(buy(ann(), 7, 6), "ran");
    assert_eq!(buy(ann(), 8, 6), "ran");
    let refused = "`it::limited_rules::buy` is limited by rule `orders` for ann, 7, 192.0.2.1: come again in 12s";
    assert_eq!(buy(ann(), 7, 6), refused);
    assert_eq!(buy(ann(), 7, 4), "ran");
    assert_eq!(buy(ann().with_user("bob"), 7, 6), "ran");
    clock.advance(ms(36_000));
    assert_eq!(buy(ann(), 7, 6), "ran");

    let limited = ask(ann(), 7, 6).unwrap_err();
    assert!(matches!(limited.cause(), Cause::Rule { rule: "orders", status: 420, .. }), "{limited:?}");
    assert_eq!((limited.status(), limited.retry_after()), (420, Some(ms(36_000))));
}

#[limited("each", in = "resource")]
fn one() -> Result<(), Limited> {
    Ok(())
}

#[limited("each", in = "resource")]
fn other() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn by_resource_is_each_function_and_a_rule_for_requests_can_be_named() {
    rules("resource", ManualClock::new(), "  - {name: each, match: {path: /nowhere}, by: resource, limit: 1/h}");
    assert_eq!(heard(one()), "ran");
    assert_eq!(heard(other()), "ran");
    assert_eq!(
        heard(one()),
        "`it::limited_rules::one` is limited by rule `each` for /it::limited_rules::one: come again in 1h"
    );
}

#[limited("lists", device = "{device}", in = "lists")]
fn listed(device: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn what_a_rule_denies_is_refused_for_good_and_what_it_lacks_counts_together() {
    let lists =
        "  - {name: lists, match: {call: device}, by: [tenant, device], allow: [good], deny: [thief], limit: 1/h}";
    let file = "identity: {tenant: header(x-tenant)}\nrules:\n".to_owned() + lists;
    let file = RuleFile::read(&Document::new("diana.yaml", file), &Registry::default()).unwrap();
    let engine = EngineOptions::of(&file).clock(ManualClock::new()).build(&file);
    Limits::new().with_rules(Arc::new(engine)).install_as("lists");
    let acme = |device: &'static str| heard(Caller::new().with("tenant", "acme").enter(|| listed(device)));
    assert_eq!(acme("thief"), "`it::limited_rules::listed` is limited by rule `lists`: coming again won't help");
    assert_eq!(acme("good"), "ran");
    assert_eq!(acme("good"), "ran");
    assert_eq!(acme("x"), "ran");
    // What the call itself tells is meant, whatever is known about who makes it.
    let thief = Caller::new().with("tenant", "acme").with("device", "thief");
    assert_eq!(heard(thief.enter(|| listed("z"))), "ran");
    assert_eq!(acme("x"), "`it::limited_rules::listed` is limited by rule `lists` for acme, x: come again in 1h");
    // Who does not tell its tenant has one with all such calls, for each device.
    assert_eq!(heard(listed("x")), "ran");
    assert_eq!(heard(listed("y")), "ran");
    let limited = listed("y").unwrap_err();
    assert_eq!((limited.key(), limited.is_nobodys()), (Some("(nobody), y"), true));
    let limited = Caller::new().with("tenant", "(nobody)").enter(|| (listed("y"), listed("y"))).1.unwrap_err();
    assert_eq!((limited.key(), limited.is_nobodys()), (Some("(nobody), y"), false));
}

#[limited("lists", devise = "{device}", in = "typo")]
fn typo(device: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn what_its_rule_does_not_ask_for_is_told() {
    rules("typo", ManualClock::new(), "  - {name: lists, match: {call: device}, by: device, limit: 1/h}");
    let limited = typo("x").unwrap_err();
    assert!(matches!(limited.cause(), Cause::NotAsked { .. }), "{limited:?}");
    let told = "`it::limited_rules::typo` tells its rule what that does not ask for: the rule `lists` does not ask for `devise`; \
                its `match` says `call: [device]`";
    assert_eq!((limited.to_string().as_str(), limited.status()), (told, 500));
}

#[limited("gone", in = "reload", on_limit = told)]
fn reloaded() -> String {
    "ran".to_owned()
}

fn told(limited: Limited) -> String {
    format!("{} {limited}", limited.status())
}

#[test]
fn a_call_goes_by_the_rules_in_force_and_without_its_rule_is_told_so() {
    assert!(
        reloaded().starts_with("500 `it::limited_rules::reloaded` has a limit in `reload`, which is not installed")
    );
    Limits::new().install_as("reload");
    let none = "500 `it::limited_rules::reloaded` names a rule, but the installed limits have none: install \
                `Limits::new().with_rules(engine)`";
    assert_eq!(reloaded(), none);
    let engine = rules("reload", ManualClock::new(), "  - {name: other, limit: 1/s}");
    let missing = "500 `it::limited_rules::reloaded` names the rule `gone`, which is not active: add it to the rule file, or name \
                   another";
    assert_eq!(reloaded(), missing);
    engine.set_rules(&file("  - {name: gone, limit: 1/min, status: 429}"));
    assert_eq!(reloaded(), "ran");
    assert_eq!(reloaded(), "429 `it::limited_rules::reloaded` is limited by rule `gone`: come again in 1min");
    engine.set_rules(&file("  - {name: gone, limit: 1/min, shadow: true}"));
    assert_eq!(reloaded(), "ran");
    engine.set_rules(&file("  - {name: other, limit: 1/min}"));
    assert_eq!(reloaded(), missing);
}

#[limited("bucket", in = "sync-wait")]
fn waits() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_that_is_not_async_waits_where_it_is_told_for_how_long() {
    let clock = ManualClock::new();
    let bucket = "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}";
    let engine = rules("sync-wait", clock.clone(), bucket);
    // Waiting moves this clock.
    let now = || clock.now().since(Timestamp::EPOCH);
    assert_eq!((heard(waits()), now()), ("ran".to_owned(), ms(0)));
    assert_eq!((heard(waits()), now()), ("ran".to_owned(), ms(100)));
    assert_eq!((heard(waits()), now()), ("ran".to_owned(), ms(200)));
    // Where nobody can tell for how long, it does not wait.
    engine.set_rules(&file("  - {name: bucket, limit: {rate: 1/min, algorithm: fixed_window}, wait: 1min}"));
    assert_eq!(heard(waits()), "`it::limited_rules::waits` is limited by rule `bucket`: come again in 59.8s");
}

#[limited("bucket", in = "wait")]
async fn waits_async() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_waits_for_its_turn_and_who_gives_up_gives_it_back() {
    rules("wait", TokioClock::new(), "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}");
    let began = Instant::now();
    let calls = join_all((0..4).map(|_| async { (waits_async().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(0)), (true, ms(100)), (true, ms(200)), (false, ms(0))]);
    assert!(tokio::time::timeout(ms(50), waits_async()).await.is_err());
    waits_async().await.unwrap();
    assert_eq!(began.elapsed(), ms(300));
}

#[limited("places", in = "places")]
async fn holds(time: Duration) -> Result<(), Limited> {
    tokio::time::sleep(time).await;
    assert!(time != ms(13), "as the test wants it");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_holds_its_place_until_it_returns_panics_or_is_dropped() {
    let engine = rules("places", TokioClock::new(), "  - {name: places, concurrent: 1}");
    let free = || {
        let looking = engine.peek_key("places", &[]).now_or_never();
        looking.unwrap().unwrap().limits[0].remaining
    };
    assert_eq!(free(), 1);
    let first = tokio::spawn(holds(ms(100)));
    tokio::time::sleep(ms(50)).await;
    assert_eq!(free(), 0);
    let refused = "`it::limited_rules::holds` is limited by rule `places`: come again when another call is over";
    assert_eq!(heard(holds(ms(1)).await), refused);
    first.await.unwrap().unwrap();
    assert_eq!(free(), 1);
    assert!(tokio::spawn(holds(ms(13))).await.unwrap_err().is_panic());
    assert_eq!(free(), 1);
    assert!(tokio::time::timeout(ms(50), holds(ms(100))).await.is_err());
    assert_eq!(free(), 1);
}

#[limited("line", in = "line")]
async fn stands() -> Result<(), Limited> {
    tokio::time::sleep(ms(100)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn async_calls_stand_in_line() {
    rules("line", TokioClock::new(), "  - {name: line, concurrent: 1, wait: 1s, queue: 2}");
    let began = Instant::now();
    let calls = join_all((0..4).map(|_| async { (stands().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(100)), (true, ms(200)), (true, ms(300)), (false, ms(0))]);
}

#[test]
fn a_call_that_must_wait_outside_of_a_runtime_is_told_so_and_charges_nothing() {
    #[limited("bucket", in = "no-runtime")]
    async fn alone() -> Result<(), Limited> {
        Ok(())
    }
    let clock = ManualClock::new();
    rules("no-runtime", clock.clone(), "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}");
    assert_eq!(alone().now_or_never(), Some(Ok(())));
    let limited = alone().now_or_never().unwrap().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NoRuntime);
    clock.advance(ms(100));
    assert_eq!(alone().now_or_never(), Some(Ok(())));
}

trait Sends {
    fn boxed(&self, to: u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Limited>> + Send + '_>>;
}

struct Mail(u32);

impl Sends for Mail {
    #[limited("mail", to = "{self.0}-{to}", in = "boxed")]
    fn boxed(&self, to: u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Limited>> + Send + '_>> {
        let from = self.0;
        Box::pin(async move { Ok(from + to) })
    }
}

#[async_trait::async_trait]
trait Async {
    async fn send(&self, to: u32) -> Result<u32, Limited>;
}

#[async_trait::async_trait]
impl Async for Mail {
    #[limited("mail", to = "{self.0}-{to}", in = "boxed")]
    async fn send(&self, to: u32) -> Result<u32, Limited> {
        Ok(self.0 + to)
    }
}

#[tokio::test]
async fn a_function_that_makes_a_future_asks_in_it() {
    rules("boxed", ManualClock::new(), "  - {name: mail, match: {call: to}, by: to, limit: 1/h}");
    let unused = Mail(1).boxed(2);
    assert_eq!(Mail(1).boxed(2).await, Ok(3));
    assert!(unused.await.unwrap_err().to_string().contains("for 1-2"));
    assert_eq!(Mail(1).send(3).await, Ok(4));
    assert!(Mail(1).send(3).await.is_err());
}

#[limited("adapts", in = "adapts")]
async fn hangs() -> Result<(), Limited> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_is_not_opened_by_calls_that_are_given_up() {
    let engine = rules("adapts", TokioClock::new(), "  - {name: adapts, concurrent: adaptive}");
    for _ in 0..100 {
        join_all((0..100).map(|_| tokio::time::timeout(ms(3), hangs()))).await;
    }
    assert_eq!(engine.peek_key("adapts", &[]).await.unwrap().limits[0].limit, 20);
}
