//! Bytes per key, as the allocator counts them, while a table grows key by key.
//!
//! The result is the average over many sizes: a table that doubles looks good just before and bad just after.

use super::Length;
use super::setup::NEVER_REFILLED;
use diana_bench::alloc::live;
use diana_bench::keys::user;
use diana_bench::report::{Goal, Report};
use diana_core::{KeyedLimiter, Quota, TableOptions, TokenBucket};
use governor::RateLimiter;

/// The sizes that are averaged: half a million to two million.
const FROM: usize = 500_000;
const TO: usize = 2_000_000;
const STEP: usize = 100_000;

/// Bytes per key at each size.
struct Growth(Vec<(usize, f64)>);

impl Growth {
    fn average(&self) -> f64 {
        let sizes: Vec<f64> = self.0.iter().filter(|(keys, _)| *keys <= TO).map(|(_, bytes)| *bytes).collect();
        sizes.iter().sum::<f64>() / sizes.len() as f64
    }

    fn worst(&self) -> f64 {
        self.0.iter().filter(|(keys, _)| *keys <= TO).map(|(_, bytes)| *bytes).fold(0.0, f64::max)
    }

    fn at(&self, keys: usize) -> Option<f64> {
        self.0.iter().find(|(size, _)| *size == keys).map(|(_, bytes)| *bytes)
    }
}

pub(crate) fn run(report: &mut Report, length: Length) {
    report.section("bytes per key, String keys of 12 characters, as requested from the allocator");
    let sizes: Vec<usize> = match length {
        Length::Quick => (FROM..=TO).step_by(STEP).collect(),
        Length::Full => (FROM..=TO).step_by(STEP).chain([5_000_000, 10_000_000]).collect(),
    };
    let whole = of_diana(NEVER_REFILLED.diana(), &sizes);
    // 7 per hour: an interval that is not a whole number of nanoseconds takes a wider state.
    let fraction = of_diana(Quota::per_hour(7).unwrap().with_burst(1_000).unwrap(), &sizes);
    let governor = of_governor(&sizes);

    let bytes = |bytes: f64| format!("{bytes:.1} B");
    let average = "  0.5 to 2 million, average of 16 sizes";
    let entry = |entry: f64| format!("entry of {entry} B");
    report.compare(average, bytes(whole.average()), entry(16.0), whole.average() / 16.0, Goal::AtMost(1.5));
    let what = "  the same, quota of 7/h (wide state)";
    report.compare(what, bytes(fraction.average()), entry(24.0), fraction.average() / 24.0, Goal::AtMost(1.5));
    let what = "  the worst size";
    report.compare(what, bytes(whole.worst()), entry(16.0), whole.worst() / 16.0, Goal::Information);
    let peer = format!("governor {}", bytes(governor.average()));
    report.compare(average, bytes(whole.average()), peer, whole.average() / governor.average(), Goal::AtMost(0.333));
    for size in [5_000_000, 10_000_000] {
        let (Some(ours), Some(theirs)) = (whole.at(size), governor.at(size)) else { continue };
        let what = format!("  {} million", size / 1_000_000);
        let peer = format!("governor {}", bytes(theirs));
        report.compare(&what, bytes(ours), peer, ours / theirs, Goal::AtMost(0.333));
        let what = format!("  {} million, compared with the average above", size / 1_000_000);
        let peer = format!("Diana {}", bytes(whole.average()));
        report.compare(&what, bytes(ours), peer, ours / whole.average(), Goal::AtMost(1.1));
    }
}

fn of_diana(quota: Quota, sizes: &[usize]) -> Growth {
    let before = live();
    let options = TableOptions::default().memory(1 << 40);
    let limiter = KeyedLimiter::<str>::with_options(TokenBucket::new(quota), options);
    let growth = grow(sizes, before, |key| limiter.check(&key).is_granted());
    assert_eq!(limiter.len(), sizes[sizes.len() - 1], "no key may be dropped");
    growth
}

fn of_governor(sizes: &[usize]) -> Growth {
    let before = live();
    let limiter = RateLimiter::keyed(NEVER_REFILLED.governor());
    let growth = grow(sizes, before, |key| limiter.check_key(&key).is_ok());
    assert_eq!(limiter.len(), sizes[sizes.len() - 1], "no key may be dropped");
    growth
}

fn grow(sizes: &[usize], before: usize, check: impl Fn(String) -> bool) -> Growth {
    let mut growth = Growth(Vec::with_capacity(sizes.len()));
    let mut keys = 0;
    // Subtracts the memory of the measurements themselves.
    let before = before + sizes.len() * size_of::<(usize, f64)>();
    for size in sizes {
        for index in keys..*size {
            assert!(check(user(index)));
        }
        keys = *size;
        growth.0.push((keys, (live() - before) as f64 / keys as f64));
    }
    growth
}
