//! Starts the gateway's workers, and stops them.

mod start_error;

pub use start_error::StartError;

use crate::access_log::AccessLog;
use crate::connection::{Deadlines, StartTime, Ticker};
use crate::listener::ConnLimit;
use crate::section::GatewaySection;
use crate::upstream::{self, Checker, Connector, UpstreamRegistry, UpstreamWatch, Upstreams};
use crate::worker::{NoUpstream, Worker, WorkerState};
use diana::Engine;
use diana_http::{Filter, FilterChain, FilterOptions, HttpFilter, SignatureFilter};
use diana_metrics::Metrics;
use diana_net::TotalMemory;
use diana_net::listen;
use diana_net::tls::{CertificateStatus, Certificates};
use diana_rules::RuleFile;
use diana_rules::section::SectionNotRegistered;
use http::HeaderName;
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// A gateway that has not been started.
pub struct Gateway {
    section: Arc<GatewaySection>,
    filter: Filter,
    chain: FilterChain,
    metrics: Option<Arc<Metrics>>,
    log: Option<AccessLog>,
    no_upstream: NoUpstream,
    memory: Option<Arc<TotalMemory>>,
}

/// Reloads the certificates of a running gateway, and reports them.
#[derive(Clone, Debug)]
pub struct CertificateWatch(Option<Arc<Certificates>>);

/// Replaces the upstreams and routes of a running gateway.
#[derive(Clone, Debug)]
pub struct UpstreamReload(Arc<ReloadState>);

#[derive(Debug)]
struct ReloadState {
    registry: Arc<UpstreamRegistry>,
    checker: Checker,
    /// Not kept alive: their connections to upstreams end with them.
    workers: Mutex<Vec<Weak<WorkerState>>>,
}

/// A running gateway. Dropping it shuts it down.
#[derive(Debug)]
pub struct RunningGateway {
    addresses: Vec<SocketAddr>,
    metrics: Arc<Metrics>,
    certificates: CertificateWatch,
    upstreams: UpstreamWatch,
    upstream_reload: UpstreamReload,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    /// Dropped after the workers have ended.
    ticker: Ticker,
}

impl Gateway {
    /// Creates the gateway that a file describes, with an engine for its rules.
    ///
    /// # Errors
    /// The file was read with a registry that does not have [`GatewaySection`].
    pub fn new(file: &RuleFile, engine: Engine) -> Result<Self, SectionNotRegistered> {
        Ok(Self::with_section(file.section_or_default::<GatewaySection>()?, engine))
    }

    /// Creates a gateway with these settings, and an engine for its rules.
    pub fn with_section(section: GatewaySection, engine: Engine) -> Self {
        let section = Arc::new(section);
        let filter = Filter::with_options(engine, FilterOptions::new(section.http.clone()));
        let (mut chain, echoes) = (FilterChain::new(), section.echo);
        if let Some(signature) = &section.signature {
            let header = HeaderName::try_from(&*signature.header).unwrap_or(HeaderName::from_static("x-signature"));
            chain = chain.and(SignatureFilter::new(signature.secret.reveal().as_bytes(), header, signature.max_age));
        }
        Self {
            chain: chain.permissions(filter.clone()),
            filter,
            section,
            metrics: None,
            log: None,
            no_upstream: if echoes { NoUpstream::Echo } else { NoUpstream::Allow },
            memory: None,
        }
    }

    /// Adds a filter, which runs after Diana's filter and all filters added before, unless `filters` of the file has another
    /// order.
    #[must_use]
    pub fn filter(self, filter: impl HttpFilter + 'static) -> Self {
        Self { chain: self.chain.and(filter), ..self }
    }

