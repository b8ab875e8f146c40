//! Random events for a key, and the key that they happen to.

use diana_core::{Algorithm, Answer, Cost, MaxWait, Receipt, Refund, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;

/// One event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// This many nanoseconds pass.
    Wait(u64),
    /// This many eighths of the time until the limit resets pass: relevant to the algorithm at any rate.
    WaitFraction(u8),
    Take(Cost, MaxWait),
    Charge(Cost),
    /// One of the receipts that were not used yet is refunded.
    Refund(Index),
    /// The clock jumps to a time, forward or back.
    Jump(u64),
    /// Other parameters are applied.
    Rescale(Index),
}

/// A key under one algorithm.
#[derive(Debug)]
pub(crate) struct KeyRun<'a, A: Algorithm> {
    pub(crate) algorithm: &'a A,
    pub(crate) state: A::State,
    pub(crate) now: Timestamp,
    pub(crate) receipts: Vec<Receipt>,
}

/// The observable result of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    Nothing,
    Answer(Answer),
    Refund(Refund),
}

impl<'a, A: Algorithm> KeyRun<'a, A> {
    /// Creates a fresh key in the year 2026.
    pub(crate) fn new(algorithm: &'a A) -> Self {
        Self::fresh_at(algorithm, Timestamp::from_secs(1_790_000_000))
    }

    pub(crate) fn fresh_at(algorithm: &'a A, now: Timestamp) -> Self {
        Self { algorithm, state: algorithm.fresh(now), now, receipts: Vec::new() }
    }

    /// Creates a key after `script`.
    pub(crate) fn after(algorithm: &'a A, script: &[Event]) -> Self {
        let mut key = Self::new(algorithm);
        for event in script {
            key.apply(event, &[]);
        }
        key
    }

    /// Applies one event; `others` are the parameters that it may change to.
    pub(crate) fn apply(&mut self, event: &Event, others: &'a [A]) -> Effect {
        match event {
            Event::Wait(nanos) => self.now = self.now + Duration::from_nanos(*nanos),
            Event::WaitFraction(eighths) => self.now = self.now + self.reset() / 8 * u32::from(*eighths),
            Event::Take(cost, max_wait) => {
                let answer = self.algorithm.answer(&mut self.state, self.now, *cost, *max_wait);
                self.receipts.extend(answer.receipt());
                return Effect::Answer(answer);
            }
            Event::Charge(cost) => self.algorithm.charge(&mut self.state, self.now, *cost),
            Event::Refund(index) if !self.receipts.is_empty() => {
                let receipt = self.receipts.swap_remove(index.index(self.receipts.len()));
                return Effect::Refund(self.algorithm.refund(&mut self.state, self.now, &receipt));
            }
            Event::Refund(_) => {}
            Event::Jump(nanos) => self.now = Timestamp::from_nanos(*nanos),
            Event::Rescale(index) if !others.is_empty() => {
                let new = index.get(others);
                new.rescale(&mut self.state, self.algorithm, self.now);
                self.algorithm = new;
            }
            Event::Rescale(_) => {}
        }
        Effect::Nothing
    }

    pub(crate) fn reset(&self) -> Duration {
        self.algorithm.status(&self.state, self.now).reset
    }
}

pub(crate) fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![6 => Just(1), 4 => 1..5_u64, 1 => 1..20_u64].prop_map(|permits| Cost::new(permits).unwrap())
}

pub(crate) fn max_waits() -> impl Strategy<Value = MaxWait> {
    let some = prop_oneof![0..20_u64, 0..3_000_000_000_u64].prop_map(|n| MaxWait::up_to(Duration::from_nanos(n)));
    prop_oneof![4 => Just(MaxWait::NONE), 2 => some, 1 => Just(MaxWait::FOREVER)]
}

fn waits() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0..20_u64).prop_map(Event::Wait),
        1 => (0..42_u32, 0..7_u64).prop_map(|(bits, odd)| Event::Wait((1 << bits) + odd)),
        2 => (0..=8_u8).prop_map(Event::WaitFraction),
    ]
}

/// Waits, takes and refunds, and sometimes a charge.
pub(crate) fn scripts() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => waits(),
        12 => (costs(), max_waits()).prop_map(|(cost, max_wait)| Event::Take(cost, max_wait)),
        4 => any::<Index>().prop_map(Event::Refund),
        1 => costs().prop_map(Event::Charge),
    ];
    prop::collection::vec(event, 0..32)
}

/// Takes and refunds without charges, for guarantees about grants.
pub(crate) fn honest_scripts() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => waits(),
        12 => (costs(), max_waits()).prop_map(|(cost, max_wait)| Event::Take(cost, max_wait)),
        6 => any::<Index>().prop_map(Event::Refund),
    ];
    prop::collection::vec(event, 0..48)
}

/// Extremes: the first and last timestamps, jumps both ways, the largest costs, no timeout, changed parameters.
pub(crate) fn extreme_scripts() -> impl Strategy<Value = Vec<Event>> {
    let cost =
        || prop_oneof![2 => costs(), 1 => Just(Cost::MAX), 1 => (1..1_u64 << 53).prop_map(|n| Cost::new(n).unwrap())];
    let max_wait = || prop_oneof![Just(MaxWait::NONE), Just(MaxWait::FOREVER), max_waits()];
    let time =
        prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 1), any::<u64>(), u64::MAX - 2_000_000_000..u64::MAX];
    let event = prop_oneof![
        3 => waits(),
        4 => time.prop_map(Event::Jump),
        8 => (cost(), max_wait()).prop_map(|(cost, max_wait)| Event::Take(cost, max_wait)),
        2 => cost().prop_map(Event::Charge),
        4 => any::<Index>().prop_map(Event::Refund),
        2 => any::<Index>().prop_map(Event::Rescale),
    ];
    prop::collection::vec(event, 0..40)
}
