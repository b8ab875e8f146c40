//! The counters of a worker, and the macro that declares them.
//!
//! Counting is one relaxed addition to the worker's own shard. The sums are computed when they are read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

/// A number that increases and decreases. Each decrement follows an increment of the same shard.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds 1.
    #[inline]
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts 1.
    #[inline]
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something counted that can be added to its sum.
pub(crate) trait AddTo<Sum> {
    fn add_to(&self, sum: &mut Sum);
}

impl AddTo<u64> for Counter {
    fn add_to(&self, sum: &mut u64) {
        *sum += self.0.load(Ordering::Relaxed);
    }
}

impl AddTo<u64> for Gauge {
    fn add_to(&self, sum: &mut u64) {
        *sum += self.0.load(Ordering::Relaxed);
    }
}

impl<T: AddTo<Sum>, Sum, const N: usize> AddTo<[Sum; N]> for [T; N] {
    fn add_to(&self, sums: &mut [Sum; N]) {
        self.iter().zip(sums).for_each(|(count, sum)| count.add_to(sum));
    }
}

/// Declares what is counted: `name: what a shard has => its sum`. Makes two structs of it, the shard of one worker and the
/// sums over all shards.
macro_rules! counts {
    (
        $(#[$about_shard:meta])* $shard:ident
        $(#[$about_totals:meta])* $totals:ident
        { $($(#[$about:meta])* $name:ident: $counted:ty => $sum:ty,)* }
    ) => {
        $(#[$about_shard])*
        ///
        /// Any thread may write it; it is fast while only one does. Aligned to two cache lines, since processors prefetch them
        /// in pairs: no two workers write the same one.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $shard { $($(#[$about])* pub $name: $counted,)* }

        $(#[$about_totals])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $totals { $($(#[$about])* pub $name: $sum,)* }

        impl $totals {
            /// Adds the counts of one worker.
            pub fn add(&mut self, shard: &$shard) {
                $($crate::counter::AddTo::add_to(&shard.$name, &mut self.$name);)*
            }
        }
    };
}
pub(crate) use counts;
