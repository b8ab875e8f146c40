//! Time that only the test advances, in spite of real network I/O; and when each call was sent.

use diana_client::Overloaded;
use http::Extensions;
use parking_lot::Mutex;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) struct VirtualTime {
    start: Instant,
    sent: Arc<Mutex<Vec<(u128, String)>>>,
    /// Tokio's paused time advances to the next timer when the runtime is idle, even if a response is in flight; but
    /// not while a blocking task runs. This one runs until the test is over, or hangs.
    _time: mpsc::Sender<()>,
}

impl VirtualTime {
    /// For a test with `start_paused = true`.
    pub(crate) fn new() -> Self {
        let (time, over) = mpsc::channel();
        tokio::task::spawn_blocking(move || over.recv_timeout(Duration::from_secs(60)));
        Self { start: Instant::now(), sent: Arc::default(), _time: time }
    }

    /// Creates a client with the layers that `layers` adds, and below them a recorder of sent calls.
    pub(crate) fn client(&self, layers: impl FnOnce(ClientBuilder) -> ClientBuilder) -> ClientWithMiddleware {
        let sent = SentCalls { start: self.start, calls: Arc::clone(&self.sent) };
        layers(ClientBuilder::new(plain())).with(sent).build()
    }

    /// Advances time, and lets all due tasks run.
    pub(crate) async fn advance(&self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    /// Returns when each path was requested, in milliseconds.
    pub(crate) fn sent(&self) -> Vec<(u128, String)> {
        self.sent.lock().clone()
    }
}

/// Each call has its own connection, so that none depends on when another is closed; a call without a response within a
/// day fails, once time is no longer held.
pub(crate) fn plain() -> reqwest::Client {
    let day = Duration::from_secs(24 * 60 * 60);
    reqwest::Client::builder().pool_max_idle_per_host(0).timeout(day).build().unwrap()
}

/// The sent calls with their times, for comparison.
pub(crate) fn at(millis: u128, path: &str) -> (u128, String) {
    (millis, path.to_owned())
}

/// Spawns a call; returns its status, or why it was not granted.
pub(crate) fn call(client: &ClientWithMiddleware, url: &str) -> JoinHandle<Result<u16, Overloaded>> {
    let request = client.get(url);
    tokio::spawn(async move {
        match request.send().await {
            Ok(response) => Ok(response.status().as_u16()),
            Err(Error::Middleware(error)) => Err(error.downcast().unwrap()),
            Err(Error::Reqwest(error)) => panic!("{error:?}"),
        }
    })
}

struct SentCalls {
    start: Instant,
    calls: Arc<Mutex<Vec<(u128, String)>>>,
}

#[async_trait::async_trait]
impl Middleware for SentCalls {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.calls.lock().push((self.start.elapsed().as_millis(), request.url().path().to_owned()));
        next.run(request, extensions).await
    }
}
