//! How it is measured: every contender has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second; two slices that lie beside each other see the same
//! machine. What Redis's CPU costs is read off the process before and after each slice, while nothing is under way.

use crate::setup::Server;
use diana_bench::{median, now};
use diana_redis::RedisStore;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// What the operations of a contender must come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Granted,
    Denied,
}

/// How many operations of the given number were granted.
type Granted = Pin<Box<dyn Future<Output = u64>>>;

/// Somebody who takes part.
pub(crate) struct Contender {
    name: &'static str,
    expect: Expect,
    run: Box<dyn Fn(u64) -> Granted>,
    /// Whose commands are counted.
    store: Option<RedisStore>,
}

impl Contender {
    /// A contender that has `depth` operations in flight at any time, each of them one call of `operation`.
    pub(crate) fn new<F>(
        name: &'static str,
        depth: u64,
        expect: Expect,
        operation: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let operation = Arc::new(operation);
        let run = move |operations| -> Granted { Box::pin(in_flight(depth, operations, Arc::clone(&operation))) };
        Self { name, expect, run: Box::new(run), store: None }
    }

    /// The commands of `store` are this contender's.
    pub(crate) fn counting(self, store: &RedisStore) -> Self {
        Self { store: Some(store.clone()), ..self }
    }

    fn commands(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.link().commands)
    }
}

/// Keeps `depth` operations in flight until `operations` are done: how many were granted.
async fn in_flight<F>(depth: u64, operations: u64, operation: Arc<impl Fn() -> F + Send + Sync + 'static>) -> u64
where
    F: Future<Output = bool> + Send + 'static,
{
    let left = Arc::new(AtomicU64::new(operations));
    let worker = || {
        let (left, operation) = (Arc::clone(&left), Arc::clone(&operation));
        async move {
            let mut granted = 0;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                granted += u64::from(operation().await);
                // What is answered here never waits, and a request that never waits would keep the others from theirs.
                tokio::task::consume_budget().await;
            }
            granted
        }
    };
    let workers: Vec<_> = (0..depth).map(|_| tokio::spawn(worker())).collect();
    let mut granted = 0;
    for worker in workers {
        granted += worker.await.unwrap();
    }
    granted
}

/// One slice.
#[derive(Clone, Copy)]
struct Slice {
    operations: f64,
    seconds: f64,
    cpu: f64,
    commands: f64,
}

/// What was measured, by contender and round.
pub(crate) struct Measured {
    slices: Vec<Vec<Slice>>,
}

impl Measured {
    fn median(&self, contender: usize, of: impl Fn(&Slice) -> f64) -> f64 {
        median(self.slices[contender].iter().map(of).collect())
    }

    fn ratio(&self, contender: usize, peer: usize, of: impl Fn(&Slice) -> f64) -> f64 {
        let pairs = self.slices[contender].iter().zip(&self.slices[peer]);
        median(pairs.map(|(slice, peer)| of(slice) / of(peer)).collect())
    }

    /// Redis's CPU for one operation, in nanoseconds.
    pub(crate) fn cpu(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.cpu / slice.operations)
    }

    /// The same, in that of a peer.
    pub(crate) fn cpu_ratio(&self, contender: usize, peer: usize) -> f64 {
        self.ratio(contender, peer, |slice| slice.cpu / slice.operations)
    }

    /// Operations a second.
    pub(crate) fn rate(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.operations / slice.seconds)
    }

    /// The same, in that of a peer.
    pub(crate) fn rate_ratio(&self, contender: usize, peer: usize) -> f64 {
        self.ratio(contender, peer, |slice| slice.operations / slice.seconds)
    }

    /// Commands for one operation.
    pub(crate) fn commands(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.commands / slice.operations)
    }
}

/// Measures `contenders` in turns. Panics if their operations do not come to what is expected.
pub(crate) fn measure(runtime: &Runtime, server: &Server, effort: Effort, contenders: &[Contender]) -> Measured {
    let sizes: Vec<u64> =
        contenders.iter().map(|contender| calibrate(runtime, server, contender, effort.slice)).collect();
    let mut slices = vec![Vec::with_capacity(effort.rounds); contenders.len()];
    for round in 0..effort.rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            slices[index].push(slice(runtime, server, &contenders[index], sizes[index]));
        }
    }
    Measured { slices }
}

fn slice(runtime: &Runtime, server: &Server, contender: &Contender, operations: u64) -> Slice {
    let (cpu, commands, began) = (server.cpu(), contender.commands(), now());
    let granted = runtime.block_on((contender.run)(operations));
    let seconds = began.elapsed().as_secs_f64();
    let expected = if contender.expect == Expect::Granted { operations } else { 0 };
    assert_eq!(granted, expected, "{}: granted of {operations}, which is not what this measures", contender.name);
    Slice {
        operations: operations as f64,
        seconds,
        cpu: (server.cpu() - cpu) as f64,
        commands: (contender.commands() - commands) as f64,
    }
}

/// How many operations fill a slice. Warms up on the way.
fn calibrate(runtime: &Runtime, server: &Server, contender: &Contender, length: Duration) -> u64 {
    let mut operations = 64;
    loop {
        let took = slice(runtime, server, contender, operations).seconds;
        if took * 4.0 >= length.as_secs_f64() {
            return (operations as f64 * length.as_secs_f64() / took) as u64 + 1;
        }
        operations *= 2;
    }
}