    /// Uses the given metrics, so that the caller can export them.
    #[must_use]
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Writes an access log entry for each request.
    #[must_use]
    pub fn access_log(self, log: AccessLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Shares the bound of `bounds.memory` with other servers, such as services.
    #[must_use]
    pub fn memory(self, memory: Arc<TotalMemory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Uses the built-in echo upstream if the file names no upstream: it returns the request that it received.
    #[must_use]
    pub fn echo(self) -> Self {
        Self { no_upstream: NoUpstream::Echo, ..self }
    }

    /// Answers the checks of other gateways instead of forwarding requests: `GET /check` with the headers
    /// `X-Forwarded-Method`, `-Uri`, `-Host` and `-For`.
    #[must_use]
    pub fn checks(self) -> Self {
        Self { no_upstream: NoUpstream::Check, ..self }
    }

    /// Returns the number of worker threads.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.section.workers.map_or_else(cores, NonZeroUsize::get)
    }

    /// Binds every address and starts the workers. On an error, nothing keeps running.
    pub fn start(self) -> Result<RunningGateway, StartError> {
        let workers = self.workers();
        let (before, chain) = self.chain.clone().ordered(&self.section.filters)?;
        let (before, chain) = (Arc::new(before), Arc::new(chain));
        let certificates = self.section.tls.as_ref().map(Certificates::read).transpose();
        let certificates = certificates.map_err(|error| StartError::Certificate(error.to_string()))?;
        let connector = upstream::tls_config(self.section.upstream_ca.as_deref()).map_err(StartError::UpstreamCa)?;
        let connector = Connector::new(connector, self.section.timeouts.connect);
        let (addresses, sockets) = self.bind(workers, certificates.as_ref())?;
        let metrics = self.metrics.clone().unwrap_or_else(|| Metrics::new(workers));
        let (stop, stopped) = watch::channel(false);
        let conn_limit = Arc::new(ConnLimit::new(&self.section.bounds));
        let memory = self.memory.clone();
        let memory = memory.unwrap_or_else(|| Arc::new(TotalMemory::new(self.section.bounds.memory)));
        let start = StartTime::now();
        let registry = Arc::new(UpstreamRegistry::new(start, Arc::clone(&self.section)));
        let reload = Arc::new(ReloadState {
            registry: Arc::clone(&registry),
            checker: Checker::new(connector.clone()),
            workers: Mutex::default(),
        });
        let budgets = registry.retry_budgets();
        let mut running = RunningGateway {
            addresses,
            metrics: Arc::clone(&metrics),
            certificates: CertificateWatch(certificates),
            upstreams: UpstreamWatch(Arc::clone(&registry)),
            upstream_reload: UpstreamReload(Arc::clone(&reload)),
            stop,
            workers: Vec::with_capacity(workers),
            ticker: Ticker::start().map_err(StartError::Thread)?,
        };
        for (number, listeners) in sockets.into_iter().enumerate() {
            let deadlines = Arc::new(Deadlines::new(start));
            let upstreams = Upstreams::new(
                connector.clone(),
                Arc::clone(&deadlines),
                self.section.timeouts.response,
                Arc::clone(&registry),
                metrics.shard(number),
            );
            let routing = upstreams.routing(&self.section, &budgets);
            let worker = Arc::new(WorkerState {
                gateway: Arc::clone(&self.section),
                filter: self.filter.clone(),
                before: Arc::clone(&before),
                chain: Arc::clone(&chain),
                upstreams,
                routing: Mutex::new(routing),
                no_upstream: self.no_upstream,
                deadlines,
                memory: Arc::clone(&memory),
                metrics: metrics.shard(number),
                log: self.log.clone(),
            });
            reload.workers.lock().push(Arc::downgrade(&worker));
            let (conn_limit, ticks) = (Arc::clone(&conn_limit), running.ticker.ticks());
            let worker = Worker { worker, listeners, conn_limit, ticks, stop: stopped.clone() };
            running.workers.push(spawn(number, worker)?);
        }
        reload.checker.set(registry.checks()).map_err(StartError::Thread)?;
        Ok(running)
    }

    /// Binds the sockets of each worker, all on the same addresses.
    fn bind(
        &self,
        workers: usize,
        certificates: Option<&Arc<Certificates>>,
    ) -> Result<(Vec<SocketAddr>, Vec<Sockets>), StartError> {
        let plain = self.section.listen.iter().map(|address| (*address, None));
        let tls = self.section.tls.iter().flat_map(|tls| &tls.listen).map(|address| (*address, certificates));
        let (mut addresses, mut sockets) = (Vec::new(), (0..workers).map(|_| Vec::new()).collect::<Vec<_>>());
        for (address, certificates) in plain.chain(tls) {
            let listen_error = |error| StartError::Listen { address, error };
            listen::check_free(address).map_err(listen_error)?;
            let mut bound = address;
            for sockets in &mut sockets {
                let socket = listen::bind(bound, self.section.bounds.backlog).map_err(listen_error)?;
                // With port 0 the system chooses a port; the other sockets must use the same one.
                bound = socket.local_addr().map_err(listen_error)?;
                sockets.push((socket, certificates.cloned()));
            }
            addresses.push(bound);
        }
        Ok((addresses, sockets))
    }
}

/// The sockets of one worker.
type Sockets = Vec<(TcpListener, Option<Arc<Certificates>>)>;

fn spawn(number: usize, worker: Worker) -> Result<JoinHandle<()>, StartError> {
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

impl RunningGateway {
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

    /// Returns a handle that reads the status of the upstreams.
    pub fn upstreams(&self) -> UpstreamWatch {
        self.upstreams.clone()
    }

    /// Returns a handle that replaces the upstreams and routes.
    pub fn upstream_reload(&self) -> UpstreamReload {
        self.upstream_reload.clone()
    }

    /// Shuts down gracefully: accepts no more connections, drains the requests in flight, and returns when all are done
    /// or after `timeouts.stop`.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let _ = self.stop.send(true);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.upstream_reload.0.checker.stop();
    }
}

impl UpstreamReload {
    /// Replaces the upstreams and routes, with their weights, checks and retries, by those of `section`; its other
    /// settings are ignored. Upstreams that stay keep their connections, health and counts, and requests in flight are
    /// completed by the upstreams that they were sent to. Returns `false` if nothing has changed.
    pub fn apply(&self, section: &GatewaySection) -> bool {
        let ReloadState { registry, checker, workers } = &*self.0;
        // Held to the end, so that two changes do not mix.
        let workers = workers.lock();
        let old = registry.section();
        let new = Arc::new(old.with_upstreams_of(section));
        if old == new {
            return false;
        }
        let removed = registry.replace(Arc::clone(&new));
        let budgets = registry.retry_budgets();
        for worker in workers.iter().filter_map(Weak::upgrade) {
            let routing = worker.upstreams.routing(&new, &budgets);
            let old = std::mem::replace(&mut *worker.routing.lock(), routing);
            drop(old);
            worker.upstreams.remove(&removed);
        }
        if let Err(error) = checker.set(registry.checks()) {
            tracing::error!("upstreams are not checked: can't start a thread: {error}");
        }
        true
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

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.finish();
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("listen", &self.section.listen)
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}
