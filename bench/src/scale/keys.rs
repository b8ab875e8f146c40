//! One to ten million keys: bytes of each, instructions and time of a decision.

use crate::Tables;
use crate::steps::{Bound, Claim, Steps};
use diana_bench::keys::{Random, mix};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_bench::{Length, alloc, instructions};
use diana_core::{KeyedLimiter, Quota, TableOptions, TokenBucket};
use std::hint::black_box;
use std::time::Duration;

/// From this number of keys on, they are larger than the caches of a core.
const MISSING: usize = 1_000_000;

pub(crate) fn run(tables: &mut Tables, length: Length) {
    let numbers: &[usize] = match length {
        Length::Quick => &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
        Length::Full => &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    };
    time_and_memory(tables, numbers, length);
    let steps = Steps::new("keys: instructions of a decision, keys at random (callgrind)", "keys", "instructions");
    let text = "a decision takes about as many instructions with a million keys as with one";
    // Under valgrind ten million keys take minutes to create.
    let counted: Vec<usize> = numbers.iter().copied().filter(|&number| number <= 1_000_000).collect();
    tables.push_instructions(steps, "keys", &counted, &Claim { text, from: 1.0, bound: Bound::Slope(0.02) });
}

fn time_and_memory(tables: &mut Tables, numbers: &[usize], length: Length) {
    let mut bytes = Steps::new("keys: bytes of each, as requested from the allocator", "keys", "bytes");
    let mut time = Steps::new("keys: time of a decision, keys at random", "keys", "ns");
    let mut first = None;
    for &number in numbers {
        let before = alloc::live();
        let limiter = limiter(number);
        bytes.push(number, (alloc::live() - before) as f64 / number as f64);
        // As much memory as the keys take, read at random: one cache miss, whatever it costs on this machine. Each read
        // depends on the one before, so that none is made ahead of its turn.
        let memory = black_box(vec![1_u64; ((alloc::live() - before) / 8).max(1)]);
        let (mut random, mut random_read, mut last) = (Random::new(1), Random::new(2), 1);
        let contenders = vec![
            Contender::new("Diana", || limiter.check(&mix(random.below(number) as u64)).is_granted()),
            Contender::new("a read", || {
                last = memory[random_read.below(memory.len()) ^ (last ^ 1) as usize];
                last == 1
            }),
        ];
        // Slices long enough to fill the caches again after the other contender.
        let times = measure(Effort::of(length).longer(3), Expect::MostlyGranted, contenders);
        assert_eq!(limiter.len(), number, "no key may be dropped");
        let (own, read) = (times.ns(0), times.ns(1));
        let (first, first_read) = *first.get_or_insert((own, read));
        let misses = (own - first) / (read - first_read);
        let remark = format!("a random read in as much memory {read:.1} ns");
        let growth =
            if number < MISSING { String::new() } else { format!("; slower than one key by {misses:.1} such reads") };
        time.push_with(number, own, format!("{remark}{growth}"));
    }
    let text = "some 20 bytes a key, however many there are (docs/library.md)";
    tables.push(&bytes, &Claim { text, from: 100_000.0, bound: Bound::Cost(24.0) });
    let text = "it slows by cache misses only: the instructions below do not grow";
    tables.push(&time, &Claim { text, from: 1.0, bound: Bound::None });
}

/// Returns a limiter with this number of keys, none of which recovers within a run.
fn limiter(number: usize) -> KeyedLimiter<u64> {
    // A few keys are asked more often than an hourly quota could have permits; they are never idle for a millisecond.
    let (interval, burst) = if number < 1_000 {
        (Duration::from_millis(1), u64::from(u32::MAX))
    } else {
        (Duration::from_secs(3_600), 1_000_000)
    };
    let quota = Quota::new(1, interval).unwrap().with_burst(burst).unwrap();
    let options = TableOptions::default().memory(1 << 40);
    let limiter = KeyedLimiter::with_options(TokenBucket::new(quota), options);
    for index in 0..number as u64 {
        assert!(limiter.check(&mix(index)).is_granted());
    }
    limiter
}

/// Runs under valgrind.
pub(crate) fn counted(number: usize) {
    let limiter = limiter(number);
    let mut random = Random::new(1);
    let check = || limiter.check(&mix(random.below(number) as u64)).is_granted();
    instructions::run_contender(Contender::new("Diana", check), Expect::Granted);
}
