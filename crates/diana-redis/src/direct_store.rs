//! The store contract on Redis without caches or fallback: each request is one script call, for keys on one node.

use crate::batch::Batches;
use crate::key::slot;
use crate::limit_config_versions::{LimitConfig, LimitConfigs};
use crate::link::CallError;
use crate::migrate::{self, Dump, push_swap};
use crate::options::{Batching, Options};
use crate::script_call::{Item, Op, Reply, Request, Timing, answers};
use crate::script_runner::{CallContext, ScriptRunner};
use crate::scripted_algorithm::{AskArgs, Effect, LeaseRequest, Numbers};
use diana_core::{Answer, Ask, Cost, Decision, Limit, MaxWait, Receipt, Status, StoreError, Timestamp};
use redis::Value;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often the migration of a state is attempted while other processes write it, before its old parameters are used
/// once more.
const MIGRATION_ATTEMPTS: usize = 4;

/// Redis as a store.
#[derive(Debug)]
pub(crate) struct DirectStore {
    pub(crate) runner: Arc<ScriptRunner>,
    pub(crate) configs: LimitConfigs,
    pub(crate) prefix: String,
    batches: Option<Batches>,
    /// The upper half of this instance's tickets, and the number of tickets issued.
    tickets: (u64, AtomicU64),
    /// The maximum time for which a permit of a concurrency limit is held.
    pub(crate) permits_for: Duration,
    /// The runtime for background work.
    pub(crate) runtime: Handle,
}

/// Which parameters apply to a state that was written under different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterSource {
    /// This process's parameters: the state is migrated.
    Own,
    /// The state's own parameters: a late operation must not undo a change that other processes made in the meantime.
    Stored,
}

/// A receipt for a state: the limit config, the name of the state, and the receipt.
pub(crate) type StateReceipt = (Arc<LimitConfig>, Vec<u8>, Receipt);

/// The asks of a request, with each count only once.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) items: SmallVec<[Item; 2]>,
    /// The index of the item of each ask.
    indexes: SmallVec<[usize; 4]>,
}

impl Items {
    /// Converts a decision over the items into one over the asks.
    pub(crate) fn spread(&self, decision: &Decision) -> Decision {
        Decision::new(self.indexes.iter().filter_map(|index| decision.answers().get(*index).copied()))
    }

    /// Converts a decision over the asks into one over the items.
    pub(crate) fn gather(&self, decision: &Decision) -> Decision {
        let first = |item| self.indexes.iter().position(|index| *index == item);
        Decision::new((0..self.items.len()).filter_map(|item| decision.answers().get(first(item)?).copied()))
    }
}

impl DirectStore {
    pub(crate) fn new(runner: ScriptRunner, options: &Options, instance: u64) -> Self {
        let Options { prefix, batching, permits_for, .. } = options;
        let runner = Arc::new(runner);
        // A script on a cluster can't access keys of other slots.
        let batches = *batching == Batching::On && !runner.link.is_cluster();
        let batches = batches.then(|| Batches::new(Arc::clone(&runner)));
        let tickets = (instance, AtomicU64::new(0));
        let (configs, prefix, runtime) = (LimitConfigs::new(prefix), prefix.clone(), Handle::current());
        Self { runner, configs, prefix, batches, tickets, permits_for: *permits_for, runtime }
    }

