//! The limits of the process's cgroups (version 2), if they are lower than the machine's: containers, systemd units.
//!
//! A limit may be set at any level above the process, so all of them are read, and the tightest counts.

use super::machine::{LoadSample, fraction, larger};
use diana::Timestamp;

const MOUNT: &str = "/sys/fs/cgroup";

/// The last sample of each level.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    used: Vec<CpuUsage>,
}

/// The CPU time that the processes of one cgroup have used.
#[derive(Debug)]
struct CpuUsage {
    directory: String,
    micros: u64,
    at: Timestamp,
}

impl Cgroups {
    pub(super) fn sample(&mut self, read: &impl Fn(&str) -> Option<String>, now: Timestamp) -> LoadSample {
        let mut sample = LoadSample::default();
        let mut used = Vec::new();
        for directory in directories(read) {
            sample.memory = larger(sample.memory, memory(read, &directory));
            let Some((quota, micros)) = cpu(read, &directory) else { continue };
            if let Some(before) = self.used.iter().find(|before| before.directory == directory) {
                let elapsed = u64::try_from(now.since(before.at).as_micros()).unwrap_or(u64::MAX);
                let used = micros.saturating_sub(before.micros);
                let busy = (elapsed > 0).then(|| fraction(used, elapsed) / quota);
                sample.cpu = larger(sample.cpu, busy);
            }
            used.push(CpuUsage { directory, micros, at: now });
        }
        self.used = used;
        sample
    }
}

/// Returns the process's cgroup, and its ancestors.
fn directories(read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let membership = read("/proc/self/cgroup").unwrap_or_default();
    let Some(mut path) = membership.lines().find_map(|line| line.strip_prefix("0::")) else { return Vec::new() };
    let mut directories = Vec::new();
    loop {
        path = path.trim_end_matches('/');
        directories.push(format!("{MOUNT}{path}"));
        match path.rfind('/') {
            Some(at) => path = &path[..at],
            None => return directories,
        }
    }
}

/// Returns the fraction of its memory limit that a cgroup uses, if it has one. Inactive page cache does not count,
/// since it can be reclaimed.
fn memory(read: &impl Fn(&str) -> Option<String>, directory: &str) -> Option<f64> {
    let number = |file: &str| read(&format!("{directory}/{file}"))?.trim().parse::<u64>().ok();
    let max = number("memory.max").filter(|max| *max > 0)?;
    let current = number("memory.current")?;
    let stat = read(&format!("{directory}/memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(fraction(current.saturating_sub(cache.unwrap_or(0)), max))
}

/// Returns the number of CPUs that a cgroup may use, if it is limited, and the microseconds of CPU time that it has
/// used.
fn cpu(read: &impl Fn(&str) -> Option<String>, directory: &str) -> Option<(f64, u64)> {
    let max = read(&format!("{directory}/cpu.max"))?;
    let (quota, period) = max.trim().split_once(' ')?;
    let quota = fraction(quota.parse().ok().filter(|quota| *quota > 0)?, period.parse().ok()?);
    let stat = read(&format!("{directory}/cpu.stat"))?;
    let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())?;
    Some((quota, used))
}
