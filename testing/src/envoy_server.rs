//! A separate Envoy, which asks Diana by gRPC, or is the peer that Diana is compared with.
//!
//! ```no_run
//! use diana_testing::EnvoyServer;
//!
//! # let listeners = |port: u16| port.to_string();
//! let mut envoy = EnvoyServer::start(|port| format!("static_resources: {{listeners: [{}]}}", listeners(port)))?;
//! println!("{} is served by process {}", envoy.url(), envoy.pid());
//! envoy.restart()?; // same port, same configuration
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::{Process, command_under};
use crate::tools;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An `envoy` with one worker, killed on drop.
#[derive(Debug)]
pub struct EnvoyServer {
    // Fields are dropped in this order: first the process, then its folder and its ports.
    process: Process,
    folder: TempDir,
    port: Port,
    admin: Port,
    prefix: Vec<String>,
}

impl EnvoyServer {
    /// Returns the version of the installed program. Fails if it is not installed.
    pub fn version() -> io::Result<String> {
        tools::version_of(&tools::python_program("envoy")?, "--version")
    }

    /// Starts Envoy, and waits until it serves. `config` gets a port for a listener on 127.0.0.1, and returns the
    /// bootstrap configuration as YAML; `admin.address` is added to it, or replaced.
    pub fn start(config: impl FnOnce(u16) -> String) -> io::Result<Self> {
        Self::start_under(&[], config)
    }

    /// The same, started by another program that executes it: `&["taskset", "-c", "0"]`.
    pub fn start_under(prefix: &[&str], config: impl FnOnce(u16) -> String) -> io::Result<Self> {
        let (port, admin) = (Port::claim()?, Port::claim()?);
        let folder = tempfile::Builder::new().prefix("diana-envoy-").tempdir()?;
        std::fs::write(folder.path().join(CONFIG), config(port.number()))?;
        let prefix = prefix.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let server = Self { process: Self::spawn(&prefix, folder.path(), &admin)?, folder, port, admin, prefix };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the port on 127.0.0.1. It stays the same over [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Returns the port of its admin interface on 127.0.0.1.
    pub fn admin_port(&self) -> u16 {
        self.admin.number()
    }

    /// Returns the process's id; it changes with [`restart`](Self::restart).
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns its log since the first start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Sends SIGKILL, and waits for the exit: connections break, and new ones are refused. No effect on an exited
    /// process.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills it if it runs, and starts it again on the same port, with the same configuration.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process = Self::spawn(&self.prefix, self.folder.path(), &self.admin)?;
        self.wait_until_ready()
    }

    fn spawn(prefix: &[String], folder: &Path, admin: &Port) -> io::Result<Process> {
        let admin =
            format!("admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}", admin.number());
        let mut command = command_under(prefix, &tools::python_program("envoy")?);
        command.current_dir(folder).args(["--config-path", CONFIG, "--config-yaml", &admin]);
        // Hot restart is for another process that takes over; the shared memory for it would outlive this one.
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        Process::start_with_log(&mut command, &folder.join(LOG))
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let request = "GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let is_live = |answer: String| answer.starts_with("HTTP/1.1 200 ");
        let is_ready = || Ok(self.admin.exchange(request).is_ok_and(is_live) && self.port.is_listening());
        self.process.wait_until_ready("an Envoy", &self.log_file(), is_ready)
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }
}

const CONFIG: &str = "envoy.yaml";
const LOG: &str = "envoy.log";
