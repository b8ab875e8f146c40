//! The plain call: one script per request, one at a time and 32 in flight on one connection, compared with what a
//! program without Diana would send.
//!
//! The floor is the least that any limiter in a script can cost: the time, a read and a write with an expiry, and no
//! arithmetic at all.

use crate::measure::{Contender, Effort, Expect, Measured, measure};
use crate::setup::{KEYS, Ring, Server, ask, bucket, key, one_thread, plain, unreached};
use diana_bench::report::{Goal, Report, ns};
use diana_core::{Limit, Quota};
use diana_redis::RedisStore;
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;

const EMPTY: &str = "return 1";
const FLOOR: &str = "\
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
return { time[1], value }";
/// The value that the floor writes: as long as a token bucket's state.
const VALUE: &str = "t100/1s*100 1794751522951000 0 1 mhhafzk7";

pub(crate) fn run(report: &mut Report, server: &Server, effort: Effort) {
    let runtime = one_thread();
    let (store, connection) = runtime.block_on(async { (server.store(plain()).await, server.connection().await) });
    runtime.block_on(use_up(&store));
    for depth in [1, 32] {
        report.section(&format!("one call for each request, {depth} in flight on one connection, {KEYS} keys"));
        let mut contenders = peers(&connection, depth);
        let ours = contenders.len();
        contenders.extend(diana(&store, depth));
        let cell = contenders.len();
        if server.has_cell {
            contenders.push(redis_cell(&connection, depth));
        }
        let measured = measure(&runtime, server, effort, &contenders);
        print(report, &measured, depth, ours);
        if server.has_cell {
            let peer = format!("redis-cell {}", ns(measured.cpu(cell)));
            let ratio = measured.cpu_ratio(ours, cell);
            report.compare("  CPU, granted", ns(measured.cpu(ours)), peer, ratio, Goal::Information);
        }
    }
    let (before, calls) = (store.link().commands, server.script_calls());
    runtime.block_on(use_up(&store));
    let (sent, counted) = (store.link().commands - before, server.script_calls() - calls);
    let what = format!("  commands of {KEYS} decisions, as the store counts them");
    report.figure(&what, sent.to_string(), format!("{counted} script calls by Redis's count"));
}

fn print(report: &mut Report, measured: &Measured, depth: u64, ours: usize) {
    let cpu = |index| ns(measured.cpu(index));
    let rate = |index| format!("{:.0} /s", measured.rate(index));
    let max = if depth == 1 { 2.0 } else { 10.0 };
    let cases = ["granted", "granted, one hot key", "denied"];
    for (position, case) in cases.into_iter().enumerate() {
        let goal = if position == 0 { Goal::AtMost(max) } else { Goal::Information };
        let (index, what) = (ours + position, format!("  CPU, {case}"));
        report.compare(&what, cpu(index), format!("INCR {}", cpu(0)), measured.cpu_ratio(index, 0), goal);
    }
    for (peer, name) in [(1, "INCR+EXPIRE"), (2, "empty script"), (3, "floor")] {
        let (ratio, peer) = (measured.cpu_ratio(ours, peer), format!("{name} {}", cpu(peer)));
        report.compare("  CPU, granted", cpu(ours), peer, ratio, Goal::Information);
    }
    for (position, case) in cases.into_iter().enumerate() {
        let (index, what) = (ours + position, format!("  a second, {case}"));
        let (ratio, peer) = (measured.rate_ratio(index, 0), format!("INCR {}", rate(0)));
        report.compare(&what, rate(index), peer, ratio, Goal::Information);
    }
    let commands = measured.commands(ours);
    report.figure("  commands a decision", format!("{commands:.4}"), String::new());
}

