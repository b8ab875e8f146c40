//! `diana serve`: the whole program. Reads the file, connects the shared store, watches the sources of the rules, and
//! then starts the gateway, the services for other gateways and the admin server; all of it stops on a signal.
//!
//! ```text
//!  main thread: signals          control runtime: store, sources, admin, load          workers: requests
//! ```
//!
//! # What always holds
//! - Nothing listens before the shared store was contacted and the rules are loaded.
//! - On a stop signal, the program is not ready any more; after `timeouts.drain` it accepts no more connections, finishes
//!   active requests, and then exits.

mod banner;
mod config_reload;
mod error;
mod log_files;
mod options;
mod periodic_tasks;
mod settings;
mod signals;
mod snapshot_file;

pub use error::ServeError;
pub use options::ServeOptions;
pub use settings::LIVE_FIELDS;

use crate::program_log::ProgramLog;
use config_reload::{ConfigReload, log_waiting};
use diana::redis::RedisStore;
use diana::{Engine, EngineOptions, Reloader, SystemClock};
use diana_admin::{
    Actor, Admin, AdminSection, AdminState, AdminTokens, AuditLog, History, Readiness, Reload, ReportCertificates,
    ReportSnapshot, ReportUpstreams, RuleLog, Sampler,
};
use diana_config::{Sources, WatchHandle};
use diana_gateway::section::GatewaySection;
use diana_gateway::{Gateway, RunningGateway};
use diana_metrics::Metrics;
use diana_net::access_log::AccessLog;
use diana_net::{CertificateWatch, TotalMemory};
use diana_rules::{Document, Problems, RuleFile};
use diana_services::{RunningServices, ServiceCertificates, Services};
use log_files::LogFiles;
use settings::Settings;
use signals::{Signal, Signals};
use snapshot_file::SnapshotFile;
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
    engine: Engine,
    sources: Arc<WatchHandle>,
    reload: Arc<ConfigReload>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    admin: Vec<SocketAddr>,
    audit: Arc<AuditLog>,
    log_files: LogFiles,
    snapshot: Option<Arc<SnapshotFile>>,
    /// The time from a stop signal until the listeners are closed.
    drain_delay: Duration,
    /// The time that active requests have after that.
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
    diana_net::descriptors::raise_descriptor_limit();
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
    let read_again = reload_sources(certificates, &serving.sources);
    let (requested, applied) = (Arc::clone(&reload), Arc::clone(&serving.reload));
    runtime.spawn(async move {
        loop {
            requested.notified().await;
            read_again().await;
            log_waiting(&applied.settings());
        }
    });
    loop {
        match runtime.block_on(signals.next()) {
            Signal::Stop => break,
            Signal::Reload => {
                tracing::info!("reloading rules and certificates");
                serving.audit.reload_requested(Actor { source: "signal", name: None, client: None });
                reload.notify_one();
            }
            Signal::ReopenLog => serving.log_files.reopen(),
        }
    }
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
    if !serving.drain_delay.is_zero() {
        let delay = serving.drain_delay;
        tracing::info!("shutting down: not ready, and accepting requests for another {delay:?}");
        // The timer needs the runtime, so it is created inside of it.
        runtime.block_on(async { tokio::time::sleep(delay).await });
    }
    let (connections, timeout) = (serving.metrics.totals().connections, serving.stop_timeout);
    tracing::info!("shutting down: draining {connections} connections (at most {timeout:?})");
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
    if let Some(snapshot) = &serving.snapshot {
        snapshot.save(&serving.engine);
    }
    serving.audit.flush(FLUSH_TIMEOUT);
    tracing::info!("stopped");
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Returns a function that reads certificates and rules again.
fn reload_sources((gateway, services): (CertificateWatch, ServiceCertificates), sources: &Arc<WatchHandle>) -> Reload {
    let sources = Arc::clone(sources);
    Arc::new(move || {
        gateway.refresh();
        services.refresh();
        let sources = Arc::clone(&sources);
        Box::pin(async move { sources.reload().await })
    })
}

