//! A separate Traefik, which asks Diana by its middleware `forwardAuth`.
//!
//! ```no_run
//! use diana_testing::TraefikServer;
//!
//! let traefik = TraefikServer::start(
//!     "http:
//!        routers: {all: {rule: PathPrefix(`/`), service: upstream}}
//!        services: {upstream: {loadBalancer: {servers: [{url: 'http://127.0.0.1:8080'}]}}}",
//! )?;
//! println!("{}", traefik.url());
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::Process;
use crate::tools;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A `traefik` with the entry point `web`, killed on drop.
#[derive(Debug)]
pub struct TraefikServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    folder: TempDir,
    port: Port,
}

impl TraefikServer {
    /// Starts Traefik with a dynamic configuration as YAML, and waits until it is loaded. An error in it is an error.
    pub fn start(dynamic: &str) -> io::Result<Self> {
        let file = |port: u16| {
            format!(
                "entryPoints: {{web: {{address: '127.0.0.1:{port}'}}}}\nproviders: {{file: {{directory: {DYNAMIC}}}}}\n"
            )
        };
        Self::start_file(file, dynamic)
    }

    /// The same, with a static configuration as YAML. `file` gets the port of the entry point `web`, and returns a
    /// configuration that has this entry point on 127.0.0.1, and `providers: {file: {directory: dynamic}}`.
    pub fn start_file(file: impl FnOnce(u16) -> String, dynamic: &str) -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-traefik-").tempdir()?;
        let dynamic_folder = folder.path().join(DYNAMIC);
        std::fs::create_dir(&dynamic_folder)?;
        std::fs::write(dynamic_folder.join("test.yaml"), dynamic)?;
        std::fs::write(dynamic_folder.join("ready.yaml"), READY)?;
        std::fs::write(folder.path().join(STATIC), format!("{}{OPTIONS}", file(port.number())))?;
        let mut command = Command::new(tools::python_program("traefik")?);
        command.current_dir(folder.path()).arg(format!("--configFile={STATIC}"));
        let process = Process::start_with_log(&mut command, &folder.path().join(LOG))?;
        let server = Self { process, folder, port };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the port of the entry point `web` on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Traefik listens before it has loaded the dynamic configuration, and continues without what is invalid in it.
    fn wait_until_ready(&self) -> io::Result<()> {
        let request = "GET /diana-testing-ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let is_loaded = |answer: String| answer.starts_with("HTTP/1.1 200 ");
        let is_ready = || {
            let loaded = self.port.exchange(request).is_ok_and(is_loaded);
            // Errors are logged before it is loaded.
            if self.log().contains("\"level\":\"error\"") {
                return Err(io::Error::other("Traefik rejected its configuration"));
            }
            Ok(loaded)
        };
        self.process.wait_until_ready("a Traefik", &self.log_file(), is_ready)
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }
}

/// The folder of the dynamic configuration, all files of which are loaded at the same time.
const DYNAMIC: &str = "dynamic";

/// The file of the static configuration, and what is added to it. Without `global` it calls servers on the internet.
const STATIC: &str = "traefik.yaml";
const OPTIONS: &str = "
ping: {manualRouting: true}
log: {format: json, level: INFO}
global: {checkNewVersion: false, sendAnonymousUsage: false}
";

/// A route that exists as soon as the dynamic configuration is loaded.
const READY: &str = "
http:
  routers:
    diana-testing-ready:
      {entryPoints: [web], rule: Path(`/diana-testing-ready`), priority: 1000000, service: ping@internal}
";

const LOG: &str = "traefik.log";
