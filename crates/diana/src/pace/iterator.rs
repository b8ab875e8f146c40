//! A paced iterator, for threads that may block.

use super::item_permits::{ItemPermits, PaceLimiter};
use super::unit_cost;
use std::fmt;

/// Paces iterators by a limiter.
pub trait IteratorExt: Iterator {
    /// Returns the same items; each blocks this thread until `limiter` grants it. An item costs one permit, unless
    /// [`cost`](PacedIterator::cost) sets another.
    ///
    /// ```
    /// use diana::{Clock, Limiter, ManualClock, Quota, Timestamp};
    /// use diana::pace::IteratorExt;
    ///
    /// let clock = ManualClock::new(); // Waiting moves it, and takes no time.
    /// let limiter = Limiter::new(Quota::per_second(2)?).with_clock(clock.clone());
    ///
    /// let passed = (1..=4).rate_limited(limiter).map(|item| (item, clock.now().as_nanos() / 1_000_000));
    /// assert_eq!(passed.collect::<Vec<_>>(), [(1, 0), (2, 0), (3, 500), (4, 1_000)]);
    /// # Ok::<(), diana::InvalidQuota>(())
    /// ```
    fn rate_limited(self, limiter: impl Into<PaceLimiter>) -> PacedIterator<Self, fn(&Self::Item) -> u64>
    where
        Self: Sized,
    {
        PacedIterator { iterator: self, cost: unit_cost, held: None, permits: limiter.into().into() }
    }
}

impl<I: Iterator> IteratorExt for I {}

/// An iterator that is paced by a limiter; created by [`IteratorExt::rate_limited`].
///
/// An item that costs more than the capacity is paid for in instalments, and passes after the last one. If the limit is
/// exhausted, the iterator ends; another call of `next` tries again.
pub struct PacedIterator<I: Iterator, F> {
    iterator: I,
    cost: F,
    /// The item for which the limit was exhausted.
    held: Option<(I::Item, u64)>,
    permits: ItemPermits,
}

impl<I: Iterator, F> PacedIterator<I, F> {
    /// Sets the cost of each item in permits; zero is free.
    ///
    /// ```
    /// use diana::{Clock, Limiter, ManualClock, Quota, Timestamp};
    /// use diana::pace::IteratorExt;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(Quota::per_second(10)?).with_clock(clock.clone());
    ///
    /// assert_eq!(["a", "bcd"].iter().rate_limited(limiter).cost(|text| 10 * text.len() as u64).count(), 2);
    /// assert_eq!(clock.now(), Timestamp::from_secs(3)); // Ten immediately, then thirty at 10/s.
    /// # Ok::<(), diana::InvalidQuota>(())
    /// ```
    pub fn cost<G>(self, cost: G) -> PacedIterator<I, G>
    where
        G: FnMut(&I::Item) -> u64,
    {
        let Self { iterator, held, permits, .. } = self;
        PacedIterator { iterator, cost, held, permits }
    }

    /// Returns the iterator, and the item that it held when the limit was exhausted.
    ///
    /// ```
    /// use diana::{Limiter, Total};
    /// use diana::pace::IteratorExt;
    ///
    /// let mut trial = (1..=5).rate_limited(Limiter::with_algorithm(Total::new(2)?));
    /// assert_eq!(trial.by_ref().collect::<Vec<_>>(), [1, 2]);
    /// assert_eq!(trial.into_parts(), (4..=5, Some(3)));
    /// # Ok::<(), diana::InvalidQuota>(())
    /// ```
    pub fn into_parts(self) -> (I, Option<I::Item>) {
        (self.iterator, self.held.map(|(item, _)| item))
    }
}

impl<I, F> Iterator for PacedIterator<I, F>
where
    I: Iterator,
    F: FnMut(&I::Item) -> u64,
{
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let (item, due) = match self.held.take() {
            Some(held) => held,
            None => {
                let item = self.iterator.next()?;
                let due = (self.cost)(&item);
                (item, due)
            }
        };
        match self.permits.blocking_pay(due) {
            Ok(()) => Some(item),
            Err(_exhausted) => {
                self.held = Some((item, due));
                None
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (_, upper) = self.iterator.size_hint();
        // The limit may be exhausted at any time, which ends the iterator.
        (0, upper.and_then(|upper| upper.checked_add(held)))
    }
}

impl<I: Iterator + fmt::Debug, F> fmt::Debug for PacedIterator<I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PacedIterator");
        fields.field("iterator", &self.iterator).field("permits", &self.permits).finish_non_exhaustive()
    }
}
