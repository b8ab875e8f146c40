//! Blocking iterators, readers and writers are as even as the async ones. Waiting advances the clock: the values are
//! exact.

use crate::pace_support::{bytes, quota};
use diana::pace::{IteratorExt, Throttled};
use diana::{Clock, LeakyBucket, Limiter, ManualClock};
use std::io::{self, Read, Write};
use std::sync::Arc;

#[test]
fn an_iterator_passes_the_burst_immediately_and_then_one_per_interval() {
    let clock = ManualClock::new();
    let limiter = Limiter::new(quota(10, 2)).with_clock(clock.clone());
    let items = [1, 1, 1, 7, 0].into_iter().rate_limited(limiter).cost(|cost| *cost);
    let passed: Vec<_> = items.map(|cost| (clock.now().as_nanos() / 1_000_000, cost)).collect();
    assert_eq!(passed, [(0, 1), (0, 1), (100, 1), (800, 7), (800, 0)]);
}

#[test]
fn a_bucket_without_a_queue_is_waited_for_on_the_limiters_clock() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_algorithm(LeakyBucket::new(quota(10, 1))).with_clock(clock.clone());
    let items = (1..=4).rate_limited(limiter);
    let passed: Vec<_> = items.map(|item| (clock.now().as_nanos() / 1_000_000, item)).collect();
    assert_eq!(passed, [(0, 1), (100, 2), (200, 3), (300, 4)]);
}

/// A blocking peer that accepts at most so many bytes at a time.
struct ShortWriter(usize, Vec<u8>);

impl Write for ShortWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.1.write(&from[..from.len().min(self.0)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_blocking_reader_is_even() {
    let (clock, input) = (ManualClock::new(), bytes(190));
    let mut reader = Throttled::new(&input[..]).reads(Limiter::new(quota(1_000, 100)).with_clock(clock.clone()));
    let (mut buffer, mut all, mut chunks) = ([0; 500], Vec::new(), Vec::new());
    loop {
        let length = Read::read(&mut reader, &mut buffer).unwrap();
        if length == 0 {
            break;
        }
        all.extend_from_slice(&buffer[..length]);
        chunks.push((clock.now().as_nanos() / 1_000_000, length));
    }
    assert_eq!(all, input);
    assert_eq!(chunks, [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)]);
}

#[test]
fn a_blocking_writer_is_charged_for_transferred_bytes() {
    let (clock, input) = (ManualClock::new(), bytes(190));
    let budget = Arc::new(Limiter::new(quota(1_000, 100)).with_clock(clock.clone()));
    let mut writer = Throttled::new(ShortWriter(7, Vec::new())).writes(Arc::clone(&budget));
    assert_eq!(Write::write(&mut writer, &input).unwrap(), 7);
    assert_eq!(budget.status().remaining, 93);
    Write::write_all(&mut writer, &input[7..]).unwrap();
    assert_eq!(writer.get_ref().1, input);
    // However they are split, 100 bytes pass immediately and the last of the other 90 at 90 ms.
    assert_eq!(clock.now().as_nanos() / 1_000_000, 90);
}
