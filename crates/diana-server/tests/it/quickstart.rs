//! `examples/quickstart`: its script starts real parts that work together, and stops all of them; the compose file has the same parts.
//!
//! Run as it is, except for the ports, and for a limit that also slow machines reach.

use crate::support::client::{get, get_with};
use crate::support::json_of;
use crate::support::program::LONG;
use diana_rules::Document;
use diana_testing::{Port, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The files with ports.
const FILES: [&str; 5] = ["diana.yaml", "prometheus.yml", "start", "upstream.yaml", "what-to-try.txt"];

/// The ports of the gateway, its admin server, Redis, Prometheus, the upstream and its admin server.
const PORTS: [&str; 6] = ["8080", "9090", "6380", "9091", "3000", "9092"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(repository().join("examples/quickstart").join(name)).unwrap()
}

/// The running script; dropped, it has stopped all that it started.
struct Quickstart {
    script: Child,
    ports: [Port; 6],
    /// What it printed.
    output: String,
    _folder: TempDir,
}

impl Quickstart {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let ports = PORTS.map(|_| Port::claim().unwrap());
        let own = folder.path().join("examples/quickstart");
        std::fs::create_dir_all(&own).unwrap();
        for name in FILES {
            let mut text = read(name);
            for (shown, port) in PORTS.iter().zip(&ports) {
                text = text.replace(shown, &port.number().to_string());
            }
            if name == "diana.yaml" {
                assert!(text.contains("limit: 5/s burst 10"));
                text = text.replace("limit: 5/s burst 10", "limit: 5/h burst 10");
            }
            std::fs::write(own.join(name), text).unwrap();
        }
        let alerts = folder.path().join("packaging/prometheus");
        std::fs::create_dir_all(&alerts).unwrap();
        std::fs::copy(repository().join("packaging/prometheus/alerts.yaml"), alerts.join("alerts.yaml")).unwrap();
        // An installed `diana`.
        symlink(env!("CARGO_BIN_EXE_diana"), folder.path().join("diana")).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut script = Command::new("bash");
        script.arg(own.join("start")).env("PATH", path).env("TMPDIR", folder.path()).stdout(Stdio::piped());
        let mut script = script.spawn().unwrap();
        let mut lines = BufReader::new(script.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut output = String::new();
        while !output.contains("Ctrl-C") {
            let Some(line) = lines.next() else { panic!("the script ended:\n{output}") };
            output.push_str(&line);
            output.push('\n');
        }
        Self { script, ports, output, _folder: folder }
    }

    fn port(&self, shown: &str) -> u16 {
        self.ports[PORTS.iter().position(|port| *port == shown).unwrap()].number()
    }

    fn stop(&mut self) {
        let script = Pid::from_child(&self.script);
        if self.script.try_wait().unwrap().is_none() {
            kill_process(script, Signal::TERM).unwrap();
            self.script.wait().unwrap();
        }
    }
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn the_script_starts_parts_that_work_together_and_stops_them() {
    let mut quickstart = Quickstart::start();
    let gateway = quickstart.port("8080");
    let alice = || get_with(gateway, "/", "x-account-id: alice\r\n").status;
    let statuses = (0..15).map(|_| alice()).collect::<Vec<_>>();
    assert_eq!(statuses, [[200; 5], [200; 5], [429; 5]].concat());
    let keys = Command::new("redis-cli").args(["-p", &quickstart.port("6380").to_string(), "--scan"]).output().unwrap();
    let keys = String::from_utf8(keys.stdout).unwrap();
    assert!(keys.contains("each-account"), "{keys:?}");
    let prometheus = quickstart.port("9091");
    let sees_denials = || {
        let found = get(prometheus, "/api/v1/query?query=diana_requests_total%7Boutcome=%22denied%22%7D").text();
        found.contains("\"5\"]").then_some(())
    };
    wait_until("the denials in Prometheus", LONG, sees_denials).unwrap();
    // The page tells the same ports.
    for port in ["8080", "9090", "9091", "6380"] {
        assert!(quickstart.output.contains(&quickstart.port(port).to_string()), "{}", quickstart.output);
    }
    // An outage of Redis, as it tells how to make one.
    let shutdown = ["-p", &quickstart.port("6380").to_string(), "shutdown", "nosave"];
    Command::new("redis-cli").args(shutdown).output().unwrap();
    let bob = |_| get_with(gateway, "/", "x-account-id: bob\r\n").status;
    let statuses = (0..15).map(bob).collect::<Vec<_>>();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10, "{statuses:?}");
    quickstart.stop();
    for port in &quickstart.ports {
        assert!(TcpStream::connect(("127.0.0.1", port.number())).is_err(), "{port:?} is still open");
    }
}

#[test]
fn the_compose_file_has_the_parts_of_the_script() {
    let compose = json_of(&Document::new("compose.yaml", read("compose.yaml")).parse().unwrap());
    let services = compose["services"].as_object().unwrap();
    let text = |service: &str, field: &str| services[service][field].to_string();
    let names = services.keys().map(String::as_str).collect::<BTreeSet<_>>();
    assert_eq!(names, BTreeSet::from(["diana", "prometheus", "redis", "upstream", "what-to-try"]));
    // All but the last are in the network of the gateway, where the addresses of the files are those of `start`.
    for service in ["prometheus", "redis", "upstream"] {
        assert_eq!(services[service]["network_mode"], "service:diana");
    }
    for (service, expected) in [
        ("diana", "diana.yaml"),
        ("diana", "0.0.0.0:9090"),
        ("upstream", "upstream.yaml"),
        ("redis", "6380"),
        ("prometheus", "9091"),
    ] {
        assert!(text(service, "command").contains(expected), "{service}: {expected}");
    }
    // Every file that is mounted exists, and every published port is reachable from this machine only.
    let volumes = services.values().flat_map(|service| service["volumes"].as_array().cloned().unwrap_or_default());
    let files =
        volumes.map(|volume| volume.as_str().unwrap().split(':').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(files.len(), 5);
    for file in files {
        assert!(repository().join("examples/quickstart").join(&file).exists(), "{file}");
    }
    let ports = services["diana"]["ports"].as_array().unwrap();
    assert!(ports.iter().all(|port| port.as_str().unwrap().starts_with("127.0.0.1:")));
    assert_eq!(compose["services"]["diana"]["build"]["dockerfile"], "packaging/Dockerfile");
}
