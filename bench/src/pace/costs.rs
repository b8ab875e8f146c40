//! The cost of pacing: the time of an item that need not wait, and the CPU of a flow limited to a rate.

use crate::adapters::{self, bytes, limiter};
use crate::flow_meter::FlowMeter;
use diana::pace::{StreamExt as _, Throttled};
use diana_bench::report::{Goal, Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_bench::{median, process_cpu};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use governor::prelude::StreamRateLimitExt as _;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// More than a run can use.
const UNREACHED: u32 = 1_000_000_000;

pub(crate) fn run(report: &mut Report, effort: Effort, slice: Duration) {
    without_wait(report, effort);
    at_a_rate(report, slice);
}

/// Measures items that pass at once: the limit is never reached.
fn without_wait(report: &mut Report, effort: Effort) {
    let quota = governor::Quota::per_second(NonZeroU32::new(UNREACHED).unwrap());
    let governor = governor::RateLimiter::direct(quota);
    let mut ours = stream::repeat(()).rate_limited(limiter(u64::from(UNREACHED), u64::from(UNREACHED)));
    let mut theirs = stream::repeat(()).ratelimit_stream(&governor);
    let times = measure(
        effort,
        Expect::Granted,
        vec![
            Contender::new("Diana", || ours.next().now_or_never().is_some()),
            Contender::new("governor", || theirs.next().now_or_never().is_some()),
        ],
    );
    report.section("without waiting");
    let peer = format!("governor {}", ns(times.ns(1)));
    report.compare("  an item of a stream", ns(times.ns(0)), peer, times.ratio(0, 1), Goal::AtMost(1.0));

    let (mut bare, mut into) = (std::io::repeat(7), vec![0; 64 * 1024]);
    let mut throttled = Throttled::new(std::io::repeat(7)).reads(limiter(1 << 50, 1 << 50));
    let mut also_into = into.clone();
    let times = measure(
        effort,
        Expect::Granted,
        vec![
            Contender::new("Diana", || throttled.read(&mut into).is_ok_and(|length| length > 0)),
            Contender::new("bare", || bare.read(&mut also_into).is_ok()),
        ],
    );
    let (ours, theirs) = (times.ns(0) * 16.0, format!("bare {}", ns(times.ns(1) * 16.0)));
    report.compare("  a MiB, read by 64 KiB", ns(ours), theirs, times.ratio(0, 1), Goal::Information);
}

/// Measures flows that wait most of the time: the CPU of the whole process, user and system.
fn at_a_rate(report: &mut Report, slice: Duration) {
    report.section("CPU of flows limited to a rate");
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    for rate in [100_u32, 1_000, 10_000] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            ours.push(cpu_of(&runtime, adapters::stream(limiter(u64::from(rate), 1), slice)));
            theirs.push(cpu_of(&runtime, adapters::governor_stream(rate, slice)));
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let (what, peer) = (format!("  an item of a stream, {rate}/s"), format!("governor {}", ns(theirs)));
        report.compare(&what, ns(ours), peer, ours / theirs, Goal::Information);
    }
    let mib = cpu_of(&runtime, adapters::read(bytes(100 << 20), slice)) * f64::from(1 << 20);
    report.figure("  a MiB, read at 100 MiB/s", ns(mib), String::new());
}

/// Returns the CPU time per permit, in nanoseconds.
fn cpu_of(runtime: &Runtime, flow: impl Future<Output = FlowMeter>) -> f64 {
    let before = process_cpu::nanos(std::process::id());
    let flow = runtime.block_on(flow);
    (process_cpu::nanos(std::process::id()) - before) as f64 / flow.amount() as f64
}
