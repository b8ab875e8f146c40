//! Random scripts: asks, refunds, charges, resets and waits, over a few limits and keys.
//!
//! The numbers come from SplitMix64, so that a seed determines the whole script and a failure can be reproduced.

use super::pair::{Comparison, DecisionPair, Pair};
use crate::{Ask, Cost, Limit, MaxWait, Store};
use std::time::Duration;

/// A few limits, and the keys to ask for under each of them.
pub(super) struct Script<'a> {
    pub(super) limits: &'a [Limit],
    pub(super) keys: &'a [&'a [u8]],
    /// The maximum number of asks in one request.
    pub(super) max_asks: u64,
}

/// A granted request, which could be refunded.
struct Granted {
    asks: Vec<ScriptedAsk>,
    both: DecisionPair,
}

/// One ask of a script, by the indices of its limit and its key.
#[derive(Clone, Copy)]
struct ScriptedAsk {
    limit: usize,
    key: usize,
    cost: Cost,
    max_wait: MaxWait,
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and random enough for a script.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    fn cost(&mut self) -> Cost {
        let permits = match self.below(20) {
            0 => 5 + self.below(8),
            1..=6 => 2 + self.below(3),
            _ => 1,
        };
        Cost::new(permits).unwrap_or_default()
    }

    fn max_wait(&mut self, unit: Duration) -> MaxWait {
        match self.below(8) {
            0 => MaxWait::FOREVER,
            1 | 2 => MaxWait::up_to(unit * u32::try_from(self.below(600)).unwrap_or(0)),
            _ => MaxWait::NONE,
        }
    }
}

impl Script<'_> {
    /// Runs the script with the number of steps that the options have.
    pub(super) async fn run<S: Store>(&self, pair: &mut Pair<S>) -> Comparison {
        let (seed, steps) = pair.options.script();
        let mut random = Random::new(seed);
        let mut granted: Vec<Granted> = Vec::new();
        for _ in 0..steps {
            match random.below(20) {
                0..=4 => pair.wait(u32::try_from(random.below(300)).unwrap_or(0)),
                // Long enough for most states to be full again.
                5 => pair.wait(u32::try_from(random.below(12_000)).unwrap_or(0)),
                6..=8 if !granted.is_empty() => {
                    let Granted { asks, both } = granted.swap_remove(random.index(granted.len()));
                    pair.refund(&self.asks(&asks), &both).await?;
                }
                9 => {
                    let ask = self.random_ask(&mut random, pair.options.unit());
                    pair.charge(self.asks(&[ask])[0]).await?;
                }
                10 if random.below(3) == 0 => {
                    let ScriptedAsk { limit, key, .. } = self.random_ask(&mut random, pair.options.unit());
                    pair.reset(&self.limits[limit], self.keys[key]).await?;
                    // The effect of a receipt after a reset is specific to each store: one that counts permits in
                    // flight accepts it, one that identifies each permit does not.
                    granted.retain(|granted| granted.asks.iter().all(|ask| (ask.limit, ask.key) != (limit, key)));
                }
                11 | 12 => {
                    let asks = self.random_asks(&mut random, pair.options.unit());
                    let max_wait = random.max_wait(pair.options.unit());
                    pair.peek(&self.asks(&asks), max_wait).await?;
                }
                _ => {
                    let asks = self.random_asks(&mut random, pair.options.unit());
                    let max_wait = random.max_wait(pair.options.unit());
                    let both = pair.decide(&self.asks(&asks), max_wait).await?;
                    // Refunds of denials are tried as well: they have no effect.
                    if both.is_granted() || random.below(4) == 0 {
                        granted.push(Granted { asks, both });
                    }
                }
            }
        }
        for limit in self.limits {
            pair.compare_status(limit, self.keys).await?;
        }
        Ok(())
    }

    fn random_ask(&self, random: &mut Random, unit: Duration) -> ScriptedAsk {
        let (limit, key) = (random.index(self.limits.len()), random.index(self.keys.len()));
        let cost = random.cost();
        // Most asks have no shorter maximum wait than their request.
        let max_wait = if random.below(4) == 0 { random.max_wait(unit) } else { MaxWait::FOREVER };
        ScriptedAsk { limit, key, cost, max_wait }
    }

    fn random_asks(&self, random: &mut Random, unit: Duration) -> Vec<ScriptedAsk> {
        let count = 1 + random.below(self.max_asks);
        (0..count).map(|_| self.random_ask(random, unit)).collect()
    }

    fn asks(&self, asks: &[ScriptedAsk]) -> Vec<Ask<'_>> {
        let ask = |ask: &ScriptedAsk| {
            Ask::new(&self.limits[ask.limit], self.keys[ask.key], ask.cost).with_max_wait(ask.max_wait)
        };
        asks.iter().map(ask).collect()
    }
}
