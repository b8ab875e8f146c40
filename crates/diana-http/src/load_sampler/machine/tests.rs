use super::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// A machine with files that the test writes.
#[derive(Default)]
struct Files(RefCell<HashMap<String, String>>);

impl Files {
    fn write(&self, path: &str, text: &str) {
        self.0.borrow_mut().insert(path.to_owned(), text.to_owned());
    }

    fn machine(&self) -> Machine<impl Fn(&str) -> Option<String> + '_> {
        Machine::new(|path: &str| self.0.borrow().get(path).cloned())
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn cpu_usage_is_measured_since_the_last_sample() {
    let files = Files::default();
    let mut machine = files.machine();
    files.write("/proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n");
    assert_eq!(machine.sample(at(0)).cpu, None, "needs two samples");
    // 100 more ticks, of which 15 are idle and 10 iowait; 50 of a guest, which are included in user.
    files.write("/proc/stat", "cpu  150 5 110 715 110 2 3 5 50 0\n");
    assert_eq!(machine.sample(at(250)).cpu, Some(0.75));
    assert_eq!(machine.sample(at(500)).cpu, None, "no tick has passed");
}

#[test]
fn page_cache_counts_as_available_memory() {
    let files = Files::default();
    files.write(
        "/proc/meminfo",
        "MemTotal:        1000 kB\nMemFree:   10 kB\nMemAvailable:     600 kB\nCached: 590 kB\n",
    );
    assert_eq!(files.machine().sample(at(0)), LoadSample { cpu: None, memory: Some(0.4) });
}

#[test]
fn the_tightest_parent_cgroup_applies() {
    let files = Files::default();
    files.write("/proc/self/cgroup", "0::/app.slice/diana.service\n");
    files.write("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n");
    files.write("/sys/fs/cgroup/app.slice/diana.service/memory.max", "max\n");
    files.write("/sys/fs/cgroup/app.slice/memory.max", "1000000\n");
    files.write("/sys/fs/cgroup/app.slice/memory.current", "900000\n");
    files.write("/sys/fs/cgroup/app.slice/memory.stat", "anon 500000\ninactive_file 100000\nactive_file 1\n");
    // Two CPUs may be used.
    files.write("/sys/fs/cgroup/app.slice/cpu.max", "200000 100000\n");
    files.write("/sys/fs/cgroup/app.slice/cpu.stat", "usage_usec 5000000\nuser_usec 1\n");
    files.write("/proc/stat", "cpu  0 0 0 100\n");
    let mut machine = files.machine();
    assert_eq!(machine.sample(at(0)), LoadSample { cpu: None, memory: Some(0.8) });

    files.write("/sys/fs/cgroup/app.slice/cpu.stat", "usage_usec 6500000\nuser_usec 1\n");
    files.write("/proc/stat", "cpu  10 0 0 190\n");
    assert_eq!(machine.sample(at(1_000)).cpu, Some(0.75), "1.5 s of 2 s, although the machine is idle");
}

#[test]
fn reads_the_limit_of_a_root_cgroup() {
    let files = Files::default();
    files.write("/proc/self/cgroup", "0::/\n");
    files.write("/sys/fs/cgroup/memory.max", "1000\n");
    files.write("/sys/fs/cgroup/memory.current", "950\n");
    assert_eq!(files.machine().sample(at(0)).memory, Some(0.95));
}

#[test]
fn unreadable_files_are_unknown_values() {
    let files = Files::default();
    assert!(!files.machine().is_known());
    assert_eq!(files.machine().sample(at(0)), LoadSample::default());
    for invalid in ["", "cpu", "cpu  1 2", "cpu  a b c d e", "intr 5"] {
        files.write("/proc/stat", invalid);
        files.write("/proc/meminfo", invalid);
        files.write("/proc/self/cgroup", "12:memory:/old\n");
        assert_eq!(files.machine().sample(at(0)), LoadSample::default(), "{invalid}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn reads_the_load_of_this_machine() {
    let mut machine = Machine::default();
    assert!(machine.is_known());
    let memory = machine.sample(at(0)).memory.unwrap();
    assert!(memory > 0.0 && memory < 1.5, "{memory}");
}
