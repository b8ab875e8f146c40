//! Waiting as futures: exact on paused time, fair by arrival, and safe to drop.

#![allow(clippy::disallowed_types, reason = "tests need no lock abstraction")]

use diana_core::{
    Clock, Concurrency, ConcurrencyLimiter, FixedWindow, KeyedLimiter, Limiter, Quota, Retry, TokioClock,
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Sleeps, on paused time, to the next full second of the clock.
async fn full_second(clock: &TokioClock) {
    let into = clock.now().as_nanos() % 1_000_000_000;
    // The timer counts in milliseconds, so the start is somewhere within the first one of the second.
    tokio::time::sleep(Duration::from_nanos(1_000_000_000 - into)).await;
}

#[tokio::test(start_paused = true)]
async fn five_concurrent_requests_proceed_a_second_apart() {
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let start = Instant::now();
    let waits = tokio::join!(
        limiter.acquire(1),
        limiter.acquire(1),
        limiter.acquire(1),
        limiter.acquire(1),
        limiter.acquire(1),
    );
    let waits = [waits.0, waits.1, waits.2, waits.3, waits.4].map(|grant| grant.unwrap().waited);
    assert_eq!(waits, [ms(0), ms(1_000), ms(2_000), ms(3_000), ms(4_000)]);
    assert_eq!(start.elapsed(), ms(4_000));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_wait_refunds_its_permits() {
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    assert!(limiter.check().is_granted());
    assert!(timeout(ms(200), limiter.acquire(1)).await.is_err());
    // The reservation of the dropped future is free again: this one waits only for the rest of the first second.
    assert_eq!(limiter.acquire(1).await.unwrap().waited, ms(800));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_wait_keeps_the_times_of_later_reservations() {
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    assert!(limiter.check().is_granted());
    let (timed_out, later) = tokio::join!(timeout(ms(200), limiter.acquire(1)), limiter.acquire(1));
    assert!(timed_out.is_err());
    assert_eq!(later.unwrap().waited, ms(2_000));
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_window_are_fifo() {
    let clock = TokioClock::new();
    let limiter = Limiter::with_algorithm(FixedWindow::new(quota("2/s"))).with_clock(clock);
    full_second(&clock).await;
    let waits = tokio::join!(
        limiter.acquire(2),
        limiter.acquire(2),
        limiter.acquire(1),
        limiter.acquire(1),
        limiter.acquire(1),
    );
    let waits = [waits.0, waits.1, waits.2, waits.3, waits.4].map(|grant| grant.unwrap().waited);
    // The timer wakes within a millisecond of the window's end.
    let windows = waits.map(|wait| wait.as_millis().div_ceil(1_000));
    assert_eq!(windows, [0, 1, 2, 2, 3], "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_in_the_queue_lets_the_next_waiter_move_up() {
    let limiter = Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TokioClock::new());
    let held = limiter.check().receipt().unwrap();
    let start = Instant::now();
    let (first, second, ()) =
        tokio::join!(limiter.acquire_timeout(1, ms(100)), limiter.acquire_timeout(1, ms(500)), async {
            tokio::time::sleep(ms(300)).await;
            limiter.refund(&held);
        },);
    assert_eq!(first.unwrap_err().retry(), Some(Retry::WhenReleased));
    assert_eq!(second.unwrap().waited, ms(300));
    assert_eq!(start.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_queued_wait_leaves_the_queue() {
    let permits = ConcurrencyLimiter::new("slots", 1).unwrap().with_clock(TokioClock::new());
    let held = permits.acquire(1).await.unwrap();
    assert!(timeout(ms(50), permits.acquire(1)).await.is_err());
    assert_eq!(permits.waiting(), 0);
    drop(held);
    assert!(permits.try_acquire(1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_wait_separately() {
    let limiter = KeyedLimiter::<str>::new(quota("1/s")).with_clock(TokioClock::new());
    let (a, b, c) = tokio::join!(limiter.acquire("a", 1), limiter.acquire("a", 1), limiter.acquire("b", 1));
    let waits = [a, b, c].map(|grant| grant.unwrap().waited);
    assert_eq!(waits, [ms(0), ms(1_000), ms(0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_are_send() {
    let permits = ConcurrencyLimiter::new("slots", 2).unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let permits = permits.clone();
            tokio::spawn(async move {
                let permit = permits.acquire(1).await.unwrap();
                tokio::task::yield_now().await;
                permit.count()
            })
        })
        .collect();
    let mut served = 0;
    for task in tasks {
        served += task.await.unwrap();
    }
    assert_eq!((served, permits.available()), (50, 2));
}

/// A waker may own the last reference to a task, and the task may wait in the same queue.
#[test]
fn dropping_a_waker_that_owns_another_waiter_does_not_deadlock() {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex as Plain, mpsc};
    use std::task::{Context, Wake, Waker};

    type WaitFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
    struct Owner(#[allow(dead_code, reason = "held to be dropped")] Plain<Option<WaitFuture>>);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let pool = ConcurrencyLimiter::new("slots", 1).unwrap();
        let _held = pool.blocking_acquire(1).unwrap();
        let wait = |pool: ConcurrencyLimiter| -> WaitFuture { Box::pin(async move { drop(pool.acquire(1).await) }) };
        let mut inner = wait(pool.clone());
        assert!(inner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let owner = Waker::from(Arc::new(Owner(Plain::new(Some(inner)))));
        let mut outer = wait(pool.clone());
        assert!(outer.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
        drop(owner);
        drop(outer);
        done.send(pool.waiting()).unwrap();
    });
    assert_eq!(finished.recv_timeout(Duration::from_secs(10)), Ok(0));
}

#[test]
fn an_immediate_grant_needs_no_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let permits = ConcurrencyLimiter::new("slots", 1).unwrap();
    assert!(runtime.block_on(permits.acquire(1)).is_ok());
    let limiter = Limiter::new(quota("1/s"));
    assert!(runtime.block_on(limiter.acquire(1)).is_ok());
}
