//! The background task of the link: registers the instance, and probes the parts that are down until they are up again.
//!
//! Requests never probe. So none waits while Redis is unreachable, and when it is reachable again each instance opens
//! one connection and makes one small write, at a random time, before its first request.

use super::LinkInner;
use super::connection::Connection;
use crate::link::error::CallError;
use diana_core::Clock;
use redis::Value;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long an instance counts as alive after its last heartbeat: three heartbeats.
const ALIVE: Duration = Duration::from_secs(3);
/// The delay of the first probe, and the maximum delay between two. Together with the timeout of a probe, the maximum
/// is less than the second within which Diana guarantees to reconnect; slightly more for a cluster with a node that hangs.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Runs until the link is dropped.
pub(super) async fn run(link: Weak<LinkInner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(inner) = link.upgrade() else { return };
        let wake = Arc::clone(&inner.wake);
        if inner.is_all_up() {
            drop(inner);
            // Sleeps without a strong reference, so that the link can be dropped.
            if tokio::time::timeout(HEARTBEAT, wake.notified()).await.is_err() {
                // The pause restarts only now: a part that fails repeatedly as soon as it is up must not be probed more often.
                pause = FIRST_PAUSE;
            }
            if let Some(inner) = link.upgrade().filter(|inner| inner.is_all_up()) {
                heartbeat(&inner).await;
            }
            continue;
        }
        reconnect_once(&inner).await;
        if !inner.is_all_up() {
            let jittered = pause.mul_f64(inner.jitter());
            pause = (pause * 2).min(LONGEST_PAUSE);
            drop(inner);
            tokio::time::sleep(jittered).await;
        }
    }
}

/// Registers the instance over the current connection.
async fn heartbeat(inner: &LinkInner) {
    let Some(generation) = inner.registry_breaker().up() else { return };
    let Some(mut connection) = inner.connection() else { return };
    if let Err(error) = announce(inner, &mut connection).await {
        inner.take_down(inner.registry_breaker(), generation, &error.to_string());
    }
}

/// Probes the parts that are down, over a new connection.
async fn reconnect_once(inner: &LinkInner) {
    let mut connection = match inner.connect().await {
        Ok(connection) => connection,
        Err(error) => {
            let reason = CallError::from(error).to_string();
            inner.breakers.iter().for_each(|breaker| inner.log_still_down(breaker, &reason));
            return;
        }
    };
    let down = (0..inner.breakers.len())
        .filter(|index| inner.breakers.get(*index).is_some_and(|breaker| breaker.up().is_none()));
    if inner.probes.is_empty() {
        for index in down {
            let announced = announce(inner, &mut connection).await;
            finish_probe(inner, index, announced, &connection);
        }
        return;
    }
    // Concurrently: a node that hangs has many parts, and each probe takes a timeout.
    let mut probing = JoinSet::new();
    for index in down {
        let Some(probe) = inner.probes.get(index).cloned() else { continue };
        let (connection, timeout) = (connection.clone(), inner.timeout);
        probing.spawn(async move { (index, probe_write(connection, &probe, timeout).await) });
    }
    while let Some(probed) = probing.join_next().await {
        if let Ok((index, written)) = probed {
            finish_probe(inner, index, written, &connection);
        }
    }
    // A part that stays down must not prevent the heartbeat of this instance.
    heartbeat(inner).await;
}

/// Brings a part up if the write over this connection succeeded; the connection is used from then on.
fn finish_probe(inner: &LinkInner, index: usize, written: Result<(), CallError>, connection: &Connection) {
    let Some(breaker) = inner.breakers.get(index) else { return };
    match written {
        Ok(()) => {
            inner.install(connection);
            inner.restore(breaker);
        }
        Err(error) => inner.log_still_down(breaker, &error.to_string()),
    }
}

/// Sends a heartbeat. Updates the number of instances and the clock offset from the reply.
pub(super) async fn announce(inner: &LinkInner, connection: &mut Connection) -> Result<(), CallError> {
    let mut cmd = redis::cmd("EVAL");
    let name = format!("{}:instances", inner.prefix);
    cmd.arg(include_str!("../../scripts/announce.lua")).arg(1).arg(&name);
    cmd.arg(format!("{:016x}", inner.instance)).arg(ALIVE.as_micros().to_string());
    let began = inner.clock.now();
    let reply = tokio::time::timeout(inner.timeout, connection.send(&cmd)).await;
    let reply = match reply.map_err(|_| CallError::TimedOut(inner.timeout))?.map_err(CallError::from) {
        // A foreign key with this name. Redis works, and it checks whether it can write before it checks the type.
        Err(CallError::ScriptFailed(error)) if error.contains("WRONGTYPE") => {
            let reason = format!("key `{name}`: {error}; delete the key, or set another prefix");
            inner.warn_throttled(&reason, "instances cannot be counted");
            return Ok(());
        }
        reply => reply?,
    };
    let Value::Array(numbers) = reply else { return Err(CallError::invalid_reply()) };
    let [Value::Int(now), Value::Int(instances)] = numbers[..] else { return Err(CallError::invalid_reply()) };
    if let Ok(now) = u64::try_from(now) {
        inner.watch_clocks(inner.registry_breaker(), now, began);
        inner.learn(inner.registry_breaker(), now);
    }
    inner.counters.learn_instances(u64::try_from(instances).unwrap_or(1), inner.clock.now(), ALIVE);
    Ok(())
}

/// Writes a key that expires shortly afterwards, in a part of a cluster.
async fn probe_write(mut connection: Connection, probe: &str, timeout: Duration) -> Result<(), CallError> {
    let mut cmd = redis::cmd("SET");
    cmd.arg(probe).arg("").arg("PX").arg(100);
    let reply = tokio::time::timeout(timeout, connection.send(&cmd)).await;
    reply.map_err(|_| CallError::TimedOut(timeout))??;
    Ok(())
}
