//! Streams and sinks pass everything, evenly, and keep no unused permits. Time is tokio's, paused: the values are
//! exact.

use diana::pace::{SinkError, SinkExt as _, StreamExt as _};
use diana::{FixedWindow, Limiter, Quota, TokioClock, Total};
use futures_util::future::join_all;
use futures_util::stream::FusedStream as _;
use futures_util::{FutureExt, Sink, SinkExt, Stream, StreamExt, stream};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn quota(rate: &str, burst: u64) -> Quota {
    rate.parse::<Quota>().unwrap().with_burst(burst).unwrap()
}

/// A token bucket on tokio's time.
fn limiter(rate: &str, burst: u64) -> Arc<Limiter> {
    Arc::new(Limiter::new(quota(rate, burst)).with_clock(TokioClock::new()))
}

/// Returns when each item arrived, in milliseconds from now.
async fn passed<T>(items: impl Stream<Item = T>) -> Vec<(u128, T)> {
    let (start, mut items, mut passed) = (Instant::now(), pin!(items), Vec::new());
    while let Some(item) = items.next().await {
        passed.push((start.elapsed().as_millis(), item));
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_stream_passes_the_burst_immediately_and_then_one_per_interval() {
    let items = stream::iter(1..=6).rate_limited(limiter("10/s", 3));
    assert_eq!(passed(items).await, [(0, 1), (0, 2), (0, 3), (100, 4), (200, 5), (300, 6)]);
}

#[tokio::test(start_paused = true)]
async fn streams_that_share_a_limiter_share_its_rate() {
    let limiter = limiter("10/s", 1);
    let (odd, even) = (stream::iter([1, 3, 5]), stream::iter([2, 4, 6]));
    let odd = passed(odd.rate_limited(Arc::clone(&limiter)));
    let (odd, even) = tokio::join!(odd, passed(even.rate_limited(limiter)));
    // The first stream reserves for its second item as soon as its first has passed; from then on they take turns.
    assert_eq!(odd, [(0, 1), (100, 3), (300, 5)]);
    assert_eq!(even, [(200, 2), (400, 4), (500, 6)]);
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_for_its_cost_and_a_free_one_does_not() {
    let items = stream::iter([2, 0, 5, 3, 0]).rate_limited(limiter("10/s", 5)).cost(|cost| *cost);
    assert_eq!(passed(items).await, [(0, 2), (0, 0), (200, 5), (500, 3), (500, 0)]);
}

#[tokio::test(start_paused = true)]
async fn an_item_above_the_capacity_passes_when_all_of_it_is_paid() {
    let items = stream::iter([25, 1]).rate_limited(limiter("10/s", 5)).cost(|cost| *cost);
    // Five immediately, and twenty at 10/s.
    assert_eq!(passed(items).await, [(2_000, 25), (2_100, 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_holds_no_permit() {
    let limiter = limiter("1/s", 5);
    let mut idle = stream::pending::<()>().rate_limited(Arc::clone(&limiter));
    assert_eq!(idle.next().now_or_never(), None);
    assert_eq!(limiter.status().remaining, 5);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_next_future_keeps_the_item_and_its_reservation() {
    let mut items = stream::iter(1..=3).rate_limited(limiter("1/s", 1));
    let start = Instant::now();
    assert_eq!(items.next().await, Some(1));
    assert!(timeout(ms(400), items.next()).await.is_err());
    assert_eq!(items.next().await, Some(2));
    assert_eq!(start.elapsed(), ms(1_000));
    assert_eq!(items.next().await, Some(3));
    assert_eq!(start.elapsed(), ms(2_000));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_moves_to_another_task_is_woken_there() {
    let window = Limiter::with_algorithm(FixedWindow::new(quota("1/s", 1))).with_clock(TokioClock::new());
    for limiter in [limiter("1/s", 1), Arc::new(window)] {
        let mut items = stream::iter(1..=2).rate_limited(limiter);
        assert_eq!(items.next().await, Some(1));
        assert_eq!(items.next().now_or_never(), None);
        assert_eq!(tokio::spawn(async move { items.next().await }).await.unwrap(), Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_stream_refunds_its_reservation() {
    let limiter = limiter("1/s", 1);
    let mut items = stream::iter(1..=3).rate_limited(Arc::clone(&limiter));
    assert_eq!(items.next().await, Some(1));
    assert!(timeout(ms(200), items.next()).await.is_err());
    assert_eq!(items.into_parts().1, Some(2));
    assert_eq!(limiter.acquire(1).await.unwrap().waited, ms(800));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_limit_is_exhausted_and_continues_after_a_reset() {
    let limiter = Arc::new(Limiter::with_algorithm(Total::new(2).unwrap()));
    let mut items = stream::iter(1..=3).rate_limited(Arc::clone(&limiter));
    assert_eq!(passed(&mut items).await, [(0, 1), (0, 2)]);
    limiter.reset();
    assert_eq!(passed(&mut items).await, [(0, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_terminated_when_its_source_is_and_nothing_is_held() {
    let limiter = Arc::new(Limiter::with_algorithm(Total::new(1).unwrap()));
    let mut items = stream::iter(1..=2).fuse().rate_limited(Arc::clone(&limiter));
    assert_eq!((items.next().await, items.next().await), (Some(1), None));
    assert!(!items.is_terminated());
    limiter.reset();
    assert_eq!((items.next().await, items.next().await), (Some(2), None));
    assert!(items.is_terminated());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_polled_again() {
    let window = FixedWindow::new(quota("1/s", 1));
    let limiter = Arc::new(Limiter::with_algorithm(window).with_clock(TokioClock::new()).with_max_waiting(1));
    let streams = (0..4).map(|index| passed(stream::iter([index]).rate_limited(Arc::clone(&limiter))));
    let mut all: Vec<_> = join_all(streams).await.into_iter().flatten().map(|(_, index)| index).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
}

/// The items of a sink and their times; and how often it was flushed.
#[derive(Default)]
struct Received {
    items: Vec<(u128, u64)>,
    flushes: usize,
    blocked: bool,
}

#[derive(Clone)]
struct Outbox {
    received: Arc<Mutex<Received>>,
    start: Instant,
}

impl Outbox {
    fn new() -> Self {
        Self { received: Arc::default(), start: Instant::now() }
    }

    fn items(&self) -> Vec<(u128, u64)> {
        self.received.lock().items.clone()
    }
}

impl Sink<u64> for Outbox {
    type Error = &'static str;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.received.lock().blocked { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn start_send(self: Pin<&mut Self>, item: u64) -> Result<(), Self::Error> {
        let at = self.start.elapsed().as_millis();
        self.received.lock().items.push((at, item));
        if item == 13 { Err("thirteen") } else { Ok(()) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.received.lock().flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_receives_each_item_when_it_is_paid() {
    let outbox = Outbox::new();
    let mut sink = outbox.clone().rate_limited(limiter("10/s", 2)).cost(|cost| *cost);
    for cost in [1, 1, 2, 0] {
        sink.feed(cost).await.unwrap();
    }
    sink.feed(5).await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(outbox.items(), [(0, 1), (0, 1), (200, 2), (200, 0), (700, 5)]);
}

#[tokio::test(start_paused = true)]
async fn passed_items_are_flushed_while_the_next_one_waits() {
    let outbox = Outbox::new();
    let mut sink = outbox.clone().rate_limited(limiter("1/s", 1));
    sink.feed(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert_eq!(sink.flush().now_or_never(), None);
    assert_eq!((outbox.items(), outbox.received.lock().flushes), (vec![(0, 1)], 1));
}

#[tokio::test(start_paused = true)]
async fn passed_items_are_flushed_even_if_the_limit_is_exhausted() {
    let outbox = Outbox::new();
    let mut sink = outbox.clone().rate_limited(Limiter::with_algorithm(Total::new(1).unwrap()));
    sink.feed(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert!(matches!(sink.flush().await, Err(SinkError::Exhausted(_))));
    assert_eq!((outbox.items(), outbox.received.lock().flushes), (vec![(0, 1)], 1));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_sink_holds_no_permit() {
    let (outbox, limiter) = (Outbox::new(), limiter("1/s", 1));
    let mut sink = outbox.clone().rate_limited(Arc::clone(&limiter));
    outbox.received.lock().blocked = true;
    assert_eq!(sink.send(1).now_or_never(), None);
    assert_eq!(limiter.status().remaining, 1);
    // Nor does one that gets blocked while its item waits.
    outbox.received.lock().blocked = false;
    sink.send(2).await.unwrap();
    sink.feed(3).await.unwrap();
    assert_eq!(sink.flush().now_or_never(), None);
    outbox.received.lock().blocked = true;
    assert_eq!(sink.flush().now_or_never(), None);
    assert_eq!(limiter.status().reset, ms(1_000) * 2 - outbox.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_sink_is_returned() {
    let mut sink = Outbox::new().rate_limited(limiter("1/s", 1));
    assert_eq!(sink.send(13).await, Err(SinkError::Sink("thirteen")));
}

/// Items of one stream: how long after the last each arrives, and its cost.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![3 => Just(0), 1 => 0..2_000_u64], 1..=5_u64), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_every_span_at_most_the_burst_and_the_rate_pass(
        streams in prop::collection::vec(arrivals(), 1..4),
        burst in 5..10_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut all = runtime.block_on(async {
            let limiter = limiter("10/s", burst);
            join_all(streams.iter().map(|arrivals| {
                let items = stream::iter(arrivals).then(|(after, cost)| async move {
                    tokio::time::sleep(ms(*after)).await;
                    *cost
                });
                passed(items.rate_limited(Arc::clone(&limiter)).cost(|cost| *cost))
            }))
            .await
            .concat()
        });
        prop_assert_eq!(all.len(), streams.iter().map(Vec::len).sum::<usize>());
        all.sort_unstable();
        for (from, (start, _)) in all.iter().enumerate() {
            let mut sum = 0;
            for (end, cost) in &all[from..] {
                sum += cost;
                // 10/s, so one per 100 ms; tokio's timer has a resolution of a millisecond.
                let max = u128::from(burst) * 100 + (end - start) + 1;
                prop_assert!(u128::from(sum) * 100 <= max, "{sum} from {start} to {end} ms");
            }
        }
    }
}
