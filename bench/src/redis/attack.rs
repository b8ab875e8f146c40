//! An attack: requests far over their limits, of which nineteen in twenty are denied.
//!
//! The rate is fixed, since it determines the share of denials. An allowed request must be counted on Redis and costs a
//! command; a denied one should cost none.

use crate::setup::{Ring, Server, all_cores, ask, bucket, key, plain};
use diana_bench::report::{Goal, Report};
use diana_bench::{Length, now};
use diana_core::Quota;
use diana_redis::{DenyCache, RedisStore};
use std::sync::Arc;
use std::time::Duration;

/// The number of attacked keys.
const KEYS: u64 = 500;
/// Requests per key and second.
const EACH: u64 = 200;
const TASKS: u64 = 16;
/// The interval of the tasks: few requests at a time, as in real traffic.
const TICK: Duration = Duration::from_millis(1);

/// The result of an attack.
struct Outcome {
    granted: u64,
    denied: u64,
    commands: u64,
    /// The time in which requests were sent.
    seconds: f64,
}

pub(crate) fn run(report: &mut Report, server: &Server, length: Length) {
    let all = KEYS * EACH;
    report.section(&format!("an attack, {all} requests a second over {KEYS} keys, 95 % denied"));
    let runtime = all_cores();
    let seconds = if length == Length::Quick { 2 } else { 6 };
    // Both allow a twentieth: one permit at a time, or all of a window's at once.
    let quotas = [
        ("10/s, burst 1", Quota::per_second(10).unwrap().with_burst(1).unwrap()),
        ("10/s, burst 10", Quota::per_second(10).unwrap()),
    ];
    for (name, quota) in quotas {
        let outcome = runtime.block_on(async {
            let store = server.store(plain().deny_cache(DenyCache::On)).await;
            attack(&store, name, quota, seconds).await
        });
        let Outcome { granted, denied, commands, seconds } = outcome;
        let share = 100.0 * denied as f64 / (granted + denied) as f64;
        let extra = commands.saturating_sub(granted) as f64 / denied as f64;
        let what = format!("  commands per denied decision, {name}");
        let remark = format!("{share:.1} % of {} denied", granted + denied);
        report.compare(&what, format!("{extra:.5}"), remark, extra, Goal::AtMost(0.01));
        let rate = (granted + denied) as f64 / seconds;
        let each = commands as f64 / (granted + denied) as f64;
        report.figure("  commands per decision, granted ones included", format!("{each:.4}"), String::new());
        report.figure("  a second", format!("{rate:.0} /s"), "as many as were sent".to_owned());
    }
}

/// Sends requests at a fixed rate for some seconds. The first is not counted: bursts are allowed in it.
async fn attack(store: &RedisStore, name: &str, quota: Quota, seconds: u64) -> Outcome {
    let limit = Arc::new(bucket(&format!("attacked {name}"), quota));
    let keys = Ring::new((0..KEYS).map(key));
    let mut outcome = Outcome { granted: 0, denied: 0, commands: 0, seconds: 0.0 };
    for second in 0..=seconds {
        let (before, start) = (store.link().commands, now());
        let task = || {
            let (store, limit, keys) = (store.clone(), Arc::clone(&limit), keys.clone());
            tokio::spawn(async move {
                let (mut granted, mut asked) = (0, 0);
                let each = KEYS * EACH / TASKS;
                while asked < each {
                    let due = (each as f64 * start.elapsed().as_secs_f64()) as u64;
                    while asked < due.min(each) {
                        granted += u64::from(ask(&store, &limit, keys.next()).await.is_granted());
                        asked += 1;
                    }
                    tokio::time::sleep(TICK).await;
                }
                (granted, asked)
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| task()).collect();
        for task in tasks {
            let (granted, asked) = task.await.unwrap();
            if second > 0 {
                outcome.granted += granted;
                outcome.denied += asked - granted;
            }
        }
        if second > 0 {
            outcome.commands += store.link().commands - before;
            outcome.seconds += start.elapsed().as_secs_f64();
        }
    }
    outcome
}
