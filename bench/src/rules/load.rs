//! The time to load ten thousand rules.

use super::setup::{engine, file, text};
use diana_bench::report::{Goal, Report, ns};
use diana_bench::{Length, median, now};
use std::hint::black_box;

const RULES: usize = 10_000;
/// The maximum, in nanoseconds.
const GOAL: f64 = 0.5e9;

pub(crate) fn run(report: &mut Report, length: Length) {
    let times = match length {
        Length::Quick => 3,
        Length::Full => 11,
    };
    report.section("loading 10,000 rules");
    let text = text(RULES);
    let timed = |work: &mut dyn FnMut()| {
        let each = (0..times).map(|_| {
            let began = now();
            work();
            began.elapsed().as_nanos() as f64
        });
        median(each.collect())
    };
    let read = timed(&mut || drop(black_box(file(&text))));
    let read_file = file(&text);
    let running = engine(1);
    let set = timed(&mut || running.set_rules(&read_file));
    report.figure("  reading and checking the file", ns(read), format!("{} KiB of YAML", text.len() >> 10));
    report.figure("  putting it in force", ns(set), String::new());
    report.compare("  both", ns(read + set), "goal 500 ms".to_owned(), (read + set) / GOAL, Goal::AtMost(1.0));
}
