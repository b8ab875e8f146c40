//! Descriptions of all that limits requests: the algorithms describe themselves.
//!
//! A bucket allows what it has saved, and meanwhile its rate: at most its capacity and `rate × t` in any time `t`. Both
//! numbers are shown, since `5 a minute` alone would hide that ten may pass within a minute.

use crate::limit::LimitRule;
use crate::rule::{Bandwidth, Bodies, Overload, Rule};
use crate::words::{byte_rate, bytes};

/// Describes all limits of a rule.
pub(super) fn of_rule(rule: &Rule) -> String {
    let mut parts = rule.limits.iter().map(LimitRule::describe).collect::<Vec<_>>();
    if rule.adaptive {
        parts.push("an adaptive number at a time, by response latency".to_owned());
    }
    parts.extend(rule.bandwidth.as_ref().map(bandwidth));
    parts.extend(rule.load.as_ref().map(load));
    if parts.is_empty() {
        return "no limit, only denied keys".to_owned();
    }
    parts.join(", and ")
}

/// Returns the algorithms that never allow twice as many across an edge as a limit does; `None` if it never does.
pub(super) fn without_edge(limit: &LimitRule) -> Option<&'static str> {
    let doubles = limit.configured.properties().doubles_at_edges;
    doubles.then_some("`algorithm: sliding_log`, or `sliding_window` with `edge: strict`")
}

fn bandwidth(bandwidth: &Bandwidth) -> String {
    let Bandwidth { rate, after, of } = bandwidth;
    let of = match of {
        Bodies::Response => "responses",
        Bodies::Request => "bodies of requests",
        Bodies::Both => "requests and responses together",
    };
    let burst = if rate.burst() == Bandwidth::chunk_of(*rate) {
        String::new()
    } else {
        format!(" ({} at once)", bytes(rate.burst()))
    };
    let after = if *after == 0 { String::new() } else { format!(", after the first {} of each", bytes(*after)) };
    format!("{of} at {}{burst}{after}", byte_rate(*rate))
}

fn load(load: &Overload) -> String {
    let parts = [
        load.cpu.map(|share| format!("CPU up to {share}")),
        load.memory.map(|share| format!("memory up to {share}")),
        load.connections.map(|count| format!("up to {count} connections")),
        load.traffic.map(|traffic| format!("{} of traffic", byte_rate(traffic))),
    ];
    format!("load of this machine: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
