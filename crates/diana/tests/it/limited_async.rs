//! Limits on async functions: waiting to the millisecond, on tokio's time, which the tests pause.

use diana::limited::{Caller, Cause, Limits};
use diana::{Limited, ManualClock, TokioClock, count_limit, rate_limit};
use futures_util::future::{FutureExt, join_all};
use std::time::Duration;
use tokio::time::Instant;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[rate_limit(rate = 10.0, burst = 1, timeout = "250ms", in = "waits")]
async fn waits() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_permits_and_longer_waits_are_denied_immediately() {
    Limits::new().with_clock(TokioClock::new()).install_as("waits");
    let began = Instant::now();
    let calls = join_all((0..5).map(|_| async { (waits().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(0)), (true, ms(100)), (true, ms(200)), (false, ms(0)), (false, ms(0))]);
}

#[rate_limit(rate = 10.0, burst = 1, timeout = "1s", in = "dropped")]
async fn cancelled() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_waits_is_refunded() {
    Limits::new().with_clock(TokioClock::new()).install_as("dropped");
    let began = Instant::now();
    cancelled().await.unwrap();
    assert!(tokio::time::timeout(ms(50), cancelled()).await.is_err());
    cancelled().await.unwrap();
    assert_eq!(began.elapsed(), ms(100));
}

#[test]
fn a_call_that_must_wait_outside_of_a_runtime_fails() {
    #[rate_limit(rate = 1, burst = 1, timeout = "1s", in = "no-runtime")]
    async fn waits() -> Result<(), Limited> {
        Ok(())
    }
    Limits::new().with_clock(ManualClock::new()).install_as("no-runtime");
    assert_eq!(waits().now_or_never(), Some(Ok(())));
    let limited = waits().now_or_never().unwrap().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NoRuntime);
    assert!(limited.to_string().contains("remove the option that waits (`timeout`"), "{limited}");
}

struct Shop(String);

impl Shop {
    #[count_limit(limit = 1, period = "1h", by = user, key = "{self.0} {item}", in = "shop")]
    async fn buy<T: std::fmt::Display + Send>(&self, item: T) -> Result<String, Limited> {
        tokio::task::yield_now().await;
        Ok(format!("{item} of {}", self.0))
    }
}

#[tokio::test]
async fn the_caller_is_local_to_its_task() {
    Limits::new().with_clock(ManualClock::new()).install_as("shop");
    let shop: &'static Shop = Box::leak(Box::new(Shop("ann".to_owned())));
    let buyers = ["bob", "cid", "bob"].map(|user| Caller::new().with_user(user).scope(shop.buy("tea")));
    let results = join_all(buyers).await;
    assert_eq!(results[0].as_deref().unwrap(), "tea of ann");
    assert_eq!(results[1].as_deref().unwrap(), "tea of ann");
    assert_eq!(results[2].as_ref().unwrap_err().key(), Some("bob, ann tea"));
    // A spawned task has no caller, unless it is passed one; and the future is `Send`.
    let spawned = Caller::new().with_user("bob").scope(async { tokio::spawn(shop.buy("tea")).await }).await;
    assert_eq!(spawned.unwrap().unwrap(), "tea of ann");
    assert!(shop.buy("tea").await.unwrap_err().is_unknown_caller());
}

#[count_limit(limit = 1, period = "1h", on_limit = none, in = "none")]
async fn maybe() -> Option<u8> {
    Some(1)
}

fn none(_: Limited) -> Option<u8> {
    None
}

#[tokio::test]
async fn on_limit_returns_the_value_of_a_denied_call() {
    Limits::new().with_clock(ManualClock::new()).install_as("none");
    assert_eq!(maybe().await, Some(1));
    assert_eq!(maybe().await, None);
}

#[rate_limit(rate = 1000, burst = 1, timeout = "10s", by = "{key}", in = "sent")]
async fn sent(key: u64, limited: u8) -> Result<u8, Limited> {
    Ok(limited)
}

#[tokio::test]
async fn arguments_may_have_generated_names_and_futures_are_send() {
    Limits::new().install_as("sent");
    // Waits by the system's clock: a few milliseconds.
    let tasks = (0..8).map(|index| tokio::spawn(sent(index % 2, 7)));
    for task in join_all(tasks).await {
        assert_eq!(task.unwrap().unwrap(), 7);
    }
}

struct Session(parking_lot::Mutex<String>);

impl Session {
    #[rate_limit(rate = 1000, burst = 1, timeout = "10s", by = "{self.0.lock()}", in = "guards")]
    async fn touch(&self) -> Result<(), Limited> {
        Ok(())
    }

    #[count_limit(limit = 1, period = "1h", by = "{self.0.lock()}", in = "guards")]
    async fn once(&self) -> Result<(), Limited> {
        Ok(())
    }
}

#[tokio::test]
async fn key_expressions_are_not_borrowed_while_a_call_waits() {
    Limits::new().install_as("guards");
    let session = Box::leak(Box::new(Session(parking_lot::Mutex::new("ann".to_owned()))));
    // A guard that is still held would not be `Send`, and would block the second call.
    for task in [tokio::spawn(session.touch()), tokio::spawn(session.touch()), tokio::spawn(session.once())] {
        task.await.unwrap().unwrap();
    }
    assert_eq!(session.once().await.unwrap_err().key(), Some("ann"));
}
