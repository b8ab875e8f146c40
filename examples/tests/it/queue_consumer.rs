//! The example `queue_consumer`, with tokio's paused clock.

#[path = "../../queue_consumer.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod example;

use diana::{Limiter, TokioClock};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn the_example_consumes_its_queue_at_an_even_rate() {
    let (start, mut handled) = (Instant::now(), Vec::new());
    let limiter = Limiter::new(example::rate().unwrap()).with_clock(TokioClock::new());
    example::consume(example::queue(), limiter, |mail| {
        handled.push((start.elapsed().as_millis(), mail.recipients));
    })
    .await;
    let expected = [(0, 1), (100, 1), (200, 1), (700, 5), (800, 1), (900, 1), (1_000, 1), (2_000, 10)];
    assert_eq!(handled, expected);
}
