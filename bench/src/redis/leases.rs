//! Leases: one hot key used by many tasks, with a limit that is never reached.

use crate::measure::{Contender, Effort, Expect, measure};
use crate::setup::{Ring, Server, all_cores, ask, bucket, key, plain, unreached};
use diana_bench::report::{Goal, Report};
use diana_redis::{Batching, Leases, RedisStore};
use std::sync::Arc;

/// The number of concurrent tasks.
const TASKS: u64 = 32;

pub(crate) fn run(report: &mut Report, server: &Server, effort: Effort) {
    report.section(&format!("leases, one hot key of 100,000,000/s, {TASKS} tasks"));
    let runtime = all_cores();
    let options = [
        plain(),
        plain().batching(Batching::On),
        plain().leases(Leases::Auto),
        plain().leases(Leases::Of(1_000)),
        plain().leases(Leases::Of(10_000)),
    ];
    let stores = runtime.block_on(async {
        let mut stores = Vec::new();
        for options in options {
            stores.push(server.store(options).await);
        }
        stores
    });
    let names = ["plain", "batched", "auto", "of 1,000", "of 10,000"];
    let contenders: Vec<_> = names.into_iter().zip(&stores).map(|(name, store)| contender(name, store)).collect();
    let measured = measure(&runtime, server, effort, &contenders);
    let rate = |index| format!("{:.0} /s", measured.rate(index));
    for (index, name) in names.into_iter().enumerate().skip(1) {
        let goal = if index == 1 { Goal::Information } else { Goal::AtLeast(20.0) };
        let peer = format!("plain {}", rate(0));
        report.compare(&format!("  a second, {name}"), rate(index), peer, measured.rate_ratio(index, 0), goal);
    }
    for (index, name) in names.into_iter().enumerate().skip(1) {
        let goal = if index == 1 { Goal::Information } else { Goal::AtMost(0.05) };
        let commands = measured.commands(index);
        let peer = format!("plain {:.2}", measured.commands(0));
        report.compare(&format!("  commands a decision, {name}"), format!("{commands:.6}"), peer, commands, goal);
    }
}

fn contender(name: &'static str, store: &RedisStore) -> Contender {
    let (own, limit, keys) = (store.clone(), Arc::new(bucket("hot", unreached())), Ring::new([key(0)]));
    let operation = move || {
        let (store, limit, keys) = (own.clone(), Arc::clone(&limit), keys.clone());
        async move { ask(&store, &limit, keys.next()).await.is_granted() }
    };
    Contender::new(name, TASKS, Expect::Granted, operation).counting(store)
}
