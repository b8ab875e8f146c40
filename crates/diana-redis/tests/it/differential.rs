//! For any requests, the shared store answers as the one in process does: every field, to less than one tick of Redis.
//!
//! The conformance kit has few parameters and runs long scripts on each. In this test the parameters are random as
//! well, a request may have several limits, and limits change on the way, to other parameters and to other algorithms.
//! Both stores get the same time, in whole microseconds, and their own receipts.

mod limits;
mod script;

use crate::support::healthy_store;
use diana_core::{
    Answer, Ask, Cost, Decision, Limit, MaxWait, MemoryStore, Outcome, Retry, SmoothWarmingUp, Store, Timestamp,
};
use diana_redis::{Batching, DenyCache, Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use limits::{Kind, Migration};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use script::{AskSpec, Change, KEYS, Script, Step, scripts};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TICK: Duration = Duration::from_micros(1);
/// Permits are held for longer than any script takes: only the shared store has expiring leases.
const YEARS: Duration = Duration::from_secs(50 * 365 * 86_400);

/// The in-process store distinguishes this many changes of a limit within one microsecond (`MAX_CHANGES` of diana-core's
/// `limit_versions.rs`). After more of them, an idle key of a warming-up limit has the store of a new one, which differs
/// in its last bit, until the microsecond ends.
const MAX_CHANGES_PER_MICROSECOND: usize = 4;

const NAMES: [&[u8]; KEYS] = [b"a", b"b", b"c"];

/// Runs a thousand random scripts, or `PROPTEST_CASES`. Returns how often the deny cache answered.
fn run(options: fn(Options) -> Options) -> u64 {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config = Config { failure_persistence: None, max_shrink_iters: 4_096, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    let (next, cached) = (AtomicU64::new(0), AtomicU64::new(0));
    let result = TestRunner::new(config).run(&scripts(), |script| {
        runtime.block_on(async {
            let prefix = format!("script-{}", next.fetch_add(1, Ordering::Relaxed));
            // An answer without Redis would prove nothing.
            let options = options(Options::default().prefix(prefix)).when_down(WhenDown::Deny);
            let options = options.time_source(TimeSource::Caller).permits_for(YEARS).timeout(Duration::from_secs(10));
            let shared = healthy_store(&redis.url(), options).await;
            let mut both = Both::new(shared, &script);
            let result = both.run(&script.steps).await;
            cached.fetch_add(both.shared.link().saved_by_deny_cache, Ordering::Relaxed);
            result
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    cached.into_inner()
}

#[test]
fn memory_and_redis_answer_alike() {
    assert_eq!(run(|options| options.deny_cache(DenyCache::Off).batching(Batching::Off)), 0);
}

#[test]
fn memory_and_redis_answer_alike_by_default() {
    let cached = run(|options| options);
    assert!(cached > 100, "only {cached} denials were cached");
}

/// A receipt from before the changes may match the state again, which then differs from that of a new key.
#[tokio::test]
async fn a_rate_that_changes_and_changes_back_within_a_microsecond() {
    let redis = RedisServer::start().unwrap();
    let options =
        Options::default().when_down(WhenDown::Deny).time_source(TimeSource::Caller).timeout(Duration::from_secs(10));
    let shared = healthy_store(&redis.url(), options).await;
    let (memory, now, warm_up) = (MemoryStore::default(), Timestamp::from_secs(1_700_000_000), Duration::from_secs(3));
    for number in 1..400_u32 {
        let rates = [f64::from(number) / 7.0, f64::from(number % 13 + 1) / 3.0]
            .map(|rate| SmoothWarmingUp::new(rate, warm_up).unwrap());
        let before = Limit::new(format!("limit-{number}"), rates[0]);
        let between = before.changed_to(rates[1]);
        let after = between.changed_to(rates[0]);
        let ask = Ask::one(&before, "x");
        let taken = memory.decide(&[ask], now, MaxWait::NONE).await.unwrap();
        let taken_on_redis = shared.decide(&[ask], now, MaxWait::NONE).await.unwrap();
        for limit in [&between, &after] {
            let ask = [Ask::one(limit, "x")];
            let _ = memory.peek(&ask, now, MaxWait::NONE).await.unwrap();
            let _ = shared.peek(&ask, now, MaxWait::NONE).await.unwrap();
        }
        let ask = [Ask::one(&after, "x")];
        memory.refund(&ask, &taken, now).await.unwrap();
        shared.refund(&ask, &taken_on_redis, now).await.unwrap();
        let from_memory = memory.peek(&ask, now, MaxWait::NONE).await.unwrap();
        let from_redis = shared.peek(&ask, now, MaxWait::NONE).await.unwrap();
        assert_eq!(from_memory.answers()[0].status(), from_redis.answers()[0].status(), "{number}");
    }
}

/// Both stores, after the same requests.
struct Both<'a> {
    shared: RedisStore,
    memory: MemoryStore,
    script: &'a Script,
    limits: Vec<Current>,
    now: Timestamp,
    /// The wait that the last answer returned.
    reported_wait: Duration,
    decided: Vec<Decided>,
}

/// The current version of a limit.
struct Current {
    kind: Kind,
    limit: Limit,
    /// How its keys were migrated to it.
    migration: Migration,
    /// When the limit last changed, and its changes within that microsecond.
    changes: (Timestamp, usize),
}

/// A request that may be refunded.
struct Decided {
    specs: Vec<AskSpec>,
    memory: Decision,
    shared: Decision,
}

impl<'a> Both<'a> {
    fn new(shared: RedisStore, script: &'a Script) -> Self {
        let named = |(index, family): (usize, &Vec<Kind>)| {
            let (kind, limit) = (family[0].clone(), family[0].limit(&format!("limit-{index}")));
            Current { kind, limit, migration: Migration::Equal, changes: (Timestamp::default(), 0) }
        };
        Self {
            shared,
            memory: MemoryStore::default(),
            script,
            limits: script.limits.iter().enumerate().map(named).collect(),
            now: Timestamp::from_micros(script.start),
            reported_wait: Duration::ZERO,
            decided: Vec::new(),
        }
    }

    async fn run(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            match step {
                Step::Wait(micros) => self.now = self.now + Duration::from_micros(*micros),
                Step::WaitAsReported(more) => self.wait_as_reported(*more),
                Step::Ask(specs, max_wait) => self.ask(specs, *max_wait).await?,
                Step::Peek(specs, max_wait) => self.peek(specs, *max_wait).await?,
                Step::Charge(spec) => {
                    let ask = self.asks(&[*spec])[0];
                    self.memory.charge(ask, self.now).await.unwrap();
                    self.shared.charge(ask, self.now).await.unwrap();
                }
                Step::Refund(index) if !self.decided.is_empty() => {
                    let newest = self.decided.len() - 1;
                    let Decided { specs, memory, shared } = self.decided.remove(newest - index % (newest + 1));
                    let asks = self.asks(&specs);
                    self.memory.refund(&asks, &memory, self.now).await.unwrap();
                    self.shared.refund(&asks, &shared, self.now).await.unwrap();
                    self.compare_all().await?;
                }
                Step::Refund(_) => {}
                Step::Reset(spec) => self.reset(spec).await?,
                Step::Change(change) => self.change(change).await?,
            }
        }
        self.compare_all().await
    }

    /// To the next whole microsecond; at most a year, so that the clock does not overflow.
    fn wait_as_reported(&mut self, more: i64) {
        let micros = u64::try_from(self.reported_wait.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let micros = micros.min(365 * 86_400 * 1_000_000).saturating_add_signed(more);
        self.now = Timestamp::from_micros(self.now.as_micros() + micros);
    }

    async fn ask(&mut self, specs: &[AskSpec], max_wait: MaxWait) -> Result<(), TestCaseError> {
        let asks = self.asks(specs);
        let memory = self.memory.decide(&asks, self.now, max_wait).await.unwrap();
        let shared = self.shared.decide(&asks, self.now, max_wait).await.unwrap();
        self.compare("decide", &asks, max_wait, &memory, &shared)?;
        let answer = &memory.answers()[0];
        self.reported_wait = match (memory.retry(), memory.wait()) {
            (Some(Retry::After(after)), _) => after,
            (_, Some(wait)) if !wait.is_zero() => wait,
            _ => answer.status().reset,
        };
        // Denials too: their refund has no effect.
        self.decided.push(Decided { specs: specs.to_vec(), memory, shared });
        Ok(())
    }

    async fn peek(&self, specs: &[AskSpec], max_wait: MaxWait) -> Result<(), TestCaseError> {
        let asks = self.asks(specs);
        let memory = self.memory.peek(&asks, self.now, max_wait).await.unwrap();
        let shared = self.shared.peek(&asks, self.now, max_wait).await.unwrap();
        self.compare("peek", &asks, max_wait, &memory, &shared)
    }

    async fn reset(&mut self, spec: &AskSpec) -> Result<(), TestCaseError> {
        let limit = &self.limits[spec.limit].limit;
        self.memory.reset(limit, NAMES[spec.key], self.now).await.unwrap();
        self.shared.reset(limit, NAMES[spec.key], self.now).await.unwrap();
        // Whether a receipt is valid after a reset depends on the store: one that counts held permits accepts it, one
        // that knows each permit by name does not.
        self.drop_receipts(|other| (other.limit, other.key) == (spec.limit, spec.key));
        self.compare_all().await
    }

    async fn change(&mut self, change: &Change) -> Result<(), TestCaseError> {
        let to = &self.script.limits[change.family][change.index];
        let Current { kind, limit, migration: before, changes: (at, count) } = &self.limits[change.limit];
        let migration = to.migration_from(kind);
        let changes = if *at == self.now { count + 1 } else { 1 };
        if changes > MAX_CHANGES_PER_MICROSECOND {
            return Ok(());
        }
        if migration == Migration::Different || (migration, *before) == (Migration::Rounded, Migration::Rounded) {
            return Ok(());
        }
        // A refund after a migration with rounding rounds again, to more than a tick in total.
        let keeps_receipts = to.keeps_receipts_of(kind) && migration != Migration::Rounded;
        self.limits[change.limit] =
            Current { kind: to.clone(), limit: to.changed(limit), migration, changes: (self.now, changes) };
        if !keeps_receipts {
            self.drop_receipts(|spec| spec.limit == change.limit);
        }
        // Stores may migrate a key at once, or at its next use: after this both are the same.
        self.compare_all().await
    }

    /// Removes the requests with an ask that matches `filter`.
    fn drop_receipts(&mut self, filter: impl Fn(&AskSpec) -> bool) {
        self.decided.retain(|decided| !decided.specs.iter().any(&filter));
    }

    /// Compares the status of each key of each limit, without an effect.
    async fn compare_all(&self) -> Result<(), TestCaseError> {
        for limit in 0..self.limits.len() {
            for key in 0..KEYS {
                self.peek(&[AskSpec { limit, key, cost: 1 }], MaxWait::NONE).await?;
            }
        }
        Ok(())
    }

    fn asks(&self, specs: &[AskSpec]) -> Vec<Ask<'_>> {
        let ask = |spec: &AskSpec| {
            let cost = Cost::new(spec.cost).unwrap();
            Ask::new(&self.limits[spec.limit].limit, NAMES[spec.key], cost)
        };
        specs.iter().map(ask).collect()
    }

    fn compare(
        &self,
        what: &str,
        asks: &[Ask<'_>],
        max_wait: MaxWait,
        memory: &Decision,
        shared: &Decision,
    ) -> Result<(), TestCaseError> {
        let are_equal = memory.answers().len() == shared.answers().len()
            && memory.answers().iter().zip(shared.answers()).all(|(memory, shared)| same(memory, shared));
        prop_assert!(
            are_equal,
            "{what} {asks:?} at {:?}, {max_wait:?}:\n  memory {:?}\n  redis  {:?}",
            self.now,
            memory.answers(),
            shared.answers(),
        );
        Ok(())
    }
}

/// Returns `true` if two answers are equal. The mark of a receipt is specific to each store.
fn same(memory: &Answer, shared: &Answer) -> bool {
    let is_near = |a: Duration, b: Duration| a.abs_diff(b) < TICK;
    let outcomes = match (memory.outcome, shared.outcome) {
        (Outcome::Granted { wait: a, receipt }, Outcome::Granted { wait: b, receipt: other }) => {
            is_near(a, b) && receipt.cost() == other.cost()
        }
        (Outcome::Denied { retry: Retry::After(a) }, Outcome::Denied { retry: Retry::After(b) }) => is_near(a, b),
        (Outcome::Denied { retry }, Outcome::Denied { retry: other }) => retry == other,
        _ => false,
    };
    let (a, b) = (memory.status(), shared.status());
    outcomes && a.limit == b.limit && a.remaining == b.remaining && is_near(a.reset, b.reset)
}
