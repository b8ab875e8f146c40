//! `diana serve`: the whole program. Reads the file, connects the shared store, watches the sources of the rules, and
//! then starts the gateway, the services for other gateways and the admin server; all of it stops on a signal.
//!
//! ```text
//!  main thread: signals          control runtime: store, sources, admin, load          workers: requests
//! ```
//!
//! # What always holds
//! - Nothing listens before the shared store was contacted and the rules are loaded.
//! - On a stop signal, the program accepts no more connections, finishes active requests, and then exits.

mod banner;
mod config_reload;
mod error;
mod options;
mod periodic_tasks;
mod signals;

pub use error::ServeError;
pub use options::ServeOptions;

use crate::program_log::ProgramLog;
use config_reload::ConfigReload;
use diana::redis::RedisStore;
use diana::{Engine, EngineOptions, Reloader, SystemClock};
use diana_admin::{
    Admin, AdminSection, AdminState, History, Readiness, ReportCertificates, ReportUpstreams, RuleLog, Sampler,
};
use diana_config::{Sources, WatchHandle};
use diana_gateway::access_log::{AccessLog, LogFile, LogFormat};
use diana_gateway::section::{AccessLogFormat, GatewaySection};
use diana_gateway::{CertificateWatch, Gateway, RunningGateway};
use diana_metrics::Metrics;
use diana_rules::{Document, Problems, RuleFile};
use diana_services::{RunningServices, ServiceCertificates, Services};
use signals::{Signal, Signals};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The rule file that is used if none is given.
pub const DEFAULT: &str = include_str!("serve/default.yaml");

/// The timeout at shutdown for releasing permits of finished requests in the shared store: far longer than it takes.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout for writing the last lines of the log on an immediate exit: the log may have no reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The running parts.
struct Serving {
    gateway: RunningGateway,
    services: RunningServices,
    engine: Arc<Engine>,
    sources: Arc<WatchHandle>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    admin: Vec<SocketAddr>,
    /// The file of the access log.
    log_file: Option<LogFile>,
    /// The time that active requests have after a stop signal.
    stop_timeout: Duration,
}

/// Serves until a stop signal.
pub fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    diana_gateway::raise_descriptor_limit();
    let document = options.document()?;
    let file = options.file(&document)?;
    for warning in file.warnings.iter().flat_map(Problems::iter) {
        tracing::warn!("{}", warning.what().trim_start_matches("warning: "));
    }
    let served: Result<_, ServeError> = runtime.block_on(async {
        // From here on a signal shuts down gracefully, also during the start.
        let mut signals = Signals::listen().map_err(ServeError::Runtime)?;
        let serving = tokio::select! {
            serving = start(options, &document, &file) => serving?,
            () = signals.stop() => return Ok(None),
        };
        banner::print(options, &serving, &file);
        Ok(Some((serving, signals)))
    });
    let Some((serving, mut signals)) = served? else { return Ok(()) };
    // A reload may wait for the config server, so it runs in a task and does not block the signals. Any number of
    // signals during a reload cause one more.
    let reload = Arc::new(Notify::new());
    let certificates = (serving.gateway.certificates(), serving.services.certificates());
    runtime.spawn(reload_on_notify(Arc::clone(&reload), certificates, Arc::clone(&serving.sources)));
    loop {
        match runtime.block_on(signals.next()) {
            Signal::Stop => break,
            Signal::Reload => {
                tracing::info!("reloading rules and certificates");
                reload.notify_one();
            }
            Signal::ReopenLog => reopen_log(serving.log_file.as_ref()),
        }
    }
    let (connections, timeout) = (serving.metrics.totals().connections, serving.stop_timeout);
    tracing::info!("shutting down: draining {connections} connections (at most {timeout:?})");
    serving.readiness.stopping();
    let log = options.log().cloned();
    runtime.spawn(async move {
        signals.stop().await;
        tracing::warn!("shutting down immediately");
        if let Some(log) = log {
            log.flush(FLUSH_TIMEOUT);
        }
        std::process::exit(130);
    });
    // Both drain at the same time.
    let services = std::thread::spawn(|| serving.services.stop());
    serving.gateway.stop();
    let _ = services.join();
    // The last requests are finished, but their permits in the shared store may not be released yet.
    let released = async {
        serving.engine.background_tasks_finished().await;
        if let Some(store) = serving.engine.shared::<RedisStore>() {
            store.clone().close().await;
        }
    };
    let released = async { tokio::time::timeout(RELEASE_TIMEOUT, released).await };
    if runtime.block_on(released).is_err() {
        tracing::warn!(
            "permits of the last requests not released in the shared store within {RELEASE_TIMEOUT:?}; they will expire"
        );
    }
    tracing::info!("stopped");
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Reloads certificates and rules on each notification.
async fn reload_on_notify(
    requested: Arc<Notify>,
    (gateway, services): (CertificateWatch, ServiceCertificates),
    sources: Arc<WatchHandle>,
) {
    loop {
        requested.notified().await;
        gateway.refresh();
        services.refresh();
        sources.reload().await;
    }
}

