//! Equivalent gateways in front of one upstream: Diana, and its [peers](Peer).
//!
//! Requests for `/open` are allowed, by a limit that is never reached; requests for `/shut` are denied, by a limit that
//! the first request of a client uses up. Every gateway has one worker, logs no requests, counts by client address,
//! keeps connections to the upstream alive, and accepts HTTP/1 and HTTP/2 without TLS, and HTTP/1 with TLS.

use diana_testing::{NginxServer, Port, Process, TlsFiles, wait_until};
use std::any::Any;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub mod connection;
pub mod load;
mod peers;

pub use peers::{ClientAddress, Peer};

/// The body of the upstream's response.
pub const BODY: &str = "Hello from the upstream: a small answer.";

/// The rules that the peers have as well.
pub const SAME_AS_PEERS: &str = "
  - {name: open, match: {path: /open}, by: ip, limit: 1000000/s}
  - {name: shut, match: {path: /shut}, by: ip, limit: 1/min}
";

/// The protocol between client and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    /// HTTP/1 over TLS.
    Tls,
}

/// The upstream of every gateway, and the core on which gateways run.
pub struct Stage {
    upstream: NginxServer,
    prefix: Vec<String>,
    tls: TlsFiles,
    /// Certificate and key in one file, as HAProxy expects them.
    certificate_and_key: PathBuf,
    _folder: TempDir,
}

/// A running gateway; stopped when dropped.
pub struct Gateway {
    pub name: &'static str,
    /// The serving process.
    pub pid: u32,
    ports: Ports,
    _resources: Box<dyn Any>,
}

/// The ports of a gateway on 127.0.0.1, one for each protocol.
#[derive(Clone, Copy)]
struct Ports {
    http1: u16,
    h2c: u16,
    tls: u16,
}

impl Gateway {
    pub fn port(&self, protocol: Protocol) -> u16 {
        match protocol {
            Protocol::Http1 => self.ports.http1,
            Protocol::H2c => self.ports.h2c,
            Protocol::Tls => self.ports.tls,
        }
    }

    /// Returns its URL without a path.
    pub fn url(&self, protocol: Protocol) -> String {
        let scheme = if protocol == Protocol::Tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port(protocol))
    }
}

/// The settings of a Diana.
#[derive(Clone, Copy)]
pub struct Diana<'a> {
    pub name: &'static str,
    /// A program that executes it, with its arguments.
    pub wrapper: &'a [&'a str],
    /// Further fields of the section `gateway`.
    pub gateway: &'a str,
    /// Further sections of the file.
    pub sections: &'a str,
    /// The items of `rules`.
    pub rules: &'a str,
}

impl Diana<'_> {
    /// The rules that the peers have as well.
    pub const DEFAULT: Self = Self { name: "Diana", wrapper: &[], gateway: "", sections: "", rules: SAME_AS_PEERS };
}

impl Stage {
    /// Starts the upstream. Gateways run under the command prefix `prefix`.
    pub fn start(prefix: Vec<String>) -> Self {
        raise_open_files_limit();
        let upstream = NginxServer::start(|port| {
            format!(
                "keepalive_requests 1000000000;
                server {{
                    listen 127.0.0.1:{port} backlog=4096;
                    default_type text/plain;
                    location / {{ return 200 '{BODY}'; }}
                }}"
            )
        });
        let folder = tempfile::Builder::new().prefix("diana-bench-").tempdir().unwrap();
        let tls = TlsFiles::create(folder.path()).unwrap();
        let certificate_and_key = folder.path().join("both.pem");
        let both = [&tls.certificate, &tls.key].map(|file| std::fs::read_to_string(file).unwrap());
        std::fs::write(&certificate_and_key, both.concat()).unwrap();
        Self { upstream: upstream.unwrap(), prefix, tls, certificate_and_key, _folder: folder }
    }

    /// Returns whether gateways have their own core.
    pub fn has_own_core(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Returns the certificate that clients have to trust, as a PEM file.
    pub fn authority(&self) -> &Path {
        &self.tls.authority
    }

    /// Starts Diana.
    pub fn diana(&self, settings: Diana<'_>) -> Gateway {
        let Diana { name, wrapper, gateway, sections, rules } = settings;
        let ports = [(); 3].map(|()| Port::claim().unwrap());
        let [port, tls, admin] = [0, 1, 2].map(|index: usize| ports[index].number());
        let (upstream, certificate, key) =
            (self.upstream.port(), self.tls.certificate.display(), self.tls.key.display());
        let file = format!(
            "gateway:\n\
             \x20 listen: 127.0.0.1:{port}\n\
             \x20 tls: {{listen: 127.0.0.1:{tls}, certificates: [{{certificate: '{certificate}', key: '{key}'}}]}}\n\
             \x20 upstream: http://127.0.0.1:{upstream}\n\
             \x20 workers: 1\n\
             \x20 access_log: off\n\
             \x20 {gateway}\n\
             admin: {{listen: 127.0.0.1:{admin}}}\n\
             {sections}\n\
             rules:{rules}"
        );
        let folder = tempfile::Builder::new().prefix("diana-bench-").tempdir().unwrap();
        let config = folder.path().join("diana.yaml");
        std::fs::write(&config, &file).unwrap();
        let program = diana();
        let prefix: Vec<&str> = self.prefix.iter().map(String::as_str).chain(wrapper.iter().copied()).collect();
        let mut command = match prefix[..] {
            [] => Command::new(program),
            [first, ref rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let process = Process::start(command.args(["serve", "--config"]).arg(&config)).unwrap();
        let listens = || {
            assert!(!process.has_ended(), "diana exited at start, with this file:\n{file}");
            let connect = |port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
            connect(port).and_then(|_| connect(tls))
        };
        wait_until("diana to listen", Duration::from_secs(30), listens).unwrap();
        let (pid, resources) = (process.pid(), Box::new((process, folder, ports)));
        Gateway { name, pid, ports: Ports { http1: port, h2c: port, tls }, _resources: resources }
    }
}

/// Returns the measured program: the one that the variable `DIANA` names, or the one next to this binary.
fn diana() -> PathBuf {
    let next_to_bench = || std::env::current_exe().unwrap().with_file_name("diana");
    let program = std::env::var_os("DIANA").map_or_else(next_to_bench, PathBuf::from);
    assert!(program.is_file(), "missing program {}: `cargo xtask bench` builds it", program.display());
    program
}

/// Returns the version that the measured program reports.
pub fn version_of_diana() -> String {
    let output = Command::new(diana()).arg("--version").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Raises the limit of open files to the maximum, also for child processes: thousands of connections are held open.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it can't be raised, fewer connections are held, and that is reported.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the maximum number of files that a process may open.
pub fn max_open_files() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
