//! A separate HAProxy: a peer that Diana is compared with. Only benches start it.
//!
//! ```no_run
//! use diana_testing::HaproxyServer;
//!
//! let haproxy = HaproxyServer::start_under(&[], |port| {
//!     format!("frontend all\n mode http\n timeout client 5s\n bind 127.0.0.1:{port}\n http-request return status 200\n")
//! })?;
//! println!("port {} is served by process {}", haproxy.port(), haproxy.pid());
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::{Process, command_under};
use crate::tools;
use std::io;
use tempfile::TempDir;

/// A `haproxy` with one thread, killed on drop.
#[derive(Debug)]
pub struct HaproxyServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    folder: TempDir,
    port: Port,
}

impl HaproxyServer {
    /// Returns the version of the installed program. Fails if it is not installed.
    pub fn version() -> io::Result<String> {
        tools::version_of(&tools::system_program("haproxy"), "-v")
    }

    /// Starts HAProxy by another program that executes it (`&["taskset", "-c", "0"]`, or `&[]`), and waits until it
    /// listens. `sections` gets the port and returns the configuration without the section `global`.
    ///
    /// It logs no requests. Its maximum number of connections follows from the limit of open files.
    pub fn start_under(prefix: &[&str], sections: impl FnOnce(u16) -> String) -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-haproxy-").tempdir()?;
        let config = folder.path().join("haproxy.cfg");
        std::fs::write(&config, format!("global\n    nbthread 1\n{}\n", sections(port.number())))?;
        let log = folder.path().join("haproxy.log");
        let mut command = command_under(prefix, &tools::system_program("haproxy"));
        // In the foreground, whatever the configuration says.
        command.arg("-db").arg("-f").arg(&config);
        let process = Process::start_with_log(&mut command, &log)?;
        let server = Self { process, folder, port };
        server.process.wait_until_ready("a HAProxy", &log, || Ok(server.port.is_listening()))?;
        Ok(server)
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns its own messages so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("haproxy.log")).unwrap_or_default()
    }
}
