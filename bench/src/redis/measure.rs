//! The measurement: every contender has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second; two consecutive slices see the same machine.
//! Redis's CPU time is read before and after each slice, while nothing is in flight.

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

/// The expected results of a contender's operations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Granted,
    Denied,
}

/// The number of allowed operations.
type Granted = Pin<Box<dyn Future<Output = u64>>>;

/// A measured implementation.
pub(crate) struct Contender {
    name: &'static str,
    expect: Expect,
    run: Box<dyn Fn(u64) -> Granted>,
    /// The store whose commands are counted.
    store: Option<RedisStore>,
}

impl Contender {
    /// Creates a contender with `depth` operations in flight at any time, each of them one call of `operation`.
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

    /// Counts the commands of `store` for this contender.
    pub(crate) fn counting(self, store: &RedisStore) -> Self {
        Self { store: Some(store.clone()), ..self }
    }

    fn commands(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.link().commands)
    }
}

/// Keeps `depth` operations in flight until `operations` are done. Returns how many were allowed.
async fn in_flight<F>(depth: u64, operations: u64, operation: Arc<impl Fn() -> F + Send + Sync + 'static>) -> u64
where
    F: Future<Output = bool> + Send + 'static,
{
    let remaining = Arc::new(AtomicU64::new(operations));
    let worker = || {
        let (remaining, operation) = (Arc::clone(&remaining), Arc::clone(&operation));
        async move {
            let mut granted = 0;
            while remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok() {
                granted += u64::from(operation().await);
                // Operations decided in this process never yield, and would starve the other tasks.
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

/// The measurements, by contender and round.
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

    /// Returns Redis's CPU per operation, in nanoseconds.
    pub(crate) fn cpu(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.cpu / slice.operations)
    }

    /// Returns the same relative to that of a peer.
    pub(crate) fn cpu_ratio(&self, contender: usize, peer: usize) -> f64 {
        self.ratio(contender, peer, |slice| slice.cpu / slice.operations)
    }

    /// Returns the operations per second.
    pub(crate) fn rate(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.operations / slice.seconds)
    }

    /// Returns the same relative to that of a peer.
    pub(crate) fn rate_ratio(&self, contender: usize, peer: usize) -> f64 {
        self.ratio(contender, peer, |slice| slice.operations / slice.seconds)
    }

    /// Returns the commands per operation.
    pub(crate) fn commands(&self, contender: usize) -> f64 {
        self.median(contender, |slice| slice.commands / slice.operations)
    }
}

/// Measures `contenders` in turns. Panics if the results of their operations are not as expected.
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
    let (cpu, commands, start) = (server.cpu(), contender.commands(), now());
    let granted = runtime.block_on((contender.run)(operations));
    let seconds = start.elapsed().as_secs_f64();
    let expected = if contender.expect == Expect::Granted { operations } else { 0 };
    assert_eq!(granted, expected, "{}: unexpected grants of {operations} operations", contender.name);
    Slice {
        operations: operations as f64,
        seconds,
        cpu: (server.cpu() - cpu) as f64,
        commands: (contender.commands() - commands) as f64,
    }
}

/// Returns the number of operations that fill a slice. Also warms up.
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
