//! One request to Redis: the keys, the arguments, and how to parse the reply.

use crate::args::Args;
use crate::erased_algorithm::ErasedAlgorithm;
use crate::limit_config_versions::LimitConfig;
use crate::scripted_algorithm::{AskArgs, Effect, LeaseRequest, Numbers, ScriptView};
use crate::scripts::{Driver, ModuleSet, Script};
use diana_core::{Answer, Receipt, Timestamp};
use redis::{Cmd, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// The operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Take,
    Peek,
    Charge,
    Refund,
    Extend,
    Lease,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Peek => "peek",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Extend => "extend",
            Self::Lease => "lease",
        }
    }
}

/// One ask of a request.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) config: Arc<LimitConfig>,
    /// The name of the state on Redis.
    pub(crate) name: Vec<u8>,
    pub(crate) ask: AskArgs,
    /// The state that the script read, after the reply.
    pub(crate) view: Option<ScriptView>,
}

/// A request in the format of decide.lua.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    names: SmallVec<[Vec<u8>; 2]>,
    args: Args,
    modules: ModuleSet,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Reply<'a> {
    /// The request was decided: whether it was granted or done, and the state of each ask.
    Done { granted: bool, states: &'a mut [Value] },
    /// The state of the ask with this index was written under other parameters.
    Changed(usize),
    /// The script could not decide, for this reason.
    Failed(&'a str),
}

impl Request {
    /// Creates a request that takes, peeks at, or charges all of `items`.
    pub(crate) fn asks(op: Op, items: &[Item]) -> Self {
        let mut request = Self::default();
        request.args.push(items.len());
        for Item { config, name, ask, .. } in items {
            request.add(config, name.clone(), |algorithm, args| match op {
                Op::Charge => algorithm.charge(args, ask),
                _ => algorithm.take(args, ask),
            });
        }
        request
    }

    /// Creates a request that refunds the receipts, or extends the time for which their permits are held.
    pub(crate) fn receipts(op: Op, receipts: &[(Arc<LimitConfig>, Vec<u8>, Receipt)], permits_for: Duration) -> Self {
        let mut request = Self::default();
        request.args.push(receipts.len());
        for (config, name, receipt) in receipts {
            request.add(config, name.clone(), |algorithm, args| match op {
                Op::Extend => algorithm.extend(args, receipt, permits_for),
                _ => algorithm.refund(args, receipt),
            });
        }
        request
    }

    /// Creates a request that leases a block, and reports the use of other blocks.
    pub(crate) fn lease(config: &LimitConfig, name: Vec<u8>, lease: &LeaseRequest<'_>) -> Self {
        let mut request = Self::default();
        request.args.push(1);
        request.add(config, name, |algorithm, args| algorithm.lease(args, lease));
        request
    }

    fn add(&mut self, config: &LimitConfig, name: Vec<u8>, add_args: impl FnOnce(&dyn ErasedAlgorithm, &mut Args)) {
        self.names.push(name);
        self.modules = self.modules.and(config.algorithm.modules());
        self.args.push(config.algorithm.module().name);
        self.args.push(config.algorithm.parameters());
        self.args.push(&config.since);
        let mut arguments = Args::default();
        add_args(&*config.algorithm, &mut arguments);
        self.args.push(arguments.len());
        self.args.extend(&arguments);
    }

    pub(crate) fn modules(&self) -> ModuleSet {
        self.modules
    }

    pub(crate) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }
}

/// The clock of a script, with its time in microseconds if it is not Redis's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScriptTime {
    #[default]
    Redis,
    /// Redis's time as this process knows it.
    Local(u64),
    /// A time that the caller provided, which may lie in the past.
    Caller(u64),
}

/// The time and the deadline of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// The script's clock.
    pub(crate) now: ScriptTime,
    /// The deadline in Redis's time, in microseconds.
    pub(crate) deadline: Option<u64>,
}

