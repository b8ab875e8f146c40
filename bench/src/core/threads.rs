//! Two threads: on separate keys, without contention, and on one key, with full contention.

use super::setup::UNREACHED;
use diana_bench::keys::user;
use diana_bench::report::{Goal, Report};
use diana_bench::rounds::Effort;
use diana_bench::{median, now};
use diana_core::{KeyedLimiter, Limiter};
use governor::RateLimiter;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The keys of each thread, where each has many.
const KEYS: usize = 1_024;
/// Operations between two checks of the clock.
const STRIDE: usize = 256;

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("two threads");
    different_keys(report, effort, 1);
    different_keys(report, effort, KEYS);
    one_key(report, effort);
    one_limit(report, effort);
}

/// The floor has the slots of the threads on separate cache lines. A table with locks can't: both threads use every
/// shard, so its lines travel between the cores, unless each thread has one key only.
fn different_keys(report: &mut Report, effort: Effort, each: usize) {
    let keys: Vec<String> = (0..2 * KEYS).map(user).collect();
    let slots: Vec<AtomicU64> = (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect();
    let key_index = |thread: usize, step: usize| thread * KEYS + step % each;
    let (mut gain, mut their_gain, mut floor_gain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        // Recreated in each round, since keys are assigned to shards by hash: in one round in 64 both threads' keys
        // share one.
        let (diana, governor) = (KeyedLimiter::<str>::new(UNREACHED.diana()), RateLimiter::keyed(UNREACHED.governor()));
        let bare = UNREACHED.bare();
        slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        let ours = |thread: usize, step: usize| diana.check(&keys[key_index(thread, step)]).is_granted();
        let theirs = |thread: usize, step: usize| governor.check_key(&keys[key_index(thread, step)]).is_ok();
        let floor = |thread: usize, step: usize| bare.check(&slots[key_index(thread, step)]);
        gain.push(rate(2, effort.slice, ours) / rate(1, effort.slice, ours));
        floor_gain.push(rate(2, effort.slice, floor) / rate(1, effort.slice, floor));
        their_gain.push(rate(2, effort.slice, theirs) / rate(1, effort.slice, theirs));
    }
    let within = |peer: &[f64]| median(gain.iter().zip(peer).map(|(a, b)| a / b).collect());
    let times = |gain: &[f64]| format!("x {:.2}", median(gain.to_vec()));
    let what = format!("  different keys, {each} each: rate of 2 threads relative to 1");
    let peer = format!("bare CAS {}", times(&floor_gain));
    report.compare(&what, times(&gain), peer, within(&floor_gain), Goal::AtLeast(0.9));
    if median(floor_gain.clone()) < 1.8 {
        let remark = "bare CAS should double: the second core was in use, so ignore the lines on threads";
        report.figure("  (disturbed)", String::new(), remark.to_owned());
    }
    let peer = format!("governor {}", times(&their_gain));
    report.compare(&what, times(&gain), peer, within(&their_gain), Goal::Information);
}

fn one_key(report: &mut Report, effort: Effort) {
    let key = user(7);
    let (diana, governor) = (KeyedLimiter::<str>::new(UNREACHED.diana()), RateLimiter::keyed(UNREACHED.governor()));
    let ours = |_, _| diana.check(black_box(&key)).is_granted();
    let theirs = |_, _| governor.check_key(black_box(&key)).is_ok();
    versus(report, "  one key, checks a second", "governor", effort, ours, theirs, Goal::AtLeast(2.0));
}

fn one_limit(report: &mut Report, effort: Effort) {
    let (diana, governor) = (Limiter::new(UNREACHED.diana()), RateLimiter::direct(UNREACHED.governor()));
    let (bare, slot) = (UNREACHED.bare(), AtomicU64::new(0));
    let ours = |_, _| black_box(&diana).check().is_granted();
    let theirs = |_, _| black_box(&governor).check().is_ok();
    let floor = |_, _| bare.check(&slot);
    let what = "  one limit without keys, checks a second";
    versus(report, what, "governor", effort, ours, theirs, Goal::Information);
    versus(report, what, "bare CAS", effort, ours, floor, Goal::Information);
}

fn versus(
    report: &mut Report,
    what: &str,
    peer: &str,
    effort: Effort,
    ours: impl Fn(usize, usize) -> bool + Sync,
    theirs: impl Fn(usize, usize) -> bool + Sync,
    goal: Goal,
) {
    let rounds: Vec<(f64, f64)> =
        (0..effort.rounds).map(|_| (rate(2, effort.slice, &ours), rate(2, effort.slice, &theirs))).collect();
    let millions = |rates: Vec<f64>| format!("{:.1} M/s", median(rates) / 1e6);
    let diana = millions(rounds.iter().map(|round| round.0).collect());
    let peer = format!("{peer} {}", millions(rounds.iter().map(|round| round.1).collect()));
    report.compare(what, diana, peer, median(rounds.iter().map(|(a, b)| a / b).collect()), goal);
}

/// Returns checks per second, over all of `threads`. Each check gets its thread and the number of checks before it in
/// that thread.
fn rate(threads: usize, slice: Duration, check: impl Fn(usize, usize) -> bool + Sync) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads));
    let work = &|thread: usize| {
        start.wait();
        let (started, mut done, mut granted) = (now(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            for step in done..done + STRIDE {
                granted += usize::from(check(thread, step));
            }
            done += STRIDE;
            // The first thread reads the clock; one reading in 256 checks costs nothing.
            if thread == 0 && started.elapsed() >= slice {
                stop.store(true, Ordering::Relaxed);
            }
        }
        assert_eq!(granted, done, "every check must be granted");
        done as f64 / started.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let first = work(0);
        first + others.into_iter().map(|thread| thread.join().unwrap()).sum::<f64>()
    })
}
