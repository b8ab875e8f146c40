//! Limiters of others, which take part if a variable names them; they are built elsewhere.
//!
//! | variable | what it names |
//! |---|---|
//! | `REDIS_CELL` | the module redis-cell, loaded by a Redis |
//! | `LIMITADOR` | the program `limitador-server`, 2.0 or later |
//! | `THROTTLECRAB` | the program `throttlecrab-server` |

use crate::servers::{Server, start};
use diana_testing::{Port, Process};
use std::path::{Path, PathBuf};

/// The peers that were named, killed on drop.
pub(crate) struct Peers {
    pub(crate) redis_cell: Option<Peer>,
    pub(crate) limitador: Option<Peer>,
    pub(crate) throttlecrab: Option<Peer>,
}

/// A running peer.
pub(crate) struct Peer {
    pub(crate) server: Server,
    _process: Process,
    _ports: [Port; 2],
}

/// Returns the program and its arguments, for the path in the variable and two free ports.
type CommandOf<'a> = &'a dyn Fn(&str, [&str; 2]) -> (PathBuf, Vec<String>);

impl Peers {
    /// Starts them, each by `prefix`, which reserves a core. They may write to `folder`.
    pub(crate) fn start(prefix: &[String], folder: &Path) -> Self {
        let limits = folder.join("limits.yaml");
        // As Diana's rule: it is never reached.
        let limit = "- {namespace: bench, max_value: 1000000000, seconds: 1, \
                     conditions: [\"descriptors[0]['plan'] == 'free'\"], variables: [\"descriptors[0]['api_key']\"]}\n";
        std::fs::write(&limits, limit).unwrap();
        // Programs of tokio have as many threads as this says; the others ignore it.
        let prefix = [prefix, &["env".to_owned(), "TOKIO_WORKER_THREADS=1".to_owned()]].concat();
        let peer = |variable: &str, name, command: CommandOf<'_>| {
            let path = std::env::var(variable).ok()?;
            let ports = [Port::claim().unwrap(), Port::claim().unwrap()];
            let [first, second] = [ports[0].number().to_string(), ports[1].number().to_string()];
            let (program, arguments) = command(&path, [&first, &second]);
            let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
            let process = start(&prefix, program, &arguments, ports[0].number());
            let server = Server { name, port: ports[0].number(), pid: process.pid() };
            Some(Peer { server, _process: process, _ports: ports })
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        Self {
            redis_cell: peer("REDIS_CELL", "redis-cell", &|path, [port, _]| {
                let arguments = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--loadmodule", path];
                ("redis-server".into(), words(&arguments))
            }),
            limitador: peer("LIMITADOR", "limitador", &|path, [port, http]| {
                let rls = ["--rls-ip", "127.0.0.1", "--rls-port", port];
                let rest = ["--http-ip", "127.0.0.1", "--http-port", http, limits.to_str().unwrap(), "memory"];
                (path.into(), words(&[&rls[..], &rest].concat()))
            }),
            throttlecrab: peer("THROTTLECRAB", "throttlecrab", &|path, [port, _]| {
                let arguments = ["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port", port, "--log-level", "error"];
                (path.into(), words(&arguments))
            }),
        }
    }
}
