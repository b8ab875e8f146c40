//! Rules of a file on functions: the key of a call, its permits, its wait, and its errors.
//!
//! Each test has its own named limits, since all tests share one process.

use diana::limited::{Caller, Cause, Limits};
use diana::rules::{Document, Registry, RuleFile};
use diana::{Clock, Engine, EngineOptions, Limited, ManualClock, Timestamp, TokioClock, limited};
use futures_util::future::{FutureExt, join_all};
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
fn rules(name: &str, clock: impl Clock, rules: &str) -> Engine {
    let file = file(rules);
    let engine = EngineOptions::of(&file).clock(clock).build(&file);
    Limits::new().with_rules(engine.clone()).install_as(name);
    engine
}

fn outcome<T>(result: Result<T, Limited>) -> String {
    result.map_or_else(|limited| limited.to_string(), |_| "ran".to_owned())
}

struct Order {
    item: u32,
    quantity: u64,
}

#[limited("orders", item = "{order.item}", quantity = "{order.quantity}", in = "arguments")]
fn buy(order: &Order) -> Result<u32, Limited> {
    Ok(order.item)
}

#[test]
fn a_rule_counts_by_arguments_and_caller() {
    let clock = ManualClock::new();
    rules(
        "arguments",
        clock.clone(),
        "  - {name: orders, match: {call: [item, quantity]}, by: [account, item, ip], cost: int(quantity), limit: 10/min, \
         status: 420}",
    );
    let ann = || Caller::new().with_user("ann").with_ip([192, 0, 2, 1]);
    let call = |caller: Caller, item, quantity| caller.enter(|| buy(&Order { item, quantity }));
    let buy = |caller, item, quantity| outcome(call(caller, item, quantity));
    assert_eq!(buy(ann(), 7, 6), "ran");
    assert_eq!(buy(ann(), 8, 6), "ran");
    let denied = "`it::limited_rules::buy` is limited by rule `orders` for ann, 7, 192.0.2.1: retry after 12s";
    assert_eq!(buy(ann(), 7, 6), denied);
    assert_eq!(buy(ann(), 7, 4), "ran");
    assert_eq!(buy(ann().with_user("bob"), 7, 6), "ran");
    clock.advance(ms(36_000));
    assert_eq!(buy(ann(), 7, 6), "ran");

    let limited = call(ann(), 7, 6).unwrap_err();
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
fn by_resource_is_the_function_and_rules_for_requests_can_be_named() {
    rules("resource", ManualClock::new(), "  - {name: each, match: {path: /nowhere}, by: resource, limit: 1/h}");
    assert_eq!(outcome(one()), "ran");
    assert_eq!(outcome(other()), "ran");
    assert_eq!(
        outcome(one()),
        "`it::limited_rules::one` is limited by rule `each` for /it::limited_rules::one: retry after 1h"
    );
}

#[limited("lists", device = "{device}", in = "lists")]
fn listed(device: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn listed_keys_are_denied_and_unknown_key_parts_are_counted_together() {
    let lists =
        "  - {name: lists, match: {call: device}, by: [tenant, device], allow: [good], deny: [stolen], limit: 1/h}";
    let file = "identity: {tenant: header(x-tenant)}\nrules:\n".to_owned() + lists;
    let file = RuleFile::read(&Document::new("diana.yaml", file), &Registry::default()).unwrap();
    let engine = EngineOptions::of(&file).clock(ManualClock::new()).build(&file);
    Limits::new().with_rules(engine).install_as("lists");
    let acme = |device: &'static str| outcome(Caller::new().with("tenant", "acme").enter(|| listed(device)));
    assert_eq!(acme("stolen"), "`it::limited_rules::listed` is limited by rule `lists`: retrying does not help");
    assert_eq!(acme("good"), "ran");
    assert_eq!(acme("good"), "ran");
    assert_eq!(acme("x"), "ran");
    // An argument of the call takes precedence over the attribute of the caller.
    let stolen = Caller::new().with("tenant", "acme").with("device", "stolen");
    assert_eq!(outcome(stolen.enter(|| listed("z"))), "ran");
    assert_eq!(acme("x"), "`it::limited_rules::listed` is limited by rule `lists` for acme, x: retry after 1h");
    // Calls without a tenant are counted together, for each device.
    assert_eq!(outcome(listed("x")), "ran");
    assert_eq!(outcome(listed("y")), "ran");
    let limited = listed("y").unwrap_err();
    assert_eq!((limited.key(), limited.is_unknown_caller()), (Some("(unknown), y"), true));
    let limited = Caller::new().with("tenant", "(unknown)").enter(|| (listed("y"), listed("y"))).1.unwrap_err();
    assert_eq!((limited.key(), limited.is_unknown_caller()), (Some("(unknown), y"), false));
}

#[limited("lists", devise = "{device}", in = "typo")]
fn typo(device: &str) -> Result<(), Limited> {
    Ok(())
}

#[test]
fn an_argument_that_the_rule_does_not_list_is_an_error() {
    rules("typo", ManualClock::new(), "  - {name: lists, match: {call: device}, by: device, limit: 1/h}");
    let limited = typo("x").unwrap_err();
    assert!(matches!(limited.cause(), Cause::UnknownArgument { .. }), "{limited:?}");
    let message = "invalid arguments of `it::limited_rules::typo`: unknown argument `devise` for rule `lists`; its \
                   `match` has `call: [device]`";
    assert_eq!((limited.to_string().as_str(), limited.status()), (message, 500));
}

#[limited("removed", in = "reload", on_limit = message)]
fn reloaded() -> String {
    "ran".to_owned()
}

fn message(limited: Limited) -> String {
    format!("{} {limited}", limited.status())
}

#[test]
fn a_call_uses_the_active_rules_and_a_missing_rule_is_an_error() {
    let none = "500 `it::limited_rules::reloaded` is limited by the rule `removed` in `reload`, which is not installed: call \
                `diana::limited::Limits::new().with_rules(engine).install_as(\"reload\")` when the program starts";
    assert_eq!(reloaded(), none);
    Limits::new().install_as("reload");
    let none = "500 `it::limited_rules::reloaded` names the rule `removed`, but the installed limits have no rules: install \
                `Limits::new().with_rules(engine)`";
    assert_eq!(reloaded(), none);
    let engine = rules("reload", ManualClock::new(), "  - {name: other, limit: 1/s}");
    let missing = "500 `it::limited_rules::reloaded` names the rule `removed`, which is not active: add it to the rule \
                   file, or name another";
    assert_eq!(reloaded(), missing);
    engine.set_rules(&file("  - {name: removed, limit: 1/min, status: 429}"));
    assert_eq!(reloaded(), "ran");
    assert_eq!(reloaded(), "429 `it::limited_rules::reloaded` is limited by rule `removed`: retry after 1min");
    engine.set_rules(&file("  - {name: removed, limit: 1/min, shadow: true}"));
    assert_eq!(reloaded(), "ran");
    engine.set_rules(&file("  - {name: other, limit: 1/min}"));
    assert_eq!(reloaded(), missing);
}

#[limited("bucket", in = "sync-wait")]
fn waits() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_that_is_not_async_waits_if_the_wait_is_predictable() {
    let clock = ManualClock::new();
    let bucket = "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}";
    let engine = rules("sync-wait", clock.clone(), bucket);
    // Waiting moves this clock.
    let now = || clock.now().since(Timestamp::EPOCH);
    assert_eq!((outcome(waits()), now()), ("ran".to_owned(), ms(0)));
    assert_eq!((outcome(waits()), now()), ("ran".to_owned(), ms(100)));
    assert_eq!((outcome(waits()), now()), ("ran".to_owned(), ms(200)));
    // If the wait is not predictable, it does not wait.
    engine.set_rules(&file("  - {name: bucket, limit: {rate: 1/min, algorithm: fixed_window}, wait: 1min}"));
    assert_eq!(outcome(waits()), "`it::limited_rules::waits` is limited by rule `bucket`: retry after 59.8s");
}

#[limited("bucket", in = "wait")]
async fn waits_async() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_permits_and_cancelled_calls_are_refunded() {
    rules("wait", TokioClock::new(), "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}");
    let began = Instant::now();
    let calls = join_all((0..4).map(|_| async { (waits_async().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(0)), (true, ms(100)), (true, ms(200)), (false, ms(0))]);
    assert!(tokio::time::timeout(ms(50), waits_async()).await.is_err());
    waits_async().await.unwrap();
    assert_eq!(began.elapsed(), ms(300));
}

#[limited("permits", in = "permits")]
async fn holds(time: Duration) -> Result<(), Limited> {
    tokio::time::sleep(time).await;
    assert!(time != ms(13), "a panic of the test");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_holds_its_permit_until_it_returns_panics_or_is_dropped() {
    let engine = rules("permits", TokioClock::new(), "  - {name: permits, concurrent: 1}");
    let free = || {
        let status = engine.peek_key("permits", &[]).now_or_never();
        status.unwrap().unwrap().limits[0].remaining
    };
    assert_eq!(free(), 1);
    let first = tokio::spawn(holds(ms(100)));
    tokio::time::sleep(ms(50)).await;
    assert_eq!(free(), 0);
    let denied = "`it::limited_rules::holds` is limited by rule `permits`: retry when another call returns";
    assert_eq!(outcome(holds(ms(1)).await), denied);
    first.await.unwrap().unwrap();
    assert_eq!(free(), 1);
    assert!(tokio::spawn(holds(ms(13))).await.unwrap_err().is_panic());
    assert_eq!(free(), 1);
    assert!(tokio::time::timeout(ms(50), holds(ms(100))).await.is_err());
    assert_eq!(free(), 1);
}

#[limited("queue", in = "queue")]
async fn queued() -> Result<(), Limited> {
    tokio::time::sleep(ms(100)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn async_calls_are_queued() {
    rules("queue", TokioClock::new(), "  - {name: queue, concurrent: 1, wait: 1s, queue: 2}");
    let began = Instant::now();
    let calls = join_all((0..4).map(|_| async { (queued().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(100)), (true, ms(200)), (true, ms(300)), (false, ms(0))]);
}

#[test]
fn a_call_that_must_wait_outside_of_a_runtime_fails_and_charges_nothing() {
    #[limited("bucket", in = "no-runtime")]
    async fn waits_alone() -> Result<(), Limited> {
        Ok(())
    }
    let clock = ManualClock::new();
    rules("no-runtime", clock.clone(), "  - {name: bucket, limit: 10/s burst 1, wait: 250ms}");
    assert_eq!(waits_alone().now_or_never(), Some(Ok(())));
    let limited = waits_alone().now_or_never().unwrap().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NoRuntime);
    clock.advance(ms(100));
    assert_eq!(waits_alone().now_or_never(), Some(Ok(())));
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
async fn a_function_that_returns_a_future_checks_its_limit_in_it() {
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
async fn an_adaptive_limit_is_not_raised_by_cancelled_calls() {
    let engine = rules("adapts", TokioClock::new(), "  - {name: adapts, concurrent: adaptive}");
    for _ in 0..100 {
        join_all((0..100).map(|_| tokio::time::timeout(ms(3), hangs()))).await;
    }
    assert_eq!(engine.peek_key("adapts", &[]).await.unwrap().limits[0].limit, 20);
}
