//! A separate nginx: an upstream, or the peer that Diana is compared with.
//!
//! ```no_run
//! use diana_testing::NginxServer;
//!
//! let nginx = NginxServer::start(|port| format!("server {{ listen 127.0.0.1:{port}; return 200 hello; }}"))?;
//! println!("{} is served by {:?}", nginx.url(), nginx.workers()?);
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::{Process, command_under};
use crate::tools;
use crate::wait::{LONG, wait_until};
use std::io;
use std::path::Path;
use tempfile::TempDir;

/// An `nginx` with one worker, killed on drop.
#[derive(Debug)]
pub struct NginxServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    folder: TempDir,
    port: Port,
}

impl NginxServer {
    /// Returns the version of the installed program. Fails if it is not installed.
    pub fn version() -> io::Result<String> {
        tools::version_of(&tools::system_program("nginx"), "-v")
    }

    /// Starts nginx, and waits until it listens. `http` gets the port and returns the content of the `http` block.
    ///
    /// It logs neither requests nor messages below critical, so that denials cost no writes.
    pub fn start(http: impl FnOnce(u16) -> String) -> io::Result<Self> {
        Self::start_under(&[], http)
    }

    /// The same, started by another program that executes it: `&["taskset", "-c", "0"]`.
    pub fn start_under(prefix: &[&str], http: impl FnOnce(u16) -> String) -> io::Result<Self> {
        let file = |port: u16| format!("events {{ worker_connections {FILES}; }}\nhttp {{\n{}\n}}\n", http(port));
        Self::start_file_under(prefix, file)
    }

    /// Starts nginx with a whole configuration file, and waits until it listens. `file` gets the port, and returns a file
    /// with one block `http {`; the paths of the files that nginx writes are added.
    pub fn start_file(file: impl FnOnce(u16) -> String) -> io::Result<Self> {
        Self::start_file_under(&[], file)
    }

    fn start_file_under(prefix: &[&str], file: impl FnOnce(u16) -> String) -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-nginx-").tempdir()?;
        std::fs::write(folder.path().join(CONFIG), with_paths(folder.path(), &file(port.number())))?;
        let mut command = command_under(prefix, &tools::system_program("nginx"));
        command.arg("-p").arg(folder.path()).args(["-e", LOG, "-c", CONFIG]);
        let server = Self { process: Process::start(&mut command)?, folder, port };
        server.wait_until_listening()?;
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

    /// Returns the ids of the worker processes, without the master.
    pub fn workers(&self) -> io::Result<Vec<u32>> {
        wait_until("an nginx to have workers", LONG, || {
            let workers = self.process.children();
            (!workers.is_empty()).then_some(workers)
        })
    }

    /// Sends SIGKILL to it and its workers, and waits for their exit.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    fn wait_until_listening(&self) -> io::Result<()> {
        let is_ready = || Ok(self.port.is_listening());
        self.process.wait_until_ready("an nginx", &self.folder.path().join(LOG), is_ready)?;
        self.workers().map(|_| ())
    }
}

const CONFIG: &str = "nginx.conf";
const LOG: &str = "error.log";

/// Adds the paths of the files that nginx writes to a configuration.
fn with_paths(folder: &Path, file: &str) -> String {
    // As root, nginx starts its workers as another user without access to the folder.
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    let folder = folder.display();
    let main = format!(
        "{user}
        daemon off;
        worker_processes 1;
        worker_rlimit_nofile {FILES};
        pid {folder}/nginx.pid;
        error_log {folder}/{LOG} crit;\n"
    );
    let http = format!(
        "http {{
            access_log off;
            client_body_temp_path {folder}/body;
            proxy_temp_path {folder}/proxy;
            fastcgi_temp_path {folder}/fastcgi;
            uwsgi_temp_path {folder}/uwsgi;
            scgi_temp_path {folder}/scgi;\n"
    );
    main + &file.replacen("http {", &http, 1)
}

/// The maximum number of files and connections of a worker, if the machine allows it.
const FILES: u32 = 20_000;
