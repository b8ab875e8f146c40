//! Several gateways in this process, each with its own engine, workers and connection to Redis: they share no state, as
//! if they ran on different machines.

use crate::support::client::Client;
use crate::support::program::LONG;
use diana::EngineOptions;
use diana::redis::{Health, LinkStatus, RedisStore};
use diana_gateway::{Gateway, RunningGateway};
use diana_rules::{Document, RuleFile};
use diana_testing::wait_until;
use std::sync::{Arc, Barrier};
use tokio::runtime::Runtime;

/// The status of a denial in these tests; no other response of a gateway has it.
pub(crate) const REFUSED: u16 = 429;

/// The status of an allowed request without an upstream.
pub(crate) const PASSED: u16 = 204;

/// Gateways with the same file.
pub(crate) struct Fleet {
    // Fields are dropped in this order: first the gateways, then the runtime of their stores.
    gateways: Vec<Member>,
    _runtime: Runtime,
}

struct Member {
    running: RunningGateway,
    store: Option<RedisStore>,
}

impl Fleet {
    /// Starts gateways with a rule file, on ports that the system chooses.
    pub(crate) fn start(gateways: usize, text: &str) -> Self {
        let file = RuleFile::read(&Document::new("diana.yaml", text), &diana_server::registry());
        let file = file.unwrap_or_else(|problems| panic!("{problems}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let member = |_| {
            let store = file.store.redis.as_ref();
            let store = store.map(|section| runtime.block_on(diana::connect(section)).unwrap());
            let engine = Arc::new(EngineOptions::of(&file).build_with(&file, store.clone()));
            Member { running: Gateway::new(&file, engine).unwrap().start().unwrap(), store }
        };
        let gateways = (0..gateways).map(member).collect();
        Self { gateways, _runtime: runtime }
    }

    /// Returns the port of each gateway.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.gateways.iter().map(|member| member.running.addresses()[0].port()).collect()
    }

    /// Returns the status of each gateway's link to Redis.
    pub(crate) fn links(&self) -> Vec<LinkStatus> {
        self.gateways.iter().filter_map(|member| member.store.as_ref()).map(RedisStore::link).collect()
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
    pub(crate) fn until_they_see_each_other(&self) {
        let expected = self.gateways.len() as u64;
        self.until("all instances to be seen", || {
            self.all_are_healthy() && self.links().iter().all(|link| link.instances == expected)
        });
    }

    /// Waits until a condition is true.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        wait_until(what, 4 * LONG, || holds().then_some(()))
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.links()));
    }

    /// Sends concurrent requests for a path to all gateways, and returns how many each of them allowed. Each has
    /// `clients`, and each of those sends `times` requests; a response that is neither allowed nor denied is a failure.
    pub(crate) fn hammer(&self, path: &str, clients: usize, times: usize, threads: usize) -> Vec<usize> {
        let ports = self.ports();
        let clients = (0..clients).flat_map(|_| ports.iter().enumerate()).collect::<Vec<_>>();
        let of_each = clients.chunks(clients.len().div_ceil(threads)).collect::<Vec<_>>();
        let start = Barrier::new(of_each.len());
        let mut passed = vec![0; ports.len()];
        std::thread::scope(|scope| {
            let threads = of_each.iter().map(|clients| scope.spawn(|| hammer(path, clients, times, &start)));
            for thread in threads.collect::<Vec<_>>() {
                for gateway in thread.join().unwrap() {
                    passed[gateway] += 1;
                }
            }
        });
        passed
    }
}

/// Returns the gateways that allowed a request, once per allowed request.
fn hammer(path: &str, clients: &[(usize, &u16)], times: usize, start: &Barrier) -> Vec<usize> {
    let mut clients = clients.iter().map(|(gateway, port)| (*gateway, Client::connect(**port))).collect::<Vec<_>>();
    let mut passed = Vec::new();
    start.wait();
    for _ in 0..times {
        for (_, client) in &mut clients {
            client.send(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n"));
        }
        for (gateway, client) in &mut clients {
            match client.answer().status {
                PASSED => passed.push(*gateway),
                REFUSED => {}
                other => panic!("{path} was answered with {other}"),
            }
        }
    }
    passed
}
