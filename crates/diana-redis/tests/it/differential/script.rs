//! Random scripts: the requests to both stores, in order.

use super::limits::{Kind, PARAMETERS, families};
use diana_core::MaxWait;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt;
use std::time::Duration;

/// The number of keys.
pub(crate) const KEYS: usize = 3;

/// The steps, the start time, and the limits.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Microseconds since 1970.
    pub(crate) start: u64,
    /// For each limit its initial parameters, and others of the same algorithm.
    pub(crate) limits: Vec<Vec<Kind>>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// This many microseconds pass.
    Wait(u64),
    /// The time that the last answer returned passes (until a denied request could be granted, until a granted one
    /// proceeds, until the limit resets), less or more a microsecond: for off-by-one errors.
    WaitAsReported(i64),
    Ask(Vec<AskSpec>, MaxWait),
    Peek(Vec<AskSpec>, MaxWait),
    Charge(AskSpec),
    /// One of the decisions that were not refunded yet is refunded: the nth of the newest first, wrapping around.
    Refund(usize),
    Reset(AskSpec),
    /// A limit gets other parameters.
    Change(Change),
}

/// Which limit, which key, and which cost.
#[derive(Clone, Copy)]
pub(crate) struct AskSpec {
    pub(crate) limit: usize,
    pub(crate) key: usize,
    pub(crate) cost: u64,
}

impl fmt::Debug for AskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, key, cost } = self;
        write!(f, "{cost} of limit {limit} for key {key}")
    }
}

/// A limit gets the nth parameters of one of the families: its own, or another one's, which may be of another
/// algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) limit: usize,
    pub(crate) family: usize,
    pub(crate) index: usize,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, family, index } = self;
        write!(f, "limit {limit} to parameters {index} of limit {family}")
    }
}

pub(crate) fn scripts() -> impl Strategy<Value = Script> {
    // From late in 2023 on, for three years.
    let start = 1_700_000_000_000_000..1_800_000_000_000_000_u64;
    let limits = (start, vec(families(), 1..=3));
    limits.prop_flat_map(|(start, limits)| {
        let steps = vec(steps(limits.len()), 1..60);
        (Just(start), Just(limits), steps).prop_map(|(start, limits, steps)| Script { start, limits, steps })
    })
}

fn steps(limits: usize) -> impl Strategy<Value = Step> {
    let specs = move || vec(spec(limits), 1..4);
    let changes =
        (0..limits, 0..limits, 0..PARAMETERS).prop_map(|(limit, family, index)| Change { limit, family, index });
    prop_oneof![
        4 => waits().prop_map(Step::Wait),
        3 => (-1..=1_i64).prop_map(Step::WaitAsReported),
        14 => (specs(), max_waits()).prop_map(|(specs, max_wait)| Step::Ask(specs, max_wait)),
        2 => (specs(), max_waits()).prop_map(|(specs, max_wait)| Step::Peek(specs, max_wait)),
        1 => spec(limits).prop_map(Step::Charge),
        4 => (0..60_usize).prop_map(Step::Refund),
        1 => spec(limits).prop_map(Step::Reset),
        1 => changes.prop_map(Step::Change),
    ]
}

/// Whole microseconds, the resolution of the shared store.
fn waits() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, 0..5_000_u64, 0..2_000_000_u64, 0..200_000_000_000_u64]
}

/// Whole microseconds: a store truncates to its tick.
fn max_waits() -> impl Strategy<Value = MaxWait> {
    prop_oneof![
        5 => Just(MaxWait::NONE),
        1 => (0..20_u64).prop_map(|micros| MaxWait::up_to(Duration::from_micros(micros))),
        2 => (0..5_000_000_u64).prop_map(|micros| MaxWait::up_to(Duration::from_micros(micros))),
        1 => Just(MaxWait::FOREVER),
    ]
}

fn spec(limits: usize) -> impl Strategy<Value = AskSpec> {
    let costs = prop_oneof![8 => Just(1), 4 => 2..5_u64, 1 => 5..60_u64];
    (0..limits, 0..KEYS, costs).prop_map(|(limit, key, cost)| AskSpec { limit, key, cost })
}
