//! The time to load ten thousand rules.

use diana_bench::report::{Goal, Report, ns};
use diana_bench::rule_sets::{engine, file, text};
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
            let start = now();
            work();
            start.elapsed().as_nanos() as f64
        });
        median(each.collect())
    };
    let parse_time = timed(&mut || drop(black_box(file(&text))));
    let parsed = file(&text);
    let running = engine(1);
    let apply_time = timed(&mut || running.set_rules(&parsed));
    report.figure("  parsing and checking the file", ns(parse_time), format!("{} KiB of YAML", text.len() >> 10));
    report.figure("  applying the rules", ns(apply_time), String::new());
    report.compare(
        "  both",
        ns(parse_time + apply_time),
        "goal 500 ms".to_owned(),
        (parse_time + apply_time) / GOAL,
        Goal::AtMost(1.0),
    );
}
