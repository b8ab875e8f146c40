//! Shared by the subjects: the upstream, and equivalent gateways in front of it, Diana's and nginx's.
//!
//! Requests for `/open` are allowed, by a limit that is never reached; requests for `/shut` are denied, by a limit that
//! the first request uses up.

use diana_testing::{NginxServer, Port, Process, wait_until};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The body of the upstream's response.
pub(crate) const BODY: &str = "Hello from the upstream: a small answer.";

/// The rules that nginx has as well.
pub(crate) const SAME_AS_NGINX: &str = "
  - {name: open, match: {path: /open}, by: ip, limit: 1000000/s}
  - {name: shut, match: {path: /shut}, by: ip, limit: 1/min}
";

/// The upstream of every gateway, and the core on which gateways run.
pub(crate) struct Stage {
    upstream: NginxServer,
    prefix: Vec<String>,
}

/// A running gateway; stopped when dropped.
pub(crate) struct Gateway {
    pub(crate) name: &'static str,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    pub(crate) port: u16,
    /// The serving process.
    pub(crate) pid: u32,
    _resources: Resources,
}

/// The resources that are released with a gateway.
#[allow(dead_code, reason = "stored for its drop")]
enum Resources {
    Nginx(NginxServer),
    // Dropped in this order: first the process, then its folder and its ports.
    Diana(Process, TempDir, [Port; 2]),
}

impl Stage {
    /// Starts the upstream. Gateways run under the command prefix `prefix`.
    pub(crate) fn start(prefix: Vec<String>) -> Self {
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
        Self { upstream: upstream.unwrap(), prefix }
    }

    /// Returns whether gateways have their own core.
    pub(crate) fn has_own_core(&self) -> bool {
        !self.prefix.is_empty()
    }

    pub(crate) fn nginx(&self) -> Gateway {
        let prefix: Vec<&str> = self.prefix.iter().map(String::as_str).collect();
        let upstream = self.upstream.port();
        let http = |port| NGINX.replace("PORT", &u16::to_string(&port)).replace("UPSTREAM", &upstream.to_string());
        let nginx = NginxServer::start_under(&prefix, http).unwrap();
        let (url, port, pid) = (nginx.url(), nginx.port(), nginx.workers().unwrap()[0]);
        Gateway { name: "nginx", url, port, pid, _resources: Resources::Nginx(nginx) }
    }

    /// Starts Diana with the items of `rules`, and `more` at the top of the file.
    pub(crate) fn diana(&self, name: &'static str, more: &str, rules: &str) -> Gateway {
        self.diana_under(&[], name, more, rules)
    }

    /// The same, started by another program that executes it.
    pub(crate) fn diana_under(&self, wrapper: &[&str], name: &'static str, more: &str, rules: &str) -> Gateway {
        let ports = [Port::claim().unwrap(), Port::claim().unwrap()];
        let (port, admin, upstream) = (ports[0].number(), ports[1].number(), self.upstream.port());
        let file = format!(
            "gateway: {{listen: 127.0.0.1:{port}, upstream: http://127.0.0.1:{upstream}, workers: 1, access_log: off}}\n\
             admin: {{listen: 127.0.0.1:{admin}}}\n\
             {more}\n\
             rules:{rules}"
        );
        let folder = tempfile::Builder::new().prefix("diana-bench-").tempdir().unwrap();
        let config = folder.path().join("diana.yaml");
        std::fs::write(&config, file).unwrap();
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
            assert!(
                !process.has_ended(),
                "diana exited at start, with this file:\n{}",
                std::fs::read_to_string(&config).unwrap()
            );
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        };
        wait_until("diana to listen", Duration::from_secs(30), listens).unwrap();
        let (url, pid) = (format!("http://127.0.0.1:{port}"), process.pid());
        Gateway { name, url, port, pid, _resources: Resources::Diana(process, folder, ports) }
    }
}

/// nginx as an equivalent gateway: keeps connections alive, counts by address, and forwards the client's address to the
/// upstream.
const NGINX: &str = r#"
limit_req_zone $binary_remote_addr zone=open:10m rate=1000000r/s;
limit_req_zone $binary_remote_addr zone=shut:10m rate=1r/m;
keepalive_requests 1000000000;
keepalive_timeout 300s;
upstream service {
    server 127.0.0.1:UPSTREAM;
    keepalive 1024;
    keepalive_requests 1000000000;
}
server {
    listen 127.0.0.1:PORT backlog=4096;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header Forwarded "for=$remote_addr;proto=$scheme";
    location /open { limit_req zone=open burst=1000000 nodelay; proxy_pass http://service; }
    location /shut { limit_req zone=shut; proxy_pass http://service; }
}
"#;

/// Returns the measured program.
fn diana() -> PathBuf {
    let next_to_bench = || std::env::current_exe().unwrap().with_file_name("diana");
    let program = std::env::var_os("DIANA").map_or_else(next_to_bench, PathBuf::from);
    assert!(program.is_file(), "missing program {}: `cargo xtask bench gateway` builds it", program.display());
    program
}

pub(crate) fn version_of_diana() -> String {
    let output = Command::new(diana()).arg("--version").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn version_of_nginx() -> String {
    let output = Command::new("/usr/sbin/nginx").arg("-v").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    text.rsplit(' ').next().unwrap_or_default().trim().to_owned()
}

/// Raises the limit of open files to the maximum, also for child processes: thousands of connections are held open.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it can't be raised, fewer connections are held, and that is reported.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
