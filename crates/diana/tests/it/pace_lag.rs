//! Late wake-ups do not reduce the rate, and catching up is bounded by 50 ms of it. Time is tokio's, paused (its timer
//! has a resolution of a millisecond, so shorter waits end late), or a clock that oversleeps: the values are exact.

use crate::pace_support::{limiter, ms, quota};
use diana::pace::{IteratorExt, SinkExt as _, StreamExt as _, Throttled};
use diana::{Clock, LeakyBucket, Limiter, ManualClock, MinInterval, Timestamp, TokioClock};
use futures_util::future::join_all;
use futures_util::{FutureExt, SinkExt, StreamExt, sink, stream};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// A clock on which every wait takes three milliseconds longer than it should.
#[derive(Clone, Debug, Default)]
struct OversleepingClock(ManualClock);

impl Clock for OversleepingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn park(&self, at_most: Duration) {
        self.0.advance(at_most + ms(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_keeps_a_rate_that_is_faster_than_the_timer() {
    for rate in [1_500, 10_000, 999_999] {
        let start = Instant::now();
        let last = usize::try_from(rate).unwrap() + 1;
        // The first passes immediately, so the last one passes a second later.
        assert_eq!(stream::repeat(()).rate_limited(limiter(rate, 1)).take(last).count().await, last);
        assert_eq!(start.elapsed(), ms(1_000), "{rate}/s");
    }
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_with_reservations_keeps_its_rate() {
    let limiters = [
        Limiter::with_algorithm(MinInterval::new(Duration::from_micros(100)).unwrap()),
        Limiter::with_algorithm(LeakyBucket::new(quota(10_000, 1))),
        Limiter::with_algorithm(LeakyBucket::new(quota(10_000, 1)).with_queue(3)),
    ];
    for limiter in limiters {
        let (start, name) = (Instant::now(), format!("{limiter:?}"));
        let items = stream::repeat(()).rate_limited(limiter.with_clock(TokioClock::new()));
        assert_eq!(items.take(10_001).count().await, 10_001);
        assert_eq!(start.elapsed(), ms(1_000), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_keeps_a_rate_that_is_faster_than_the_timer() {
    let start = Instant::now();
    let mut outbox = sink::drain().rate_limited(limiter(10_000, 1));
    for item in 0..=10_000 {
        outbox.send(item).await.unwrap();
    }
    assert_eq!(start.elapsed(), ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn bytes_keep_a_rate_whose_burst_is_shorter_than_the_timer() {
    let input = vec![7; 1_000_300];
    for rate in [1_000_000_u64, 999_983] {
        // The burst passes immediately, and each further chunk is 0.3 ms.
        let (start, ends) = (Instant::now(), ms(1_000_000_000 / rate));
        let mut reader = Throttled::new(&input[..]).reads(limiter(rate, 300));
        assert_eq!(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.unwrap(), 1_000_300);
        assert!((ends..=ends + ms(1)).contains(&start.elapsed()), "reading, {rate}: {:?}", start.elapsed());

        let start = Instant::now();
        let mut writer = Throttled::new(Vec::new()).writes(limiter(rate, 300));
        writer.write_all(&input).await.unwrap();
        assert!((ends..=ends + ms(1)).contains(&start.elapsed()), "writing, {rate}: {:?}", start.elapsed());
    }
}

#[test]
fn a_thread_that_oversleeps_keeps_the_rate() {
    let clock = OversleepingClock::default();
    let limiter = Limiter::new(quota(1_000, 1)).with_clock(clock.clone());
    assert_eq!((0..=1_000).rate_limited(limiter).count(), 1_001);
    assert_eq!(clock.now(), Timestamp::from_millis(1_000)); // 250 waits of 4 ms.

    let clock = OversleepingClock::default();
    let limiter = Limiter::new(quota(1_000_000, 500)).with_clock(clock.clone());
    let mut input = Vec::new();
    let mut reader = Throttled::new(&[7; 1_000_500][..]).reads(limiter);
    std::io::Read::read_to_end(&mut reader, &mut input).unwrap();
    assert!((1_000..=1_003).contains(&(clock.now().as_nanos() / 1_000_000)), "{:?}", clock.now());
}

#[tokio::test(start_paused = true)]
async fn streams_that_share_a_fast_limit_take_turns() {
    let (limiter, start) = (limiter(10_000, 1), Instant::now());
    let share = |items: usize| {
        let items = stream::repeat(()).rate_limited(Arc::clone(&limiter)).take(items);
        async move {
            items.count().await;
            start.elapsed()
        }
    };
    let tasks = [tokio::spawn(share(2_500)), tokio::spawn(share(2_500)), tokio::spawn(share(2_500))];
    for task in tasks {
        // 7,500 at ten per millisecond: three each, and four for one of them.
        let ended = task.await.unwrap();
        assert!((ms(625)..=ms(750)).contains(&ended), "{ended:?}");
    }
}

/// Returns how many of `items` pass now.
async fn immediate(items: &mut (impl StreamExt + Unpin)) -> usize {
    let (now, mut passed) = (Instant::now(), 0);
    while timeout(Duration::ZERO, items.next()).await.is_ok() && now == Instant::now() {
        passed += 1;
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_polled_catches_up_with_at_most_50_ms() {
    let mut items = stream::repeat(()).rate_limited(limiter(1_000, 1));
    assert_eq!(items.next().await, Some(()));
    // It waits for its grant and is not polled when that is due.
    assert_eq!(items.next().now_or_never(), None);
    sleep(ms(5_000)).await;
    // The waiting item, the burst, and 50 ms of the rate.
    assert_eq!(immediate(&mut items).await, 1 + 1 + 50);
}

#[tokio::test(start_paused = true)]
async fn an_idle_source_does_not_catch_up() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let queue = stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut items = Box::pin(queue.rate_limited(limiter(1_000, 1)));
    for _ in 0..2 {
        sender.send(()).unwrap();
    }
    assert_eq!(items.next().await, Some(()));
    assert_eq!(items.next().now_or_never(), None);
    sleep(ms(5_000)).await;
    assert_eq!(immediate(&mut items).await, 1);
    sleep(ms(1_000)).await;
    for _ in 0..50 {
        sender.send(()).unwrap();
    }
    assert_eq!(immediate(&mut items).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_not_polled_catches_up_with_at_most_50_ms() {
    let input = vec![7; 100_000];
    let mut reader = Throttled::new(&input[..]).reads(limiter(100_000, 100));
    let mut buffer = vec![0; 50_000];
    assert_eq!(reader.read(&mut buffer).await.unwrap(), 100);
    assert!(reader.read(&mut buffer).now_or_never().is_none());
    sleep(ms(5_000)).await;
    let mut passed = 0;
    while let Ok(read) = timeout(Duration::ZERO, reader.read(&mut buffer)).await {
        passed += read.unwrap();
    }
    // The pending chunk, 50 ms of the rate, and the burst that accrued meanwhile.
    assert!((5_100..=5_200).contains(&passed), "{passed}");
}

/// Consumers of one limit that pause now and then, for so many milliseconds each time; returns when each item passed.
async fn consumers(limiter: Arc<Limiter>, pauses: Vec<Vec<u64>>) -> Vec<u128> {
    let start = Instant::now();
    let passed = pauses.into_iter().map(|pauses| {
        let mut items = stream::repeat(()).rate_limited(Arc::clone(&limiter));
        async move {
            let mut passed = Vec::new();
            for pause in pauses {
                for _ in 0..40 {
                    items.next().await;
                    passed.push(start.elapsed().as_millis());
                }
                // Sometimes while an item waits, sometimes between two.
                if pause.is_multiple_of(2) {
                    let _ = items.next().now_or_never().map(|_| passed.push(start.elapsed().as_millis()));
                }
                sleep(ms(pause)).await;
            }
            passed
        }
    });
    let mut all = join_all(passed).await.concat();
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn in_every_span_at_most_50_ms_more_than_the_limit_pass(
        pauses in prop::collection::vec(prop::collection::vec(0..90_u64, 1..6), 1..4),
        rate in prop_oneof![Just(700), Just(1_000), Just(10_000_u64)],
        burst in 1..4_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let streams = pauses.len();
        let passed = runtime.block_on(async { consumers(limiter(rate, burst), pauses).await });
        for (from, start) in passed.iter().enumerate() {
            for (count, end) in (1..).zip(&passed[from..]) {
                // Times are rounded down to milliseconds, and each stream may hold one item that waited longer.
                let max = u128::from(burst) + u128::from(rate) * (end - start + 51) / 1_000;
                prop_assert!(count <= max + u128::try_from(streams).unwrap(), "{} from {} to {} ms", count, start, end);
            }
        }
    }
}
