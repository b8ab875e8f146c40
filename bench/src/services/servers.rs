//! The measured servers: Diana with all its services, and a peer for each.

use crate::bare_grpc;
use crate::peers::Peers;
use diana_testing::{NginxServer, Port, Process, wait_until};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A server: where it listens, and whose CPU time is measured.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    pub(crate) pid: u32,
}

/// All servers, killed on drop.
pub(crate) struct Servers {
    pub(crate) resp: Server,
    pub(crate) envoy: Server,
    pub(crate) http: Server,
    pub(crate) redis: Server,
    pub(crate) bare_grpc: Server,
    pub(crate) nginx: Server,
    pub(crate) peers: Peers,
    pub(crate) has_own_core: bool,
    _processes: (Process, Process, Process, NginxServer),
    _ports: Vec<Port>,
    _folder: TempDir,
}

impl Servers {
    /// Starts them, each by `prefix`, which reserves a core.
    pub(crate) fn start(prefix: &[String]) -> Self {
        let ports = (0..6).map(|_| Port::claim().unwrap()).collect::<Vec<_>>();
        let number = |index: usize| ports[index].number();
        let folder = tempfile::Builder::new().prefix("diana-bench-").tempdir().unwrap();
        let config = folder.path().join("diana.yaml");
        let [resp, envoy, http, admin, redis_port, bare_port] = [0, 1, 2, 3, 4, 5].map(number);
        let file = format!(
            "services: {{resp: 127.0.0.1:{resp}, envoy: 127.0.0.1:{envoy}, http: 127.0.0.1:{http}, workers: 1}}\n\
             admin: {{listen: 127.0.0.1:{admin}}}\n\
             rules:\n\
             - {{name: each-key, match: {{domain: bench, descriptor: {{plan: free}}}}, by: descriptor(api_key), limit: 1000000/s}}\n\
             - {{name: open, match: {{path: /open}}, by: ip, limit: 1000000/s}}\n"
        );
        std::fs::write(&config, file).unwrap();
        let diana = start(prefix, diana(), &["serve", "--config", config.to_str().unwrap()], resp);
        let redis_arguments = ["--port", &redis_port.to_string(), "--bind", "127.0.0.1", "--save", ""];
        let redis = start(prefix, "redis-server".into(), &redis_arguments, redis_port);
        let bare_arguments = [bare_grpc::OPTION, &bare_port.to_string()];
        let bare = start(prefix, std::env::current_exe().unwrap(), &bare_arguments, bare_port);
        let prefix_words = prefix.iter().map(String::as_str).collect::<Vec<_>>();
        let http_block = |port: u16| {
            format!("keepalive_requests 1000000000; server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }}")
        };
        let nginx = NginxServer::start_under(&prefix_words, http_block).unwrap();
        let own = |name, port| Server { name, port, pid: diana.pid() };
        Self {
            resp: own("diana", resp),
            envoy: own("diana", envoy),
            http: own("diana", http),
            redis: Server { name: "redis INCR", port: redis_port, pid: redis.pid() },
            bare_grpc: Server { name: "bare tonic", port: bare_port, pid: bare.pid() },
            nginx: Server { name: "nginx 204", port: nginx.port(), pid: nginx.workers().unwrap()[0] },
            peers: Peers::start(prefix, folder.path()),
            has_own_core: !prefix.is_empty(),
            _processes: (diana, redis, bare, nginx),
            _ports: ports,
            _folder: folder,
        }
    }
}

/// Starts a program by `prefix`, and waits until it listens.
pub(crate) fn start(prefix: &[String], program: PathBuf, arguments: &[&str], port: u16) -> Process {
    let mut command = match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    let process = Process::start(command.args(arguments)).unwrap();
    let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
    wait_until("a server to listen", Duration::from_secs(30), listens).unwrap();
    process
}

/// Returns the measured program.
fn diana() -> PathBuf {
    let next_to_bench = || std::env::current_exe().unwrap().with_file_name("diana");
    let program = std::env::var_os("DIANA").map_or_else(next_to_bench, PathBuf::from);
    assert!(program.is_file(), "missing program {}: `cargo xtask bench services` builds it", program.display());
    program
}
