//! Shedding on a simulated machine: checks that it reaches the target and does not oscillate.

use super::*;
use diana_core::Timestamp;
use diana_rules::{Document, Registry};
use std::time::Duration;

fn shedding(load: &str) -> Shedding {
    let document = Document::new("diana.yaml", format!("rules: [{{name: a, load: {load}}}]"));
    let file = RuleFile::read(&document, &Registry::default()).unwrap();
    Shedding::new(file.rules[0].load.as_ref().unwrap())
}

/// A machine that measures its CPU four times per second, with a delay of 250 ms.
struct Machine {
    load: LoadMeter,
    now: Timestamp,
    busy: f64,
    measured: Vec<f64>,
    shares: Vec<f64>,
}

impl Machine {
    fn new() -> Self {
        let now = Timestamp::from_secs(100);
        Self { load: LoadMeter::default(), now, busy: 0.0, measured: Vec::new(), shares: Vec::new() }
    }

    /// Simulates requests that would take `demand` times the CPU, for `seconds`.
    fn run(&mut self, shedding: &Shedding, demand: f64, seconds: u32) {
        (self.measured, self.shares) = (Vec::new(), Vec::new());
        for _ in 0..seconds * 4 {
            self.load.set_cpu(self.busy);
            self.load.tick(self.now);
            let granted = (0..1_000).filter(|_| shedding.denies(&self.load).is_none()).count();
            let share = f64::from(u32::try_from(granted).unwrap()) / 1_000.0;
            self.busy = (demand * share).min(1.0);
            self.measured.push(self.busy);
            self.shares.push(share);
            self.now = self.now + Duration::from_millis(250);
        }
    }

    /// Returns the minimum and the maximum of the last half.
    fn last_half(values: &[f64]) -> (f64, f64) {
        let half = &values[values.len() / 2..];
        (half.iter().copied().fold(1.0, f64::min), half.iter().copied().fold(0.0, f64::max))
    }
}

#[test]
fn an_idle_machine_denies_no_request() {
    let (shedding, mut machine) = (shedding("{cpu: 85%}"), Machine::new());
    machine.run(&shedding, 0.5, 20);
    assert_eq!(machine.shares.iter().copied().fold(1.0, f64::min), 1.0);
}

#[test]
fn an_overloaded_machine_stays_at_its_target_without_oscillating() {
    for demand in [1.0, 1.5, 3.0, 10.0, 40.0] {
        let (shedding, mut machine) = (shedding("{cpu: 85%}"), Machine::new());
        machine.run(&shedding, demand, 60);
        let (min, max) = Machine::last_half(&machine.measured);
        assert!(min > 0.75 && max < 0.95, "{demand}: {min} to {max}");
    }
}

#[test]
fn all_requests_are_admitted_once_the_overload_ends() {
    let (shedding, mut machine) = (shedding("{cpu: 85%}"), Machine::new());
    machine.run(&shedding, 10.0, 60);
    assert!(machine.shares.last().copied().unwrap() < 0.2);
    machine.run(&shedding, 0.5, 60);
    assert_eq!(Machine::last_half(&machine.shares), (1.0, 1.0));
}

#[test]
fn denials_are_spread_evenly() {
    let controller = Controller::default();
    controller.denied.store(to_fixed(0.25), Ordering::Relaxed);
    let denied = (0..12).map(|_| controller.denies(0, 0.0, 1.0)).collect::<Vec<_>>();
    let indexes = denied.iter().enumerate().filter(|(_, denied)| **denied).map(|(index, _)| index);
    assert_eq!(indexes.collect::<Vec<_>>(), [3, 7, 11]);
}

#[test]
fn memory_and_connections_over_their_bounds_deny_all_requests() {
    let (shedding, load) = (shedding("{memory: 90%, connections: 100}"), LoadMeter::default());
    load.set_memory(0.9);
    load.set_connections(100);
    assert_eq!(shedding.denies(&load), None);
    load.set_memory(0.91);
    assert_eq!(shedding.denies(&load), Some(Resource::Memory));
    load.set_memory(0.5);
    load.connections_changed(1);
    assert_eq!(shedding.denies(&load), Some(Resource::Connections));
    load.connections_changed(-1);
    load.set_memory(f64::NAN);
    assert_eq!(shedding.denies(&load), None);
}

#[test]
fn traffic_is_kept_at_its_rate() {
    let (shedding, load) = (shedding("{traffic: 1000KiB/s}"), LoadMeter::default());
    let mut now = Timestamp::from_secs(5);
    let mut last = Vec::new();
    for tick in 0..240 {
        load.tick(now);
        let granted = (0..100_u64).filter(|_| shedding.denies(&load).is_none()).count();
        // Each request is 30 KiB, four times per second: twelve times the bound, if all were admitted.
        load.add_traffic(granted as u64 * 30 * 1_024);
        if tick > 120 {
            last.push(granted);
        }
        now = now + Duration::from_millis(250);
    }
    let mean = last.iter().sum::<usize>() as f64 / last.len() as f64;
    assert!((7.5..9.2).contains(&mean), "{mean} of 8.3");
    assert_eq!(load.traffic().min(1_300_000.0), load.traffic(), "{}", load.traffic());
}

#[test]
fn changed_bounds_keep_the_denied_share() {
    let (strict, mut machine) = (shedding("{cpu: 85%}"), Machine::new());
    machine.run(&strict, 10.0, 60);
    let share = strict.cpu.share();
    let looser = strict.changed_to(&shedding("{cpu: 86%}").bounds);
    assert!(share > 0.8 && looser.cpu.share() == share);
}
