//! Reads the counters once a second, and records what they gained.

use super::{Counts, History, Sample, series::SPAN};
use crate::ReportServices;
use diana::RuleSet;
use diana::ruleset::{CompiledRule, RuleCounts};
use diana::{Clock, Engine};
use diana_metrics::{Buckets, Metrics, Outcome, Totals};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Requests that were not denied: their durations are those of [`History`]'s `request`.
const SERVED: [Outcome; 4] = [Outcome::Forwarded, Outcome::Rerouted, Outcome::Failed, Outcome::Answered];
/// Requests that the rules allowed.
const ALLOWED: [Outcome; 3] = [Outcome::Forwarded, Outcome::Failed, Outcome::Answered];

/// Fills a [`History`]: reads the counters once a second, aligned to the clock's seconds.
///
/// Reading takes some 10 ns for each rule.
pub struct Sampler {
    history: Arc<History>,
    engine: Engine,
    metrics: Arc<Metrics>,
    services: ReportServices,
    clock: Arc<dyn Clock>,
    /// The first second that is not recorded.
    next: u64,
    /// The counters at the last sample.
    rules: Arc<RuleSet>,
    counted: Vec<Counts>,
    totals: Gateway,
}

/// The counters of the gateway and the services.
#[derive(Default)]
struct Gateway {
    allowed: u64,
    denied: u64,
    rerouted: u64,
    failed: u64,
    latency: [[u64; Buckets::LEN]; 3],
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Sampler {
    /// Creates a sampler; what was counted before is not recorded.
    pub fn new(
        history: Arc<History>,
        engine: Engine,
        metrics: Arc<Metrics>,
        services: ReportServices,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let rules = engine.rules();
        let counted = rules.rules().iter().map(counts).collect();
        let totals = Gateway::read(&metrics.totals(), &services);
        let next = second(&*clock);
        history.begin(next);
        Self { history, engine, metrics, services, clock, next, rules, counted, totals }
    }

    /// Samples at each second of the clock, until it is dropped.
    pub async fn run(mut self) {
        loop {
            let nanos = self.clock.now().as_nanos() % 1_000_000_000;
            tokio::time::sleep(Duration::from_nanos(1_000_000_000 - nanos)).await;
            self.sample();
        }
    }

    /// Records the seconds that have passed since the last call, if any has.
    pub fn sample(&mut self) {
        let now = second(&*self.clock);
        if now <= self.next {
            return;
        }
        let seconds = self.next.max(now.saturating_sub(SPAN))..now;
        self.next = now;
        let mut sample = Sample::default();
        let active = self.engine.rules();
        let replaced = (!Arc::ptr_eq(&active, &self.rules)).then(|| std::mem::replace(&mut self.rules, active));
        if let Some(replaced) = &replaced {
            // Rules with the same name share their counters, so only a removed rule has to be read here. The others
            // keep what was read last.
            let before = replaced.rules().iter().zip(&self.counted);
            let before =
                before.map(|(rule, counted)| (&*rule.rule().name, (rule, *counted))).collect::<HashMap<_, _>>();
            let is_active = |name: &str| self.rules.named(name).is_some();
            for (name, (rule, counted)) in before.iter().filter(|(name, _)| !is_active(name)) {
                sample.add(name, counts(rule), *counted);
            }
            let known = |rule: &CompiledRule| before.get(&*rule.rule().name).map(|(_, counted)| *counted);
            self.counted = self.rules.rules().iter().map(|rule| known(rule).unwrap_or_default()).collect();
        }
        for (rule, before) in self.rules.rules().iter().zip(&mut self.counted) {
            let counted = counts(rule);
            // A rule that was removed and added again starts at 0.
            let restarted = counted.iter().zip(&*before).any(|(now, before)| now < before);
            sample.add(&rule.rule().name, counted, if restarted { Counts::default() } else { *before });
            *before = counted;
        }
        let totals = Gateway::read(&self.metrics.totals(), &self.services);
        sample.gateway(&totals, &self.totals);
        self.totals = totals;
        self.history.record(&sample, &seconds);
    }
}

impl<'a> Sample<'a> {
    fn add(&mut self, name: &'a str, counted: Counts, before: Counts) {
        let gained: Counts = std::array::from_fn(|outcome| counted[outcome].saturating_sub(before[outcome]));
        if gained.iter().any(|count| *count > 0) {
            self.rules.push((name, gained));
        }
        // The gateway does not count these: a request counts once for each rule that delays it, or would deny it.
        self.all[2] += gained[2];
        self.all[4] += gained[4];
    }

    fn gateway(&mut self, now: &Gateway, before: &Gateway) {
        self.all[0] = now.allowed.saturating_sub(before.allowed);
        self.all[1] = now.denied.saturating_sub(before.denied);
        self.all[3] = now.rerouted.saturating_sub(before.rerouted);
        self.failed = now.failed.saturating_sub(before.failed);
        for (gained, (now, before)) in self.latency.iter_mut().zip(now.latency.iter().zip(&before.latency)) {
            for (gained, (now, before)) in gained.iter_mut().zip(now.iter().zip(before)) {
                *gained = now.saturating_sub(*before);
            }
        }
    }
}

impl Gateway {
    fn read(totals: &Totals, services: &ReportServices) -> Self {
        let sum = |outcomes: &[Outcome]| outcomes.iter().map(|outcome| totals.requests(*outcome)).sum::<u64>();
        let mut read = Self {
            allowed: sum(&ALLOWED),
            denied: sum(&[Outcome::Denied]),
            rerouted: sum(&[Outcome::Rerouted]),
            failed: sum(&[Outcome::Failed]),
            latency: [[0; Buckets::LEN], *totals.upstream_seconds.counts(), *totals.decision_seconds.counts()],
        };
        for outcome in SERVED {
            let counts = totals.request_seconds[outcome.index()].counts();
            read.latency[0].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        for (_, service) in services() {
            read.allowed += service.allowed;
            read.denied += service.denied;
            read.failed += service.failed;
        }
        read
    }
}

fn counts(rule: &CompiledRule) -> Counts {
    let RuleCounts { allowed, delayed, denied, rerouted, shadow_denied, .. } = rule.counted();
    [allowed, denied, delayed, rerouted, shadow_denied]
}

/// Returns the current second, since 1970.
fn second(clock: &dyn Clock) -> u64 {
    clock.now().as_nanos() / 1_000_000_000
}
