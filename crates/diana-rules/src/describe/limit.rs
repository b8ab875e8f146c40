//! Descriptions of limits, for each algorithm.
//!
//! A bucket allows what it has saved, and meanwhile its rate: at most its capacity and `rate × t` in any time `t`. Both
//! numbers are shown, since `5 a minute` alone would hide that ten may pass within a minute.

use super::units::{byte_rate, bytes, duration, period, rate};
use crate::algorithm::Configured;
use crate::limit::LimitRule;
use crate::rule::{Bandwidth, Bodies, Overload, Rule};
use diana_core::{
    Calendar, Concurrency, Edge, FixedWindow, InitialPermits, LeakyBucket, MinInterval, Quota, RefillingBucket,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket, Total, WindowStart,
};
use std::time::Duration;

/// Describes all limits of a rule.
pub(super) fn of_rule(rule: &Rule) -> String {
    let mut parts = rule.limits.iter().map(one).collect::<Vec<_>>();
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

/// Describes several limits that all apply.
pub(super) fn all(limits: &[LimitRule]) -> String {
    limits.iter().map(one).collect::<Vec<_>>().join(", and ")
}

fn one(limit: &LimitRule) -> String {
    let LimitRule { configured, algorithm, written, .. } = limit;
    let known = configured.description().map(str::to_owned);
    let known = known.or_else(|| bucket(configured)).or_else(|| windows(configured)).or_else(|| simple(configured));
    let known = known.or_else(|| smooth(configured, &limit.written));
    known.unwrap_or_else(|| format!("{written} by `{algorithm}`"))
}

fn bucket(configured: &Configured) -> Option<String> {
    if let Some(bucket) = configured.algorithm::<TokenBucket>() {
        let (quota, burst) = (bucket.quota(), bucket.quota().burst());
        return Some(format!("{}, up to {burst} at once: {}", rate(quota), at_most(quota, burst)));
    }
    if let Some(bucket) = configured.algorithm::<RefillingBucket>() {
        let quota = bucket.quota();
        let (permits, burst) = (quota.permits(), quota.burst());
        // A refill that does not fit into the bucket is lost.
        let most = burst.saturating_add(permits.min(burst));
        let every = period(quota.period());
        return Some(format!("{permits} more every {every}, up to {burst} at once: at most {most} in any {every}"));
    }
    let bucket = configured.algorithm::<LeakyBucket>()?;
    let quota = bucket.quota();
    let even = match quota.interval() {
        (nanos, 1) => format!("one every {}", period(Duration::from_nanos(nanos))),
        _ => format!("{}, evenly", rate(quota)),
    };
    // The one that proceeds now is not queued.
    let most = |undelayed: u64| at_most(quota, undelayed.saturating_add(1));
    Some(match (bucket.queue_length(), bucket.undelayed()) {
        (0, _) => even,
        (queue, None) => format!("{even}, {queue} more at once: {}", most(queue)),
        (queue, Some(0)) => format!("{even}, {queue} may be queued"),
        (queue, Some(undelayed)) => {
            let most = most(undelayed.min(queue));
            format!("{even}, {queue} may be queued, the first {undelayed} of them without delay: {most}")
        }
    })
}

/// `at most 10 in any minute`, of a limit of which so many may pass at once.
fn at_most(quota: Quota, at_once: u64) -> String {
    format!("at most {} in any {}", at_once.saturating_add(quota.permits()), period(quota.period()))
}

/// What a window allows whose counts are dropped all at once.
const TWICE: &str = "up to twice that across an edge";

/// Returns the settings with which a limit never allows twice as many across an edge; `None` if it never does.
pub(super) fn without_edge(limit: &LimitRule) -> Option<&'static str> {
    if let Some(fixed) = limit.configured.algorithm::<FixedWindow>() {
        // Nothing else follows a calendar.
        let settings = "`algorithm: sliding_log`, or `sliding_window` with `edge: strict`";
        return fixed.dates().is_none().then_some(settings);
    }
    let sliding = limit.configured.algorithm::<SlidingWindow>()?;
    (sliding.edge() == Edge::Loose).then_some("`edge: strict`, or `algorithm: sliding_log`")
}

