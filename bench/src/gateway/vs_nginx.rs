//! Diana compared with nginx, by outcome and type of load.

use crate::measure::{ConnReuse, Figure, Load, Measured, measure};
use crate::options::Options;
use crate::setup::{SAME_AS_NGINX, Stage};
use diana_bench::report::{Goal, Report};

/// Name, title, load, and the goal for the CPU per request relative to nginx's.
const SUBJECTS: &[(&str, &str, Load, Goal)] = &[
    ("forward", "all forwarded, 64 connections", Load::FORWARD, Goal::AtMost(0.92)),
    ("half", "half denied, half forwarded, 64 connections", Load::HALF, Goal::AtMost(0.92)),
    ("refuse", "all denied, 64 connections", Load::DENY, Goal::AtMost(0.95)),
    (
        "close-forward",
        "a connection for each request (Connection: close), all forwarded",
        Load { reuse: ConnReuse::Closed, ..Load::FORWARD },
        Goal::AtMost(1.05),
    ),
    (
        "close-refuse",
        "a connection for each request (Connection: close), all denied",
        Load { reuse: ConnReuse::Closed, ..Load::DENY },
        Goal::AtMost(1.05),
    ),
    (
        "many-forward",
        "all forwarded, 1,000 connections",
        Load { connections: 1_000, ..Load::FORWARD },
        Goal::Information,
    ),
    ("many-refuse", "all denied, 1,000 connections", Load { connections: 1_000, ..Load::DENY }, Goal::Information),
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

/// Reports the four figures of one gateway compared with a peer's.
pub(crate) fn lines(report: &mut Report, measured: &Measured, (own, peer): (usize, usize), name: &str, goal: Goal) {
    for figure in [Figure::Cpu, Figure::Rate, Figure::P50, Figure::P99] {
        let [ours, theirs] = [own, peer].map(|gateway| figure.show(measured.median(gateway, figure)));
        let goal = if figure == Figure::Cpu { goal } else { Goal::Information };
        let ratio = measured.ratio(own, peer, figure);
        report.compare(figure.name(), ours, format!("{name} {theirs}"), ratio, goal);
    }
}
