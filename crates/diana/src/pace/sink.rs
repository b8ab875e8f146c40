//! A paced sink.

use super::acquire_until_granted::Exhausted;
use super::item_permits::{ItemPermits, PaceLimiter};
use super::unit_cost;
use futures_sink::Sink;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Paces sinks by a limiter.
pub trait SinkExt<Item>: Sink<Item> {
    /// Returns a sink that receives each item once `limiter` grants it. An item costs one permit, unless
    /// [`cost`](PacedSink::cost) sets another.
    ///
    /// ```
    /// use diana::{Limiter, Quota, TokioClock};
    /// use diana::pace::SinkExt as _;
    /// use futures_util::{SinkExt as _, sink};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new("10/s".parse::<Quota>()?.with_burst(1)?);
    /// # let limiter = limiter.with_clock(TokioClock::new());
    /// let began = tokio::time::Instant::now();
    ///
    /// let mut outbox = Box::pin(sink::drain().rate_limited(limiter));
    /// for mail in ["one", "two", "three"] {
    ///     outbox.send(mail).await?;
    /// }
    /// assert_eq!(began.elapsed(), Duration::from_millis(200));
    /// # Ok(())
    /// # }
    /// ```
    fn rate_limited(self, limiter: impl Into<PaceLimiter>) -> PacedSink<Self, Item, fn(&Item) -> u64>
    where
        Self: Sized,
    {
        PacedSink { sink: self, cost: unit_cost, held: None, permits: limiter.into().into() }
    }
}

impl<S: Sink<Item>, Item> SinkExt<Item> for S {}

/// Why an item did not pass a [`PacedSink`].
///
/// ```
/// use diana::{Limiter, Total};
/// use diana::pace::{SinkError, SinkExt as _};
/// use futures_util::{SinkExt as _, sink};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut trial = sink::drain().rate_limited(Limiter::with_algorithm(Total::new(1)?));
/// trial.send("one").await?;
/// assert!(matches!(trial.send("two").await, Err(SinkError::Exhausted(_))));
/// assert_eq!(trial.into_parts().1, Some("two"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError<E> {
    /// The sink itself failed.
    #[error(transparent)]
    Sink(E),
    /// The limit is exhausted. The item is still held, and the next call tries again.
    #[error(transparent)]
    Exhausted(Exhausted),
}

pin_project_lite::pin_project! {
    /// A sink that is paced by a limiter; created by [`SinkExt::rate_limited`].
    ///
    /// It holds one item that waits for its permits: flush or close it before dropping it, like any buffering sink, or
    /// take the item out with [`into_parts`](Self::into_parts). Dropping it refunds its reservation.
    ///
    /// An item that costs more than the capacity is paid for in instalments, and passes after the last one.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer; and if an item is sent before the sink is ready,
    /// which the contract of `Sink` forbids.
    pub struct PacedSink<S, Item, F> {
        #[pin]
        sink: S,
        cost: F,
        held: Option<(Item, u64)>,
        permits: ItemPermits,
    }
}

impl<S, Item, F> PacedSink<S, Item, F> {
    /// Sets the cost of each item in permits; zero is free.
    ///
    /// ```
    /// use diana::{Limiter, Quota};
    /// use diana::pace::SinkExt as _;
    /// use futures_util::{SinkExt as _, sink};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = std::sync::Arc::new(Limiter::new(Quota::per_hour(100)?));
    /// let mut outbox = sink::drain().rate_limited(limiter.clone()).cost(|mail: &&str| mail.len() as u64);
    /// outbox.send("ten bytes.").await?;
    /// assert_eq!(limiter.status().remaining, 90);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost<G>(self, cost: G) -> PacedSink<S, Item, G>
    where
        G: FnMut(&Item) -> u64,
    {
        let Self { sink, held, permits, .. } = self;
        PacedSink { sink, cost, held, permits }
    }

    /// Returns the sink, and the item that still waits for its permits.
    ///
    /// ```
    /// use diana::{Limiter, Quota};
    /// use diana::pace::SinkExt as _;
    /// use futures_util::{FutureExt as _, SinkExt as _, sink};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut slow = sink::drain().rate_limited(Limiter::new(Quota::per_hour(1)?));
    /// slow.send(1).await?;
    /// assert!(slow.send(2).now_or_never().is_none());
    /// assert_eq!(slow.into_parts().1, Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_parts(self) -> (S, Option<Item>) {
        (self.sink, self.held.map(|(item, _)| item))
    }
}

impl<S: Sink<Item>, Item, F> PacedSink<S, Item, F> {
    /// Sends the held item once it is granted.
    fn poll_held(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SinkError<S::Error>>> {
        let mut this = self.project();
        let Some((_, due)) = this.held else { return Poll::Ready(Ok(())) };
        // Readiness first, then payment: a paid item passes immediately, and a blocked sink does not delay other users.
        match this.sink.as_mut().poll_ready(context).map_err(SinkError::Sink) {
            Poll::Ready(ready) => ready?,
            Poll::Pending => {
                this.permits.cancel_wait();
                return Poll::Pending;
            }
        }
        ready!(this.permits.poll_pay(context, *due)).map_err(SinkError::Exhausted)?;
        let Some((item, _)) = this.held.take() else { return Poll::Ready(Ok(())) };
        Poll::Ready(this.sink.start_send(item).map_err(SinkError::Sink))
    }
}

impl<S, Item, F> Sink<Item> for PacedSink<S, Item, F>
where
    S: Sink<Item>,
    F: FnMut(&Item) -> u64,
{
    type Error = SinkError<S::Error>;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_held(context)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), Self::Error> {
        let this = self.project();
        assert!(this.held.is_none(), "an item was sent before the sink was ready");
        let due = (this.cost)(&item);
        *this.held = Some((item, due));
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let held = self.as_mut().poll_held(context);
        // Items that have passed are flushed without waiting for the held one.
        ready!(self.project().sink.poll_flush(context)).map_err(SinkError::Sink)?;
        held
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_held(context))?;
        self.project().sink.poll_close(context).map_err(SinkError::Sink)
    }
}

impl<S: fmt::Debug, Item, F> fmt::Debug for PacedSink<S, Item, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PacedSink");
        fields
            .field("sink", &self.sink)
            .field("holds_one", &self.held.is_some())
            .field("permits", &self.permits)
            .finish()
    }
}
