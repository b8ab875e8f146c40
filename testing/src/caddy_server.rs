//! A separate Caddy, which asks Diana by its directive `forward_auth`.
//!
//! ```no_run
//! use diana_testing::CaddyServer;
//!
//! let caddy = CaddyServer::start(|port| format!("http://:{port} {{\n respond hello\n}}"))?;
//! println!("{}", caddy.url());
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::Process;
use crate::tools;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A `caddy` without its admin API, killed on drop.
#[derive(Debug)]
pub struct CaddyServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    folder: TempDir,
    port: Port,
}

impl CaddyServer {
    /// Starts Caddy, and waits until it listens. `sites` gets the port and returns the site blocks of a Caddyfile;
    /// they are bound to 127.0.0.1, and plain HTTP.
    pub fn start(sites: impl FnOnce(u16) -> String) -> io::Result<Self> {
        Self::start_with("", sites)
    }

    /// The same, with more global options, each with its line end.
    pub fn start_with(options: &str, sites: impl FnOnce(u16) -> String) -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-caddy-").tempdir()?;
        std::fs::write(
            folder.path().join("Caddyfile"),
            format!("{{\n{OPTIONS}{options}}}\n{}\n", sites(port.number())),
        )?;
        let program = tools::python_program("caddy")?;
        // `run` could read the Caddyfile itself, but exits without a message if it is invalid.
        let adapted = Command::new(&program).args(["adapt", "--config", "Caddyfile"]).current_dir(&folder).output()?;
        if !adapted.status.success() {
            let problem = String::from_utf8_lossy(&adapted.stderr);
            return Err(io::Error::other(format!("invalid Caddyfile: {problem}")));
        }
        std::fs::write(folder.path().join(CONFIG), adapted.stdout)?;
        let mut command = Command::new(program);
        command.current_dir(folder.path()).args(["run", "--config", CONFIG]);
        // Its files would outlive it in the user's folders.
        command.env("XDG_DATA_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
        let process = Process::start_with_log(&mut command, &folder.path().join(LOG))?;
        let server = Self { process, folder, port };
        let is_ready = || Ok(server.port.is_listening());
        server.process.wait_until_ready("a Caddy", &server.log_file(), is_ready)?;
        Ok(server)
    }

    /// Returns the port on 127.0.0.1.
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

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }
}

/// The global options, which come first in a Caddyfile.
const OPTIONS: &str = "	admin off
	auto_https off
	persist_config off
	default_bind 127.0.0.1
";

const CONFIG: &str = "caddy.json";
const LOG: &str = "caddy.log";
