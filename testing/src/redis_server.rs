//! A separate Redis server.
//!
//! ```no_run
//! use diana_testing::RedisServer;
//!
//! let mut redis = RedisServer::start()?;
//! assert_eq!(redis.cli(&["SET", "greeting", "hello"])?, "OK");
//! redis.freeze()?; // alive, but does not answer
//! redis.thaw()?;
//! redis.restart()?; // same port, and empty
//! assert_eq!(redis.cli(&["DBSIZE"])?, "0");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::Process;
use crate::redis_cli::{COMMAND, redis_cli};
use crate::wait::{LONG, wait_until};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

mod builder;

pub use builder::RedisServerBuilder;

/// A `redis-server` (or a sentinel, which is the same program), killed on drop.
#[derive(Debug)]
pub struct RedisServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    program: &'static str,
    password: Option<String>,
    folder: TempDir,
    port: Port,
}

impl RedisServer {
    /// Starts an empty server without persistence, and waits until it answers.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder for a server with a password, a memory limit, or any other line of `redis.conf`.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::new("redis-server")
    }

    /// Returns the port on 127.0.0.1. It stays the same over [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns `redis://127.0.0.1:PORT`, with the password if there is one (unescaped: choose one that needs no
    /// escaping).
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{user}127.0.0.1:{}", self.port())
    }

    /// Returns the process's id; it changes with [`restart`](Self::restart).
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns `true` if it can answer: neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Sends SIGKILL, and waits for the exit: connections break, and new ones are refused. No effect on an exited
    /// process.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills it if it runs, and starts it again on the same port: empty, and with no script loaded.
    ///
    /// Its configuration is preserved, including rewrites at run time: a node stays in its cluster, and a server that
    /// sentinels promoted restarts as a master.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        // A replica may have its master's data on disk, and would load it.
        match std::fs::remove_file(self.folder.path().join("dump.rdb")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.process = Self::spawn(self.program, &self.folder)?;
        self.wait_until_ready()
    }

    /// Sends SIGSTOP: the kernel still accepts connections and bytes, but there is no answer. Returns once it has
    /// stopped.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Sends SIGCONT: continues after [`freeze`](Self::freeze), and answers the pending requests.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }

    /// Runs `redis-cli` against it. Returns the output without the trailing newline. An error reply is an error, and so
    /// is a timeout of 10 s.
    pub fn cli(&self, args: &[&str]) -> io::Result<String> {
        let port = self.port().to_string();
        let mut all = vec!["-p", &port, "-e"];
        all.extend(args);
        redis_cli(COMMAND, self.password.as_deref(), &all)
    }

    /// Returns one field of `INFO section`.
    pub fn info(&self, section: &str, field: &str) -> io::Result<String> {
        let text = self.cli(&["INFO", section])?;
        find_field(&text, field).ok_or_else(|| io::Error::other(format!("INFO {section} has no field {field}")))
    }

    /// Returns the user and system time of the process since its start, over all threads.
    ///
    /// The kernel counts in ticks of (usually) 10 ms: compare before and after a run of seconds.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.process.cpu_time()
    }

    /// Waits until this replica has all data of its master, and follows it.
    pub fn wait_until_in_sync(&self) -> io::Result<()> {
        let up = || (self.info("replication", "master_link_status").ok()? == "up").then_some(());
        wait_until("a replica to be in sync with its master", LONG, up)
    }

    fn spawn(program: &'static str, folder: &TempDir) -> io::Result<Process> {
        Process::start(Command::new(program).arg(folder.path().join(CONFIG)).current_dir(folder.path()))
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        // Checks the process id, in case another server listens on the same port.
        let pid = self.pid().to_string();
        let is_ready = || Ok(self.info("server", "process_id").is_ok_and(|id| id == pid));
        self.process.wait_until_ready(self.program, &self.folder.path().join(LOG), is_ready)
    }

    fn config(folder: &TempDir) -> PathBuf {
        folder.path().join(CONFIG)
    }
}

const CONFIG: &str = "redis.conf";
const LOG: &str = "redis.log";

/// Returns the value of `field` in lines of the form `field:value`, as INFO and CLUSTER INFO print them.
pub(crate) fn find_field(text: &str, field: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    pairs.find_map(|(name, value)| (name == field).then(|| value.to_owned()))
}
