//! A program that uses the library and `diana serve` share the limits of one rule file: the program is this process.

use super::fleet::{ALLOWED, DENIED};
use crate::support::client::Client;
use crate::support::program::Diana;
use diana::redis::{Health, RedisStore};
use diana::{DecideMode, Engine};
use diana_rules::attributes::SyntheticRequest;
use diana_rules::{Document, RuleFile};
use diana_testing::RedisServer;
use std::net::Ipv4Addr;
use std::sync::Barrier;
use tokio::runtime::Runtime;

const LIMIT: usize = 150;
/// The clients of the server, and as many threads of the program.
const CLIENTS: usize = 6;
/// The requests of each. 120 on either side: neither could use up the limit alone, and both would be granted all of theirs
/// if they did not share.
const REQUESTS: usize = 20;

/// The program: an engine with the rule file of the server.
struct Program {
    engine: Engine,
    store: RedisStore,
    runtime: Runtime,
}

/// How the program asks.
#[derive(Clone, Copy)]
enum Asks {
    /// All rules that match a request.
    ByRequest,
    /// One rule by its name, as `#[limited]` does.
    ByName,
}

impl Program {
    fn with_the_file_of(server: &Diana) -> Self {
        let text = std::fs::read_to_string(server.folder().join("diana.yaml")).unwrap();
        let file = RuleFile::read(&Document::new("diana.yaml", text), &diana::registry());
        let file = file.unwrap_or_else(|problems| panic!("{problems}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = runtime.block_on(diana::connect(file.store.redis.as_ref().unwrap())).unwrap();
        Self { engine: Engine::with_shared(&file, store.clone()), store, runtime }
    }

    /// Returns how many of its requests are granted.
    fn ask(&self, path: &str, asks: Asks) -> usize {
        let request = SyntheticRequest::new("GET", path).ip(Ipv4Addr::LOCALHOST);
        let is_granted = |_: &usize| {
            let decision = match asks {
                Asks::ByRequest => self.engine.decide(&[&request], DecideMode::Deny),
                Asks::ByName => {
                    self.engine.decide_by(path.trim_start_matches('/'), &request, DecideMode::Deny).unwrap()
                }
            };
            self.runtime.block_on(decision).is_ok()
        };
        (0..REQUESTS).filter(is_granted).count()
    }
}

/// Returns how many requests of one client the server allows.
fn send(client: &mut Client, path: &str) -> usize {
    let is_allowed = |_: &usize| match client.get(path).status {
        ALLOWED => true,
        DENIED => false,
        other => panic!("unexpected status {other} for {path}"),
    };
    (0..REQUESTS).filter(is_allowed).count()
}

#[test]
fn a_program_with_the_library_and_the_server_admit_exactly_the_limit_together() {
    let redis = RedisServer::start().unwrap();
    // A bucket that gains one permit a day gains none during the test.
    let server = Diana::serve(&format!(
        "
gateway: {{listen: '$LISTEN', workers: 2}}
store: {{redis: '{}', timeout: 20s, lease: off}}
status: 429
rules:
  - {{name: window, match: {{path: /window}}, limit: {LIMIT}/h, algorithm: fixed_window, opens: first_request}}
  - {{name: total, match: {{path: /total}}, by: ip, total: {LIMIT}}}
  - {{name: bucket, match: {{path: /bucket}}, by: ip, limit: {{rate: 1/day, burst: {LIMIT}}}}}
",
        redis.url()
    ));
    let program = Program::with_the_file_of(&server);
    for (path, asks) in [("/window", Asks::ByRequest), ("/total", Asks::ByRequest), ("/bucket", Asks::ByName)] {
        let start = Barrier::new(2 * CLIENTS);
        let (by_server, by_program) = std::thread::scope(|scope| {
            let (server, program, start) = (&server, &program, &start);
            let clients = [(); CLIENTS].map(|()| {
                scope.spawn(move || {
                    let mut client = Client::connect(server.port());
                    start.wait();
                    send(&mut client, path)
                })
            });
            let threads = [(); CLIENTS].map(|()| {
                scope.spawn(move || {
                    start.wait();
                    program.ask(path, asks)
                })
            });
            let sum = |threads: [std::thread::ScopedJoinHandle<'_, usize>; CLIENTS]| {
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            };
            (sum(clients), sum(threads))
        });
        assert_eq!(by_server + by_program, LIMIT, "{path}: {by_server} by the server, {by_program} by the program");
        // Afterwards, both deny.
        assert_eq!(send(&mut Client::connect(server.port()), path) + program.ask(path, asks), 0, "{path}");
    }
    let link = program.store.link();
    assert_eq!(link.health, Health::Healthy, "{link:?}");
    assert_eq!(server.metric("diana_store_up"), 1.0);
}
