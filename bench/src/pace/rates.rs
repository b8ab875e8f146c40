//! The accuracy of every paced flow. All run at the same time, on one runtime and three threads: each waits most of the
//! time, as in a program.

use crate::adapters::{self, bytes, limiter};
use crate::flow_meter::FlowMeter;
use diana_bench::report::{Goal, Report};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The maximum deviation of the mean rate, in percent.
const CLOSE: Goal = Goal::Within(1.0);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Items per second, of streams.
const ITEMS: [u32; 4] = [10, 100, 1_000, 10_000];

/// Bytes per second, of readers and writers.
const BYTES: [u64; 3] = [50 * KIB, MIB, 100 * MIB];

/// A running paced flow.
struct RunningFlow {
    what: String,
    target: u64,
    flow: JoinHandle<FlowMeter>,
}

pub(crate) fn run(report: &mut Report, length: Duration) {
    let runtime = Runtime::new().unwrap();
    report.section("items, one at a time");
    let (mut items, mut data) = (Vec::new(), Vec::new());
    for rate in ITEMS.map(u64::from) {
        let what = format!("  a stream, {rate}/s");
        items.push(RunningFlow { what, target: rate, flow: runtime.spawn(adapters::stream(limiter(rate, 1), length)) });
    }
    let flow = runtime.spawn(adapters::sink(limiter(1_000, 1), length));
    items.push(RunningFlow { what: "  a sink, 1000/s".to_owned(), target: 1_000, flow });
    let flow = runtime.spawn_blocking(move || adapters::iterate(limiter(1_000, 1), length));
    items.push(RunningFlow { what: "  an iterator, 1000/s, blocking".to_owned(), target: 1_000, flow });

    for rate in BYTES {
        let (reading, writing) = (adapters::read(bytes(rate), length), adapters::write(bytes(rate), length));
        let what = format!("  reading, {}", describe_rate(rate));
        data.push(RunningFlow { what, target: rate, flow: runtime.spawn(reading) });
        let what = format!("  writing, {}", describe_rate(rate));
        data.push(RunningFlow { what, target: rate, flow: runtime.spawn(writing) });
    }
    let flow = runtime.spawn_blocking(move || adapters::blocking_read(bytes(MIB), length));
    data.push(RunningFlow { what: "  reading, 1 MiB/s, blocking".to_owned(), target: MIB, flow });
    let flow = runtime.spawn_blocking(move || adapters::blocking_write(bytes(MIB), length));
    data.push(RunningFlow { what: "  writing, 1 MiB/s, blocking".to_owned(), target: MIB, flow });
    let budget = bytes(MIB);
    let one = runtime.spawn(adapters::read(budget.clone(), length));
    let other = runtime.spawn(adapters::read(budget, length));

    let items: Vec<_> = items.into_iter().map(|running| finish(&runtime, running)).collect();
    let data: Vec<_> = data.into_iter().map(|running| finish(&runtime, running)).collect();
    let (one, other) = (runtime.block_on(one).unwrap(), runtime.block_on(other).unwrap());
    let peers = governors(&runtime, length);
    for (index, (what, target, flow)) in items.into_iter().enumerate() {
        let peer = peers
            .get(index)
            .map_or_else(String::new, |peer| format!("; governor {}", with_deviation(peer.rate(), target)));
        line(report, &what, target, &[flow], &peer);
    }
    report.section("bytes, with a burst of 20 ms");
    for (what, target, flow) in data {
        line(report, &what, target, &[flow], "");
    }
    line(report, "  two readers of one budget, 1 MiB/s", MIB, &[one, other], "");
    let share = one.rate() / (one.rate() + other.rate()) * 100.0;
    report.figure("  of that, the first of them", format!("{share:.1} %"), String::new());
}

/// Runs the same streams with governor, separately.
fn governors(runtime: &Runtime, length: Duration) -> Vec<FlowMeter> {
    let running = ITEMS.map(|rate| runtime.spawn(adapters::governor_stream(rate, length)));
    running.into_iter().map(|flow| runtime.block_on(flow).unwrap()).collect()
}

fn finish(runtime: &Runtime, RunningFlow { what, target, flow }: RunningFlow) -> (String, u64, FlowMeter) {
    (what, target, runtime.block_on(flow).unwrap())
}

/// Reports the total of the flows that share a limit.
fn line(report: &mut Report, what: &str, target: u64, flows: &[FlowMeter], peer: &str) {
    let rate: f64 = flows.iter().map(FlowMeter::rate).sum();
    let gaps = flows.iter().map(FlowMeter::worst_gap).collect::<Vec<_>>().join(" and ");
    report.compare(what, with_deviation(rate, target), format!("worst gap {gaps}{peer}"), rate / target as f64, CLOSE);
}

/// Formats a rate and its deviation.
fn with_deviation(rate: f64, target: u64) -> String {
    let percent = (rate / target as f64 - 1.0) * 100.0;
    let rate = if target < 20_000 { format!("{rate:.1}/s") } else { format!("{:.1} KiB/s", rate / KIB as f64) };
    format!("{rate} ({percent:+.2} %)")
}

fn describe_rate(rate: u64) -> String {
    if rate < MIB { format!("{} KiB/s", rate / KIB) } else { format!("{} MiB/s", rate / MIB) }
}
