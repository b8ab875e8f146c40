//! What a server is started with.

use super::{LOG, RedisServer};
use crate::ports::Port;
use std::io;

/// Starts a [`RedisServer`] that is not the plain one.
///
/// ```no_run
/// use diana_testing::RedisServer;
///
/// let small = RedisServer::builder().password("secret").max_memory(2_000_000).start()?;
/// let copy = RedisServer::builder().replica_of(&small).start()?;
/// copy.wait_until_in_sync()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RedisServerBuilder {
    program: &'static str,
    password: Option<String>,
    lines: Vec<String>,
}

/// What every server gets: nothing is kept on disk.
///
/// A replica is sent a file all the same, which goes at once. Without one the master would hold back what is written next
/// until the replica's first word, up to a second later: "in sync" would be true, and a master killed then would take
/// new keys with it.
const NOTHING_KEPT: [&str; 4] = ["save \"\"", "appendonly no", "repl-diskless-sync no", "rdb-del-sync-files yes"];

impl RedisServerBuilder {
    /// A server as `program` is one: `redis-server`.
    pub(super) fn new(program: &'static str) -> Self {
        Self { program, password: None, lines: NOTHING_KEPT.map(str::to_owned).to_vec() }
    }

    /// A sentinel, which has no data to keep off the disk.
    pub(crate) fn sentinel() -> Self {
        Self { program: "redis-sentinel", password: None, lines: Vec::new() }
    }

    /// Clients must know this password (`requirepass`).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.arg("requirepass", &quoted(password))
    }

    /// No more than so many bytes (`maxmemory`): a write beyond is refused with `OOM`, and nothing is evicted.
    #[must_use]
    pub fn max_memory(self, bytes: u64) -> Self {
        self.arg("maxmemory", &bytes.to_string()).arg("maxmemory-policy", "noeviction")
    }

    /// A copy of `master`, which it follows. It answers before it has all: see [`RedisServer::wait_until_in_sync`].
    #[must_use]
    pub fn replica_of(self, master: &RedisServer) -> Self {
        let follower = self.arg("replicaof", &format!("127.0.0.1 {}", master.port()));
        match &master.password {
            Some(password) => follower.arg("masterauth", &quoted(password)),
            None => follower,
        }
    }

    /// Any other line of `redis.conf`, with the value as it would stand there.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Starts the server, and waits until it answers.
    pub fn start(self) -> io::Result<RedisServer> {
        let server = self.spawn()?;
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn spawn(self) -> io::Result<RedisServer> {
        let Self { program, password, mut lines } = self;
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-redis-").tempdir()?;
        lines.push(format!("port {}", port.number()));
        lines.push("bind 127.0.0.1".to_owned());
        lines.push(format!("logfile {LOG}"));
        // The file and not the command line: sentinels write down there what they learn, and insist that they can.
        std::fs::write(RedisServer::config(&folder), lines.join("\n") + "\n")?;
        let process = RedisServer::spawn(program, &folder)?;
        Ok(RedisServer { process, program, password, folder, port })
    }
}

/// In quotes, as `redis.conf` wants a value that may hold spaces.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
