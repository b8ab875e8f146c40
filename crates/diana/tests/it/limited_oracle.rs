//! `#[rate_limit]` beside the class behind the Java annotation that it follows, over random sequences of calls.
//!
//! [`RedisPermits`] is that class in our own words. It works in whole milliseconds, as all times here are.

use diana::limited::Limits;
use diana::{Limited, TokioClock, rate_limit};
use proptest::prelude::*;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The permits of a key, as the class stores them: the next free time may lie ahead, by permits that were taken in advance.
///
/// In millionths of a permit, where the class has floats.
struct RedisPermits {
    max: i64,
    stored: i64,
    per_milli: i64,
    next_free_millis: i64,
}

const PERMIT: i64 = 1_000_000;

impl RedisPermits {
    fn new(per_milli: i64, burst_millis: i64) -> Self {
        let max = per_milli * burst_millis;
        Self { max, stored: max, per_milli, next_free_millis: 0 }
    }

    fn resync(&mut self, now: i64) {
        if now > self.next_free_millis {
            self.stored = self.max.min(self.stored + (now - self.next_free_millis) * self.per_milli);
            self.next_free_millis = now;
        }
    }

    /// Returns the time until a call has its own permit, or `None` if that is more than the timeout.
    ///
    /// The class itself then sleeps for the call's fresh permits only and forgets what earlier calls took in advance, so that
    /// two queued callers run at once. Its decisions count both, and so do these times.
    fn try_acquire(&mut self, now: i64, timeout: i64) -> Option<i64> {
        self.resync(now);
        let from_store = self.stored.min(PERMIT);
        let fresh_millis = (PERMIT - from_store) / self.per_milli;
        let wait = self.next_free_millis - now + fresh_millis;
        if wait > timeout {
            return None;
        }
        self.next_free_millis += fresh_millis;
        self.stored -= from_store;
        Some(wait)
    }
}

#[rate_limit(rate = 5.0, burst = 10, by = "{case}", in = "oracle")]
async fn five_and_two_seconds(case: u64) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 1, burst = 1, timeout = "3s", by = "{case}", in = "oracle")]
async fn one_with_a_timeout(case: u64) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 2.5, saved = "1s", timeout = "1s", by = "{case}", in = "oracle")]
async fn two_and_a_half(case: u64) -> Result<(), Limited> {
    Ok(())
}

#[rate_limit(rate = 0.5, saved = "6s", timeout = "5s", by = "{case}", in = "oracle")]
async fn one_in_two_seconds(case: u64) -> Result<(), Limited> {
    Ok(())
}

type Call = JoinHandle<Option<Instant>>;

/// Each attribute: how to call it, and the class with the same values; the last is its timeout in milliseconds.
fn attribute(index: usize, case: u64) -> (Box<dyn Fn() -> Call>, RedisPermits, i64) {
    fn spawned<F: Future<Output = Result<(), Limited>> + Send + 'static>(call: F) -> Call {
        tokio::spawn(async { call.await.is_ok().then(Instant::now) })
    }
    match index {
        0 => (Box::new(move || spawned(five_and_two_seconds(case))), RedisPermits::new(5_000, 2_000), 0),
        1 => (Box::new(move || spawned(one_with_a_timeout(case))), RedisPermits::new(1_000, 1_000), 3_000),
        2 => (Box::new(move || spawned(two_and_a_half(case))), RedisPermits::new(2_500, 1_000), 1_000),
        _ => (Box::new(move || spawned(one_in_two_seconds(case))), RedisPermits::new(500, 6_000), 5_000),
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

/// Calls an attribute after each pause; every call waits on its own, so later ones find what earlier ones took in advance.
async fn replay(index: usize, case: u64, pauses: &[u64]) {
    let began = Instant::now();
    let (call, mut permits, timeout) = attribute(index, case);
    let mut calls = Vec::new();
    for &pause in pauses {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let now = millis(began.elapsed());
        let expected = permits.try_acquire(now, timeout).map(|wait| now + wait);
        calls.push((now, expected, call()));
        tokio::task::yield_now().await;
    }
    for (now, expected, call) in calls {
        let ran = call.await.unwrap().map(|ran| millis(ran.duration_since(began)));
        assert_eq!(ran, expected, "the call at {now} ms of attribute {index}, with pauses {pauses:?}");
    }
}

proptest! {
    #[test]
    fn attributes_decide_as_the_class_of_the_annotation(
        index in 0_usize..4,
        case: u64,
        pauses in prop::collection::vec(prop_oneof![3 => Just(0), 2 => 0_u64..60, 1 => 0_u64..800], 1..60),
    ) {
        let pauses: Vec<u64> = pauses.into_iter().map(|tens| tens * 10).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            Limits::new().with_clock(TokioClock::new()).install_as("oracle");
            replay(index, case, &pauses).await;
        });
    }
}
