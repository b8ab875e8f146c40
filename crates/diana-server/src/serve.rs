//! `diana serve`: everything together. The file is read, the shared store connected, the rules followed, and then the gateway
//! and the admin server listen; all of it stops when it is told to.
//!
//! ```text
//!  main thread: signals          control runtime: store, sources, admin, load          workers: requests
//! ```
//!
//! # What always holds
//! - Nothing listens before the shared store was asked and the rules are in force.
//! - Who is told to stop takes no more connections, answers what was begun, and then ends.

mod banner;
mod error;
mod following;
mod options;
mod signals;
mod watching;

pub use error::ServeError;
pub use options::ServeOptions;

use crate::access_log::{AccessLog, LogFormat};
use crate::admin::{Admin, AdminState, Readiness};
use crate::gateway::{Gateway, Running};
use crate::metrics::Metrics;
use diana::redis::RedisStore;
use diana::{Engine, EngineOptions, Follower};
use diana_rules::{AccessLogFormat, RuleFile, Running as Sources};
use following::Following;
use signals::{Signal, Signals};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The rules that serve where no file is given.
pub const DEFAULT: &str = include_str!("serve/default.yaml");

/// How long is waited, in the end, for the shared store to take back what requests held: far longer than it takes.
const GIVING_BACK: std::time::Duration = std::time::Duration::from_secs(2);

/// What runs.
struct Serving {
    gateway: Running,
    engine: Arc<Engine<RedisStore>>,
    sources: Option<Arc<Sources>>,
    readiness: Arc<Readiness>,
    admin: Vec<SocketAddr>,
}

/// Serves until it is told to stop.
pub fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let file = options.file()?;
    let served = runtime.block_on(async {
        // From here on a signal is an order to stop in order, also while things are being started.
        let mut signals = Signals::listen().map_err(ServeError::Runtime)?;
        let serving = tokio::select! {
            serving = start(options, &file) => serving?,
            () = signals.stop() => return Ok(None),
        };
        banner::print(options, &serving.gateway, &serving.admin, &file);
        Ok(Some((serving, signals)))
    });
    let Some((serving, mut signals)) = served? else { return Ok(()) };
    while runtime.block_on(signals.next()) == Signal::Reload {
        tracing::info!("reading everything again");
        serving.gateway.certificates().refresh();
        if let Some(sources) = &serving.sources {
            runtime.block_on(sources.reload());
        }
    }
    tracing::info!("stopping: what was begun is finished first");
    serving.readiness.stopping();
    runtime.spawn(async move {
        signals.stop().await;
        tracing::warn!("stopping at once");
        std::process::exit(130);
    });
    serving.gateway.stop();
    // The last requests are answered, but what they held in the shared store may still be on its way back there.
    let given_back = async {
        serving.engine.carried_out().await;
        if let Some(store) = serving.engine.shared() {
            store.clone().close().await;
        }
    };
    let given_back = async { tokio::time::timeout(GIVING_BACK, given_back).await };
    if runtime.block_on(given_back).is_err() {
        tracing::warn!("the shared store did not take back in time what the last requests held; time gives it back");
    }
    tracing::info!("stopped");
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    Ok(())
}

async fn start(options: &ServeOptions, file: &RuleFile) -> Result<Serving, ServeError> {
    let shared = match &file.store.redis {
        Some(section) => Some(diana::connect(section).await.map_err(|error| ServeError::Store(error.to_string()))?),
        None => None,
    };
    let engine = Arc::new(EngineOptions::of(file).build_with(file, shared));
    let sources = follow(options, file, &engine).await?;
    let mut gateway = Gateway::new(file, Arc::clone(&engine));
    let metrics = Metrics::new(gateway.workers());
    gateway = gateway.metrics(Arc::clone(&metrics));
    if options.is_default() {
        gateway = gateway.echo();
    }
    let log = access_log(file)?;
    let drops = log.as_ref().map(AccessLog::drops);
    if let Some(log) = log {
        gateway = gateway.access_log(log);
    }
    let readiness = Arc::new(Readiness::new());
    let section = file.admin.clone().unwrap_or_default();
    let (mut listeners, mut admin) = (Vec::new(), Vec::new());
    for address in section.listen {
        let failed = |error| ServeError::Admin { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        admin.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    let tell = sources.clone().map(|sources| Arc::new(move || sources.status()) as _);
    let state = AdminState {
        engine: Arc::clone(&engine),
        metrics: Arc::clone(&metrics),
        gateway: Arc::new(file.gateway.clone().unwrap_or_default()),
        readiness: Arc::clone(&readiness),
        sources: tell,
        access_log: drops,
        token: section.token,
    };
    let gateway = gateway.start().map_err(ServeError::Gateway)?;
    tokio::spawn(Admin::new(state).serve(listeners));
    watching::start(&engine, &metrics, gateway.certificates());
    readiness.ready();
    Ok(Serving { gateway, engine, sources, readiness, admin })
}

/// Follows the file, and the configuration centre that it names.
async fn follow(
    options: &ServeOptions,
    file: &RuleFile,
    engine: &Arc<Engine<RedisStore>>,
) -> Result<Option<Arc<Sources>>, ServeError> {
    let Some(path) = options.path() else { return Ok(None) };
    let sources = diana::sources(path, file).map_err(|error| ServeError::Sources(error.to_string()))?;
    let following = Following::new(Follower::new(Arc::clone(engine), diana::registry()));
    let running = sources.start(following).await.map_err(|error| ServeError::Sources(error.to_string()))?;
    Ok(Some(Arc::new(running)))
}

fn access_log(file: &RuleFile) -> Result<Option<AccessLog>, ServeError> {
    let format = match file.gateway.as_ref().map(|gateway| gateway.access_log) {
        Some(AccessLogFormat::Text) => LogFormat::Text,
        Some(AccessLogFormat::Json) => LogFormat::Json,
        _ => return Ok(None),
    };
    AccessLog::start(format, std::io::stdout()).map(Some).map_err(ServeError::Runtime)
}
