//! Gradient2 in front of a simulated service: whether it finds its capacity, and keeps it.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A service with a number of slots and a queue in front of them, behind an adaptive limit.
struct Simulation {
    adaptive: Adaptive,
    state: AdaptiveState,
    now: Timestamp,
    /// When each slot is free.
    slots: BinaryHeap<Reverse<Timestamp>>,
    /// Requests in flight by the time of their response.
    in_flight: BinaryHeap<Reverse<(Timestamp, u64)>>,
    receipts: Vec<Receipt>,
    service: Duration,
    /// Whether requests arrive evenly and all take the same time.
    is_steady: bool,
    /// Every n-th response fails.
    fails_every: Option<u64>,
    random: u64,
}

/// The measurements of a run.
#[derive(Debug, Default)]
struct Measurements {
    answered: f64,
    denied: f64,
    seconds: f64,
    latencies: f64,
    limits: Vec<u64>,
}

impl Measurements {
    fn per_second(&self) -> f64 {
        self.answered / self.seconds
    }

    fn mean_latency(&self) -> f64 {
        self.latencies / self.answered
    }

    /// The median of all limits, so that probes do not count.
    fn limit(&self) -> u64 {
        let mut limits = self.limits.clone();
        limits.sort_unstable();
        limits[limits.len() / 2]
    }
}

