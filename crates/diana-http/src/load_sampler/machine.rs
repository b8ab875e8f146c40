//! The load of the machine, from Linux's statistics, as fractions.

use super::cgroup::Cgroups;
use diana::Timestamp;

/// Reads a system file: `None` if it does not exist.
type Read = fn(&str) -> Option<String>;

/// The machine, and its last sample.
#[derive(Debug)]
pub(super) struct Machine<R = Read> {
    read: R,
    times: Option<CpuTimes>,
    cgroups: Cgroups,
}

/// The load of the machine, from 0 to 1 (slightly above if a cgroup exceeds its quota).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoadSample {
    /// CPU usage since the last sample.
    pub(super) cpu: Option<f64>,
    /// Memory usage.
    pub(super) memory: Option<f64>,
}

/// CPU times since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    idle: u64,
    total: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(|path| std::fs::read_to_string(path).ok())
    }
}

impl<R: Fn(&str) -> Option<String>> Machine<R> {
    pub(super) fn new(read: R) -> Self {
        Self { read, times: None, cgroups: Cgroups::default() }
    }

    /// Returns `true` if the load can be measured.
    pub(super) fn is_known(&self) -> bool {
        (self.read)("/proc/stat").is_some()
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, now: Timestamp) -> LoadSample {
        let times = (self.read)("/proc/stat").and_then(|text| CpuTimes::parse(&text));
        let cpu = times.zip(self.times).and_then(|(times, before)| times.busy_since(before));
        self.times = times;
        let memory = (self.read)("/proc/meminfo").and_then(|text| memory(&text));
        let cgroups = self.cgroups.sample(&self.read, now);
        LoadSample { cpu: larger(cpu, cgroups.cpu), memory: larger(memory, cgroups.memory) }
    }
}

impl CpuTimes {
    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. (Guest time is
    /// included in user.)
    fn parse(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let times = numbers.take(8).map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let idle = times.get(3)?.saturating_add(times.get(4).copied().unwrap_or(0));
        Some(Self { idle, total: times.iter().fold(0, |total: u64, time| total.saturating_add(*time)) })
    }

    /// Returns the fraction of non-idle time; `None` if no time has passed. (iowait may decrease slightly.)
    fn busy_since(self, before: Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(total);
        Some(fraction(total - idle, total))
    }
}

/// Returns the fraction of memory that is unavailable; page cache is available.
fn memory(meminfo: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let total = field("MemTotal:").filter(|total| *total > 0)?;
    Some(fraction(total.saturating_sub(field("MemAvailable:")?), total))
}

/// Returns `part` / `whole`.
#[allow(clippy::cast_precision_loss, reason = "a fraction needs no more than 53 bits")]
pub(super) fn fraction(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns the larger of the known values.
pub(super) fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
