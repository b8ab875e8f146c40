//! The CPU time of another process, as the kernel counts it, and CPU affinity.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::PathBuf;

/// Returns the CPU time of the process `pid`, user and system, over all threads, in nanoseconds. Exact while it sleeps;
/// the time of ended threads is not included.
pub fn nanos(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |path: PathBuf| {
        // A thread may end in between.
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.map(|thread| of_thread(thread.path())).sum()
}

/// Reserves one core for the measured program; this process and its later children run on the others.
///
/// Returns the command prefix that runs a program on that core: `taskset -c 0`. Empty on a machine with a single core,
/// which all share.
pub fn reserve_core() -> Vec<String> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let [reserved, others @ ..] = &cores[..] else { return Vec::new() };
    let mut rest = CpuSet::new();
    others.iter().for_each(|&core| rest.set(core));
    if others.is_empty() || sched_setaffinity(None, &rest).is_err() {
        return Vec::new();
    }
    vec!["taskset".to_owned(), "-c".to_owned(), reserved.to_string()]
}
