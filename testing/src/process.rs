//! A child process: signals, CPU time, memory, and waiting for its exit.

use crate::wait::{LONG, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running child; killed and waited for on drop. Used for the servers of this crate, and for any other program.
///
/// ```
/// use diana_testing::Process;
/// use std::process::Command;
///
/// let mut process = Process::start(Command::new("sleep").arg("60"))?;
/// assert!(process.is_running() && process.resident()? > 0);
/// process.kill()?;
/// assert!(process.has_ended());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command` with neither input nor output.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Self::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts `command` without input, and appends its output to the file `log`.
    pub(crate) fn start_with_log(command: &mut Command, log: &Path) -> io::Result<Self> {
        Self::start_with_input(command, Stdio::null(), log)
    }

    /// Starts `command` with this input, and appends its output to the file `log`.
    pub(crate) fn start_with_input(command: &mut Command, input: Stdio, log: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        Self::spawn(command.stdin(input).stdout(log.try_clone()?).stderr(log))
    }

    fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn();
        let child = child.map_err(|error| {
            let program = command.get_program().to_string_lossy();
            let hint = "`cargo xtask install` installs the programs that tests need";
            io::Error::new(error.kind(), format!("cannot start `{program}`: {error}; {hint}"))
        })?;
        Ok(Self { child })
    }

    /// Polls `is_ready` until it returns `true`. If it fails or times out, or the process exits, the error has the
    /// content of the file `log`.
    pub(crate) fn wait_until_ready(
        &self,
        name: &str,
        log: &Path,
        mut is_ready: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<()> {
        let ready = wait_until(&format!("{name} to be ready"), LONG, || {
            if self.has_ended() {
                return Some(Err(io::Error::other(format!("{name} exited at start"))));
            }
            is_ready().map(|ready| ready.then_some(())).transpose()
        });
        ready.flatten().map_err(|error| {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            io::Error::new(error.kind(), format!("{error}; its log:\n{log}"))
        })
    }

    /// Returns its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns `true` if it could answer: it has neither exited nor been stopped.
    pub fn is_running(&self) -> bool {
        self.stat().is_ok_and(|stat| !matches!(stat.state, 'T' | 'Z' | 'X'))
    }

    /// Returns `true` if it has exited, or been killed.
    pub fn has_ended(&self) -> bool {
        // An exited child stays a zombie until it is waited for, so its id can't have been reused.
        self.stat().map_or(true, |stat| stat.has_ended())
    }

    /// Sends SIGKILL to it and its children, and waits for their exit. No effect on an exited process.
    ///
    /// Redis forks to send a replica its data; such a child would outlive it, and write to a folder that is being
    /// removed.
    pub fn kill(&mut self) -> io::Result<()> {
        // A stopped process neither forks nor waits for its children, so that their ids are not reused. If it can't be
        // stopped it has exited.
        let forked = self.freeze().map(|()| self.forked()).unwrap_or_default();
        for &child in &forked {
            kill_process(child, Signal::KILL)?;
        }
        self.child.kill()?;
        self.child.wait()?;
        let has_exited = |child: &Pid| stat_of(child.as_raw_nonzero().get()).map_or(true, |stat| stat.has_ended());
        wait_until("the children of a process to exit", LONG, || forked.iter().all(has_exited).then_some(()))
    }

    /// Sends SIGSTOP, and waits until it has stopped: the signal alone is asynchronous.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let stopped = || self.stat().is_ok_and(|stat| stat.state == 'T').then_some(());
        wait_until("a process to stop", LONG, stopped)
    }

    /// Sends SIGCONT.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Returns the user and system time of all its threads, in the kernel's ticks (usually 10 ms).
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let ticks = self.stat()?.ticks;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ticks.saturating_mul(1_000) / per_second))
    }

    /// Returns its resident memory in bytes, without its children's.
    pub fn resident(&self) -> io::Result<u64> {
        resident(self.pid())
    }

    /// Returns the ids of its current children.
    pub fn children(&self) -> Vec<u32> {
        self.forked().iter().filter_map(|child| u32::try_from(child.as_raw_nonzero().get()).ok()).collect()
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.has_ended() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("process {} has exited", self.pid())));
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Returns its own children. Only its first thread forks.
    fn forked(&self) -> Vec<Pid> {
        let pid = self.pid();
        let ids = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        ids.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
    }

    fn stat(&self) -> io::Result<Stat> {
        stat_of(self.pid())
    }
}

/// Returns the command that starts `program` by another one that executes it, such as `taskset`, unless `prefix` is
/// empty.
pub(crate) fn command_under(prefix: &[impl AsRef<OsStr>], program: &Path) -> Command {
    match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors can't be reported in `drop`; one means that it has exited.
        let _ = self.kill();
    }
}

/// Returns the resident memory of the process `pid` in bytes, whether it is a child or not.
pub fn resident(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    // An exited process has none.
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has exited")))
}

/// The required fields of `/proc/PID/stat`; see proc(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    ticks: u64,
}

fn stat_of(pid: impl Display) -> io::Result<Stat> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Stat::parse(&line).ok_or_else(|| io::Error::other(format!("unknown format: {line}")))
}

impl Stat {
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn parse(line: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses itself.
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut times = fields.skip(10);
        let user: u64 = times.next()?.parse().ok()?;
        let system: u64 = times.next()?.parse().ok()?;
        Some(Self { state, ticks: user.saturating_add(system) })
    }
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn the_program_name_may_contain_parentheses() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 2108 0 0 0 120 34 0 0 20 0 5 0 1047 61444096 2730";
        assert_eq!(Stat::parse(line), Some(Stat { state: 'S', ticks: 154 }));
    }
}
