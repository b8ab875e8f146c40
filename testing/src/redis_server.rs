//! One Redis server of its own.
//!
//! ```no_run
//! use diana_testing::RedisServer;
//!
//! let mut redis = RedisServer::start()?;
//! assert_eq!(redis.cli(&["SET", "greeting", "hello"])?, "OK");
//! redis.freeze()?; // alive, yet answers nobody
//! redis.thaw()?;
//! redis.restart()?; // same port, and empty
//! assert_eq!(redis.cli(&["DBSIZE"])?, "0");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::cli::{COMMAND, redis_cli};
use crate::ports::Port;
use crate::process::Process;
use crate::wait::{LONG, wait_until};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

mod builder;

pub use builder::RedisServerBuilder;

/// A `redis-server` (or a sentinel, which is one as well), killed on drop.
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

    /// For a server that needs a password, a ceiling for its memory, or any other line of `redis.conf`.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::new("redis-server")
    }

    /// The port on 127.0.0.1. It stays the same over [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `redis://127.0.0.1:PORT`, with the password if there is one (as it is: choose one that needs no escaping).
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{user}127.0.0.1:{}", self.port())
    }

    /// The process's id; another one after [`restart`](Self::restart).
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it is there to answer: neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// SIGKILL, and waits for the end: connections break, and new ones are refused. Nothing happens to a dead one.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills it if it lives, and starts it again on the same port: empty, and with no script loaded.
    ///
    /// Its configuration is kept, also what it was told since by those who rewrite it: a node stays in its cluster, and
    /// what sentinels made a master comes back as one.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        // A replica may keep on disk what its master sent it, and would come back with that.
        match std::fs::remove_file(self.folder.path().join("dump.rdb")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.process = Self::spawn(self.program, &self.folder)?;
        self.wait_until_it_answers()
    }

    /// SIGSTOP: the kernel still accepts connections and bytes for it, but nobody answers. Returns once it has stopped.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// SIGCONT: goes on where [`freeze`](Self::freeze) stopped it, and answers what has piled up.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }

    /// Runs `redis-cli` against it; what it prints, without the last line's end. An error reply is an error, and so is
    /// no answer within 10 s.
    pub fn cli(&self, args: &[&str]) -> io::Result<String> {
        let port = self.port().to_string();
        let mut all = vec!["-p", &port, "-e"];
        all.extend(args);
        redis_cli(COMMAND, self.password.as_deref(), &all)
    }

    /// One field of `INFO section`.
    pub fn info(&self, section: &str, field: &str) -> io::Result<String> {
        let text = self.cli(&["INFO", section])?;
        find_field(&text, field).ok_or_else(|| io::Error::other(format!("INFO {section} has no field {field}")))
    }

    /// User and system time that the process has used since it started, all threads together.
    ///
    /// The kernel counts in ticks of (as a rule) 10 ms: compare before and after a run of seconds.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.process.cpu_time()
    }

    /// Waits until this replica has all that its master had, and follows it.
    pub fn wait_until_in_sync(&self) -> io::Result<()> {
        let up = || (self.info("replication", "master_link_status").ok()? == "up").then_some(());
        wait_until("a replica to be in sync with its master", LONG, up)
    }

    fn spawn(program: &'static str, folder: &TempDir) -> io::Result<Process> {
        Process::start(Command::new(program).arg(folder.path().join(CONFIG)).current_dir(folder.path()))
    }

    fn wait_until_it_answers(&self) -> io::Result<()> {
        // Its own id, lest a stranger on the same port pass for it.
        let pid = self.pid().to_string();
        let answer = wait_until("a Redis server to answer", LONG, || {
            if self.process.has_ended() {
                return Some(false);
            }
            (self.info("server", "process_id").ok()? == pid).then_some(true)
        });
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::Error::other(format!("{} ended at once; its log:\n{}", self.program, self.log()))),
            Err(error) => Err(io::Error::new(error.kind(), format!("{error}; its log:\n{}", self.log()))),
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    fn config(folder: &TempDir) -> PathBuf {
        folder.path().join(CONFIG)
    }
}

const CONFIG: &str = "redis.conf";
const LOG: &str = "redis.log";

/// The value of `field` in lines of the form `field:value`, as INFO and CLUSTER INFO print them.
pub(crate) fn find_field(text: &str, field: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    pairs.find_map(|(name, value)| (name == field).then(|| value.to_owned()))
}
