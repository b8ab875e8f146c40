//! Two threads: on separate keys, without contention, and on one key, with full contention.

use super::bare_cas::BareTable;
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

/// Bare CAS has the slots of the threads on separate cache lines. A table can't: its entries are in hash order, so that
/// different keys share a line, which travels between the cores, unless each thread has one key only. [`BareTable`] has
/// this floor, with locks and without.
fn different_keys(report: &mut Report, effort: Effort, each: usize) {
    let keys: Vec<String> = (0..2 * KEYS).map(user).collect();
    let slots: Vec<AtomicU64> = (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect();
    let mut scaling: [Vec<f64>; 5] = Default::default();
    let mut both: [Vec<f64>; 5] = Default::default();
    for _ in 0..effort.rounds {
        // Recreated in each round, since keys are assigned to shards by hash: in one round in 64 both threads' keys
        // share one.
        let (diana, governor) = (KeyedLimiter::<str>::new(UNREACHED.diana()), RateLimiter::keyed(UNREACHED.governor()));
        let (bare, table) = (UNREACHED.bare(), BareTable::new(&keys));
        slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        let measured = [
            two_threads(effort, each, |key| diana.check(&keys[key]).is_granted()),
            two_threads(effort, each, |key| bare.check(&slots[key])),
            two_threads(effort, each, |key| table.check(&bare, &keys[key], key)),
            two_threads(effort, each, |key| table.check_locked(&bare, &keys[key], key)),
            two_threads(effort, each, |key| governor.check_key(&keys[key]).is_ok()),
        ];
        for (index, (two, one)) in measured.into_iter().enumerate() {
            scaling[index].push(two / one);
            both[index].push(two);
        }
    }
    let [ours, peers @ ..] = &scaling;
    let times = |scaling: &[f64]| format!("x {:.2}", median(scaling.to_vec()));
    let ratio = |peer: &[f64]| median(ours.iter().zip(peer).map(|(a, b)| a / b).collect());
    let what = format!("  different keys, {each} each: rate of 2 threads relative to 1");
    let goals = match each {
        1 => [Goal::AtLeast(0.85), Goal::Information, Goal::Information, Goal::Information],
        // The goal is the floor with locks: no table of 16-byte entries reaches bare CAS.
        _ => [Goal::Information, Goal::Information, Goal::AtLeast(0.85), Goal::Information],
    };
    let names = ["bare CAS", "hash and CAS in hash order", "hash and lock in hash order", "governor"];
    for ((name, peer), goal) in names.iter().zip(peers).zip(goals) {
        report.compare(&what, times(ours), format!("{name} {}", times(peer)), ratio(peer), goal);
    }
    if median(peers[0].clone()) < 1.8 {
        let remark = "bare CAS should double: the second core was in use, so ignore the lines on threads";
        report.figure("  (disturbed)", String::new(), remark.to_owned());
    }
    let millions = |index: usize| format!("{:.1} M/s", median(both[index].clone()) / 1e6);
    let what = format!("  different keys, {each} each: checks a second");
    for (index, name) in [(3, names[2]), (4, names[3])] {
        let ratio = median(both[0].iter().zip(&both[index]).map(|(a, b)| a / b).collect());
        report.compare(&what, millions(0), format!("{name} {}", millions(index)), ratio, Goal::Information);
    }
}

/// Returns the checks per second of two threads with `each` keys of their own, and of one of them alone. A check gets the
/// index of its key.
fn two_threads(effort: Effort, each: usize, check: impl Fn(usize) -> bool + Sync) -> (f64, f64) {
    let check = |thread: usize, step: usize| check(thread * KEYS + step % each);
    (rate(2, effort.slice, check), rate(1, effort.slice, check))
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
