//! A gateway with a filter and an algorithm of its own: the page `docs/tasks/your-own-filter.md`.
//!
//! | where | what |
//! |---|---|
//! | `main.rs` | reads the rule file, starts the gateway, serves until Ctrl-C or SIGTERM |
//! | `api_keys.rs` | the filter `api_keys` and its section of the rule file |
//! | `backoff.rs` | the algorithm `backoff` |
//!
//! ```text
//! cargo run --example own_filter                  # with own_filter/rules.yaml
//! cargo run --example own_filter -- diana.yaml
//! curl -i -H 'x-api-key: the-key-of-acme-1' -X POST http://127.0.0.1:8080/codes/555-1234
//! ```

mod api_keys;
pub(crate) mod backoff;

use api_keys::ApiKeys;
use diana::config::Sources;
use diana::rules::{Document, Registry, RuleFile};
use diana::{EngineOptions, Reloader};
use diana_gateway::Gateway;
use diana_gateway::section::GatewaySection;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

// docs: begin
#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("own_filter/rules.yaml"));
    match serve(&path).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.to_string().trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Returns the names that a rule file may use: Diana's, and those of this program.
pub(crate) fn registry() -> Registry {
    let mut registry = diana::registry();
    registry.section::<GatewaySection>();
    registry.section::<ApiKeys>();
    backoff::register(&mut registry);
    registry
}

/// Serves until a stop signal.
async fn serve(path: &Path) -> Result<(), Box<dyn Error>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't read {name}: {error}"))?;
    // All problems of the file in one error, each with its line.
    let file = RuleFile::read(&Document::new(&name, text), &registry())?;
    if let Some(warnings) = &file.warnings {
        eprint!("{warnings}");
    }
    let shared = match &file.store.redis {
        Some(section) => Some(diana::connect(section).await?),
        None => None,
    };
    let engine = EngineOptions::of(&file).build_with(&file, shared.clone());

    let mut gateway = Gateway::new(&file, engine.clone())?;
    if let Some(api_keys) = file.section::<ApiKeys>()? {
        gateway = gateway.filter(api_keys.clone());
    }
    // Rules and permissions that change while the program runs, from this file and from `remote`.
    let sources = Sources::new().local(path).remote_of(&file)?;
    let watch = sources.start(Reloader::new(engine.clone(), registry())).await?;
    let running = gateway.start()?;
    println!("listening on {:?}", running.addresses());

    stop_signal().await?;
    drop(watch);
    // Drains the requests in flight, at most for `timeouts.stop`.
    tokio::task::spawn_blocking(|| running.stop()).await?;
    engine.background_tasks_finished().await;
    if let Some(shared) = shared {
        shared.close().await;
    }
    Ok(())
}

/// Waits for Ctrl-C, or for SIGTERM, which systemd and containers send.
async fn stop_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed,
        _ = terminate.recv() => Ok(()),
    }
}
// docs: end
