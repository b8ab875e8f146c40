//! The active checks of upstreams: one thread for the whole gateway, with a task for each upstream and check.
//!
//! The thread starts with the first check, and ends with the gateway. A task makes one check at a time, so an upstream
//! that is slow is not checked faster than it answers. Tasks start at a random time of the first interval: otherwise all
//! gateways that start together would check together.

use super::health::ActiveHealth;
use super::{Connector, probe};
use crate::section::HealthCheck;
use diana_rules::upstream_url::Upstream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

/// An upstream and its check.
#[derive(Clone, Debug)]
pub(crate) struct CheckTarget {
    pub(super) upstream: Upstream,
    pub(super) check: HealthCheck,
    pub(super) health: Arc<ActiveHealth>,
}

/// Runs the checks of a gateway.
pub(crate) struct Checker {
    connector: Connector,
    thread: Mutex<Option<CheckerThread>>,
}

struct CheckerThread {
    /// Dropped to end the thread.
    targets: watch::Sender<Vec<CheckTarget>>,
    thread: JoinHandle<()>,
}

impl Checker {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, thread: Mutex::default() }
    }

    /// Replaces the checks. Those that stay are not interrupted.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub(crate) fn set(&self, targets: Vec<CheckTarget>) -> io::Result<()> {
        let mut running = self.thread.lock();
        match &*running {
            Some(thread) => {
                thread.targets.send_replace(targets);
            }
            None if targets.is_empty() => {}
            None => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let (targets, receiver) = watch::channel(targets);
                let connector = self.connector.clone();
                let run = move || {
                    runtime.block_on(run(receiver, connector));
                    // Does not wait for a name that is being resolved.
                    runtime.shutdown_background();
                };
                let thread = std::thread::Builder::new().name("health-checks".to_owned()).spawn(run)?;
                *running = Some(CheckerThread { targets, thread });
            }
        }
        Ok(())
    }

    /// Stops all checks.
    pub(crate) fn stop(&self) {
        let stopped = self.thread.lock().take();
        if let Some(CheckerThread { targets, thread }) = stopped {
            drop(targets);
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Checker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

/// Keeps a task for each target, until there are no more changes of the targets.
async fn run(mut targets: watch::Receiver<Vec<CheckTarget>>, connector: Connector) {
    let mut tasks: HashMap<(Upstream, HealthCheck), AbortHandle> = HashMap::new();
    loop {
        let wanted = targets.borrow_and_update().clone();
        tasks.retain(|(upstream, check), task| {
            let stays = wanted.iter().any(|target| target.upstream == *upstream && target.check == *check);
            if !stays {
                task.abort();
            }
            stays
        });
        for target in wanted {
            let key = (target.upstream.clone(), target.check.clone());
            tasks.entry(key).or_insert_with(|| tokio::spawn(check(target, connector.clone())).abort_handle());
        }
        if targets.changed().await.is_err() {
            return;
        }
    }
}

/// Checks one upstream, forever.
async fn check(target: CheckTarget, connector: Connector) {
    let CheckTarget { upstream, check, health } = target;
    let mut times = tokio::time::interval_at(Instant::now() + jitter(check.interval), check.interval);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let result = probe::probe(&connector, &upstream, &check).await.map_err(|error| error.to_string());
        let failure = result.as_ref().err().cloned();
        let path = &check.path;
        match (health.record(result, &check), failure) {
            (true, Some(error)) => tracing::warn!("upstream {upstream} fails its checks of {path}: {error}"),
            (true, None) => tracing::info!("upstream {upstream} passes its checks of {path} again"),
            (false, Some(error)) => tracing::debug!("upstream {upstream} failed a check of {path}: {error}"),
            (false, None) => {}
        }
    }
}

/// Returns a random part of an interval.
fn jitter(interval: Duration) -> Duration {
    let thousandths = u32::try_from(RandomState::new().hash_one(()) % 1_000).unwrap_or_default();
    interval * thousandths / 1_000
}
