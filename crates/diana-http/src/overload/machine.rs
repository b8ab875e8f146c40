//! What Linux counts about the machine, as shares of the whole.

use super::cgroup::Cgroups;
use diana::core::Timestamp;

/// How a file of the system is read: `None` where there is none.
type Read = fn(&str) -> Option<String>;

/// The machine, and what was seen of it last.
#[derive(Debug)]
pub(super) struct Machine<R = Read> {
    read: R,
    times: Option<CpuTimes>,
    cgroups: Cgroups,
}

/// How busy the machine is, from 0 to 1 (a little above where a cgroup overdraws its quota).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Of the processors, since it was last looked.
    pub(super) cpu: Option<f64>,
    /// Of the memory.
    pub(super) memory: Option<f64>,
}

/// What the processors have done since the machine started, in ticks.
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

    /// Whether anything can be known about it.
    pub(super) fn is_known(&self) -> bool {
        (self.read)("/proc/stat").is_some()
    }

    /// Looks at everything.
    pub(super) fn look(&mut self, now: Timestamp) -> Seen {
        let times = (self.read)("/proc/stat").and_then(|text| CpuTimes::read(&text));
        let cpu = times.zip(self.times).and_then(|(times, before)| times.busy_since(before));
        self.times = times;
        let memory = (self.read)("/proc/meminfo").and_then(|text| memory(&text));
        let own = self.cgroups.look(&self.read, now);
        Seen { cpu: larger(cpu, own.cpu), memory: larger(memory, own.memory) }
    }
}

impl CpuTimes {
    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. (What guests had is in user.)
    fn read(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let times = numbers.take(8).map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let idle = times.get(3)?.saturating_add(times.get(4).copied().unwrap_or(0));
        Some(Self { idle, total: times.iter().fold(0, |total: u64, time| total.saturating_add(*time)) })
    }

    /// Which share of the time was not idle; unknown if no time has passed. (iowait may go back a little.)
    fn busy_since(self, before: Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(total);
        Some(share(total - idle, total))
    }
}

/// Which share of the memory can't be had: what the page cache holds can.
fn memory(meminfo: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let total = field("MemTotal:").filter(|total| *total > 0)?;
    Some(share(total.saturating_sub(field("MemAvailable:")?), total))
}

/// A part of a whole.
#[allow(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The larger of those that are known.
pub(super) fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