/// Returns the command that runs `script` for all of `requests`.
pub(crate) fn command(script: &Script, by: ScriptRef, op: Op, timing: Timing, requests: &[Request]) -> Cmd {
    let mut cmd = redis::cmd(by.command());
    cmd.arg(by.argument(script));
    cmd.arg(requests.iter().map(|request| request.names.len()).sum::<usize>());
    for name in requests.iter().flat_map(|request| &request.names) {
        cmd.arg(name);
    }
    let now = match timing.now {
        ScriptTime::Redis => None,
        ScriptTime::Local(micros) | ScriptTime::Caller(micros) => Some(micros),
    };
    // A script for one taking request needs neither the number of asks nor the algorithm's name.
    let skipped = match driver(op, timing, requests) {
        Driver::One => {
            cmd.arg(text(timing.deadline));
            2
        }
        Driver::OneAt => {
            cmd.arg(text(now));
            2
        }
        Driver::Many => {
            cmd.arg(op.name()).arg(text(now));
            match timing.now {
                ScriptTime::Local(_) => cmd.arg("local"),
                _ => cmd.arg(text(timing.deadline)),
            };
            0
        }
    };
    for argument in requests.iter().flat_map(|request| request.args.iter()).skip(skipped) {
        cmd.arg(argument);
    }
    cmd
}

/// Returns the driver that `requests` need.
pub(crate) fn driver(op: Op, timing: Timing, requests: &[Request]) -> Driver {
    match requests {
        [one] if one.names.len() == 1 && op == Op::Take => match timing.now {
            ScriptTime::Redis => Driver::One,
            ScriptTime::Local(_) => Driver::OneAt,
            ScriptTime::Caller(_) => Driver::Many,
        },
        _ => Driver::Many,
    }
}

/// How a command identifies the script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptRef {
    /// The hash of the script, which is short.
    Hash,
    /// The text of the script, which Redis caches.
    Text,
}

impl ScriptRef {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Hash => "EVALSHA",
            Self::Text => "EVAL",
        }
    }

    pub(crate) fn argument(self, script: &Script) -> &str {
        match self {
            Self::Hash => &script.sha,
            Self::Text => &script.text,
        }
    }
}

fn text(micros: Option<u64>) -> String {
    micros.map_or_else(String::new, |micros| micros.to_string())
}

/// Splits the reply to `requests`: Redis's time in microseconds, and one reply for each request. `None` for the replies
/// if they missed the deadline.
pub(crate) fn split_reply(reply: Value, requests: &[Request]) -> Option<(u64, Option<Vec<Value>>)> {
    let Value::Array(values) = reply else { return None };
    let mut values = values.into_iter();
    let now = match values.next()? {
        Value::Int(now) => u64::try_from(now).ok()?,
        _ => return None,
    };
    if matches!(values.as_slice(), [Value::BulkString(late)] if late == b"late") {
        return Some((now, None));
    }
    let replies =
        requests.iter().map(|request| next_reply(&mut values, request.names.len())).collect::<Option<Vec<_>>>()?;
    values.next().is_none().then_some((now, Some(replies)))
}

/// Returns one request's reply, as a list of its result and the state of each ask.
fn next_reply(values: &mut std::vec::IntoIter<Value>, asks: usize) -> Option<Value> {
    let mut reply = Vec::with_capacity(asks + 1);
    reply.push(values.next()?);
    if matches!(reply[..], [Value::Int(0 | 1)]) {
        for _ in 0..asks {
            let Value::Int(count) = values.next()? else { return None };
            let count = usize::try_from(count).ok().filter(|count| *count <= values.len())?;
            reply.push(Value::Array(values.take(count).collect()));
        }
    }
    Some(Value::Array(reply))
}

impl<'a> Reply<'a> {
    /// Parses one request's reply.
    pub(crate) fn parse(reply: &'a mut Value) -> Option<Self> {
        let reply = match reply {
            Value::Array(reply) => reply,
            Value::ServerError(error) => return Some(Self::Failed(error.details().unwrap_or("no reason given"))),
            _ => return None,
        };
        match reply.split_first_mut()? {
            (Value::Int(granted @ (0 | 1)), states) => Some(Self::Done { granted: *granted == 1, states }),
            (Value::Int(ask), []) => usize::try_from(ask.checked_neg()?).ok()?.checked_sub(1).map(Self::Changed),
            _ => None,
        }
    }
}

/// Computes the answer of each of `items` from the state that the script read, and stores that state in the item.
/// `None` if the reply is invalid.
pub(crate) fn answers(
    items: &mut [Item],
    states: &mut [Value],
    now: Timestamp,
    effect: Effect,
) -> Option<SmallVec<[Answer; 8]>> {
    let answers = items.iter_mut().enumerate().map(|(index, item)| {
        let Value::Array(numbers) = states.get_mut(index)? else { return None };
        let answer = item.config.algorithm.answer(Numbers(numbers), &item.ask, now, effect)?;
        item.view = Some(ScriptView { at: now, numbers: std::mem::take(numbers), effect });
        Some(answer)
    });
    answers.collect()
}