/// INCR, INCR and EXPIRE, an empty script, the floor.
fn peers(connection: &MultiplexedConnection, depth: u64) -> Vec<Contender> {
    let keys = |name: &str| Ring::new((0..KEYS).map(|index| format!("{name}:each-account:{{{}}}", key(index))));
    let (counts, expiring, floors) = (keys("count"), keys("expire"), keys("floor"));
    let (a, b, c, d) = (connection.clone(), connection.clone(), connection.clone(), connection.clone());
    let empty = Arc::new(Script::new(EMPTY));
    let floor = Arc::new(Script::new(FLOOR));
    vec![
        Contender::new("INCR", depth, Expect::Granted, move || {
            let (mut connection, counts) = (a.clone(), counts.clone());
            async move { redis::cmd("INCR").arg(counts.next()).query_async::<u64>(&mut connection).await.unwrap() > 0 }
        }),
        Contender::new("INCR+EXPIRE", depth, Expect::Granted, move || {
            let (mut connection, expiring) = (b.clone(), expiring.clone());
            async move {
                let key = expiring.next();
                let mut pipe = redis::pipe();
                pipe.cmd("INCR").arg(key).cmd("EXPIRE").arg(key).arg(60);
                pipe.query_async::<(u64, u64)>(&mut connection).await.unwrap().0 > 0
            }
        }),
        Contender::new("empty script", depth, Expect::Granted, move || {
            let (mut connection, script) = (c.clone(), Arc::clone(&empty));
            async move { script.invoke_async::<_, u64>(&mut connection).await.unwrap() > 0 }
        }),
        Contender::new("floor", depth, Expect::Granted, move || {
            let (mut connection, script, floors) = (d.clone(), Arc::clone(&floor), floors.clone());
            async move {
                let mut call = script.key(floors.next());
                call.arg(VALUE).arg("4102444800000");
                !call.invoke_async::<(String, Option<String>)>(&mut connection).await.unwrap().0.is_empty()
            }
        }),
    ]
}

/// Allowed over many keys, allowed over one, denied.
fn diana(store: &RedisStore, depth: u64) -> [Contender; 3] {
    let many = Ring::new((0..KEYS).map(key));
    let one = Ring::new([key(0)]);
    let case = |name, limit: Limit, keys: Ring, expect| {
        let (own, limit) = (store.clone(), Arc::new(limit));
        let operation = move || {
            let (store, limit, keys) = (own.clone(), Arc::clone(&limit), keys.clone());
            async move { ask(&store, &limit, keys.next()).await.is_granted() }
        };
        Contender::new(name, depth, expect, operation).counting(store)
    };
    [
        case("granted", bucket("each-account", each_account()), many.clone(), Expect::Granted),
        case("one hot key", bucket("hot", unreached()), one, Expect::Granted),
        case("denied", used_up(), many, Expect::Denied),
    ]
}

/// One per hour, for a key that has used it.
fn used_up() -> Limit {
    bucket("used-up", Quota::per_hour(1).unwrap())
}

/// Uses up the limit of each key.
async fn use_up(store: &RedisStore) {
    let limit = used_up();
    for index in 0..KEYS {
        let _ = ask(store, &limit, &key(index)).await;
    }
}

/// Enough for a run, and an interval of a whole number of microseconds, as most limits have.
fn each_account() -> Quota {
    Quota::per_second(100).unwrap().with_burst(10_000_000).unwrap()
}

fn redis_cell(connection: &MultiplexedConnection, depth: u64) -> Contender {
    let keys = Ring::new((0..KEYS).map(|index| format!("cell:each-account:{{{}}}", key(index))));
    let connection = connection.clone();
    Contender::new("redis-cell", depth, Expect::Granted, move || {
        let (mut connection, keys) = (connection.clone(), keys.clone());
        async move {
            let mut cmd = redis::cmd("CL.THROTTLE");
            cmd.arg(keys.next()).arg(10_000_000).arg(100).arg(1).arg(1);
            cmd.query_async::<Vec<i64>>(&mut connection).await.unwrap()[0] == 0
        }
    })
}
