//! Clients that send requests continuously, and record the responses.

use super::fleet::{ALLOWED, DENIED, Fleet};
use crate::support::client::Client;
use crate::support::program::LONG;
use diana_testing::wait_until;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The number of clients of each gateway.
const CLIENTS: usize = 3;

/// The clients of all gateways of a fleet. They stop on drop.
pub(crate) struct Load {
    results: Arc<Results>,
    clients: Vec<JoinHandle<()>>,
}

/// The responses to all of them.
struct Results {
    paths: Vec<PathResults>,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

struct PathResults {
    path: &'static str,
    allowed: AtomicU64,
    responses: AtomicU64,
}

impl Load {
    /// Starts clients for each gateway, which request these paths in turn.
    pub(crate) fn start(fleet: &Fleet, paths: &[&'static str]) -> Self {
        let path = |path: &&'static str| PathResults { path, allowed: AtomicU64::new(0), responses: AtomicU64::new(0) };
        let results = Arc::new(Results {
            paths: paths.iter().map(path).collect(),
            stop: AtomicBool::new(false),
            failures: Mutex::default(),
        });
        let ports = (0..CLIENTS).flat_map(|_| fleet.ports());
        let client = |port| {
            let results = Arc::clone(&results);
            std::thread::spawn(move || results.send_continuously(port))
        };
        Self { clients: ports.map(client).collect(), results }
    }

    /// Waits for this many more requests for each path, counting only requests that start from now on.
    pub(crate) fn wait_for_more(&self, requests: u64) {
        // Each client may have one active request that started before.
        let more = requests + self.clients.len() as u64;
        let until =
            self.results.paths.iter().map(|path| path.responses.load(Ordering::SeqCst) + more).collect::<Vec<_>>();
        let is_done = || {
            let mut each = self.results.paths.iter().zip(&until);
            let is_done = each.all(|(path, until)| path.responses.load(Ordering::SeqCst) >= *until);
            (is_done || !self.results.failures.lock().is_empty()).then_some(())
        };
        wait_until("responses", LONG, is_done).unwrap();
        self.assert_no_failures();
    }

    /// Returns how many requests for a path were allowed so far.
    pub(crate) fn allowed(&self, path: &str) -> u64 {
        self.results.paths.iter().find(|known| known.path == path).unwrap().allowed.load(Ordering::SeqCst)
    }

    /// Stops the clients, and returns the total number of requests. Fails if a response was missing or unexpected.
    pub(crate) fn stop(mut self) -> u64 {
        self.stop_clients();
        self.assert_no_failures();
        self.results.paths.iter().map(|path| path.responses.load(Ordering::SeqCst)).sum()
    }

    fn assert_no_failures(&self) {
        assert_eq!(*self.results.failures.lock(), Vec::<String>::new());
    }

    fn stop_clients(&mut self) {
        self.results.stop.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop_clients();
    }
}

impl Results {
    fn send_continuously(&self, port: u16) {
        let mut client = Client::connect(port);
        while !self.stop.load(Ordering::SeqCst) {
            for path in &self.paths {
                let request = format!("GET {} HTTP/1.1\r\nhost: example.com\r\n\r\n", path.path);
                let response = client.try_send(request).ok().and_then(|()| client.try_response());
                match response.map(|response| response.status) {
                    Some(ALLOWED) => drop(path.allowed.fetch_add(1, Ordering::SeqCst)),
                    Some(DENIED) => {}
                    other => {
                        let what =
                            other.map_or("no response".to_owned(), |status| format!("unexpected status {status}"));
                        self.failures.lock().push(format!("{}: {what}", path.path));
                        return;
                    }
                }
                path.responses.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
