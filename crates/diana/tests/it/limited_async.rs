//! Limits on async functions: waiting to the millisecond, on tokio's time, which the tests pause.

use diana::limited::{Caller, Cause, Limits};
use diana::{Limited, ManualClock, TokioClock, count_limit, rate_limit};
use futures_util::future::{FutureExt, join_all};
use std::time::Duration;
use tokio::time::Instant;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[rate_limit(rate = 10.0, burst = "0s", timeout = "250ms", in = "waits")]
async fn waits() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_waits_for_its_turn_and_who_would_wait_too_long_is_refused_at_once() {
    Limits::new().with_clock(TokioClock::new()).install_as("waits");
    let began = Instant::now();
    let calls = join_all((0..5).map(|_| async { (waits().await.is_ok(), began.elapsed()) })).await;
    assert_eq!(calls, [(true, ms(0)), (true, ms(100)), (true, ms(200)), (false, ms(0)), (false, ms(0))]);
}

#[rate_limit(rate = 10.0, burst = "0s", timeout = "1s", in = "dropped")]
async fn given_up() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_while_it_waits_gives_its_turn_back() {
    Limits::new().with_clock(TokioClock::new()).install_as("dropped");
    let began = Instant::now();
    given_up().await.unwrap();
    assert!(tokio::time::timeout(ms(50), given_up()).await.is_err());
    given_up().await.unwrap();
    assert_eq!(began.elapsed(), ms(100));
}

#[test]
fn a_call_that_must_wait_outside_of_a_runtime_is_told_so() {
    #[rate_limit(rate = 1, burst = "0s", timeout = "1s", in = "no-runtime")]
    async fn alone() -> Result<(), Limited> {
        Ok(())
    }
    Limits::new().with_clock(ManualClock::new()).install_as("no-runtime");
    assert_eq!(alone().now_or_never(), Some(Ok(())));
    let limited = alone().now_or_never().unwrap().unwrap_err();
    assert_eq!(limited.cause(), &Cause::NoRuntime);
    assert!(limited.to_string().contains("leave out what it waits for (`timeout`"), "{limited}");
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
async fn the_caller_stays_with_its_task() {
    Limits::new().with_clock(ManualClock::new()).install_as("shop");
    let shop: &'static Shop = Box::leak(Box::new(Shop("ann".to_owned())));
    let buyers = ["bob", "cid", "bob"].map(|user| Caller::new().with_user(user).scope(shop.buy("tea")));
    let heard = join_all(buyers).await;
    assert_eq!(heard[0].as_deref().unwrap(), "tea of ann");
    assert_eq!(heard[1].as_deref().unwrap(), "tea of ann");
    assert_eq!(heard[2].as_ref().unwrap_err().key(), Some("bob, ann tea"));
    // A task of its own has no caller, unless it is given one; and such a future can be sent.
    let spawned = Caller::new().with_user("bob").scope(async { tokio::spawn(shop.buy("tea")).await }).await;
    assert_eq!(spawned.unwrap().unwrap(), "tea of ann");
    assert!(shop.buy("tea").await.unwrap_err().is_nobodys());
}

#[count_limit(limit = 1, period = "1h", on_limit = none, in = "none")]
async fn perhaps() -> Option<u8> {
    Some(1)
}

fn none(_: Limited) -> Option<u8> {
    None
}

#[tokio::test]
async fn on_limit_answers_instead() {
    Limits::new().with_clock(ManualClock::new()).install_as("none");
    assert_eq!(perhaps().await, Some(1));
    assert_eq!(perhaps().await, None);
}

#[rate_limit(rate = 1000, burst = "0s", timeout = "10s", by = "{key}", in = "sent")]
async fn sent(key: u64, limited: u8) -> Result<u8, Limited> {
    Ok(limited)
}

#[tokio::test]
async fn arguments_may_be_called_as_our_own_names_and_futures_be_sent() {
    Limits::new().install_as("sent");
    // Really waits, by the system's clock: a few milliseconds, however slow the machine is.
    let tasks = (0..8).map(|nth| tokio::spawn(sent(nth % 2, 7)));
    for task in join_all(tasks).await {
        assert_eq!(task.unwrap().unwrap(), 7);
    }
}

struct Session(parking_lot::Mutex<String>);

impl Session {
    #[rate_limit(rate = 1000, burst = "0s", timeout = "10s", by = "{self.0.lock()}", in = "guards")]
    async fn touch(&self) -> Result<(), Limited> {
        Ok(())
    }

    #[count_limit(limit = 1, period = "1h", by = "{self.0.lock()}", in = "guards")]
    async fn once(&self) -> Result<(), Limited> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_key_is_made_of_is_not_held_while_a_call_waits() {
    Limits::new().install_as("guards");
    let session = Box::leak(Box::new(Session(parking_lot::Mutex::new("ann".to_owned()))));
    // A guard that were still there could not go from thread to thread, nor let the second call look.
    for task in [tokio::spawn(session.touch()), tokio::spawn(session.touch()), tokio::spawn(session.once())] {
        task.await.unwrap().unwrap();
    }
    assert_eq!(session.once().await.unwrap_err().key(), Some("ann"));
}
