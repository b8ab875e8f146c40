//! One value for each second of the last hour, in blocks of a minute.
//!
//! ```text
//!  minute 12          minute 14        a minute without traffic takes no memory
//!  [0 0 3 9 .. 4]     [1 0 0 .. 7]
//! ```
//!
//! Seconds are those of the wall clock since 1970, so no value has to be moved as time passes.

use std::collections::VecDeque;
use std::ops::Range;

/// The number of seconds that can be read.
pub(crate) const SPAN: u64 = 3600;
/// The seconds of a block.
const BLOCK: u64 = 60;
const BLOCK_LENGTH: usize = 60;
/// The maximum number of blocks: an hour, and the current minute.
const MAX_BLOCKS: usize = 61;

/// A value for each second.
#[derive(Debug)]
pub(super) struct Series<T> {
    /// The blocks, at most [`MAX_BLOCKS`], the oldest first.
    blocks: VecDeque<Box<Block<T>>>,
}

#[derive(Debug)]
struct Block<T> {
    minute: u64,
    values: [T; BLOCK_LENGTH],
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self { blocks: VecDeque::new() }
    }
}

impl<T: Copy + Default> Series<T> {
    /// The maximum memory of a series, in bytes.
    pub(super) const MAX_BYTES: usize =
        MAX_BLOCKS * size_of::<Block<T>>() + 2 * MAX_BLOCKS * size_of::<Box<Block<T>>>();

    /// Returns the value of a second, to change it.
    pub(super) fn at(&mut self, second: u64) -> &mut T {
        let minute = second / BLOCK;
        let index = match self.blocks.binary_search_by_key(&minute, |block| block.minute) {
            Ok(index) => index,
            Err(index) => {
                self.blocks.insert(index, Box::new(Block { minute, values: [T::default(); BLOCK_LENGTH] }));
                index
            }
        };
        &mut self.blocks[index].values[(second % BLOCK) as usize]
    }

    /// Frees the blocks that are older than an hour; `now` is a second.
    pub(super) fn expire(&mut self, now: u64) {
        let oldest = (now / BLOCK).saturating_sub(SPAN / BLOCK);
        while self.blocks.front().is_some_and(|block| block.minute < oldest) {
            self.blocks.pop_front();
        }
        if self.blocks.is_empty() {
            self.blocks = VecDeque::new();
        }
    }

    /// Passes each stored value of these seconds to `take`, the oldest first.
    pub(super) fn visit(&self, seconds: Range<u64>, mut take: impl FnMut(u64, &T)) {
        for block in &self.blocks {
            for (second, value) in (block.minute * BLOCK..).zip(&block.values) {
                if seconds.contains(&second) {
                    take(second, value);
                }
            }
        }
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<Block<T>>() + self.blocks.capacity() * size_of::<Box<Block<T>>>()
    }
}

impl Series<u32> {
    /// Adds a count to these seconds, evenly; the first seconds get the remainder.
    pub(super) fn spread(&mut self, count: u64, seconds: &Range<u64>) {
        let number = seconds.end.saturating_sub(seconds.start);
        if count == 0 || number == 0 {
            return;
        }
        let (each, more) = (count / number, count % number);
        for (index, second) in seconds.clone().enumerate() {
            let share = each + u64::from((index as u64) < more);
            if share > 0 {
                let value = self.at(second);
                *value = value.saturating_add(u32::try_from(share).unwrap_or(u32::MAX));
            }
        }
    }

    /// Adds the counts of the seconds from `start` to bins of `step` seconds each.
    pub(super) fn add_to(&self, bins: &mut [u64], start: u64, step: u64) {
        let end = start.saturating_add(step.saturating_mul(bins.len() as u64));
        self.visit(start..end, |second, count| {
            if let Some(bin) = usize::try_from((second - start) / step).ok().and_then(|bin| bins.get_mut(bin)) {
                *bin += u64::from(*count);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(series: &Series<u32>, start: u64, step: u64, bins: usize) -> Vec<u64> {
        let mut read = vec![0; bins];
        series.add_to(&mut read, start, step);
        read
    }

    #[test]
    fn seconds_are_read_in_steps() {
        let mut series = Series::default();
        for second in 1000..1200 {
            series.spread(second - 999, &(second..second + 1));
        }
        assert_eq!(read(&series, 999, 1, 4), [0, 1, 2, 3]);
        assert_eq!(read(&series, 1000, 2, 3), [3, 7, 11]);
        assert_eq!(read(&series, 1190, 10, 3), [(191..=200).sum(), 0, 0]);
    }

    #[test]
    fn a_count_is_spread_without_loss() {
        let mut series = Series::default();
        series.spread(8, &(58..61));
        series.spread(1, &(60..61));
        assert_eq!(read(&series, 58, 1, 3), [3, 3, 3]);
        series.spread(2, &(100..100));
        assert_eq!(read(&series, 90, 20, 1), [0]);
    }

    #[test]
    fn an_hour_without_traffic_takes_no_memory() {
        let mut series = Series::default();
        for second in 0..20_000 {
            series.spread(1, &(second..second + 1));
            series.expire(second);
            assert!(series.bytes() <= Series::<u32>::MAX_BYTES);
        }
        assert_eq!(read(&series, 20_000 - SPAN, SPAN, 1), [SPAN]);
        series.expire(20_000 + SPAN + 120);
        assert_eq!(series.bytes(), 0);
    }
}
