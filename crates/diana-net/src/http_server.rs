//! An HTTP server: its sockets and its workers, started together and stopped together.
//!
//! ```text
//!              ┌ worker 0: a thread, a runtime, its own sockets ┐
//!  clients ──▶ ┤ worker 1: the same                             ├──▶ a Handler for each
//!              └ worker n: the same                             ┘
//! ```
//!
//! The kernel assigns each connection to one worker, which serves it until it ends.

use crate::access_log::AccessLog;
use crate::coarse_timer::{Deadlines, StartTime, Ticker};
use crate::connection::ConnLimit;
use crate::handler::Handler;
use crate::listen;
use crate::tls::{CertificateStatus, Certificates, Tls};
use crate::worker::Worker;
use crate::worker_state::WorkerState;
use crate::{ServerSettings, TotalMemory};
use diana_metrics::Metrics;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// An HTTP server that has not been started.
#[derive(Debug)]
pub struct HttpServer {
    settings: Arc<ServerSettings>,
    listen: Vec<SocketAddr>,
    tls: Option<Tls>,
    workers: usize,
    metrics: Option<Arc<Metrics>>,
    log: Option<AccessLog>,
    memory: Option<Arc<TotalMemory>>,
    start: StartTime,
}

/// A running HTTP server. Dropping it shuts it down.
#[derive(Debug)]
pub struct RunningHttpServer {
    addresses: Vec<SocketAddr>,
    metrics: Arc<Metrics>,
    certificates: CertificateWatch,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    /// Dropped after the workers have ended.
    ticker: Ticker,
}

/// Reloads the certificates of a running server, and reports them.
#[derive(Clone, Debug)]
pub struct CertificateWatch(Option<Arc<Certificates>>);

/// The reason why an HTTP server can't start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server can't listen on an address.
    #[error("cannot listen on {address}: {error}{}", listen_hint(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A certificate or its key is invalid.
    #[error("invalid TLS certificate: {0}")]
    Certificate(String),
    /// A thread can't be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Returns the likely cause, to be appended to the message.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; it is in use by another program, or by another `listen`",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have the address",
        _ => "",
    }
}

/// The sockets of one worker.
type Sockets = Vec<(TcpListener, Option<Arc<Certificates>>)>;

impl HttpServer {
    /// Creates a server on these addresses: without TLS, and with it. It has one worker for each core.
    pub fn new(settings: Arc<ServerSettings>, listen: Vec<SocketAddr>, tls: Option<Tls>) -> Self {
        let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { settings, listen, tls, workers, metrics: None, log: None, memory: None, start: StartTime::now() }
    }

    /// Sets the number of workers, unless `workers` is `None`.
    #[must_use]
    pub fn workers(self, workers: Option<NonZeroUsize>) -> Self {
        Self { workers: workers.map_or(self.workers, NonZeroUsize::get), ..self }
    }

    /// Uses the given metrics, so that the caller can export them.
    #[must_use]
    pub fn metrics(self, metrics: Option<Arc<Metrics>>) -> Self {
        Self { metrics, ..self }
    }

    /// Writes an access log entry for each request.
    #[must_use]
    pub fn access_log(self, log: Option<AccessLog>) -> Self {
        Self { log, ..self }
    }

    /// Shares the bound of `bounds.memory` with other servers.
    #[must_use]
    pub fn memory(self, memory: Option<Arc<TotalMemory>>) -> Self {
        Self { memory, ..self }
    }

    /// Returns the time from which the clocks of all its workers count.
    pub fn start_time(&self) -> StartTime {
        self.start
    }

