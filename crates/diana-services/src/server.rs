//! All services of a file: starts their threads and sockets, and stops them.
//!
//! Each thread has its own runtime and its own sockets, and the kernel assigns each connection to one of them.

mod thread;

use crate::envoy::{EnvoyOptions, EnvoyService, Overrides};
use crate::forward_auth::ForwardAuth;
use crate::resp::{ReportKeyChange, RespState};
use crate::section::{ServiceSettings, ServicesSection};
use diana::Engine;
use diana_http::{Filter, FilterOptions};
use diana_metrics::{ServiceMetrics, ServiceTotals};
use diana_net::access_log::AccessLog;
use diana_net::tls::{CertificateStatus, Certificates, Tls};
use diana_net::{CertificateWatch, HttpServer, RunningHttpServer, ServerSettings, TotalMemory, listen};
use diana_rules::RuleFile;
use diana_rules::file::WhenRedisIsDown;
use diana_rules::section::SectionNotRegistered;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use thread::{Service, ServiceConnections, ServiceKind, ServiceThread, Socket};
use tokio::sync::{Semaphore, watch};

/// Returns the counts of each service, with its name.
pub type ReportServices = Arc<dyn Fn() -> Vec<(&'static str, ServiceTotals)> + Send + Sync>;

/// The services of a file that are not started yet.
pub struct Services {
    section: ServicesSection,
    settings: Arc<ServerSettings>,
    engine: Engine,
    /// Whether requests are denied while the shared store is unreachable.
    denies_when_down: bool,
    log: Option<AccessLog>,
    key_changes: Option<ReportKeyChange>,
    memory: Arc<TotalMemory>,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("section", &self.section).finish_non_exhaustive()
    }
}

