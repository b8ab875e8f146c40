//! The accuracy of every paced flow. All run at the same time, on one runtime and three threads: each waits most of the
//! time, as in a program.

use crate::flow::Flow;
use crate::kinds::{self, bytes, limiter};
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
struct Running {
    what: String,
    wanted: u64,
    flow: JoinHandle<Flow>,
}

pub(crate) fn run(report: &mut Report, length: Duration) {
    let runtime = Runtime::new().unwrap();
    report.section("items, one at a time");
    let (mut items, mut data) = (Vec::new(), Vec::new());
    for rate in ITEMS.map(u64::from) {
        let what = format!("  a stream, {rate}/s");
        items.push(Running { what, wanted: rate, flow: runtime.spawn(kinds::stream(limiter(rate, 1), length)) });
    }
    let flow = runtime.spawn(kinds::sink(limiter(1_000, 1), length));
    items.push(Running { what: "  a sink, 1000/s".to_owned(), wanted: 1_000, flow });
    let flow = runtime.spawn_blocking(move || kinds::iterate(limiter(1_000, 1), length));
    items.push(Running { what: "  an iterator, 1000/s, blocking".to_owned(), wanted: 1_000, flow });

    for rate in BYTES {
        let (reading, writing) = (kinds::read(bytes(rate), length), kinds::write(bytes(rate), length));
        let what = format!("  reading, {}", shown(rate));
        data.push(Running { what, wanted: rate, flow: runtime.spawn(reading) });
        let what = format!("  writing, {}", shown(rate));
        data.push(Running { what, wanted: rate, flow: runtime.spawn(writing) });
    }
    let flow = runtime.spawn_blocking(move || kinds::blocking_read(bytes(MIB), length));
    data.push(Running { what: "  reading, 1 MiB/s, blocking".to_owned(), wanted: MIB, flow });
    let flow = runtime.spawn_blocking(move || kinds::blocking_write(bytes(MIB), length));
    data.push(Running { what: "  writing, 1 MiB/s, blocking".to_owned(), wanted: MIB, flow });
    let budget = bytes(MIB);
    let one = runtime.spawn(kinds::read(budget.clone(), length));
    let other = runtime.spawn(kinds::read(budget, length));

    let items: Vec<_> = items.into_iter().map(|running| finish(&runtime, running)).collect();
    let data: Vec<_> = data.into_iter().map(|running| finish(&runtime, running)).collect();
    let (one, other) = (runtime.block_on(one).unwrap(), runtime.block_on(other).unwrap());
    let peers = governors(&runtime, length);
    for (nth, (what, wanted, flow)) in items.into_iter().enumerate() {
        let peer = peers.get(nth).map_or_else(String::new, |peer| format!("; governor {}", off(peer.rate(), wanted)));
        line(report, &what, wanted, &[flow], &peer);
    }
    report.section("bytes, with a burst of 20 ms");
    for (what, wanted, flow) in data {
        line(report, &what, wanted, &[flow], "");
    }
    line(report, "  two readers of one budget, 1 MiB/s", MIB, &[one, other], "");
    let share = one.rate() / (one.rate() + other.rate()) * 100.0;
    report.figure("  of that, the first of them", format!("{share:.1} %"), String::new());
}

/// Runs the same streams with governor, separately.
fn governors(runtime: &Runtime, length: Duration) -> Vec<Flow> {
    let running = ITEMS.map(|rate| runtime.spawn(kinds::governor_stream(rate, length)));
    running.into_iter().map(|flow| runtime.block_on(flow).unwrap()).collect()
}

fn finish(runtime: &Runtime, Running { what, wanted, flow }: Running) -> (String, u64, Flow) {
    (what, wanted, runtime.block_on(flow).unwrap())
}

/// Reports the total of the flows that share a limit.
fn line(report: &mut Report, what: &str, wanted: u64, flows: &[Flow], peer: &str) {
    let rate: f64 = flows.iter().map(Flow::rate).sum();
    let gaps = flows.iter().map(Flow::worst_gap).collect::<Vec<_>>().join(" and ");
    report.compare(what, off(rate, wanted), format!("worst gap {gaps}{peer}"), rate / wanted as f64, CLOSE);
}

/// Formats a rate and its deviation.
fn off(rate: f64, wanted: u64) -> String {
    let percent = (rate / wanted as f64 - 1.0) * 100.0;
    let rate = if wanted < 20_000 { format!("{rate:.1}/s") } else { format!("{:.1} KiB/s", rate / KIB as f64) };
    format!("{rate} ({percent:+.2} %)")
}

fn shown(rate: u64) -> String {
    if rate < MIB { format!("{} KiB/s", rate / KIB) } else { format!("{} MiB/s", rate / MIB) }
}
