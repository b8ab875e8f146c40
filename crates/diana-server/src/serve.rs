//! `diana serve`: the whole program. Reads the file, connects the shared store, watches the sources of the rules, and
//! then starts the gateway and the admin server; all of it stops on a signal.
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
use diana::{Engine, EngineOptions, Reloader};
use diana_admin::{Admin, AdminSection, AdminState, Readiness};
use diana_config::{Sources, WatchHandle};
use diana_gateway::access_log::{AccessLog, LogFormat};
use diana_gateway::section::{AccessLogFormat, GatewaySection};
use diana_gateway::{CertificateWatch, Gateway, RunningGateway};
use diana_metrics::Metrics;
use diana_rules::{Document, RuleFile};
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
    engine: Arc<Engine>,
    sources: Arc<WatchHandle>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    admin: Vec<SocketAddr>,
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
    let served: Result<_, ServeError> = runtime.block_on(async {
        // From here on a signal shuts down gracefully, also during the start.
        let mut signals = Signals::listen().map_err(ServeError::Runtime)?;
        let serving = tokio::select! {
            serving = start(options, &document, &file) => serving?,
            () = signals.stop() => return Ok(None),
        };
        banner::print(options, &serving.gateway, &serving.admin, &file);
        Ok(Some((serving, signals)))
    });
    let Some((serving, mut signals)) = served? else { return Ok(()) };
    // A reload may wait for the config server, so it runs in a task and does not block the signals. Any number of
    // signals during a reload cause one more.
    let reload = Arc::new(Notify::new());
    runtime.spawn(reload_on_notify(Arc::clone(&reload), serving.gateway.certificates(), Arc::clone(&serving.sources)));
    while runtime.block_on(signals.next()) == Signal::Reload {
        tracing::info!("reloading rules and certificates");
        reload.notify_one();
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
    serving.gateway.stop();
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
async fn reload_on_notify(requested: Arc<Notify>, certificates: CertificateWatch, sources: Arc<WatchHandle>) {
    loop {
        requested.notified().await;
        certificates.refresh();
        sources.reload().await;
    }
}

async fn start(options: &ServeOptions, document: &Document, file: &RuleFile) -> Result<Serving, ServeError> {
    let shared = match &file.store.redis {
        Some(section) => Some(diana::connect(section).await.map_err(|error| ServeError::Store(error.to_string()))?),
        None => None,
    };
    let engine = Arc::new(EngineOptions::of(file).build_with(file, shared));
    let sources = watch_sources(options, document, file, &engine).await?;
    let mut gateway = Gateway::new(file, Arc::clone(&engine))?;
    let metrics = Metrics::new(gateway.workers());
    gateway = gateway.metrics(Arc::clone(&metrics));
    let log = access_log(file)?;
    let drops = log.as_ref().map(AccessLog::drops);
    if let Some(log) = log {
        gateway = gateway.access_log(log);
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
    let state = AdminState {
        engine: Arc::clone(&engine),
        metrics: Arc::clone(&metrics),
        gateway: Arc::new(gateway_section),
        readiness: Arc::clone(&readiness),
        sources: Some(Arc::new(move || watched.status())),
        access_log: drops,
        program_log: options.log().map(ProgramLog::drops),
        token: section.token,
    };
    let gateway = gateway.start().map_err(ServeError::Gateway)?;
    tokio::spawn(Admin::new(state).serve(listeners));
    periodic_tasks::start(&engine, &metrics, gateway.certificates());
    readiness.ready();
    Ok(Serving { gateway, engine, sources, readiness, metrics, admin, stop_timeout })
}

/// Watches the file, if it can change, and the config server that it names.
async fn watch_sources(
    options: &ServeOptions,
    document: &Document,
    file: &RuleFile,
    engine: &Arc<Engine>,
) -> Result<Arc<WatchHandle>, ServeError> {
    let sources = match options.path() {
        Some(path) => Sources::new().local(path),
        None => Sources::new().document(document.clone()),
    };
    let sources = sources.remote_of(file).map_err(|error| ServeError::Sources(error.to_string()))?;
    let reload = ConfigReload::new(Reloader::new(Arc::clone(engine), crate::registry()));
    let handle = sources.start(reload).await.map_err(|error| ServeError::Sources(error.to_string()))?;
    Ok(Arc::new(handle))
}

fn access_log(file: &RuleFile) -> Result<Option<AccessLog>, ServeError> {
    let format = match file.section::<GatewaySection>()?.map(|gateway| gateway.access_log) {
        Some(AccessLogFormat::Text) => LogFormat::Text,
        Some(AccessLogFormat::Json) => LogFormat::Json,
        _ => return Ok(None),
    };
    AccessLog::start(format, std::io::stdout()).map(Some).map_err(ServeError::Runtime)
}