/// Running services. Dropping them shuts them down.
#[derive(Debug)]
pub struct RunningServices {
    addresses: Vec<(&'static str, SocketAddr)>,
    metrics: Vec<ServiceMetrics>,
    certificates: Vec<(&'static str, Arc<Certificates>)>,
    http: Option<RunningHttpServer>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// Reloads the certificates of running services, and reports them.
#[derive(Clone, Debug)]
pub struct ServiceCertificates {
    certificates: Vec<(&'static str, Arc<Certificates>)>,
    http: Option<CertificateWatch>,
}

impl ServiceCertificates {
    /// Reloads the certificates whose files have changed. If the new ones are invalid, the old ones stay active.
    pub fn refresh(&self) {
        self.certificates.iter().for_each(|(_, certificates)| certificates.refresh());
        self.http.iter().for_each(CertificateWatch::refresh);
    }

    /// Returns the active certificates, each with the name of its service.
    pub fn status(&self) -> Vec<(&'static str, CertificateStatus)> {
        let services = self.certificates.iter().flat_map(|(service, certificates)| {
            certificates.status().into_iter().map(|certificate| (*service, certificate))
        });
        let http = self.http.iter().flat_map(CertificateWatch::status).map(|certificate| ("http", certificate));
        services.chain(http).collect()
    }
}

/// The reason why services can't start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A service can't listen on an address.
    #[error("cannot listen on {address} for the service `{name}`: {error}")]
    Listen {
        /// The service.
        name: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A certificate or its key is invalid.
    #[error("invalid TLS certificate of the service `{name}`: {reason}")]
    Certificate {
        /// The service.
        name: &'static str,
        /// The file and the problem.
        reason: String,
    },
    /// The service `http` can't start.
    #[error("the service `http` can't start: {0}")]
    Http(#[source] diana_net::StartError),
    /// A thread can't be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl Services {
    /// Creates the services that a file has, with an engine for its rules and the settings of the gateway.
    ///
    /// # Errors
    /// The file was read with a registry that does not have [`ServicesSection`].
    pub fn new(file: &RuleFile, engine: Engine, settings: ServerSettings) -> Result<Self, SectionNotRegistered> {
        let denies_when_down =
            file.store.redis.as_ref().is_some_and(|redis| redis.when_down == Some(WhenRedisIsDown::Deny));
        let section = file.section_or_default::<ServicesSection>()?;
        let memory = Arc::new(TotalMemory::new(section.memory.unwrap_or(settings.bounds.memory)));
        // Other proxies connect directly.
        let settings = Arc::new(settings.proxy_protocol(false));
        Ok(Self { section, settings, engine, denies_when_down, log: None, key_changes: None, memory })
    }

    /// Writes an access log entry for each check of the service `http`.
    #[must_use]
    pub fn access_log(self, log: Option<AccessLog>) -> Self {
        Self { log, ..self }
    }

    /// Reports each change of a key through the Redis protocol, for an audit log. It must not block.
    #[must_use]
    pub fn key_changes(self, report: ReportKeyChange) -> Self {
        Self { key_changes: Some(report), ..self }
    }

    /// Shares the bound of the gateway's memory, unless the file has one for the services.
    #[must_use]
    pub fn memory(self, memory: Arc<TotalMemory>) -> Self {
        if self.section.memory.is_some() { self } else { Self { memory, ..self } }
    }

    /// Starts the service `http`, if the file has it.
    fn start_http(&self) -> Result<Option<RunningHttpServer>, StartError> {
        let Some(service) = &self.section.http else { return Ok(None) };
        let tls = service.tls.as_ref().map(|certificate| Tls::new(service.listen.clone(), certificate.clone()));
        let listen = if tls.is_some() { Vec::new() } else { service.listen.clone() };
        let server = HttpServer::new(Arc::clone(&self.settings), listen, tls)
            .workers(self.section.workers)
            .access_log(self.log.clone())
            .memory(Some(Arc::clone(&self.memory)));
        let filter = Filter::with_options(self.engine.clone(), FilterOptions::new(self.settings.http.clone()));
        let handler = Arc::new(ForwardAuth { filter });
        server.start(|_| Arc::clone(&handler)).map(Some).map_err(StartError::Http)
    }

    /// Returns the state of the Redis protocol for one thread.
    fn resp_state(&self, metrics: ServiceMetrics, thread: usize) -> RespState {
        let mut state = RespState::default().metrics(metrics, thread).memory(Arc::clone(&self.memory));
        state = state.settings(Arc::clone(&self.settings));
        if let Some(report) = &self.key_changes {
            state = state.key_changes(Arc::clone(report));
        }
        match self.section.resp.as_ref().and_then(|resp| resp.password.clone()) {
            Some(password) => state.password(password),
            None => state,
        }
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.section.workers.map_or_else(cores, NonZeroUsize::get)
    }

    /// Binds every address and starts the threads. On an error, nothing keeps running.
    pub fn start(self) -> Result<RunningServices, StartError> {
        let threads = self.threads();
        let (stop, stopped) = watch::channel(false);
        let mut running = RunningServices {
            addresses: Vec::new(),
            metrics: Vec::new(),
            certificates: Vec::new(),
            http: None,
            stop,
            threads: Vec::new(),
        };
        if let Some(http) = self.start_http()? {
            running.addresses.extend(http.addresses().iter().map(|address| ("http", *address)));
            running.http = Some(http);
        }
        let settings = [(ServiceKind::Envoy, &self.section.envoy), (ServiceKind::Resp, &self.section.resp)];
        let mut sockets = (0..threads).map(|_| Vec::new()).collect::<Vec<_>>();
        let mut connections_of = Vec::new();
        for (kind, settings) in settings.into_iter().filter_map(|(kind, service)| Some((kind, service.as_ref()?))) {
            let name = kind.name();
            let metrics = ServiceMetrics::new(name, threads);
            running.metrics.push(metrics.clone());
            running.bind(kind, settings, &mut sockets)?;
            connections_of.push(Arc::new(ServiceConnections {
                kind,
                metrics,
                free: Semaphore::new(self.settings.bounds.connections),
                warnings: Arc::default(),
                handshake_timeout: self.settings.timeouts.header,
            }));
        }
        if connections_of.is_empty() {
            return Ok(running);
        }
        let overrides = Arc::<Overrides>::default();
        for (number, sockets) in sockets.into_iter().enumerate() {
            let engine = self.engine.clone();
            let services = connections_of.iter().map(|connections| {
                let service = match connections.kind {
                    ServiceKind::Resp => {
                        let state = self.resp_state(connections.metrics.clone(), number);
                        Service::Resp(engine.clone(), Arc::new(state))
                    }
                    ServiceKind::Envoy => {
                        let options = EnvoyOptions {
                            settings: Arc::clone(&self.settings),
                            denies_when_down: self.denies_when_down,
                            overrides: Arc::clone(&overrides),
                            memory: Arc::clone(&self.memory),
                        };
                        let (engine, metrics) = (engine.clone(), connections.metrics.clone());
                        Service::Envoy(EnvoyService::new(engine, options, metrics, number, stopped.clone()))
                    }
                };
                (Arc::clone(connections), service)
            });
            let thread = ServiceThread {
                number,
                services: services.collect(),
                sockets,
                stop: stopped.clone(),
                stop_timeout: self.settings.timeouts.stop,
            };
            running.threads.push(thread.spawn()?);
        }
        Ok(running)
    }
}

impl RunningServices {
    /// Binds the sockets of each thread for one service, all on the same addresses.
    fn bind(
        &mut self,
        kind: ServiceKind,
        settings: &ServiceSettings,
        sockets: &mut [Vec<Socket>],
    ) -> Result<(), StartError> {
        let name = kind.name();
        let tls = match &settings.tls {
            Some(certificate) => {
                let certificates = Certificates::read(&Tls::new(settings.listen.clone(), certificate.clone()))
                    .map_err(|error| StartError::Certificate { name, reason: error.to_string() })?;
                self.certificates.push((name, Arc::clone(&certificates)));
                Some(certificates.acceptor())
            }
            None => None,
        };
        for address in &settings.listen {
            let listen_error = |error| StartError::Listen { name, address: *address, error };
            listen::check_free(*address).map_err(listen_error)?;
            let mut bound = *address;
            for sockets in &mut *sockets {
                let listener = listen::bind(bound, listen::BACKLOG).map_err(listen_error)?;
                // With port 0 the system chooses a port; the other sockets must use the same one.
                bound = listener.local_addr().map_err(listen_error)?;
                sockets.push(Socket { service: kind, listener, tls: tls.clone() });
            }
            self.addresses.push((name, bound));
        }
        Ok(())
    }

    /// Returns the bound addresses, with the names of their services.
    pub fn addresses(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// Returns a function that returns the counts of each service.
    pub fn report(&self) -> ReportServices {
        let (services, http) = (self.metrics.clone(), self.http.as_ref().map(|http| Arc::clone(http.metrics())));
        Arc::new(move || {
            let services = services.iter().map(|metrics| (metrics.name, metrics.totals()));
            let http = http.iter().map(|metrics| ("http", ServiceTotals::from(&metrics.totals())));
            services.chain(http).collect()
        })
    }

    /// Returns a handle that reloads the certificates.
    pub fn certificates(&self) -> ServiceCertificates {
        let http = self.http.as_ref().map(RunningHttpServer::certificates);
        ServiceCertificates { certificates: self.certificates.clone(), http }
    }

    /// Shuts down gracefully: accepts no more connections, finishes the requests in flight, and returns when all connections are
    /// closed or after `timeouts.stop` of the gateway.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let _ = self.stop.send(true);
        if let Some(mut http) = self.http.take() {
            http.stop();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for RunningServices {
    fn drop(&mut self) {
        self.finish();
    }
}
