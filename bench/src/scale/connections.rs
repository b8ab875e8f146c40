//! One to ten thousand connections to `diana serve`: CPU time of a request, and bytes of each connection.

use crate::Tables;
use crate::steps::{Bound, Claim, Steps, whole};
use diana_bench::gateways::connection::{Call, Opener};
use diana_bench::gateways::load::{Effort, Figure, Load, cpu_without_connecting, measure};
use diana_bench::gateways::{Diana, Gateway, Protocol, Stage, max_open_files};
use diana_bench::{Length, median, process_cpu};
use diana_testing::resident;
use std::time::Duration;

/// Connections that are all active.
const ACTIVE: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Connections of which only the first step's are active.
const MOSTLY_IDLE: [usize; 4] = [64, 1_000, 3_000, 10_000];

pub(crate) fn run(tables: &mut Tables, length: Length) {
    let effort = match length {
        Length::Quick => Effort { rounds: 3, slice: Duration::from_secs(1) },
        Length::Full => Effort { rounds: 7, slice: Duration::from_secs(2) },
    };
    let stage = Stage::start(process_cpu::reserve_core());
    // The descriptors of all idle connections are open at the same time, and of some others.
    let max = max_open_files().saturating_sub(500) as usize * 2 / 3;
    let measurable = |number: &usize| {
        let is_measurable = *number <= max;
        if !is_measurable {
            eprintln!(
                "{} connections are not measured: that needs more open files (`ulimit -n`)",
                whole(*number as f64)
            );
        }
        is_measurable
    };
    let settings = Diana { gateway: "bounds: {connections: 12000}", ..Diana::DEFAULT };

    let mut active = Steps::new("connections: CPU of a denied request, all of them active", "connections", "ns");
    let diana = stage.diana(settings);
    let numbers: Vec<usize> = ACTIVE.into_iter().filter(measurable).collect();
    let mut costs = vec![Vec::new(); numbers.len()];
    // In turns, since the machine's speed changes.
    for _ in 0..effort.rounds {
        for (cost, &number) in costs.iter_mut().zip(&numbers) {
            let load = Load { connections: number as u32, ..Load::DENY };
            cost.push(cpu_without_connecting(effort.slice, load, &diana));
        }
    }
    for (number, cost) in numbers.into_iter().zip(costs) {
        active.push(number, median(cost));
    }
    drop(diana);
    // Their memory and the kernel's is no longer in the caches.
    let text = "at most twice the CPU for a thousand times as many (this bench's own bound, no page has one)";
    tables.push(&active, &Claim { text, from: 10.0, bound: Bound::Slope(0.1) });

    let title = "connections: CPU of a forwarded request, 64 of them active and the rest idle";
    let mut idle = Steps::new(title, "connections", "ns");
    let mut bytes = Steps::new("connections: resident bytes of each, idle (HTTP/1)", "connections", "bytes");
    let held: Vec<_> = MOSTLY_IDLE
        .into_iter()
        .filter(measurable)
        .map(|number| {
            let diana = stage.diana(settings);
            // The memory of a gateway under load is not that of idle connections.
            measure(Effort { rounds: 1, ..effort }, Load::FORWARD, &[&diana]);
            let before = resident(diana.pid).unwrap();
            let connections = open(&stage, &diana, number - MOSTLY_IDLE[0]);
            let grown = resident(diana.pid).unwrap().saturating_sub(before);
            if !connections.is_empty() {
                bytes.push(number, grown as f64 / connections.len() as f64);
            }
            (number, diana, connections)
        })
        .collect();
    let gateways: Vec<&Gateway> = held.iter().map(|(_, diana, _)| diana).collect();
    let measured = measure(effort, Load::FORWARD, &gateways);
    for (index, (number, ..)) in held.iter().enumerate() {
        idle.push(*number, measured.median(index, Figure::Cpu));
    }
    let text = "idle connections cost no CPU";
    tables.push(&idle, &Claim { text, from: 1.0, bound: Bound::Slope(0.05) });
    let text = "an idle connection takes 2 KiB (docs/figures.md)";
    tables.push(&bytes, &Claim { text, from: 1.0, bound: Bound::Cost(2_048.0) });
}

/// Opens connections, and uses each once.
fn open(stage: &Stage, gateway: &Gateway, number: usize) -> Vec<Box<dyn Call>> {
    let opener = Opener::new(stage.authority());
    let each = (0..number).map(|_| {
        let mut connection = opener.open(gateway, Protocol::Http1).unwrap();
        connection.call().unwrap();
        connection
    });
    each.collect()
}