impl Simulation {
    fn new(slots: usize, service: Duration) -> Self {
        let (adaptive, now) = (Adaptive::default(), Timestamp::from_secs(1_000));
        let state = adaptive.fresh(now);
        Self {
            adaptive,
            state,
            now,
            slots: (0..slots).map(|_| Reverse(now)).collect(),
            in_flight: BinaryHeap::new(),
            receipts: Vec::new(),
            service,
            is_steady: false,
            fails_every: None,
            random: 7,
        }
    }

    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.random >> 32).unwrap()) / f64::from(u32::MAX)
    }

    /// Requests arrive at `rate` per second, for this many seconds.
    fn run(&mut self, rate: f64, seconds: f64) -> Measurements {
        let mut measured = Measurements { seconds, ..Measurements::default() };
        let end = self.now + Duration::from_secs_f64(seconds);
        loop {
            let gap = if self.is_steady { 1.0 } else { -self.random().max(1e-9).ln() } / rate;
            let next = self.now + Duration::from_secs_f64(gap);
            while let Some(Reverse((at, _))) =
                self.in_flight.peek().copied().filter(|Reverse((at, _))| *at <= next.min(end))
            {
                self.respond(at, &mut measured);
            }
            if next >= end {
                self.now = end;
                return measured;
            }
            self.now = next;
            self.request(&mut measured);
        }
    }

    fn request(&mut self, measured: &mut Measurements) {
        let limit = self.adaptive.status(&self.state, self.now).limit;
        measured.limits.push(limit);
        let outcome = self.adaptive.take(&mut self.state, self.now, Cost::ONE, MaxWait::NONE);
        let Some(receipt) = outcome.receipt() else {
            measured.denied += 1.0;
            return;
        };
        assert!(self.state.permits() <= limit);
        // From half of the mean to one and a half.
        let service = if self.is_steady { self.service } else { self.service.mul_f64(0.5 + self.random()) };
        let Reverse(free) = self.slots.pop().unwrap();
        let answered = free.max(self.now) + service;
        self.slots.push(Reverse(answered));
        self.receipts.push(receipt);
        self.in_flight.push(Reverse((answered, self.receipts.len() as u64 - 1)));
    }

    fn respond(&mut self, at: Timestamp, measured: &mut Measurements) {
        let Some(Reverse((_, index))) = self.in_flight.pop() else { return };
        let receipt = self.receipts[usize::try_from(index).unwrap()];
        let latency = at.since(receipt.at());
        let is_dropped = self.fails_every.is_some_and(|every| index % every == 0);
        let kind = if is_dropped { SampleKind::Dropped } else { SampleKind::Answered };
        self.adaptive.observe(&mut self.state, at, &Sample { receipt, latency, kind });
        self.adaptive.refund(&mut self.state, at, &receipt);
        measured.answered += 1.0;
        measured.latencies += latency.as_secs_f64();
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn finds_the_capacity_under_lasting_overload_without_drift() {
    for (slots, millis) in [(4, 20), (10, 50), (100, 100), (30, 400)] {
        let mut simulation = Simulation::new(slots, ms(millis));
        let service = f64::from(u32::try_from(millis).unwrap()) / 1_000.0;
        let slots_f64 = slots as f64;
        let capacity = slots_f64 / service;
        simulation.run(capacity * 3.0, 60.0);
        for minute in 0..20 {
            let measured = simulation.run(capacity * 3.0, 60.0);
            let message = format!(
                "{slots} slots, minute {minute}: limit {}, {:.0} of {capacity:.0} a second, {:.2} of the latency",
                measured.limit(),
                measured.per_second(),
                measured.mean_latency() / service,
            );
            let limit = measured.limit() as f64;
            assert!((slots_f64..=slots_f64 * 2.0 + 8.0).contains(&limit), "{message}");
            assert!(measured.per_second() > capacity * 0.9, "{message}");
            assert!(measured.mean_latency() < service * (limit / slots_f64 + 0.5), "{message}");
        }
    }
}

#[test]
fn a_service_with_free_capacity_denies_nothing() {
    let mut simulation = Simulation::new(50, ms(50));
    let measured = simulation.run(200.0, 300.0);
    assert_eq!(measured.denied, 0.0, "10 of 50 in use");
    assert!(simulation.state.gradient.baseline < 0.06);
}

/// The limit was probed, and three quarters of the requests were denied meanwhile.
#[test]
fn a_steady_service_below_its_capacity_denies_nothing() {
    // Always 18 in flight of the initial 20.
    for (millis, rate) in [(10, 1_800.0), (300, 60.0), (2_000, 9.0)] {
        let mut simulation = Simulation::new(40, ms(millis));
        simulation.is_steady = true;
        let measured = simulation.run(rate, 600.0);
        assert_eq!(measured.denied, 0.0, "{millis} ms, {} answered", measured.answered);
    }
    // Random arrivals, up to 45 at a time, are denied until the limit has grown, and no longer.
    for (millis, rate) in [(300, 60.0), (2_000, 15.0)] {
        let mut simulation = Simulation::new(60, ms(millis));
        simulation.run(rate, 120.0);
        let measured = simulation.run(rate, 600.0);
        assert!(
            measured.denied < measured.answered * 0.001,
            "{millis} ms: {} of {}",
            measured.denied,
            measured.answered
        );
        assert!(measured.limits.iter().all(|limit| *limit >= 20), "{millis} ms: {:?}", measured.limits.iter().min());
    }
}

/// A service that becomes permanently slower: its limit is cut once, by three tenths, for a short time.
#[test]
fn a_service_that_became_slower_is_probed_once() {
    let mut simulation = Simulation::new(100, ms(50));
    simulation.run(400.0, 60.0);
    simulation.service = ms(125);
    simulation.run(400.0, 60.0);
    let measured = simulation.run(400.0, 600.0);
    assert!(measured.denied < measured.answered * 0.001, "{} of {}", measured.denied, measured.answered);
}

#[test]
fn recovers_after_a_slow_period() {
    let mut simulation = Simulation::new(20, ms(50));
    let before = simulation.run(300.0, 120.0);
    assert!(before.denied < before.answered * 0.02, "{} of {}", before.denied, before.answered);
    simulation.service = ms(500);
    let slow = simulation.run(300.0, 60.0);
    // A capacity of 40 per second.
    assert!(
        slow.per_second() > 30.0 && slow.mean_latency() < 2.5,
        "{:.0} {:.2}",
        slow.per_second(),
        slow.mean_latency()
    );
    simulation.service = ms(50);
    simulation.run(300.0, 30.0);
    let after = simulation.run(300.0, 120.0);
    assert!(after.denied < after.answered * 0.02, "{} of {}", after.denied, after.answered);
    assert!(after.mean_latency() < 0.075, "{}", after.mean_latency());
}

#[test]
fn a_limit_that_is_too_high_falls_although_little_of_it_is_in_use() {
    let mut simulation = Simulation::new(400, ms(100));
    simulation.run(9_000.0, 120.0);
    assert!(simulation.state.gradient.limit > 300.0);
    // Most of the service's slots are removed, and the rest gets more load than it can process.
    simulation.slots = (0..10).map(|_| Reverse(simulation.now)).collect();
    simulation.run(120.0, 120.0);
    let measured = simulation.run(120.0, 60.0);
    assert!(measured.mean_latency() < 0.4, "{:.2}", measured.mean_latency());
    assert!(measured.per_second() > 80.0, "{:.0}", measured.per_second());
}

#[test]
fn failed_responses_lower_the_limit() {
    let mut simulation = Simulation::new(50, ms(50));
    simulation.run(800.0, 60.0);
    let before = simulation.state.gradient.limit;
    simulation.fails_every = Some(1);
    simulation.run(800.0, 20.0);
    let during = simulation.state.gradient.limit;
    assert!(during < 6.0 && during < before, "{before} {during}");
    simulation.fails_every = None;
    let after = simulation.run(800.0, 60.0);
    assert!(after.denied < after.answered * 0.1, "{} of {}", after.denied, after.answered);
}

#[test]
fn the_learned_limit_expires_after_ten_minutes() {
    let mut simulation = Simulation::new(4, ms(20));
    simulation.run(600.0, 60.0);
    let Simulation { adaptive, mut state, now, .. } = simulation;
    state.permits = 0;
    assert!(!adaptive.is_fresh(&state, now));
    let later = now + Duration::from_secs(601);
    assert!(adaptive.is_fresh(&state, later));
    assert_eq!(adaptive.status(&state, later).limit, 20);
    assert_eq!(adaptive.take(&mut state, later, Cost::ONE, MaxWait::NONE).wait(), Some(Duration::ZERO));
    assert_eq!(adaptive.status(&state, later), Status { limit: 20, remaining: 19, reset: Duration::ZERO });
}

#[test]
fn the_bounds_hold() {
    assert!(Adaptive::new(0, 1, 1).is_err() && Adaptive::new(1, 1, 0).is_err());
    let mut simulation = Simulation::new(1, ms(500));
    simulation.adaptive = Adaptive::new(3, 100, 5).unwrap();
    simulation.state = simulation.adaptive.fresh(simulation.now);
    let measured = simulation.run(50.0, 300.0);
    assert!(measured.limits.iter().all(|limit| (3..=5).contains(limit)), "{:?}", measured.limits.iter().max());
    let adaptive = Adaptive::default();
    let mut state = adaptive.fresh(Timestamp::EPOCH);
    let cost = |count| Cost::new(count).unwrap();
    assert_eq!(adaptive.take(&mut state, Timestamp::EPOCH, cost(1_001), MaxWait::NONE).retry(), Some(Retry::Never));
    assert!(adaptive.take(&mut state, Timestamp::EPOCH, cost(21), MaxWait::NONE).is_granted(), "it runs alone");
    assert_eq!(
        adaptive.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).retry(),
        Some(Retry::WhenReleased)
    );
}
