//! Which share of the requests one rule's `load` refuses.
//!
//! # How it works
//! Refusing everybody while the processors are above 85 %, and nobody while they are below, swings: all, nothing, all, nothing.
//! So a rule admits a share of the requests, and at each tick the share is scaled by how far the machine is from where it should
//! be, `target / measured`. If the load that requests cause is in proportion to how many are admitted, one step would do; since
//! the measurement is late and not that good, half a step is taken (the square root) in half a second, and proportionately
//! less or more in another time. Upwards it goes by a tenth at most.
//!
//! A processor can't show more than 100 %, so far above its capacity a step is small (√0.85 = 0.92); it takes a few more. The
//! share never falls below 1 in 1,000: somebody has to show that it is better.
//!
//! Memory and connections are not flows: refusing some requests lets them come in more slowly, and they still fill up. Beyond
//! their bound everybody is refused.
//!
//! Who is refused is not drawn by lot: each request adds the share that is refused to a sum, and the one that carries it over a
//! whole number is refused. So of 1,000 at 30 % exactly 300 are, evenly.

use super::LoadMeter;
use arc_swap::ArcSwap;
use diana_core::Quota;
use diana_rules::{Overload, Resource, RuleFile};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The sheddings of all rules with `load`, by the rules' names.
#[derive(Debug, Default)]
pub(crate) struct Sheddings(ArcSwap<HashMap<String, Arc<Shedding>>>);

impl Sheddings {
    /// Goes on with the rules of `file`. Those that had `load` before go on where they were.
    pub(crate) fn set_rules(&self, file: &RuleFile) {
        let known = self.0.load();
        let each = file.rules.iter().filter_map(|rule| {
            let load = rule.load.clone()?;
            let shedding = known.get(&rule.name).map_or_else(|| Shedding::new(&load), |known| known.changed_to(&load));
            Some((rule.name.clone(), Arc::new(shedding)))
        });
        self.0.store(Arc::new(each.collect()));
    }

    /// What the `load` of a rule refuses now, if it refuses this request.
    pub(crate) fn refuses(&self, rule: &str, load: &LoadMeter) -> Option<Resource> {
        self.0.load().get(rule)?.refuses(load)
    }
}

/// Which share of the requests one rule's `load` refuses.
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

    /// The same with other bounds.
    fn changed_to(&self, bounds: &Overload) -> Self {
        Self { bounds: bounds.clone(), cpu: self.cpu.copy(), traffic: self.traffic.copy() }
    }

    /// Whether one request is refused, and for want of what.
    pub(crate) fn refuses(&self, load: &LoadMeter) -> Option<Resource> {
        let Overload { cpu, memory, connections, traffic, .. } = &self.bounds;
        if memory.is_some_and(|most| load.memory() > most.share()) {
            return Some(Resource::Memory);
        }
        if connections.is_some_and(|most| load.connections() > most) {
            return Some(Resource::Connections);
        }
        if cpu.is_some_and(|most| self.cpu.refuses(load.ticked(), load.cpu(), most.share())) {
            return Some(Resource::Cpu);
        }
        if traffic.is_some_and(|most| self.traffic.refuses(load.ticked(), load.traffic(), per_second(&most))) {
            return Some(Resource::Traffic);
        }
        None
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate is not exact")]
fn per_second(quota: &Quota) -> f64 {
    quota.permits() as f64 / quota.period().as_secs_f64()
}

/// A whole, in the numbers that sums of shares are counted in.
const WHOLE: u32 = 1 << 24;
/// The least that is admitted.
const LEAST: f64 = 0.001;
/// The longest time that one step stands for: a rule that nobody asked for a minute has not made a minute's experience.
const LONGEST_STEP: f64 = 2.0;

/// Holds one measurement at its target by admitting a share of the requests.
#[derive(Debug, Default)]
struct Controller {
    /// The tick that it has heard of, in nanoseconds.
    heard: AtomicU64,
    /// The share that is refused, of a [`WHOLE`].
    refused: AtomicU32,
    /// The refused shares of all requests, added up.
    sum: AtomicU32,
}

impl Controller {
    fn refuses(&self, ticked: u64, measured: f64, target: f64) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        // One thread hears each tick; the others go on by the old share meanwhile.
        if ticked > heard && self.heard.compare_exchange(heard, ticked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let passed = if heard == 0 { 0 } else { ticked - heard };
            let share = next(self.share(), measured, target, std::time::Duration::from_nanos(passed).as_secs_f64());
            self.refused.store(of_whole(share), Ordering::Relaxed);
        }
        let refused = self.refused.load(Ordering::Relaxed);
        if refused == 0 {
            return false;
        }
        let before = self.sum.fetch_add(refused, Ordering::Relaxed) % WHOLE;
        before + refused >= WHOLE
    }

    fn share(&self) -> f64 {
        f64::from(self.refused.load(Ordering::Relaxed)) / f64::from(WHOLE)
    }

    fn copy(&self) -> Self {
        let refused = AtomicU32::new(self.refused.load(Ordering::Relaxed));
        Self { heard: AtomicU64::new(self.heard.load(Ordering::Relaxed)), refused, sum: AtomicU32::new(0) }
    }
}

/// The share that is refused after `seconds` more, of which `measured` was seen where `target` should be.
fn next(refused: f64, measured: f64, target: f64, seconds: f64) -> f64 {
    // So much at a step of half a second; longer ones are worth more, shorter ones less.
    let steps = seconds.min(LONGEST_STEP) * 2.0;
    let step = (target / measured.max(target / 1_000.0)).sqrt().clamp(0.5, 1.1);
    let admitted = ((1.0 - refused) * step.powf(steps)).clamp(LEAST, 1.0);
    // What is next to nothing is nothing, so that an idle rule costs nothing.
    if admitted > 0.999 { 0.0 } else { 1.0 - admitted }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share lies in 0..=1")]
fn of_whole(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32
}

#[cfg(test)]
mod tests;
