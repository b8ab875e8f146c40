//! An HTTP server with one document, which it serves correctly (`ETag`, 304, long polls) or misbehaves on demand.
//!
//! ```no_run
//! use diana_testing::{HttpServer, Misbehave};
//!
//! let mut server = HttpServer::start()?;
//! server.serve("rules: []");
//! server.misbehave(Misbehave::Status(500));
//! server.stop(); // connections are refused
//! server.restart()?; // same port, same document
//! assert_eq!(server.requests(), 0);
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::{Port, listen};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

mod response;

/// How an [`HttpServer`] answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misbehave {
    /// Correctly.
    #[default]
    No,
    /// Correctly, but without an `ETag`.
    NoEtag,
    /// With this status.
    Status(u16),
    /// With these bytes, valid or not.
    Bytes(Vec<u8>),
    /// With an endless body.
    Endless,
    /// Never.
    Silence,
    /// With a redirect to this URL.
    Redirect(String),
}

/// A server on a separate thread; on drop its connections are closed and its port is free again.
#[derive(Debug)]
pub struct HttpServer {
    port: Port,
    shared: Arc<Shared>,
    /// `None` while it is stopped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The state that the thread and the test share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The number of the document, which is its `ETag`; pending long polls wait for a change.
    version: watch::Sender<u64>,
    requests: AtomicU64,
    unchanged: AtomicU64,
    held: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    document: String,
    token: Option<String>,
    misbehave: Misbehave,
    /// The headers of the last request, with their names in lower case.
    headers: Vec<(String, String)>,
}

impl HttpServer {
    /// Starts a server with an empty document.
    pub fn start() -> io::Result<Self> {
        let shared = Shared {
            state: Mutex::default(),
            version: watch::Sender::new(1),
            requests: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            held: AtomicU64::new(0),
        };
        let mut server = Self { port: Port::claim()?, shared: Arc::new(shared), running: None };
        server.restart()?;
        Ok(server)
    }

    /// Returns the port on 127.0.0.1. It stays the same over [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the URL of the document; it is the same at every path.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/rules.yaml", self.port())
    }

    /// Sets the document. Returns its `ETag` in quotes. Pending long polls are answered.
    pub fn serve(&self, document: &str) -> String {
        document.clone_into(&mut self.shared.state.lock().document);
        self.shared.version.send_modify(|version| *version += 1);
        format!("\"{}\"", *self.shared.version.borrow())
    }

    /// Answers 401 to requests without this bearer token.
    pub fn require_token(&self, token: &str) {
        self.shared.state.lock().token = Some(token.to_owned());
    }

    /// Sets how to answer from now on.
    pub fn misbehave(&self, how: Misbehave) {
        self.shared.state.lock().misbehave = how;
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Returns how many of them were answered with 304.
    pub fn unchanged(&self) -> u64 {
        self.shared.unchanged.load(Ordering::SeqCst)
    }

    /// Returns the number of pending long polls.
    pub fn held(&self) -> u64 {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Returns a header of the last request, by its name in lower case.
    pub fn last_header(&self, name: &str) -> Option<String> {
        let state = self.shared.state.lock();
        state.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone())
    }

    /// Closes all connections, and refuses new ones from when this returns. No effect if it is stopped.
    pub fn stop(&mut self) {
        let Some(Running { stop, thread }) = self.running.take() else { return };
        // An error means that the thread has ended already.
        let _ = stop.send(());
        let _ = thread.join();
    }

    /// Stops it if it runs, and starts it again on the same port, with the same document.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        let listener = listen(self.port())?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("http-server".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = response::serve(listener, shared) => {}
                    _ = stopped => {}
                }
            });
            // Dropping the runtime drops all connections.
        })?;
        self.running = Some(Running { stop, thread });
        Ok(())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}
