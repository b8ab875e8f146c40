//! Starts the gateway's workers, and stops them.

use crate::section::GatewaySection;
use crate::upstream::{self, Checker, Connector, UpstreamRegistry, UpstreamWatch, Upstreams};
use crate::worker::{GatewayWorker, NoUpstream};
use diana::Engine;
use diana_http::{Filter, FilterChain, FilterOptions, HttpFilter, SignatureFilter, UnknownFilter};
use diana_metrics::Metrics;
use diana_net::access_log::AccessLog;
use diana_net::{CertificateWatch, HttpServer, RunningHttpServer, TotalMemory};
use diana_rules::RuleFile;
use diana_rules::section::SectionNotRegistered;
use http::HeaderName;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

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

/// Replaces the upstreams and routes of a running gateway.
#[derive(Clone, Debug)]
pub struct UpstreamReload(Arc<ReloadState>);

#[derive(Debug)]
struct ReloadState {
    registry: Arc<UpstreamRegistry>,
    checker: Checker,
    /// The workers, not kept alive: their connections to upstreams end with them.
    workers: Mutex<Vec<Weak<GatewayWorker>>>,
}

/// A running gateway. Dropping it shuts it down.
#[derive(Debug)]
pub struct RunningGateway {
    server: RunningHttpServer,
    upstreams: UpstreamWatch,
    upstream_reload: UpstreamReload,
}

/// The reason why a gateway can't start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The gateway's server can't start.
    #[error(transparent)]
    Server(#[from] diana_net::StartError),
    /// The CA certificates for upstreams are invalid.
    #[error("invalid `upstream_ca`: {0}")]
    UpstreamCa(String),
    /// The order of the filters names one that there is not.
    #[error("`filters` of `gateway`: {0}")]
    Filters(#[from] UnknownFilter),
    /// The thread that checks the upstreams can't be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
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

    /// Binds every address and starts the workers. On an error, nothing keeps running.
    pub fn start(self) -> Result<RunningGateway, StartError> {
        let Self { section, filter, chain, metrics, log, no_upstream, memory } = self;
        let (filters_before, filters_after) = chain.ordered(&section.filters)?;
        let (filters_before, filters_after) = (Arc::new(filters_before), Arc::new(filters_after));
        let connector = upstream::tls_config(section.upstream_ca.as_deref()).map_err(StartError::UpstreamCa)?;
        let connector = Connector::new(connector, section.timeouts.connect);
        let server = HttpServer::new(Arc::new(section.server_settings()), section.listen.clone(), section.tls.clone())
            .workers(section.workers)
            .metrics(metrics)
            .access_log(log)
            .memory(memory);
        let registry = Arc::new(UpstreamRegistry::new(server.start_time(), Arc::clone(&section)));
        let reload = Arc::new(ReloadState {
            registry: Arc::clone(&registry),
            checker: Checker::new(connector.clone()),
            workers: Mutex::default(),
        });
        let budgets = registry.retry_budgets();
        let server = server.start(|state| {
            let upstreams = Upstreams::new(
                connector.clone(),
                Arc::clone(&state.deadlines),
                section.timeouts.response,
                Arc::clone(&registry),
                Arc::clone(&state.metrics),
            );
            let routing = upstreams.routing(&section, &budgets);
            let worker = Arc::new(GatewayWorker {
                state: Arc::clone(state),
                section: Arc::clone(&section),
                filter: filter.clone(),
                filters_before: Arc::clone(&filters_before),
                filters_after: Arc::clone(&filters_after),
                upstreams,
                routing: Mutex::new(routing),
                no_upstream,
            });
            reload.workers.lock().push(Arc::downgrade(&worker));
            worker
        })?;
        reload.checker.set(registry.checks()).map_err(StartError::Thread)?;
        Ok(RunningGateway { server, upstreams: UpstreamWatch(registry), upstream_reload: UpstreamReload(reload) })
    }
}

impl RunningGateway {
    /// Returns the bound addresses: first those without TLS, then those with TLS, in the order of the file.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.server.metrics()
    }

    /// Returns a handle that reloads the certificates.
    pub fn certificates(&self) -> CertificateWatch {
        self.server.certificates()
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
        self.server.stop();
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
