//! The fraction of requests that one rule's `load` denies.
//!
//! # How it works
//! Denying all requests while the CPU is above 85 %, and none while it is below, oscillates. So a rule admits a
//! fraction of the requests, and at each tick the fraction is scaled by `target / measured`. If load were proportional
//! to the admitted requests, one step would reach the target; since the measurement is delayed and noisy, half a step
//! is taken (the square root) per half second, and proportionately less or more for other intervals. It increases by a
//! tenth at most.
//!
//! CPU usage can't exceed 100 %, so far over capacity a step is small (√0.85 = 0.92) and it takes a few more. The
//! fraction never falls below 1 in 1,000: some requests are needed to notice an improvement.
//!
//! Memory and connections are not flows: denying a part of the requests only makes them fill up more slowly. Over their
//! bound all requests are denied.
//!
//! Denials are not random: each request adds the denied fraction to a sum, and the request that takes it past a whole
//! number is denied. So of 1,000 requests at 30 % exactly 300 are denied, evenly spread.

use super::LoadMeter;
use crate::ruleset::Resource;
use arc_swap::ArcSwap;
use diana_core::Quota;
use diana_rules::RuleFile;
use diana_rules::rule::Overload;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The shedding state of all `load` rules, by rule name.
#[derive(Debug, Default)]
pub(crate) struct Sheddings(ArcSwap<HashMap<String, Arc<Shedding>>>);

impl Sheddings {
    /// Applies the rules of `file`. Rules that already had `load` keep their state.
    pub(crate) fn set_rules(&self, file: &RuleFile) {
        let known = self.0.load();
        let each = file.rules.iter().filter_map(|rule| {
            let load = rule.load.clone()?;
            let shedding = known.get(&rule.name).map_or_else(|| Shedding::new(&load), |known| known.changed_to(&load));
            Some((rule.name.clone(), Arc::new(shedding)))
        });
        self.0.store(Arc::new(each.collect()));
    }

    /// Returns the exhausted resource if the `load` of a rule denies this request.
    pub(crate) fn denies(&self, rule: &str, load: &LoadMeter) -> Option<Resource> {
        self.0.load().get(rule)?.denies(load)
    }
}

/// The fraction of requests that one rule's `load` denies.
#[derive(Debug)]
pub(crate) struct Shedding {
    bounds: Overload,
    cpu: Controller,
    traffic: Controller,
}

impl Shedding {
    pub(crate) fn new(bounds: &Overload) -> Self {
        Self { bounds: bounds.clone(), cpu: Controller::default(), traffic: Controller::default() }
    }

    /// Returns a copy of the state with other bounds.
    fn changed_to(&self, bounds: &Overload) -> Self {
        Self { bounds: bounds.clone(), cpu: self.cpu.copy(), traffic: self.traffic.copy() }
    }

    /// Returns the exhausted resource if the request is denied.
    pub(crate) fn denies(&self, load: &LoadMeter) -> Option<Resource> {
        let Overload { cpu, memory, connections, traffic, .. } = &self.bounds;
        if memory.is_some_and(|max| load.memory() > max.share()) {
            return Some(Resource::Memory);
        }
        if connections.is_some_and(|max| load.connections() > max) {
            return Some(Resource::Connections);
        }
        if cpu.is_some_and(|max| self.cpu.denies(load.ticked(), load.cpu(), max.share())) {
            return Some(Resource::Cpu);
        }
        if traffic.is_some_and(|max| self.traffic.denies(load.ticked(), load.traffic(), per_second(&max))) {
            return Some(Resource::Traffic);
        }
        None
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate is not exact")]
fn per_second(quota: &Quota) -> f64 {
    quota.permits() as f64 / quota.period().as_secs_f64()
}

/// 1.0 as a fixed-point number, for sums of fractions.
const ONE: u32 = 1 << 24;
/// The smallest admitted fraction.
const MIN_ADMITTED: f64 = 0.001;
/// The longest interval of one step, in seconds: a rule that was unused for a minute has not observed a minute of load.
const MAX_STEP: f64 = 2.0;

/// Controls one measurement by admitting a fraction of the requests.
#[derive(Debug, Default)]
struct Controller {
    /// The last processed tick, in nanoseconds.
    last_tick: AtomicU64,
    /// The denied fraction, in units of 1 / [`ONE`].
    denied: AtomicU32,
    /// The sum of the denied fractions of all requests.
    sum: AtomicU32,
}

impl Controller {
    fn denies(&self, ticked: u64, measured: f64, target: f64) -> bool {
        let last_tick = self.last_tick.load(Ordering::Relaxed);
        // One thread processes each tick; meanwhile the others use the old fraction.
        if ticked > last_tick
            && self.last_tick.compare_exchange(last_tick, ticked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let passed = if last_tick == 0 { 0 } else { ticked - last_tick };
            let share = next(self.share(), measured, target, std::time::Duration::from_nanos(passed).as_secs_f64());
            self.denied.store(to_fixed(share), Ordering::Relaxed);
        }
        let denied = self.denied.load(Ordering::Relaxed);
        if denied == 0 {
            return false;
        }
        let before = self.sum.fetch_add(denied, Ordering::Relaxed) % ONE;
        before + denied >= ONE
    }

    fn share(&self) -> f64 {
        f64::from(self.denied.load(Ordering::Relaxed)) / f64::from(ONE)
    }

    fn copy(&self) -> Self {
        let denied = AtomicU32::new(self.denied.load(Ordering::Relaxed));
        Self { last_tick: AtomicU64::new(self.last_tick.load(Ordering::Relaxed)), denied, sum: AtomicU32::new(0) }
    }
}

/// Returns the denied fraction after `seconds` more, in which `measured` was observed for `target`.
fn next(denied: f64, measured: f64, target: f64, seconds: f64) -> f64 {
    // A step is half a second; longer intervals have more effect, shorter ones less.
    let steps = seconds.min(MAX_STEP) * 2.0;
    let step = (target / measured.max(target / 1_000.0)).sqrt().clamp(0.5, 1.1);
    let admitted = ((1.0 - denied) * step.powf(steps)).clamp(MIN_ADMITTED, 1.0);
    // Rounded to 0, so that an idle rule has no cost.
    if admitted > 0.999 { 0.0 } else { 1.0 - admitted }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share lies in 0..=1")]
fn to_fixed(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(ONE)) as u32
}

#[cfg(test)]
mod tests;
