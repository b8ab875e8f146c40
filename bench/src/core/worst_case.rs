//! The longest time of a single decision, on a table with turnover: new keys all the time, old ones reset.
//!
//! Every decision is timed. On a shared machine the scheduler's interruptions are longer than anything a table does, so
//! the same loop runs several times, the smallest maximum is reported (interruptions only ever add), and a bare atomic
//! in the same loop shows the share of the machine.

use super::Length;
use super::setup::Rate;
use diana_bench::keys::{Random, mix};
use diana_bench::median;
use diana_bench::report::{Goal, Report, ns};
use diana_core::KeyedLimiter;
use governor::RateLimiter;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A key is full again 10 ms after one request, 20 ms after two.
const RATE: Rate = Rate { interval: Duration::from_millis(10), burst: 2 };
/// Keys are drawn from a window of this many, which moves by one every second decision: a key is in it for some 200,000
/// decisions, about 20 ms, and is drawn twice.
const WINDOW: usize = 100_000;
/// The number of decisions between two calls of governor's `retain_recent`: about one turnover of the window.
const RETAIN_EVERY: usize = 200_000;

/// The times of all decisions of one loop.
struct DecisionTimes {
    max: f64,
    p9999: f64,
    median: f64,
}

pub(crate) fn run(report: &mut Report, length: Length) {
    let (decisions, repeats) = match length {
        Length::Quick => (2_000_000, 1),
        Length::Full => (10_000_000, 5),
    };
    report.section(&format!("single decisions, {decisions} on a table with turnover (smallest of {repeats} runs)"));
    let mut times = vec![0; decisions];
    let (mut diana, mut swept, mut unswept, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let limiter = KeyedLimiter::<u64>::new(RATE.diana());
        diana.push(time_each(&mut times, |key, _| limiter.check(&key).is_granted()));
        let limiter = RateLimiter::keyed(RATE.governor());
        swept.push(time_each(&mut times, |key, step| {
            if step % RETAIN_EVERY == 0 {
                limiter.retain_recent();
            }
            limiter.check_key(&key).is_ok()
        }));
        let limiter = RateLimiter::keyed(RATE.governor());
        unswept.push(time_each(&mut times, |key, _| limiter.check_key(&key).is_ok()));
        let (limiter, slot) = (RATE.bare(), AtomicU64::new(0));
        bare.push(time_each(&mut times, |key, _| limiter.check(black_box(&slot)) || key == 0));
    }
    let peers = [
        ("governor, retain_recent in the decision that calls it", &swept),
        ("governor, never swept", &unswept),
        ("bare CAS (the share of the machine)", &bare),
    ];
    for (what, pick) in [
        ("  longest", (|run: &DecisionTimes| run.max) as fn(&DecisionTimes) -> f64),
        ("  one in 10,000 is longer than", |run| run.p9999),
        ("  median, with the timing itself", |run| run.median),
    ] {
        let of = |runs: &[DecisionTimes]| match what {
            "  longest" => runs.iter().map(pick).fold(f64::INFINITY, f64::min),
            _ => median(runs.iter().map(pick).collect()),
        };
        for (name, runs) in &peers {
            let peer = format!("{} {name}", ns(of(runs)));
            report.compare(what, ns(of(&diana)), peer, of(&diana) / of(runs), Goal::Information);
        }
    }
}

/// Runs and times one decision per element of `times`; `decide` gets the key and the number of the decision.
fn time_each(times: &mut [u64], decide: impl Fn(u64, usize) -> bool) -> DecisionTimes {
    let clock = quanta::Clock::new();
    let mut random = Random::new(3);
    let mut granted = 0;
    for (step, time) in times.iter_mut().enumerate() {
        let key = mix((step / 2 + random.below(WINDOW)) as u64);
        let start = clock.raw();
        granted += usize::from(black_box(decide(key, step)));
        *time = clock.raw() - start;
    }
    assert!(granted > 0);
    times.sort_unstable();
    let nanos = |index: usize| clock.delta_as_nanos(0, times[index]) as f64;
    let last = times.len() - 1;
    DecisionTimes { max: nanos(last), p9999: nanos(last - times.len() / 10_000), median: nanos(last / 2) }
}