async fn start(options: &ServeOptions, document: &Document, file: &RuleFile) -> Result<Serving, ServeError> {
    let shared = match &file.store.redis {
        Some(section) => Some(diana::connect(section).await.map_err(|error| ServeError::Store(error.to_string()))?),
        None => None,
    };
    let (snapshot, mut engine_options, mut saved) =
        (SnapshotFile::of(&file.store.memory), EngineOptions::of(file), None);
    if let Some(snapshot) = &snapshot {
        (engine_options, saved) = snapshot.read(engine_options)?;
    }
    let engine = engine_options.build_with(file, shared);
    let section = file.section_or_default::<AdminSection>()?;
    let log_files = LogFiles::open(file)?;
    let audit = AuditLog::new(Arc::new(SystemClock));
    let audit = Arc::new(match &log_files.audit {
        Some(file) => audit.write_to(file.clone()).map_err(ServeError::Runtime)?,
        None => audit,
    });
    let rule_log = Arc::new(RuleLog::new(Arc::new(SystemClock)).audited(Arc::clone(&audit)));
    let reloader = Reloader::new(engine.clone(), crate::registry());
    let tokens = Arc::new(AdminTokens::of(&section));
    let logs = (Arc::clone(&rule_log), Arc::clone(&audit));
    let settings = Settings::new(options, document, file)?;
    let reload = ConfigReload::new(reloader, logs, settings, Arc::clone(&tokens), options.upstreams().to_vec());
    let sources = watch_sources(options, document, file, Arc::clone(&reload)).await?;
    // Now the limits are those of the config server, if there is one.
    if let Some(snapshot) = &snapshot {
        snapshot.load(&engine, saved.as_ref())?;
    }
    drop(saved);
    let mut gateway = Gateway::new(file, engine.clone())?;
    let changes = Arc::clone(&audit);
    let gateway_section = file.section_or_default::<GatewaySection>()?;
    let server_settings = gateway_section.server_settings();
    let heads = server_settings.heads();
    let mut services =
        Services::new(file, engine.clone(), server_settings)?.key_changes(Arc::new(move |client, change| {
            changes.key_changed(Actor { source: "resp", name: None, client }, change);
        }));
    let memory = Arc::new(TotalMemory::new(gateway_section.bounds.memory));
    services = services.memory(Arc::clone(&memory));
    gateway = gateway.memory(memory);
    let log = log_files.start_access_log(file)?;
    let drops = log.as_ref().map(AccessLog::drops);
    if let Some(log) = log {
        gateway = gateway.access_log(log.clone());
        services = services.access_log(Some(log));
    }
    let readiness = Arc::new(Readiness::new());
    let (mut listeners, mut admin) = (Vec::new(), Vec::new());
    for &address in &section.listen {
        let failed = |error| ServeError::Admin { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        admin.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    let watched = Arc::clone(&sources);
    let (drain_delay, stop_timeout) = (gateway_section.timeouts.drain, gateway_section.timeouts.stop);
    let gateway = gateway.start().map_err(ServeError::Gateway)?;
    let metrics = Arc::clone(gateway.metrics());
    reload.gateway_started(gateway.upstream_reload());
    let services = services.start().map_err(ServeError::Services)?;
    let history = Arc::new(History::new());
    let sampled = (Arc::clone(&history), engine.clone(), Arc::clone(&metrics));
    let sampler = Sampler::new(sampled.0, sampled.1, sampled.2, services.report(), Arc::new(SystemClock));
    tokio::spawn(sampler.run());
    let changed = Arc::clone(&reload);
    let state = AdminState {
        engine: engine.clone(),
        metrics: Arc::clone(&metrics),
        heads,
        readiness: Arc::clone(&readiness),
        sources: Some(Arc::new(move || watched.status())),
        services: services.report(),
        history,
        rule_log,
        audit: Arc::clone(&audit),
        reload: Some(reload_sources((gateway.certificates(), services.certificates()), &sources)),
        upstreams: report_upstreams(&gateway),
        certificates: report_certificates(&gateway, &services),
        access_log: drops,
        program_log: options.log().map(ProgramLog::drops),
        snapshot: snapshot.clone().map(|file| -> ReportSnapshot { Arc::new(move || file.status()) }),
        settings: Some(Arc::new(move || changed.settings())),
        tokens,
    };
    tokio::spawn(Admin::new(state).serve(listeners));
    periodic_tasks::start(&engine, &metrics, gateway.certificates(), services.certificates());
    if let Some(snapshot) = &snapshot {
        tokio::spawn(Arc::clone(snapshot).run(engine.clone()));
    }
    readiness.ready();
    Ok(Serving {
        gateway,
        services,
        engine,
        sources,
        reload,
        readiness,
        metrics,
        admin,
        audit,
        log_files,
        snapshot,
        drain_delay,
        stop_timeout,
    })
}

fn report_upstreams(gateway: &RunningGateway) -> ReportUpstreams {
    let upstreams = gateway.upstreams();
    Arc::new(move || upstreams.status())
}

fn report_certificates(gateway: &RunningGateway, services: &RunningServices) -> ReportCertificates {
    let (gateway, services) = (gateway.certificates(), services.certificates());
    Arc::new(move || {
        let gateway = gateway.status().into_iter().map(|certificate| ("gateway", certificate));
        gateway.chain(services.status()).collect()
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
