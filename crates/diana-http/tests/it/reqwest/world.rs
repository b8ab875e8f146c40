//! Time that only the test moves, though real bytes are on their way; and when each call went out.

use diana_http::Overloaded;
use http::Extensions;
use parking_lot::Mutex;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) struct World {
    start: Instant,
    departures: Arc<Mutex<Vec<(u128, String)>>>,
    /// Time that is paused runs ahead to the next timer when nothing is to do, as if an answer that is on its way were nothing;
    /// but not while a thread is at work. This one works until the test is over, or hangs.
    _time: mpsc::Sender<()>,
}

impl World {
    /// For a test with `start_paused = true`.
    pub(crate) fn new() -> Self {
        let (time, over) = mpsc::channel();
        tokio::task::spawn_blocking(move || over.recv_timeout(Duration::from_secs(60)));
        Self { start: Instant::now(), departures: Arc::default(), _time: time }
    }

    /// A client with what `layers` adds, and behind that the one who writes down what goes out.
    pub(crate) fn client(&self, layers: impl FnOnce(ClientBuilder) -> ClientBuilder) -> ClientWithMiddleware {
        let departures = Departures { start: self.start, seen: Arc::clone(&self.departures) };
        layers(ClientBuilder::new(plain())).with(departures).build()
    }

    /// Moves time, and lets everybody who is due act.
    pub(crate) async fn pass(&self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    /// When which path was asked for, in milliseconds.
    pub(crate) fn departures(&self) -> Vec<(u128, String)> {
        self.departures.lock().clone()
    }
}

/// Each call on a connection of its own, so that none depends on when another is closed; what is not answered within a day
/// fails, once nobody holds the time.
pub(crate) fn plain() -> reqwest::Client {
    let day = Duration::from_secs(24 * 60 * 60);
    reqwest::Client::builder().pool_max_idle_per_host(0).timeout(day).build().unwrap()
}

/// What is sent at which time, to compare.
pub(crate) fn at(millis: u128, path: &str) -> (u128, String) {
    (millis, path.to_owned())
}

/// A call in the background: its status, or why it had no turn.
pub(crate) fn call(client: &ClientWithMiddleware, url: &str) -> JoinHandle<Result<u16, Overloaded>> {
    let asked = client.get(url);
    tokio::spawn(async move {
        match asked.send().await {
            Ok(response) => Ok(response.status().as_u16()),
            Err(Error::Middleware(error)) => Err(error.downcast().unwrap()),
            Err(Error::Reqwest(error)) => panic!("{error:?}"),
        }
    })
}

struct Departures {
    start: Instant,
    seen: Arc<Mutex<Vec<(u128, String)>>>,
}

#[async_trait::async_trait]
impl Middleware for Departures {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.seen.lock().push((self.start.elapsed().as_millis(), request.url().path().to_owned()));
        next.run(request, extensions).await
    }
}
