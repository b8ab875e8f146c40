//! The store's contract on Redis, without any comforts: each request is one script call.

use crate::carry::{Dump, push_swap};
use crate::link::{CallError, Link};
use crate::module::{Needs, Script, Scripts};
use crate::options::Times;
use crate::plans::{Plan, Plans};
use crate::request::{How, Item, Op, Reply, Request, Timing, answers, command, parts};
use crate::scripted::{Asking, Effect};
use diana_core::{Ask, Decision, Limit, Patience, Receipt, Timestamp};
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a state is tried to be carried over while others write it, before its old parameters are gone by once more.
const CARRIES: usize = 4;

/// How long permits in flight are kept for somebody who does not give them back.
const PERMITS_FOR: std::time::Duration = std::time::Duration::from_secs(60);

/// Redis as a store.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) link: Link,
    pub(crate) plans: Plans,
    scripts: Scripts,
    times: Times,
    /// The upper half of this instance's tickets, and how many it gave out.
    tickets: (u64, AtomicU64),
}

/// The time of a call: when a request was made, and what it was told of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The caller's time.
    pub(crate) now: Timestamp,
}

impl Remote {
    pub(crate) fn new(link: Link, prefix: &str, times: Times, instance: u64) -> Self {
        let tickets = (instance, AtomicU64::new(0));
        Self { link, plans: Plans::new(prefix), scripts: Scripts::default(), times, tickets }
    }

    /// The asks as items: each count once, at the largest cost; and for each ask which of the items is its own.
    pub(crate) fn items(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        patience: Patience,
    ) -> Result<(Vec<Item>, Vec<usize>), diana_core::StoreError> {
        let (mut items, mut places) = (Vec::<Item>::with_capacity(asks.len()), Vec::with_capacity(asks.len()));
        for (index, ask) in asks.iter().enumerate() {
            let first = asks.iter().take(index).position(|other| other.same_count(ask));
            if let Some(place) = first.and_then(|first| places.get(first).copied()) {
                if let Some(item) = items.get_mut::<usize>(place) {
                    item.asking.cost = item.asking.cost.max(ask.cost);
                }
                places.push(place);
                continue;
            }
            let plan = self.plans.find(ask.limit, now)?;
            let name = plan.keys.name(ask.key);
            // In whole microseconds, as Redis counts: what is finer would be granted here and denied there.
            let patience = Patience::up_to(std::time::Duration::from_micros(patience.as_nanos() / 1_000));
            let ticket = u128::from(self.tickets.0) << 64 | u128::from(self.tickets.1.fetch_add(1, Ordering::Relaxed));
            places.push(items.len());
            items.push(Item {
                plan,
                name,
                asking: Asking { cost: ask.cost, patience, about: now, ticket, permits_for: PERMITS_FOR },
            });
        }
        Ok((items, places))
    }

    /// Takes all of `items`, or looks at them.
    pub(crate) async fn ask(&self, op: Op, items: &mut [Item], moment: Moment) -> Result<Decision, CallError> {
        for _ in 0..=items.len() * (CARRIES + 1) {
            let request = Request::asks(op, items);
            let value = self.run(op, std::slice::from_ref(&request), moment).await?;
            let (now, part) = first_part(&value)?;
            match Reply::read(part).ok_or_else(CallError::nonsense)? {
                Reply::Changed(index) => {
                    let item = items.get_mut(index).ok_or_else(CallError::nonsense)?;
                    item.plan = self.bring_over(&item.plan, &item.name, moment).await?;
                }
                Reply::Done { granted, seen } => {
                    let effect = if granted && op == Op::Take { Effect::Taken } else { Effect::None };
                    let decision = Decision::from(answers(items, seen, now, effect).ok_or_else(CallError::nonsense)?);
                    return if decision.is_granted() == granted { Ok(decision) } else { Err(CallError::disagreement()) };
                }
            }
        }
        Err(CallError::busy())
    }

    /// Charges `item` without asking.
    pub(crate) async fn charge(&self, item: &mut Item, moment: Moment) -> Result<(), CallError> {
        for _ in 0..=CARRIES {
            let request = Request::asks(Op::Charge, std::slice::from_ref(item));
            let value = self.run(Op::Charge, std::slice::from_ref(&request), moment).await?;
            match Reply::read(first_part(&value)?.1).ok_or_else(CallError::nonsense)? {
                Reply::Done { .. } => return Ok(()),
                Reply::Changed(_) => item.plan = self.bring_over(&item.plan, &item.name, moment).await?,
            }
        }
        Err(CallError::busy())
    }