fn windows(configured: &Configured) -> Option<String> {
    if let Some(fixed) = configured.algorithm::<FixedWindow>() {
        let (quota, permits) = (fixed.quota(), fixed.quota().permits());
        if let Some((unit, zone)) = fixed.dates() {
            let unit = match unit {
                Calendar::Day => "day",
                Calendar::Week => "week, from Monday on,",
                Calendar::Month => "month",
                _ => "calendar period",
            };
            return Some(format!("{permits} in each {unit} of {zone}; {TWICE}"));
        }
        let start = match fixed.window_start() {
            Some(WindowStart::FirstRequest) => "from the first request",
            _ => "by the clock",
        };
        return Some(format!("{permits} in each {} {start}; {TWICE}", period(quota.period())));
    }
    if let Some(sliding) = configured.algorithm::<SlidingWindow>() {
        let (quota, step) = (sliding.quota(), duration(sliding.precision()));
        // If the precision does not divide the window, the window is longer than configured.
        let nanos = sliding.precision().as_nanos().saturating_mul(u128::from(sliding.buckets()));
        let window = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let (permits, window) = (quota.permits(), period(window));
        return Some(match sliding.edge() {
            Edge::Loose => {
                format!("{permits} in a sliding {window}, in steps of {step}; {TWICE}")
            }
            Edge::Weighted => format!("{permits} in a sliding {window}, in steps of {step}, the oldest in proportion"),
            Edge::Strict => format!("at most {permits} in any {window}, in steps of {step}"),
        });
    }
    let log = configured.algorithm::<SlidingLog>()?;
    let windows =
        log.windows().iter().map(|quota| format!("at most {} in any {}", quota.permits(), period(quota.period())));
    Some(windows.collect::<Vec<_>>().join(" and "))
}

fn simple(configured: &Configured) -> Option<String> {
    let apart =
        configured.algorithm::<MinInterval>().map(|every| format!("at least {} apart", duration(every.interval())));
    let total = || configured.algorithm::<Total>().map(|total| format!("{} in total, until reset", total.limit()));
    let concurrency = || {
        let concurrency = configured.algorithm::<Concurrency>()?;
        let more = match concurrency.capacity() - concurrency.limit() {
            0 => String::new(),
            burst => format!(", {burst} more after a delay ({} at first)", duration(concurrency.first_delay())),
        };
        Some(format!("{} at a time{more}", concurrency.limit()))
    };
    apart.or_else(total).or_else(concurrency)
}

/// These algorithms only store their rate in permits per second, so the rate is shown as written.
fn smooth(configured: &Configured, written: &str) -> Option<String> {
    let quota = written.parse::<Quota>();
    let rate = quota.as_ref().map_or_else(|_| written.to_owned(), |quota| rate(*quota));
    if let Some(bursty) = configured.algorithm::<SmoothBursty>() {
        let start = if bursty.initial_permits() == InitialPermits::Empty { ", starts empty" } else { "" };
        let saved = bursty.burst_seconds();
        // The next request waits for the cost of the previous one, so one more passes than was saved.
        let at_once = whole(bursty.in_micros().max_permits()).saturating_add(1);
        let most = match &quota {
            Ok(quota) if at_once > 1 => format!(", up to {at_once} at once: {}", at_most(*quota, at_once)),
            _ => String::new(),
        };
        return Some(format!("{rate}, evenly; unused permits are saved for {saved} s{start}{most}"));
    }
    let warming = configured.algorithm::<SmoothWarmingUp>()?;
    let (factor, warm_up) = (warming.cold_factor(), duration(warming.warm_up()));
    Some(format!("{rate}, evenly; {factor} times slower after a pause, warm after {warm_up}"))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn whole(permits: f64) -> u64 {
    permits as u64
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
