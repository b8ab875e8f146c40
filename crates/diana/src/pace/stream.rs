//! A paced stream.

use super::item_permits::{ItemPermits, PaceLimiter};
use super::unit_cost;
use futures_core::stream::{FusedStream, Stream};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Paces streams by a limiter.
pub trait StreamExt: Stream {
    /// Returns the same items, each once `limiter` grants it. An item costs one permit, unless
    /// [`cost`](PacedStream::cost) sets another.
    ///
    /// ```
    /// use diana::{Limiter, Quota, TokioClock};
    /// use diana::pace::StreamExt as _;
    /// use futures_util::{StreamExt as _, stream};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), diana::InvalidQuota> {
    /// let limiter = Limiter::new("10/s".parse::<Quota>()?.with_burst(1)?);
    /// # let limiter = limiter.with_clock(TokioClock::new());
    /// let began = tokio::time::Instant::now();
    ///
    /// let messages = stream::iter(["one", "two", "three"]).rate_limited(limiter);
    /// assert_eq!(messages.collect::<Vec<_>>().await, ["one", "two", "three"]);
    /// assert_eq!(began.elapsed(), Duration::from_millis(200));
    /// # Ok(())
    /// # }
    /// ```
    fn rate_limited(self, limiter: impl Into<PaceLimiter>) -> PacedStream<Self, fn(&Self::Item) -> u64>
    where
        Self: Sized,
    {
        PacedStream { stream: self, cost: unit_cost, held: None, permits: limiter.into().into() }
    }
}

impl<S: Stream> StreamExt for S {}

pin_project_lite::pin_project! {
    /// A stream that is paced by a limiter; created by [`StreamExt::rate_limited`].
    ///
    /// It takes an item first and then waits for its permits, so it holds one item while it waits. A `next()` future
    /// can be dropped and created again: the item and its reservation stay. Dropping the stream drops the item and
    /// refunds the reservation; [`into_parts`](Self::into_parts) returns the item.
    ///
    /// An item that costs more than the capacity is paid for in instalments, and passes after the last one. If the
    /// limit is exhausted, the stream ends; polling it again tries again.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    pub struct PacedStream<S, F>
    where
        S: Stream,
    {
        #[pin]
        stream: S,
        cost: F,
        held: Option<(S::Item, u64)>,
        permits: ItemPermits,
    }
}

impl<S: Stream, F> PacedStream<S, F> {
    /// Sets the cost of each item in permits; zero is free.
    ///
    /// ```
    /// use diana::{Limiter, Quota, TokioClock};
    /// use diana::pace::StreamExt as _;
    /// use futures_util::{StreamExt as _, stream};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), diana::InvalidQuota> {
    /// // Ten immediately and 10/s: the text of thirty takes two more seconds.
    /// let limiter = Limiter::new(Quota::per_second(10)?);
    /// # let limiter = limiter.with_clock(TokioClock::new());
    /// let began = tokio::time::Instant::now();
    ///
    /// let texts = stream::iter(["x".repeat(30)]).rate_limited(limiter).cost(|text| text.len() as u64);
    /// assert_eq!(texts.count().await, 1);
    /// assert_eq!(began.elapsed(), Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost<G>(self, cost: G) -> PacedStream<S, G>
    where
        G: FnMut(&S::Item) -> u64,
    {
        let Self { stream, held, permits, .. } = self;
        PacedStream { stream, cost, held, permits }
    }

    /// Returns the stream, and the item that it held while it waited.
    ///
    /// ```
    /// use diana::{Limiter, Quota};
    /// use diana::pace::StreamExt as _;
    /// use futures_util::{FutureExt as _, StreamExt as _, stream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), diana::InvalidQuota> {
    /// let mut slow = stream::iter(1..=3).rate_limited(Limiter::new(Quota::per_hour(1)?));
    /// assert_eq!(slow.next().await, Some(1));
    /// assert_eq!(slow.next().now_or_never(), None);
    ///
    /// let (rest, held) = slow.into_parts();
    /// assert_eq!(held, Some(2));
    /// assert_eq!(rest.collect::<Vec<_>>().await, [3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.stream, self.held.map(|(item, _)| item))
    }
}

impl<S, F> Stream for PacedStream<S, F>
where
    S: Stream,
    F: FnMut(&S::Item) -> u64,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        if this.held.is_none() {
            let item = match this.stream.poll_next(context) {
                Poll::Ready(Some(item)) => item,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    this.permits.record_idle();
                    return Poll::Pending;
                }
            };
            let due = (this.cost)(&item);
            *this.held = Some((item, due));
        }
        let due = this.held.as_ref().map_or(0, |(_, due)| *due);
        match ready!(this.permits.poll_pay(context, due)) {
            Ok(()) => Poll::Ready(this.held.take().map(|(item, _)| item)),
            Err(_exhausted) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (_, upper) = self.stream.size_hint();
        // The limit may be exhausted at any time, which ends the stream.
        (0, upper.and_then(|upper| upper.checked_add(held)))
    }
}

/// The stream is terminated when its source is, not when a limit is exhausted, since that can be reset.
impl<S, F> FusedStream for PacedStream<S, F>
where
    S: FusedStream,
    F: FnMut(&S::Item) -> u64,
{
    fn is_terminated(&self) -> bool {
        self.held.is_none() && self.stream.is_terminated()
    }
}

impl<S: Stream + fmt::Debug, F> fmt::Debug for PacedStream<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PacedStream");
        fields
            .field("stream", &self.stream)
            .field("holds_one", &self.held.is_some())
            .field("permits", &self.permits)
            .finish()
    }
}
