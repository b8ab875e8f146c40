//! Keys, and pseudo-random numbers to choose them by: the same in every run.

#![allow(clippy::cast_possible_truncation, reason = "numbers below a `usize` fit")]

/// `user-0000000` and so on.
pub fn user(index: usize) -> String {
    format!("user-{index:07}")
}

/// Pseudo-random numbers, the same in every run (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next_u64() >> 32) as usize * end) >> 32
    }
}

/// Spreads a number over all 64 bits; different numbers stay different.
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
