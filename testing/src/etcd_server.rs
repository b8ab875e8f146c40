//! A separate etcd server, a cluster of one node.
//!
//! ```no_run
//! use diana_testing::EtcdServer;
//!
//! let mut etcd = EtcdServer::start()?;
//! etcd.put("/diana/rules", "rules: []")?;
//! etcd.kill()?;
//! etcd.restart()?; // same port, same data
//! etcd.delete("/diana/rules")?;
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::Process;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// An `etcd`, killed on drop.
#[derive(Debug)]
pub struct EtcdServer {
    // Fields are dropped in this order: first the process, then its folder and its ports.
    process: Process,
    token: Option<String>,
    folder: TempDir,
    port: Port,
    peer: Port,
    tls: Option<Tls>,
}

/// A second listener, for TLS clients.
#[derive(Debug)]
struct Tls {
    port: Port,
    certificate: PathBuf,
    key: PathBuf,
}

impl EtcdServer {
    /// Starts an empty server, and waits until it answers.
    pub fn start() -> io::Result<Self> {
        Self::start_with(None)
    }

    /// The same, and it also listens on a [port](Self::tls_port) for TLS, with the certificate and the key in these
    /// files.
    pub fn start_with_tls(certificate: &Path, key: &Path) -> io::Result<Self> {
        Self::start_with(Some(Tls { port: Port::claim()?, certificate: certificate.into(), key: key.into() }))
    }

    fn start_with(tls: Option<Tls>) -> io::Result<Self> {
        let (port, peer) = (Port::claim()?, Port::claim()?);
        let folder = tempfile::Builder::new().prefix("diana-etcd-").tempdir()?;
        let process = Self::spawn(&folder, &port, &peer, tls.as_ref())?;
        let server = Self { process, token: None, folder, port, peer, tls };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the port on 127.0.0.1. It stays the same over [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the port on 127.0.0.1 for TLS; `None` if it was started without.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|tls| tls.port.number())
    }

    /// Sends SIGKILL, and waits for the exit: connections break, and new ones are refused. No effect on an exited
    /// process.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills it if it runs, and starts it again on the same port, with its previous data. Its tokens are invalid.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process = Self::spawn(&self.folder, &self.port, &self.peer, self.tls.as_ref())?;
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

    /// Sets a key. Returns the store's revision.
    pub fn put(&self, key: &str, value: &str) -> io::Result<u64> {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        let answer = self.call("/v3/kv/put", &format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}"))?;
        revision(&answer)
    }

    /// Removes a key. Returns the store's revision.
    pub fn delete(&self, key: &str) -> io::Result<u64> {
        let answer = self.call("/v3/kv/deleterange", &format!("{{\"key\":\"{}\"}}", STANDARD.encode(key)))?;
        revision(&answer)
    }

    /// Removes all revisions before this one: a watch from an earlier one is rejected.
    pub fn compact(&self, revision: u64) -> io::Result<()> {
        self.call("/v3/kv/compaction", &format!("{{\"revision\":\"{revision}\",\"physical\":true}}")).map(drop)
    }

    /// Requires the user `root` with this password from now on; the calls of this value use it.
    pub fn require_password(&mut self, password: &str) -> io::Result<()> {
        self.call("/v3/auth/user/add", &format!("{{\"name\":\"root\",\"password\":\"{password}\"}}"))?;
        self.call("/v3/auth/role/add", "{\"name\":\"root\"}")?;
        self.call("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}")?;
        self.call("/v3/auth/enable", "{}")?;
        self.log_in(password)
    }

    /// Gets a new token, which is necessary after a restart.
    pub fn log_in(&mut self, password: &str) -> io::Result<()> {
        // With an unknown token the server rejects this too.
        self.token = None;
        let request = format!("{{\"name\":\"root\",\"password\":\"{password}\"}}");
        let answer = self.call("/v3/auth/authenticate", &request)?;
        self.token =
            Some(field(&answer, "token").ok_or_else(|| io::Error::other(format!("missing token in {answer}")))?);
        Ok(())
    }

    /// Makes one call to the JSON gateway. Returns the body of its answer; an error reply is an error.
    pub fn call(&self, path: &str, body: &str) -> io::Result<String> {
        let authorization = self.token.as_ref().map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{authorization}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = self.port.exchange(&request)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        if status == "200" { Ok(body.to_owned()) } else { Err(io::Error::other(format!("{path}: {status} {body}"))) }
    }

    fn spawn(folder: &TempDir, port: &Port, peer: &Port, tls: Option<&Tls>) -> io::Result<Process> {
        let mut client = format!("http://127.0.0.1:{}", port.number());
        let peer = format!("http://127.0.0.1:{}", peer.number());
        let mut command = Command::new("etcd");
        if let Some(Tls { port, certificate, key }) = tls {
            client = format!("{client},https://127.0.0.1:{}", port.number());
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        command.current_dir(folder.path()).args(["--data-dir", "data", "--logger", "zap", "--log-outputs", LOG]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        // Alone, it need not wait long for others before it elects itself.
        command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
        Process::start(&mut command)
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let request = "GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
        let is_healthy = |answer: String| answer.contains("\"health\":\"true\"");
        let is_ready = || Ok(self.port.exchange(request).is_ok_and(is_healthy));
        self.process.wait_until_ready("an etcd", &self.folder.path().join(LOG), is_ready)
    }
}

const LOG: &str = "etcd.log";

fn revision(answer: &str) -> io::Result<u64> {
    let revision = field(answer, "revision").and_then(|revision| revision.parse().ok());
    revision.ok_or_else(|| io::Error::other(format!("missing revision in {answer}")))
}

/// Returns the text of a field with this name, at any depth of the JSON.
fn field(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}
