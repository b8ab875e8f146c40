//! Clients that send requests continuously, and record the responses.

use super::fleet::{Fleet, PASSED, REFUSED};
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
    notes: Arc<Notes>,
    clients: Vec<JoinHandle<()>>,
}

/// The responses to all of them.
struct Notes {
    paths: Vec<Path>,
    stop: AtomicBool,
    faults: Mutex<Vec<String>>,
}

struct Path {
    path: &'static str,
    passed: AtomicU64,
    answered: AtomicU64,
}

impl Load {
    /// Starts clients for each gateway, which request these paths in turn.
    pub(crate) fn start(fleet: &Fleet, paths: &[&'static str]) -> Self {
        let path = |path: &&'static str| Path { path, passed: AtomicU64::new(0), answered: AtomicU64::new(0) };
        let notes = Arc::new(Notes {
            paths: paths.iter().map(path).collect(),
            stop: AtomicBool::new(false),
            faults: Mutex::default(),
        });
        let ports = (0..CLIENTS).flat_map(|_| fleet.ports());
        let client = |port| {
            let notes = Arc::clone(&notes);
            std::thread::spawn(move || notes.ask_all_the_time(port))
        };
        Self { clients: ports.map(client).collect(), notes }
    }

    /// Waits for this many more requests for each path, counting only requests that start from now on.
    pub(crate) fn go_on(&self, requests: u64) {
        // Each client may have one active request that started before.
        let more = requests + self.clients.len() as u64;
        let until = self.notes.paths.iter().map(|path| path.answered.load(Ordering::SeqCst) + more).collect::<Vec<_>>();
        let is_done = || {
            let mut each = self.notes.paths.iter().zip(&until);
            let is_done = each.all(|(path, until)| path.answered.load(Ordering::SeqCst) >= *until);
            (is_done || !self.notes.faults.lock().is_empty()).then_some(())
        };
        wait_until("requests to be answered", LONG, is_done).unwrap();
        self.no_faults();
    }

    /// Returns how many requests for a path were allowed so far.
    pub(crate) fn passed(&self, path: &str) -> u64 {
        self.notes.paths.iter().find(|known| known.path == path).unwrap().passed.load(Ordering::SeqCst)
    }

    /// Stops the clients, and returns the total number of requests. Fails if a response was missing or unexpected.
    pub(crate) fn stop(mut self) -> u64 {
        self.end();
        self.no_faults();
        self.notes.paths.iter().map(|path| path.answered.load(Ordering::SeqCst)).sum()
    }

    fn no_faults(&self) {
        assert_eq!(*self.notes.faults.lock(), Vec::<String>::new());
    }

    fn end(&mut self) {
        self.notes.stop.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

impl Notes {
    fn ask_all_the_time(&self, port: u16) {
        let mut client = Client::connect(port);
        while !self.stop.load(Ordering::SeqCst) {
            for path in &self.paths {
                let request = format!("GET {} HTTP/1.1\r\nhost: example.com\r\n\r\n", path.path);
                let answer = client.try_send(request).ok().and_then(|()| client.try_answer());
                match answer.map(|answer| answer.status) {
                    Some(PASSED) => drop(path.passed.fetch_add(1, Ordering::SeqCst)),
                    Some(REFUSED) => {}
                    other => {
                        let what = other.map_or("not answered".to_owned(), |status| format!("answered with {status}"));
                        self.faults.lock().push(format!("{} was {what}", path.path));
                        return;
                    }
                }
                path.answered.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
