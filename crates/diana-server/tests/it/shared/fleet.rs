//! Several gateways in this process, each with its own engine, workers and connection to Redis: they share no state, as
//! if they ran on different machines.

use crate::support::client::Client;
use crate::support::program::LONG;
use diana::EngineOptions;
use diana::redis::{Health, LinkStatus, RedisStore};
use diana_gateway::{Gateway, RunningGateway};
use diana_rules::{Document, RuleFile};
use diana_testing::wait_until;
use std::sync::Barrier;
use tokio::runtime::Runtime;

/// The status of a denial in these tests; no other response of a gateway has it.
pub(crate) const DENIED: u16 = 429;

/// The status of an allowed request without an upstream.
pub(crate) const ALLOWED: u16 = 204;

/// Gateways with the same file.
pub(crate) struct Fleet {
    // Fields are dropped in this order: first the gateways, then the runtime of their stores.
    gateways: Vec<Instance>,
    _runtime: Runtime,
}

struct Instance {
    running: RunningGateway,
    store: Option<RedisStore>,
}

impl Fleet {
    /// Starts gateways with a rule file, on ports that the system chooses.
    pub(crate) fn start(gateways: usize, text: &str) -> Self {
        let file = RuleFile::read(&Document::new("diana.yaml", text), &diana_server::registry());
        let file = file.unwrap_or_else(|problems| panic!("{problems}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let instance = |_| {
            let store = file.store.redis.as_ref();
            let store = store.map(|section| runtime.block_on(diana::connect(section)).unwrap());
            let engine = EngineOptions::of(&file).build_with(&file, store.clone());
            Instance { running: Gateway::new(&file, engine).unwrap().start().unwrap(), store }
        };
        let gateways = (0..gateways).map(instance).collect();
        Self { gateways, _runtime: runtime }
    }

    /// Returns the port of each gateway.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.gateways.iter().map(|instance| instance.running.addresses()[0].port()).collect()
    }

    /// Returns the status of each gateway's link to Redis.
    pub(crate) fn links(&self) -> Vec<LinkStatus> {
        self.gateways.iter().filter_map(|instance| instance.store.as_ref()).map(RedisStore::link).collect()
    }

    /// Returns how many requests have waited for Redis so far.
    pub(crate) fn waits(&self) -> u64 {
        self.links().iter().map(|link| link.waits).sum()
    }

    pub(crate) fn all_are_healthy(&self) -> bool {
        self.links().iter().all(|link| link.health == Health::Healthy)
    }

    pub(crate) fn all_are_degraded(&self) -> bool {
        self.links().iter().all(|link| link.health != Health::Healthy)
    }

    /// Waits until all gateways are registered on Redis, and each knows of all the others.
    pub(crate) fn until_all_are_registered(&self) {
        let expected = self.gateways.len() as u64;
        self.until("all instances to be registered", || {
            self.all_are_healthy() && self.links().iter().all(|link| link.instances == expected)
        });
    }

    /// Waits until a condition is true.
    pub(crate) fn until(&self, what: &str, is_true: impl Fn() -> bool) {
        wait_until(what, 4 * LONG, || is_true().then_some(()))
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.links()));
    }

    /// Sends concurrent requests for a path to all gateways, and returns how many each of them allowed. Each has
    /// `clients`, and each of those sends `times` requests; a response that is neither allowed nor denied is a failure.
    pub(crate) fn hammer(&self, path: &str, clients: usize, requests: usize, threads: usize) -> Vec<usize> {
        let ports = self.ports();
        let clients = (0..clients).flat_map(|_| ports.iter().enumerate()).collect::<Vec<_>>();
        let chunks = clients.chunks(clients.len().div_ceil(threads)).collect::<Vec<_>>();
        let start = Barrier::new(chunks.len());
        let mut allowed = vec![0; ports.len()];
        std::thread::scope(|scope| {
            let threads = chunks.iter().map(|clients| scope.spawn(|| hammer(path, clients, requests, &start)));
            for thread in threads.collect::<Vec<_>>() {
                for gateway in thread.join().unwrap() {
                    allowed[gateway] += 1;
                }
            }
        });
        allowed
    }
}

/// Returns the gateways that allowed a request, once per allowed request.
fn hammer(path: &str, clients: &[(usize, &u16)], requests: usize, start: &Barrier) -> Vec<usize> {
    let mut clients = clients.iter().map(|(gateway, port)| (*gateway, Client::connect(**port))).collect::<Vec<_>>();
    let mut allowed = Vec::new();
    start.wait();
    for _ in 0..requests {
        for (_, client) in &mut clients {
            client.send(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n"));
        }
        for (gateway, client) in &mut clients {
            match client.response().status {
                ALLOWED => allowed.push(*gateway),
                DENIED => {}
                other => panic!("unexpected status {other} for {path}"),
            }
        }
    }
    allowed
}