    /// Binds every address and starts the workers; `handler` creates the handler of each. On an error, nothing keeps
    /// running.
    pub fn start<H: Handler>(
        self,
        mut handler: impl FnMut(&Arc<WorkerState>) -> Arc<H>,
    ) -> Result<RunningHttpServer, StartError> {
        let certificates = self.tls.as_ref().map(Certificates::read).transpose();
        let certificates = certificates.map_err(|error| StartError::Certificate(error.to_string()))?;
        let (addresses, sockets) = self.bind(certificates.as_ref())?;
        let metrics = self.metrics.unwrap_or_else(|| Metrics::new(self.workers));
        let (stop, stopped) = watch::channel(false);
        let conn_limit = Arc::new(ConnLimit::new(&self.settings.bounds));
        let memory = self.memory.unwrap_or_else(|| Arc::new(TotalMemory::new(self.settings.bounds.memory)));
        let mut running = RunningHttpServer {
            addresses,
            metrics: Arc::clone(&metrics),
            certificates: CertificateWatch(certificates),
            stop,
            workers: Vec::with_capacity(self.workers),
            ticker: Ticker::start().map_err(StartError::Thread)?,
        };
        for (number, listeners) in sockets.into_iter().enumerate() {
            let worker = Arc::new(WorkerState {
                settings: Arc::clone(&self.settings),
                deadlines: Arc::new(Deadlines::new(self.start)),
                memory: Arc::clone(&memory),
                metrics: metrics.shard(number),
                log: self.log.clone(),
            });
            let handler = handler(&worker);
            let (conn_limit, ticks) = (Arc::clone(&conn_limit), running.ticker.ticks());
            let worker = Worker { handler, worker, listeners, conn_limit, ticks, stop: stopped.clone() };
            running.workers.push(spawn(number, worker)?);
        }
        Ok(running)
    }

    /// Binds the sockets of each worker, all on the same addresses.
    fn bind(&self, certificates: Option<&Arc<Certificates>>) -> Result<(Vec<SocketAddr>, Vec<Sockets>), StartError> {
        let plain = self.listen.iter().map(|address| (*address, None));
        let tls = self.tls.iter().flat_map(|tls| &tls.listen).map(|address| (*address, certificates));
        let (mut addresses, mut sockets) = (Vec::new(), (0..self.workers).map(|_| Vec::new()).collect::<Vec<_>>());
        for (address, certificates) in plain.chain(tls) {
            let listen_error = |error| StartError::Listen { address, error };
            listen::check_free(address).map_err(listen_error)?;
            let mut bound = address;
            for sockets in &mut sockets {
                let socket = listen::bind(bound, self.settings.bounds.backlog).map_err(listen_error)?;
                // With port 0 the system chooses a port; the other sockets must use the same one.
                bound = socket.local_addr().map_err(listen_error)?;
                sockets.push((socket, certificates.cloned()));
            }
            addresses.push(bound);
        }
        Ok((addresses, sockets))
    }
}

fn spawn<H: Handler>(number: usize, worker: Worker<H>) -> Result<JoinHandle<()>, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    let thread = std::thread::Builder::new().name(format!("worker-{number}"));
    let run = move || {
        if let Err(error) = runtime.block_on(worker.run()) {
            tracing::error!("worker {number} failed: {error}");
        }
        // Aborts tasks that still run after `timeouts.stop`.
        runtime.shutdown_background();
    };
    thread.spawn(run).map_err(StartError::Thread)
}

impl RunningHttpServer {
    /// Returns the bound addresses: first those without TLS, then those with TLS, in the order of the file.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns a handle that reloads the certificates.
    pub fn certificates(&self) -> CertificateWatch {
        self.certificates.clone()
    }

    /// Shuts down gracefully: accepts no more connections, drains the requests in flight, and returns when all are done
    /// or after `timeouts.stop`.
    pub fn stop(&mut self) {
        let _ = self.stop.send(true);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Drop for RunningHttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl CertificateWatch {
    /// Reloads the certificates if their files have changed. If the new ones are invalid, the old ones stay active.
    pub fn refresh(&self) {
        if let Some(certificates) = &self.0 {
            certificates.refresh();
        }
    }

    /// Returns the active certificates, in the order of the file.
    pub fn status(&self) -> Vec<CertificateStatus> {
        self.0.as_ref().map(|certificates| certificates.status()).unwrap_or_default()
    }
}
