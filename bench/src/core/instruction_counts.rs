//! Instructions of one check, by callgrind: the single-threaded operations that the other files time.
//!
//! A million keys are not included: their cost is cache misses, not instructions.

use super::setup::{UNREACHED, USED_UP};
use super::{algorithms, direct, keyed, store};
use diana_bench::instructions;
use diana_bench::report::{Goal, Report};
use diana_bench::rounds::{Contender, Expect};

/// A group of contenders that are set up together.
#[derive(Clone, Copy)]
struct Group {
    /// Its name on the command line under valgrind.
    name: &'static str,
    title: &'static str,
    lines: &'static [Line],
}

/// Name of a line, contender, and its peers, each with its goal.
type Line = (&'static str, usize, &'static [(usize, Goal)]);

const INFORMATION: Goal = Goal::Information;
const ONE_LIMIT: &[Line] = &[
    ("  check", 0, &[(1, INFORMATION), (2, INFORMATION), (3, INFORMATION), (4, INFORMATION)]),
    ("  check, whole answer written out", 5, &[(6, INFORMATION)]),
];
const ONE_KEY: &[Line] = &[("  String", 0, &[(1, INFORMATION)]), ("  String, whole answer", 2, &[(3, INFORMATION)])];

const GROUPS: [Group; 5] = [
    Group { name: "limit-granted", title: "one limit, granted", lines: ONE_LIMIT },
    Group { name: "limit-denied", title: "one limit, denied", lines: ONE_LIMIT },
    Group { name: "key-granted", title: "one key, granted", lines: ONE_KEY },
    Group { name: "key-denied", title: "one key, denied", lines: ONE_KEY },
    Group {
        name: "store",
        title: "the in-process store, 1,000 keys, granted",
        lines: &[
            ("  decide, 1 ask", 1, &[(0, INFORMATION)]),
            // No goal: each key has its own hash, lock and lookup, so little is done once for all three.
            ("  decide, 3 limits, 3 keys", 2, &[(1, INFORMATION)]),
            ("  decide, 3 limits, 1 key", 3, &[(1, Goal::AtMost(2.5))]),
        ],
    },
];
const ALGORITHMS: &str = "algorithms";

/// Calls `then` with the contenders of a group, and the expected results of their checks.
fn with_group<T>(name: &str, then: impl FnOnce(Vec<Contender<'_>>, Expect) -> T) -> T {
    match name {
        "limit-granted" => direct::with_contenders(UNREACHED, |contenders| then(contenders, Expect::Granted)),
        "limit-denied" => direct::with_contenders(USED_UP, |contenders| then(contenders, Expect::Denied)),
        "key-granted" => keyed::with_one_key(UNREACHED, |contenders| then(contenders, Expect::Granted)),
        "key-denied" => keyed::with_one_key(USED_UP, |contenders| then(contenders, Expect::Denied)),
        "store" => store::with_contenders(|contenders| then(contenders, Expect::Granted)),
        ALGORITHMS => algorithms::with_contenders(|contenders| then(contenders, Expect::Granted)),
        other => panic!("unknown group `{other}`"),
    }
}

/// Runs one contender of a group under valgrind.
pub(crate) fn run_counted(what: &[String]) {
    let index = what[1].parse().unwrap();
    with_group(&what[0], |mut contenders, expect| instructions::run_contender(contenders.swap_remove(index), expect));
}

pub(crate) fn run(report: &mut Report) {
    if let Err(problem) = sections(report) {
        report.figure("  not counted", String::new(), problem);
    }
}

fn sections(report: &mut Report) -> Result<(), String> {
    for Group { name, title, lines } in GROUPS {
        report.section(&format!("instructions (callgrind): {title}"));
        let names = names(name);
        for (what, own, peers) in lines {
            let count = count(name, *own)?;
            for (peer_index, goal) in *peers {
                let theirs = self::count(name, *peer_index)?;
                let peer = format!("{} {theirs:.0}", names[*peer_index]);
                report.compare(what, format!("{count:.0}"), peer, count / theirs, *goal);
            }
        }
    }
    report.section("instructions (callgrind): every algorithm, 1,000 keys, granted");
    for (index, name) in names(ALGORITHMS).iter().enumerate() {
        report.figure(&format!("  {name}"), format!("{:.0}", count(ALGORITHMS, index)?), String::new());
    }
    Ok(())
}

/// Returns the names of a group's contenders.
fn names(group: &str) -> Vec<&'static str> {
    with_group(group, |contenders, _| contenders.iter().map(Contender::name).collect())
}

fn count(group: &str, index: usize) -> Result<f64, String> {
    instructions::count(&[group, &index.to_string()])
}
