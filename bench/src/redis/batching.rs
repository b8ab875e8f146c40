//! Batching: concurrent requests in one call.

use crate::measure::{Contender, Effort, Expect, measure};
use crate::setup::{KEYS, Ring, Server, ask, bucket, key, one_thread, plain, unreached};
use diana_bench::report::{Goal, Report, ns};
use diana_redis::{Batching, RedisStore};
use std::sync::Arc;

pub(crate) fn run(report: &mut Report, server: &Server, effort: Effort) {
    let runtime = one_thread();
    let options = || plain().batching(Batching::On);
    let (alone, batched) = runtime.block_on(async { (server.store(plain()).await, server.store(options()).await) });
    for depth in [1, 32, 256] {
        report.section(&format!("batching, {depth} in flight, {KEYS} keys, granted"));
        let contenders = [contender("alone", &alone, depth), contender("batched", &batched, depth)];
        let measured = measure(&runtime, server, effort, &contenders);
        let (ours, peer) = (measured.cpu(1), format!("without {}", ns(measured.cpu(0))));
        report.compare("  CPU", ns(ours), peer, measured.cpu_ratio(1, 0), Goal::Information);
        let rate = |index| format!("{:.0} /s", measured.rate(index));
        let peer = format!("without {}", rate(0));
        report.compare("  a second", rate(1), peer, measured.rate_ratio(1, 0), Goal::Information);
        let (ours, peer) = (measured.commands(1), measured.commands(0));
        report.figure("  commands a decision", format!("{ours:.4}"), format!("without {peer:.4}"));
    }
}

fn contender(name: &'static str, store: &RedisStore, depth: u64) -> Contender {
    let (own, limit) = (store.clone(), Arc::new(bucket("batched", unreached())));
    let keys = Ring::new((0..KEYS).map(key));
    let operation = move || {
        let (store, limit, keys) = (own.clone(), Arc::clone(&limit), keys.clone());
        async move { ask(&store, &limit, keys.next()).await.is_granted() }
    };
    Contender::new(name, depth, Expect::Granted, operation).counting(store)
}