    /// Converts the asks to items: each count once, with the highest cost and the lowest maximum wait.
    pub(crate) fn items(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Items, StoreError> {
        // Redis's resolution is whole microseconds: a finer value could be granted in this process and denied on Redis.
        let whole = |max_wait: MaxWait| MaxWait::up_to(Duration::from_micros(max_wait.as_nanos() / 1_000));
        let (mut items, mut indexes) = (SmallVec::<[Item; 2]>::new(), SmallVec::<[usize; 4]>::new());
        for ask in asks {
            let max_wait = whole(ask.max_wait.min(max_wait));
            let config = self.configs.find(ask.limit, Some(now))?;
            let name = config.keys.name(ask.key);
            // Two limits with the same name share one state on Redis.
            if let Some(index) = items.iter().position(|item| item.name == name) {
                if let Some(item) = items.get_mut(index) {
                    item.ask.cost = item.ask.cost.max(ask.cost);
                    item.ask.max_wait = item.ask.max_wait.min(max_wait);
                }
                indexes.push(index);
                continue;
            }
            indexes.push(items.len());
            let (ticket, permits_for) = (self.ticket(), self.permits_for);
            let stored = config.stored_at(now);
            let ask = AskArgs {
                cost: ask.cost,
                max_wait,
                local_now: now,
                ticket,
                permits_for,
                stored,
                min_expiry: config.min_expiry,
            };
            items.push(Item { config, name, ask, view: None });
        }
        Ok(Items { items, indexes })
    }

    /// Returns a number that is unique over all instances.
    pub(crate) fn ticket(&self) -> u128 {
        u128::from(self.tickets.0) << 64 | u128::from(self.tickets.1.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the context of a request that begins now, at the caller's `now`.
    pub(crate) fn context(&self, now: Timestamp) -> CallContext {
        CallContext { now, budget: self.runner.link.budget() }
    }

    /// Returns `true` if all parts of Redis that store these items are up.
    pub(crate) fn is_up(&self, items: &[Item]) -> bool {
        items.iter().all(|item| self.runner.link.is_up(self.runner.link.part(&item.name)))
    }

    /// Returns `true` if one call can't contain all of `items`: a script on a cluster can't access keys of other slots.
    pub(crate) fn spans_slots(&self, items: &[Item]) -> bool {
        self.runner.link.is_cluster() && items.windows(2).any(|two| slot(&two[0].name) != slot(&two[1].name))
    }

    /// Sorts `all` into groups that fit into one call each.
    pub(crate) fn groups<'a, T>(
        &self,
        all: &'a mut [T],
        name: impl Fn(&T) -> &[u8] + 'a,
    ) -> impl Iterator<Item = &'a mut [T]> {
        let is_cluster = self.runner.link.is_cluster();
        let slot_of = move |one: &T| if is_cluster { slot(name(one)) } else { 0 };
        all.sort_by_cached_key(&slot_of);
        all.chunk_by_mut(move |a, b| slot_of(a) == slot_of(b))
    }

    /// Takes or peeks at all of `items`, which are on one node.
    pub(crate) async fn ask(
        &self,
        op: Op,
        items: &mut [Item],
        context: CallContext,
    ) -> Result<SmallVec<[Answer; 8]>, CallError> {
        for _ in 0..=items.len() * MIGRATION_ATTEMPTS {
            let (now, mut reply) = self.run(op, Request::asks(op, items), context).await?;
            match Reply::parse(&mut reply).ok_or_else(CallError::invalid_reply)? {
                Reply::Failed(reason) => return Err(CallError::Unanswerable(reason.to_owned())),
                Reply::Changed(index) => {
                    let item = items.get_mut(index).ok_or_else(CallError::invalid_reply)?;
                    item.config = self.migrate(&item.config, &item.name, ParameterSource::Own, context).await?;
                }
                Reply::Done { granted, states } => {
                    let effect = if granted && op == Op::Take { Effect::Taken } else { Effect::None };
                    let answers = answers(items, states, now, effect).ok_or_else(CallError::invalid_reply)?;
                    let agrees = answers.iter().all(Answer::is_granted) == granted;
                    return if agrees { Ok(answers) } else { Err(CallError::disagreement()) };
                }
            }
        }
        Err(CallError::busy())
    }

    /// Charges `items`, which are on one node, unconditionally. Returns a receipt for each where there is one.
    pub(crate) async fn charge(
        &self,
        items: &mut [Item],
        source: ParameterSource,
        context: CallContext,
    ) -> Result<Vec<Option<Receipt>>, CallError> {
        for _ in 0..=MIGRATION_ATTEMPTS {
            let (now, mut reply) = self.run(Op::Charge, Request::asks(Op::Charge, items), context).await?;
            match Reply::parse(&mut reply).ok_or_else(CallError::invalid_reply)? {
                Reply::Failed(reason) => return Err(CallError::Unanswerable(reason.to_owned())),
                Reply::Done { states, .. } => {
                    let receipts = items.iter().zip(&*states).map(|(item, state)| match state {
                        Value::Array(numbers) => item.config.algorithm.charged(Numbers(numbers), &item.ask, now),
                        _ => None,
                    });
                    return Ok(receipts.collect());
                }
                // Each of many keys may have different parameters, and finding out takes longer than one call has.
                Reply::Changed(_) if items.len() > 1 => return Err(CallError::busy()),
                Reply::Changed(index) => {
                    let item = items.get_mut(index).ok_or_else(CallError::invalid_reply)?;
                    item.config = self.migrate(&item.config, &item.name, source, context).await?;
                }
            }
        }
        Err(CallError::busy())
    }

    /// Returns an ask for a state whose name is known.
    pub(crate) fn item(&self, config: Arc<LimitConfig>, name: Vec<u8>, cost: Cost, now: Timestamp) -> Item {
        let (ticket, permits_for, stored) = (self.ticket(), self.permits_for, config.stored_at(now));
        let ask = AskArgs {
            cost,
            max_wait: MaxWait::NONE,
            local_now: now,
            ticket,
            permits_for,
            stored,
            min_expiry: config.min_expiry,
        };
        Item { config, name, ask, view: None }
    }

    /// Refunds the receipts, or extends the time for which their permits are held; as many of them as possible. Returns
    /// an error if one failed, preferably a transient one.
    pub(crate) async fn apply_receipts(
        &self,
        op: Op,
        receipts: &mut [StateReceipt],
        source: ParameterSource,
        context: CallContext,
    ) -> Result<(), CallError> {
        let mut all = Ok(());
        for group in self.groups(receipts, |(_, name, _)| name) {
            let mut done = self.apply_receipts_once(op, group, source, context).await;
            if group.len() > 1 && matches!(&done, Err(error) if error.is_caused_by_keys()) {
                // One failed key must not prevent the refund of the others.
                done = Ok(());
                for one in group.chunks_mut(1) {
                    done = prefer_transient(done, self.apply_receipts_once(op, one, source, context).await);
                }
            }
            all = prefer_transient(all, done);
        }
        all
    }

    async fn apply_receipts_once(
        &self,
        op: Op,
        receipts: &mut [StateReceipt],
        source: ParameterSource,
        context: CallContext,
    ) -> Result<(), CallError> {
        for _ in 0..=receipts.len() * MIGRATION_ATTEMPTS {
            let (_, mut reply) = self.run(op, Request::receipts(op, receipts, self.permits_for), context).await?;
            match Reply::parse(&mut reply).ok_or_else(CallError::invalid_reply)? {
                Reply::Failed(reason) => return Err(CallError::Unanswerable(reason.to_owned())),
                Reply::Done { .. } => return Ok(()),
                Reply::Changed(index) => {
                    let (config, name, _) = receipts.get_mut(index).ok_or_else(CallError::invalid_reply)?;
                    *config = self.migrate(config, name, source, context).await?;
                }
            }
        }
        Err(CallError::busy())
    }

    /// Leases a block of one of the sizes in `lease`. Returns its number of permits and the state's status afterwards,
    /// or `None` if the state was written under other parameters.
    pub(crate) async fn lease(
        &self,
        config: &LimitConfig,
        name: &[u8],
        lease: &LeaseRequest<'_>,
        context: CallContext,
    ) -> Result<Option<(u64, Status)>, CallError> {
        let (now, mut reply) = self.run(Op::Lease, Request::lease(config, name.to_vec(), lease), context).await?;
        match Reply::parse(&mut reply).ok_or_else(CallError::invalid_reply)? {
            Reply::Failed(reason) => Err(CallError::Unanswerable(reason.to_owned())),
            Reply::Changed(_) => Ok(None),
            Reply::Done { states, .. } => {
                let Some(Value::Array(numbers)) = states.first() else { return Err(CallError::invalid_reply()) };
                let numbers = Numbers(numbers);
                // The size is the last number.
                let size = numbers.0.len().checked_sub(1).and_then(|last| numbers.whole(last));
                let leased = size.zip(config.algorithm.status(numbers, now));
                leased.map(Some).ok_or_else(CallError::invalid_reply)
            }
        }
    }

    /// Resets a key.
    pub(crate) async fn reset(&self, config: &LimitConfig, key: &[u8], context: CallContext) -> Result<(), CallError> {
        let name = config.keys.name(key);
        let mut cmd = redis::cmd("UNLINK");
        cmd.arg(&name);
        self.runner.link.call(self.runner.link.part(&name), &cmd, context.budget).await.map(drop)
    }

    /// Returns the config of a limit.
    pub(crate) fn config(&self, limit: &Limit) -> Result<Arc<LimitConfig>, StoreError> {
        self.configs.find(limit, None)
    }

    /// Migrates the state at `name` to `config`, or uses the state's own parameters if they are newer or if `source`
    /// selects them. Returns the config to retry with.
    async fn migrate(
        &self,
        config: &Arc<LimitConfig>,
        name: &[u8],
        source: ParameterSource,
        context: CallContext,
    ) -> Result<Arc<LimitConfig>, CallError> {
        let (runner, part) = (&self.runner, self.runner.link.part(name));
        let mut last = None;
        for _ in 0..MIGRATION_ATTEMPTS {
            let value = runner.script(&runner.scripts.dump, part, context.budget, |cmd| {
                cmd.arg(1).arg(name);
            });
            let value = value.await?;
            let (redis_now, text) = parse_dump(&value).ok_or_else(CallError::invalid_reply)?;
            let Some(text) = text else { return Ok(Arc::clone(config)) };
            let foreign = |reason| CallError::Unanswerable(format!("key `{}`: {reason}", name.escape_ascii()));
            let dump = Dump::parse(&text).map_err(foreign)?;
            let caller_time = runner.caller_time(context);
            let now = Timestamp::from_micros(caller_time.unwrap_or(redis_now));
            if dump.algorithm.parameters() == config.algorithm.parameters() {
                // Another process migrated it first; or it only resembles a Diana state.
                return if dump.is_valid(now) { Ok(Arc::clone(config)) } else { Err(foreign(migrate::foreign())) };
            }
            if let Some(newer) = self.configs.adopt(config, &dump.algorithm, &dump.since) {
                return Ok(newer);
            }
            if source == ParameterSource::Stored {
                return Ok(Arc::new(config.as_written(&dump.algorithm, &dump.since)));
            }
            let state = dump.migrate(config, now).ok_or_else(|| foreign(migrate::foreign()))?;
            let swapped = runner.script(&runner.scripts.swap, part, context.budget, |cmd| {
                cmd.arg(1).arg(name);
                push_swap(cmd, &text, config, &dump, &state, caller_time.is_some());
            });
            if swapped.await? == Value::Int(1) {
                return Ok(Arc::clone(config));
            }
            last = Some(dump);
        }
        // Other processes write this key all the time: use its old parameters for this request.
        let dump = last.ok_or_else(CallError::busy)?;
        Ok(Arc::new(config.as_written(&dump.algorithm, &dump.since)))
    }

    /// Runs decide.lua for one request. Returns Redis's time and the result.
    async fn run(&self, op: Op, request: Request, context: CallContext) -> Result<(Timestamp, Value), CallError> {
        match self.run_once(op, request.clone(), context).await {
            // The answer has arrived, so it was not late: Redis's clock was changed. The offset is updated by now.
            Err(CallError::Late) => self.run_once(op, request, context).await,
            Err(CallError::ScriptFailed(reason)) => {
                let names = request.names().iter().map(|name| format!("`{}`", name.escape_ascii()));
                let names = names.collect::<Vec<_>>().join(", ");
                let hint = "delete the key if Diana did not write it, or set another prefix";
                Err(CallError::Unanswerable(format!("key {names}: {reason}; {hint}")))
            }
            other => other,
        }
    }

    async fn run_once(&self, op: Op, request: Request, context: CallContext) -> Result<(Timestamp, Value), CallError> {
        if let Some(batches) = self.batches.as_ref().filter(|_| op == Op::Take) {
            return batches.take(request, context).await;
        }
        // A late refund is still correct.
        let part = request.names().first().map_or(0, |name| self.runner.link.part(name));
        let deadline = if op == Op::Refund { None } else { self.runner.deadline(part, context) };
        let timing = Timing { now: self.runner.script_time(context), deadline };
        let (now, replies) = self.runner.decide(op, &[request], part, timing, context.budget).await?;
        replies.into_iter().next().map(|reply| (now, reply)).ok_or_else(CallError::invalid_reply)
    }
}

/// Returns the transient one of two errors.
fn prefer_transient(one: Result<(), CallError>, other: Result<(), CallError>) -> Result<(), CallError> {
    match (one, other) {
        (Err(one), Err(other)) => Err(if one.is_transient() { one } else { other }),
        (one, other) => one.and(other),
    }
}

/// Returns Redis's time, and the text of the state if there is one.
fn parse_dump(value: &Value) -> Option<(u64, Option<Cow<'_, str>>)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(now), text] = &parts[..] else { return None };
    let text = match text {
        // Diana writes only text.
        Value::BulkString(text) => Some(String::from_utf8_lossy(text)),
        _ => None,
    };
    Some((u64::try_from(*now).ok()?, text))
}
