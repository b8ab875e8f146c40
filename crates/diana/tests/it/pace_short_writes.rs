//! A peer that accepts less than it is offered gets exactly the rate of the limit, for every algorithm. Waiting
//! advances the clock, or time is tokio's, paused: the values are exact.

use diana::pace::Throttled;
use diana::{
    Clock, FixedWindow, LeakyBucket, Limiter, ManualClock, MinInterval, Quota, RefillingBucket, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmingUp, TokioClock,
};
use proptest::prelude::*;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// The largest offer of one write.
const OFFER: usize = 50;

/// A limit of one byte per millisecond, and how far it may exceed that: in every span of so many milliseconds, at most
/// the span plus `ahead` pass.
struct Limit {
    name: &'static str,
    limiter: Limiter,
    ahead: u64,
}

fn limits() -> Vec<Limit> {
    let quota = Quota::new(100, Duration::from_millis(100)).unwrap();
    let limit = |name, ahead, limiter| Limit { name, limiter, ahead };
    vec![
        limit("token bucket", 100, Limiter::new(quota)),
        limit("token bucket with a burst of 1", 1, Limiter::new(quota.with_burst(1).unwrap())),
        limit("leaky bucket with a queue", 100, Limiter::with_algorithm(LeakyBucket::new(quota).with_queue(99))),
        limit("leaky bucket without a queue", 1, Limiter::with_algorithm(LeakyBucket::new(quota))),
        // A grant does not depend on its cost.
        limit("min interval", 50, Limiter::with_algorithm(MinInterval::new(Duration::from_millis(50)).unwrap())),
        // The stored permits, and one write that the next one pays for.
        limit(
            "smooth bursty",
            150,
            Limiter::with_algorithm(SmoothBursty::new(1_000.0).unwrap().with_saved_seconds(0.1).unwrap()),
        ),
        limit(
            "smooth warming up",
            50,
            Limiter::with_algorithm(SmoothWarmingUp::new(1_000.0, Duration::from_millis(20)).unwrap()),
        ),
        limit("refilling bucket", 200, Limiter::with_algorithm(RefillingBucket::new(quota))),
        limit("fixed window", 200, Limiter::with_algorithm(FixedWindow::new(quota))),
        limit("sliding window", 200, Limiter::with_algorithm(SlidingWindow::new(quota))),
        limit("sliding log", 100, Limiter::with_algorithm(SlidingLog::new(quota))),
    ]
}

/// A peer that accepts so many bytes of each offer, cyclically; and when it accepted how many.
struct ShortWriter {
    clock: ManualClock,
    sizes: Vec<usize>,
    accepted: Vec<(u64, u64)>,
}

impl Write for ShortWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let written = from.len().min(self.sizes[self.accepted.len() % self.sizes.len()]);
        self.accepted.push((self.clock.now().as_nanos() / 1_000_000, u64::try_from(written).unwrap()));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn short_writes_get_the_rate_of_the_limit(sizes in prop::collection::vec(1..=OFFER, 1..8)) {
        for Limit { name, limiter, ahead } in limits() {
            let clock = ManualClock::new();
            let peer = ShortWriter { clock: clock.clone(), sizes: sizes.clone(), accepted: Vec::new() };
            let mut writer = Throttled::new(peer).writes(limiter.with_clock(clock.clone()));
            let mut remaining = 1_000;
            while remaining > 0 {
                remaining -= writer.write(&[7; OFFER][..remaining.min(OFFER)]).unwrap();
            }
            let accepted = &writer.get_ref().accepted;
            for (from, (start, _)) in accepted.iter().enumerate() {
                let mut sum = 0;
                for (end, written) in &accepted[from..] {
                    sum += written;
                    // Permits that are not refunded are used within 50 ms, and times are rounded down to milliseconds.
                    let max = end - start + 1 + ahead + 50;
                    prop_assert!(sum <= max, "{name}: {sum} from {start} to {end} ms");
                }
            }
            // The last hundred may need a whole window; warming up takes another 20 ms.
            let took = clock.now().as_nanos() / 1_000_000;
            prop_assert!(took <= 1_000 + 100 + 50, "{name}: {took} ms");
        }
    }
}

/// An asynchronous peer that accepts at most so many bytes at a time.
struct AsyncShortWriter(usize);

impl AsyncWrite for AsyncShortWriter {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(from.len().min(self.0)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn short_writes_on_a_shared_budget_waste_nothing() {
    let quota = Quota::per_second(1_000).unwrap().with_burst(20).unwrap();
    let budget = Arc::new(Limiter::new(quota).with_clock(TokioClock::new()));
    let start = Instant::now();
    let writers = (0..3).map(|_| {
        let mut writer = Throttled::new(AsyncShortWriter(7)).writes(Arc::clone(&budget));
        async move { writer.write_all(&[7; 500]).await.unwrap() }
    });
    futures_util::future::join_all(writers).await;
    // 1,500 bytes, of which 20 pass immediately.
    assert_eq!(start.elapsed(), Duration::from_millis(1_480));
}
