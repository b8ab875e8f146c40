//! Which allowed requests are recorded: all of them while there are few, and one in [`INTERVAL`] of many.
//!
//! A recorded request has a weight, the number of requests that it stands for, so that the expected sum of all weights is
//! the number of requests. The gaps between recorded requests are random: with a fixed gap, traffic that repeats with the
//! same period would always be sampled at the same key.

use diana_core::Timestamp;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Records one in this number of many requests.
const INTERVAL: u64 = 64;
/// The number of requests of one thread, in each [`SPAN`], that are all recorded.
const ALL: u32 = 16;
/// A tenth of a second, in nanoseconds.
const SPAN: u64 = 100_000_000;

/// The state of one thread.
struct Sampler {
    /// The number of requests until the next one is recorded.
    countdown: Cell<u32>,
    /// The weight of that request.
    weight: Cell<u64>,
    /// When the next requests are all recorded, in nanoseconds.
    refill_at: Cell<u64>,
    /// How many of these are left.
    left: Cell<u32>,
    random: Cell<u64>,
}

thread_local! {
    static SAMPLER: Sampler = const {
        Sampler {
            countdown: Cell::new(1),
            weight: Cell::new(1),
            refill_at: Cell::new(0),
            left: Cell::new(0),
            random: Cell::new(0),
        }
    };
}

/// Returns the weight of an allowed request; `None` if it is not recorded.
#[inline]
pub fn sample(now: Timestamp) -> Option<u64> {
    SAMPLER.with(|sampler| {
        let countdown = sampler.countdown.get() - 1;
        sampler.countdown.set(countdown);
        (countdown == 0).then(|| sampler.record(now))
    })
}

impl Sampler {
    /// Returns the weight of the request, and plans the next one.
    #[cold]
    fn record(&self, now: Timestamp) -> u64 {
        let (weight, now) = (self.weight.get(), now.as_nanos());
        // The time may have been set back.
        if now >= self.refill_at.get() || now + SPAN < self.refill_at.get() {
            self.refill_at.set(now + SPAN);
            self.left.set(ALL);
        }
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        let (countdown, next) = if left > 0 { (1, 1) } else { (self.gap(), INTERVAL) };
        self.countdown.set(countdown);
        self.weight.set(next);
        weight
    }

    /// Returns a random gap of 1 to 127: 64 on average.
    fn gap(&self) -> u32 {
        let mut random = match self.random.get() {
            0 => RandomState::new().hash_one(0) | 1,
            random => random,
        };
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let range = 2 * INTERVAL - 1;
        u32::try_from(1 + (random >> 32) % range).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_requests_are_all_recorded() {
        let at = |tenth: u64| Timestamp::from_nanos(1_000_000_000_000 + tenth * SPAN);
        for tenth in 0..100 {
            for _ in 0..10 {
                assert_eq!(sample(at(tenth)), Some(1));
            }
        }
    }

    #[test]
    fn the_weights_of_many_requests_add_up_to_their_number() {
        let at = Timestamp::from_secs(1);
        let weights = (0..1_000_000).filter_map(|_| sample(at)).collect::<Vec<_>>();
        let sum = weights.iter().sum::<u64>();
        // 15,625 samples with random gaps: 1 % is more than two standard deviations of their sum, and 5 % more than ten.
        assert!((950_000..1_050_000).contains(&sum), "{sum}");
        assert!((14_000..17_000).contains(&weights.len()), "{}", weights.len());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_it() {
        let _ = sample(Timestamp::from_secs(1_000_000));
        let recorded = (0..10_000).filter(|_| sample(Timestamp::from_secs(1)).is_some()).count();
        assert!(recorded > 50, "{recorded}");
    }
}
