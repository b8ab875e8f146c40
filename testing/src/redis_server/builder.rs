//! The builder of a server.

use super::{LOG, RedisServer};
use crate::ports::Port;
use crate::tls_files::TlsFiles;
use std::io;

/// Starts a [`RedisServer`] with custom settings.
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

/// The settings of every server: no persistence.
///
/// A replica is synchronized through a file nevertheless, which is removed at once. Without one the master would delay
/// new writes until the replica's first acknowledgement, up to a second later: "in sync" would be true, and if the
/// master were killed then, new keys would be lost.
const NO_PERSISTENCE: [&str; 4] = ["save \"\"", "appendonly no", "repl-diskless-sync no", "rdb-del-sync-files yes"];

impl RedisServerBuilder {
    /// Creates a builder for `program`: `redis-server`.
    pub(super) fn new(program: &'static str) -> Self {
        Self { program, password: None, lines: NO_PERSISTENCE.map(str::to_owned).to_vec() }
    }

    /// Creates a builder for a sentinel, which needs no settings against persistence.
    pub(crate) fn sentinel() -> Self {
        Self { program: "redis-sentinel", password: None, lines: Vec::new() }
    }

    /// Requires this password from clients (`requirepass`).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.arg("requirepass", &quoted(password))
    }

    /// Limits the memory to this many bytes (`maxmemory`): further writes fail with `OOM`, and nothing is evicted.
    #[must_use]
    pub fn max_memory(self, bytes: u64) -> Self {
        self.arg("maxmemory", &bytes.to_string()).arg("maxmemory-policy", "noeviction")
    }

    /// Makes it a replica of `master`. It answers before it has all data: see [`RedisServer::wait_until_in_sync`].
    #[must_use]
    pub fn replica_of(self, master: &RedisServer) -> Self {
        let replica = self.arg("replicaof", &format!("127.0.0.1 {}", master.port()));
        match &master.password {
            Some(password) => replica.arg("masterauth", &quoted(password)),
            None => replica,
        }
    }

    /// Accepts TLS on a second port, from clients without a certificate.
    #[must_use]
    pub fn tls(self, port: &Port, files: &TlsFiles) -> Self {
        let path = |path: &std::path::Path| quoted(&path.display().to_string());
        self.arg("tls-port", &port.number().to_string())
            .arg("tls-cert-file", &path(&files.certificate))
            .arg("tls-key-file", &path(&files.key))
            .arg("tls-ca-cert-file", &path(&files.authority))
            .arg("tls-auth-clients", "no")
    }

    /// Adds any other line of `redis.conf`, with the value as written in that file.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Starts the server, and waits until it answers.
    pub fn start(self) -> io::Result<RedisServer> {
        let server = self.spawn()?;
        server.wait_until_ready()?;
        Ok(server)
    }

    fn spawn(self) -> io::Result<RedisServer> {
        let Self { program, password, mut lines } = self;
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-redis-").tempdir()?;
        lines.push(format!("port {}", port.number()));
        lines.push("bind 127.0.0.1".to_owned());
        lines.push(format!("logfile {LOG}"));
        // In the file and not on the command line: sentinels write their state to it, and require that it is writable.
        std::fs::write(RedisServer::config(&folder), lines.join("\n") + "\n")?;
        let process = RedisServer::spawn(program, &folder)?;
        Ok(RedisServer { process, program, password, folder, port })
    }
}

/// Quotes a value for `redis.conf`, since it may contain spaces.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
