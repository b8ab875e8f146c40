//! `cargo xtask bench macros [--quick]`: empty functions with a limit attribute, compared with the same check written
//! by hand.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]

mod attributed;
mod hand_written;

use attributed::in_scope;
use diana_bench::report::{Goal, Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_bench::{instructions, length};
use std::hint::black_box;

/// A compared pair: by attribute, and by hand.
struct Pair {
    name: &'static str,
    what: &'static str,
    peer: &'static str,
    attributed: fn() -> bool,
    by_hand: fn() -> bool,
    goal: Goal,
}

const USER: &str = "account-1234567";
const NUMBER: u64 = 1_234_567;
/// The maximum cost of an attribute, relative to the hand-written check.
const GOAL: Goal = Goal::AtMost(1.2);

const PAIRS: [Pair; 7] = [
    Pair {
        name: "count",
        what: "  count_limit, by a text among the arguments",
        peer: "KeyedLimiter, FixedWindow",
        attributed: || attributed::counted(black_box(USER)).is_ok(),
        by_hand: || hand_written::counted(black_box(USER)).is_ok(),
        goal: GOAL,
    },
    Pair {
        name: "rate",
        what: "  rate_limit, by a text among the arguments",
        peer: "KeyedLimiter, TokenBucket",
        attributed: || attributed::paced(black_box(USER)).is_ok(),
        by_hand: || hand_written::paced(black_box(USER)).is_ok(),
        goal: GOAL,
    },
    Pair {
        name: "number",
        what: "  count_limit, by a number among the arguments",
        peer: "KeyedLimiter of numbers",
        attributed: || attributed::numbered(black_box(NUMBER)).is_ok(),
        by_hand: || hand_written::numbered(black_box(NUMBER)).is_ok(),
        goal: GOAL,
    },
    Pair {
        name: "user",
        what: "  count_limit, by the caller's user",
        peer: "KeyedLimiter, FixedWindow",
        attributed: || in_scope(attributed::by_user).is_ok(),
        by_hand: || in_scope(|| hand_written::counted(black_box(USER))).is_ok(),
        goal: GOAL,
    },
    Pair {
        name: "ip",
        what: "  count_limit, by the caller's address",
        peer: "KeyedLimiter of addresses",
        attributed: || in_scope(attributed::by_ip).is_ok(),
        by_hand: || in_scope(|| hand_written::addressed(black_box(attributed::ADDRESS))).is_ok(),
        goal: GOAL,
    },
    Pair {
        name: "method",
        what: "  count_limit, all calls together",
        peer: "Limiter, FixedWindow",
        attributed: || attributed::together().is_ok(),
        by_hand: || hand_written::together().is_ok(),
        goal: Goal::Information,
    },
    Pair {
        name: "rule",
        what: "  limited, by a text among the arguments",
        peer: "Engine::decide_by",
        attributed: || attributed::by_rule(black_box(USER)).is_ok(),
        by_hand: || hand_written::by_rule(black_box(USER)).is_ok(),
        goal: Goal::Information,
    },
];

fn main() {
    attributed::install();
    if let Some(what) = instructions::requested() {
        let pair = PAIRS.iter().find(|pair| pair.name == what[0]).unwrap();
        return instructions::run(if what[1] == "by-hand" { &pair.by_hand } else { &pair.attributed });
    }
    let Some(length) = length("macros") else { return };
    let effort = Effort::of(length);
    let mut report = Report::default();
    time(&mut report, effort);
    counted(&mut report);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; {} rounds of {:?} slices.", effort.rounds, effort.slice);
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!("times.\n");
    report.print();
}

fn time(report: &mut Report, effort: Effort) {
    report.section("a call of a function that does nothing");
    for Pair { what, peer, attributed, by_hand, goal, .. } in &PAIRS {
        let contenders = vec![Contender::new("attributed", *attributed), Contender::new("by hand", *by_hand)];
        let times = measure(effort, Expect::Granted, contenders);
        report.compare(what, ns(times.ns(0)), format!("{peer} {}", ns(times.ns(1))), times.ratio(0, 1), *goal);
    }
}

fn counted(report: &mut Report) {
    report.section("instructions of such a call (callgrind)");
    for Pair { name, what, peer, goal, .. } in &PAIRS {
        let counts = instructions::count(&[name, "attributed"])
            .and_then(|own| Ok((own, instructions::count(&[name, "by-hand"])?)));
        match counts {
            Ok((own, theirs)) => {
                report.compare(what, format!("{own:.0}"), format!("{peer} {theirs:.0}"), own / theirs, *goal);
            }
            Err(problem) => return report.figure("  not counted", String::new(), problem),
        }
    }
}
