//! The example `queue_consumer`, on tokio's time, paused.

#[path = "../../queue_consumer.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod queue_consumer;

use diana::core::{Limiter, TokioClock};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn the_example_consumes_its_queue_at_an_even_rate() {
    let (start, mut handled) = (Instant::now(), Vec::new());
    let limiter = Limiter::new(queue_consumer::rate().unwrap()).with_clock(TokioClock::new());
    queue_consumer::consume(queue_consumer::queue(), limiter, |mail| {
        handled.push((start.elapsed().as_millis(), mail.recipients));
    })
    .await;
    let expected = [(0, 1), (100, 1), (200, 1), (700, 5), (800, 1), (900, 1), (1_000, 1), (2_000, 10)];
    assert_eq!(handled, expected);
}
