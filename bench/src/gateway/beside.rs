//! Diana beside nginx, by what becomes of the requests and how they come.

use crate::options::Options;
use crate::setup::{SAME_AS_NGINX, Stage};
use crate::turns::{Figure, Keeping, Load, Measured, measure};
use diana_bench::report::{Goal, Report, ns};

/// Name, title, load, and what the CPU of a request should be beside nginx's.
const SUBJECTS: &[(&str, &str, Load, Goal)] = &[
    ("forward", "all forwarded, 64 connections", Load::FORWARD, Goal::AtMost(1.0)),
    ("half", "half refused, half forwarded, 64 connections", Load::HALF, Goal::AtMost(1.0)),
    ("refuse", "all refused, 64 connections", Load::REFUSE, Goal::AtMost(1.0)),
    (
        "close-forward",
        "a connection for each request (Connection: close), all forwarded",
        Load { keeping: Keeping::Closed, ..Load::FORWARD },
        Goal::Information,
    ),
    (
        "close-refuse",
        "a connection for each request (Connection: close), all refused",
        Load { keeping: Keeping::Closed, ..Load::REFUSE },
        Goal::Information,
    ),
    (
        "many-forward",
        "all forwarded, 1,000 connections",
        Load { connections: 1_000, ..Load::FORWARD },
        Goal::Information,
    ),
    ("many-refuse", "all refused, 1,000 connections", Load { connections: 1_000, ..Load::REFUSE }, Goal::Information),
];

pub(crate) fn run(report: &mut Report, stage: &Stage, options: &Options) {
    if !SUBJECTS.iter().any(|(name, ..)| options.wants(name)) {
        return;
    }
    let (diana, nginx) = (stage.diana("diana", "", SAME_AS_NGINX), stage.nginx());
    for &(name, title, load, goal) in SUBJECTS {
        if options.wants(name) {
            report.section(title);
            let measured = measure(options.effort, load, &[&diana, &nginx]);
            lines(report, &measured, (0, 1), "nginx", goal);
        }
    }
}

/// The four figures of one gateway beside a peer's.
pub(crate) fn lines(report: &mut Report, measured: &Measured, (own, peer): (usize, usize), name: &str, goal: Goal) {
    let rate = |rate: f64| format!("{:.1} k/s", rate / 1e3);
    let figures: [(_, _, fn(f64) -> String, _); 4] = [
        ("  CPU a request", Figure::Cpu, ns, goal),
        ("  requests a second", Figure::Rate, rate, Goal::Information),
        ("  p50", Figure::P50, ns, Goal::Information),
        ("  p99", Figure::P99, ns, Goal::Information),
    ];
    for (what, figure, show, goal) in figures {
        let (ours, theirs) = (measured.median(own, figure), measured.median(peer, figure));
        let theirs = format!("{name} {}", show(theirs));
        report.compare(what, show(ours), theirs, measured.ratio(own, peer, figure), goal);
    }
}