async fn start(options: &ServeOptions, document: &Document, file: &RuleFile) -> Result<Serving, ServeError> {
    let shared = match &file.store.redis {
        Some(section) => Some(diana::connect(section).await.map_err(|error| ServeError::Store(error.to_string()))?),
        None => None,
    };
    let engine = Arc::new(EngineOptions::of(file).build_with(file, shared));
    let rule_log = Arc::new(RuleLog::new(Arc::new(SystemClock)));
    let reloader = Reloader::new(Arc::clone(&engine), crate::registry());
    let reload = ConfigReload::new(reloader, Arc::clone(&rule_log), options.upstreams().to_vec());
    let sources = watch_sources(options, document, file, Arc::clone(&reload)).await?;
    let mut gateway = Gateway::new(file, Arc::clone(&engine))?;
    let mut services = Services::new(file, Arc::clone(&engine))?;
    let metrics = Metrics::new(gateway.workers());
    gateway = gateway.metrics(Arc::clone(&metrics));
    let log_file = log_file(file)?;
    let log = access_log(file, log_file.clone())?;
    let drops = log.as_ref().map(AccessLog::drops);
    if let Some(log) = log {
        gateway = gateway.access_log(log.clone());
        services = services.access_log(Some(log));
    }
    let readiness = Arc::new(Readiness::new());
    let section = file.section_or_default::<AdminSection>()?;
    let (mut listeners, mut admin) = (Vec::new(), Vec::new());
    for address in section.listen {
        let failed = |error| ServeError::Admin { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        admin.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    let watched = Arc::clone(&sources);
    let gateway_section = file.section_or_default::<GatewaySection>()?;
    let stop_timeout = gateway_section.timeouts.stop;
    let gateway = gateway.start().map_err(ServeError::Gateway)?;
    reload.gateway_started(gateway.upstream_reload());
    let services = services.start().map_err(ServeError::Services)?;
    let history = Arc::new(History::new());
    let sampled = (Arc::clone(&history), Arc::clone(&engine), Arc::clone(&metrics));
    let sampler = Sampler::new(sampled.0, sampled.1, sampled.2, services.report(), Arc::new(SystemClock));
    tokio::spawn(sampler.run());
    let state = AdminState {
        engine: Arc::clone(&engine),
        metrics: Arc::clone(&metrics),
        gateway: Arc::new(gateway_section),
        readiness: Arc::clone(&readiness),
        sources: Some(Arc::new(move || watched.status())),
        services: services.report(),
        history,
        rule_log,
        upstreams: report_upstreams(&gateway),
        certificates: report_certificates(&gateway, &services),
        access_log: drops,
        program_log: options.log().map(ProgramLog::drops),
        token: section.token,
    };
    tokio::spawn(Admin::new(state).serve(listeners));
    periodic_tasks::start(&engine, &metrics, gateway.certificates(), services.certificates());
    readiness.ready();
    Ok(Serving { gateway, services, engine, sources, readiness, metrics, admin, log_file, stop_timeout })
}

fn report_upstreams(gateway: &RunningGateway) -> ReportUpstreams {
    let upstreams = gateway.upstreams();
    Arc::new(move || upstreams.status())
}

fn report_certificates(gateway: &RunningGateway, services: &RunningServices) -> ReportCertificates {
    let (gateway, services) = (gateway.certificates(), services.certificates());
    Arc::new(move || {
        let own = gateway.status().into_iter().map(|certificate| ("gateway", certificate));
        own.chain(services.status()).collect()
    })
}

/// Watches the file, if it can change, and the config server that it names.
async fn watch_sources(
    options: &ServeOptions,
    document: &Document,
    file: &RuleFile,
    reload: Arc<ConfigReload>,
) -> Result<Arc<WatchHandle>, ServeError> {
    let sources = match options.path() {
        Some(path) => Sources::new().local(path),
        None => Sources::new().document(document.clone()),
    };
    let sources = sources.remote_of(file).map_err(|error| ServeError::Sources(error.to_string()))?;
    let handle = sources.start(reload).await.map_err(|error| ServeError::Sources(error.to_string()))?;
    Ok(Arc::new(handle))
}

/// Opens the access log's file again, after it was renamed.
fn reopen_log(file: Option<&LogFile>) {
    let Some(file) = file else { return tracing::info!("no log is reopened: the access log has no file") };
    let path = file.path().display();
    match file.reopen() {
        Ok(()) => tracing::info!("access log reopened: {path}"),
        Err(error) => tracing::warn!(%error, "can't reopen the access log {path}: its lines go to the old file"),
    }
}

/// Opens the file of the access log, if it has one.
fn log_file(file: &RuleFile) -> Result<Option<LogFile>, ServeError> {
    let gateway = file.section::<GatewaySection>()?;
    let path = gateway.filter(|gateway| gateway.access_log != AccessLogFormat::Off);
    let Some(path) = path.and_then(|gateway| gateway.access_log_file.as_ref()) else { return Ok(None) };
    let failed = |error| ServeError::AccessLog { path: path.clone(), error };
    LogFile::open(path).map(Some).map_err(failed)
}

fn access_log(file: &RuleFile, log_file: Option<LogFile>) -> Result<Option<AccessLog>, ServeError> {
    let format = match file.section::<GatewaySection>()?.map(|gateway| gateway.access_log) {
        Some(AccessLogFormat::Text) => LogFormat::Text,
        Some(AccessLogFormat::Json) => LogFormat::Json,
        _ => return Ok(None),
    };
    let log = match log_file {
        Some(file) => AccessLog::start(format, file),
        None => AccessLog::start(format, std::io::stdout()),
    };
    log.map(Some).map_err(ServeError::Runtime)
}