    /// Gives back what the receipts say.
    pub(crate) async fn refund(
        &self,
        items: &mut [(Arc<Plan>, Vec<u8>, Receipt)],
        moment: Moment,
    ) -> Result<(), CallError> {
        for _ in 0..=items.len() * (CARRIES + 1) {
            let request =
                Request::refunds(items.iter().map(|(plan, name, receipt)| (plan, name.clone(), *receipt)));
            let value = self.run(Op::Refund, std::slice::from_ref(&request), moment).await?;
            match Reply::read(first_part(&value)?.1).ok_or_else(CallError::nonsense)? {
                Reply::Done { .. } => return Ok(()),
                Reply::Changed(index) => {
                    let (plan, name, _) = items.get_mut(index).ok_or_else(CallError::nonsense)?;
                    *plan = self.bring_over(plan, name, moment).await?;
                }
            }
        }
        Err(CallError::busy())
    }

    /// Makes a key as good as new.
    pub(crate) async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), CallError> {
        let plan = self.plans.find(limit, now).map_err(|error| CallError::Foreign(error.to_string()))?;
        let mut cmd = redis::cmd("UNLINK");
        cmd.arg(plan.keys.name(key));
        self.link.call(&cmd).await.map(drop)
    }

    /// Carries the state at `name` over to `plan`, or goes by the state's own parameters if those are newer: the plan to
    /// ask again with.
    async fn bring_over(&self, plan: &Arc<Plan>, name: &[u8], moment: Moment) -> Result<Arc<Plan>, CallError> {
        let mut last = None;
        for _ in 0..CARRIES {
            let value = self.run_script(&self.scripts.dump, |cmd| {
                cmd.arg(1).arg(name);
            });
            let value = value.await?;
            let (redis_now, text) = dumped(&value).ok_or_else(CallError::nonsense)?;
            let Some(text) = text else { return Ok(Arc::clone(plan)) };
            let foreign = |reason| CallError::Foreign(format!("key `{}`: {reason}", name.escape_ascii()));
            let dump = Dump::read(text).map_err(foreign)?;
            if dump.kept.parameters() == plan.kept.parameters() {
                return Ok(Arc::clone(plan));
            }
            if let Some(newer) = self.plans.adopt(plan, &dump.kept, &dump.since) {
                return Ok(newer);
            }
            let now = self.handed_in(moment).map_or(redis_now, |micros| micros);
            let written = dump.carried(plan, Timestamp::from_micros(now)).ok_or_else(CallError::nonsense)?;
            let swapped = self.run_script(&self.scripts.swap, |cmd| {
                cmd.arg(1).arg(name);
                push_swap(cmd, text, plan, &written, self.times == Times::OfCaller);
            });
            if swapped.await? == Value::Int(1) {
                return Ok(Arc::clone(plan));
            }
            last = Some(dump);
        }
        // Others write this key all the time. For this once, its old parameters will do.
        let dump = last.ok_or_else(CallError::busy)?;
        Ok(Arc::new(plan.as_written(&dump.kept, &dump.since)))
    }

    /// Runs decide.lua.
    async fn run(&self, op: Op, requests: &[Request], moment: Moment) -> Result<Value, CallError> {
        let needs = requests.iter().fold(Needs::default(), |needs, request| needs.and(request.needs()));
        let script = self.scripts.decide(needs);
        let timing = Timing { now: self.handed_in(moment), deadline: self.link.deadline() };
        let timing = if timing.now.is_some() { Timing { deadline: None, ..timing } } else { timing };
        let by = |how| command(&script, how, op, timing, requests);
        match self.link.call(&by(How::ByHash)).await {
            Err(CallError::NoScript) => self.link.call(&by(How::ByText)).await,
            other => other,
        }
    }

    async fn run_script(&self, script: &Script, arguments: impl Fn(&mut redis::Cmd)) -> Result<Value, CallError> {
        let by = |how: How| {
            let mut cmd = redis::cmd(how.command());
            cmd.arg(how.argument(script));
            arguments(&mut cmd);
            cmd
        };
        match self.link.call(&by(How::ByHash)).await {
            Err(CallError::NoScript) => self.link.call(&by(How::ByText)).await,
            other => other,
        }
    }

    fn handed_in(&self, moment: Moment) -> Option<u64> {
        (self.times == Times::OfCaller).then(|| moment.now.as_micros())
    }
}

fn first_part(value: &Value) -> Result<(Timestamp, &Value), CallError> {
    let (now, parts) = parts(value).ok_or_else(CallError::nonsense)?;
    let part = parts.ok_or(CallError::Late)?.first().ok_or_else(CallError::nonsense)?;
    Ok((Timestamp::from_micros(now), part))
}

/// Redis's time, and the text of a state if there is one.
fn dumped(value: &Value) -> Option<(u64, Option<&str>)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(now), text] = &parts[..] else { return None };
    let text = match text {
        Value::BulkString(text) => Some(std::str::from_utf8(text).ok()?),
        _ => None,
    };
    Some((u64::try_from(*now).ok()?, text))
}
