//! Hot reload: documents from the sources are checked, then loaded into the engine.

use crate::Engine;
use diana_config::{Apply, Remote, RemoteError, Sources};
use diana_core::Store;
use diana_rules::{Document, Problem, Problems, Registry, RuleFile, Span};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Loads the documents of [`Sources`] into an [`Engine`].
///
/// Rules take effect immediately and keep their counts. Settings of the process (`gateway`, `admin`, `store`, `remote`)
/// take effect at the next start.
///
/// ```no_run
/// use diana::rules::{Document, RuleFile};
/// use diana::{Engine, Reloader, sources};
/// use std::sync::Arc;
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::path::Path::new("diana.yaml");
/// let document = Document::new("diana.yaml", std::fs::read_to_string(path)?);
/// let file = RuleFile::read(&document, &diana::registry())?;
/// let engine = Arc::new(Engine::new(&file));
/// let running = sources(path, &file)?.start(Reloader::new(Arc::clone(&engine), diana::registry())).await?;
/// println!("{:?}", running.status().in_force);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reloader<S = diana_core::MemoryStore> {
    engine: Arc<Engine<S>>,
    registry: Registry,
    in_force: Mutex<Option<Arc<RuleFile>>>,
}

impl<S: Store + 'static> Reloader<S> {
    /// Creates a reloader for `engine`; rule files may use all names that are in `registry`.
    pub fn new(engine: Arc<Engine<S>>, registry: Registry) -> Arc<Self> {
        Arc::new(Self { engine, registry, in_force: Mutex::default() })
    }

    /// Returns the active file, including the rules of the config server, if any.
    pub fn file(&self) -> Option<Arc<RuleFile>> {
        self.in_force.lock().clone()
    }
}

impl<S: Store + 'static> Apply for Reloader<S> {
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems> {
        let own = match local {
            Some(document) => RuleFile::read(document, &self.registry)?,
            None => RuleFile::default(),
        };
        let file = match remote {
            Some(document) => own.with_remote(document, &self.registry)?,
            None => own,
        };
        if file.store.redis.is_some() != self.engine.shared().is_some() {
            // It determines which rules are shared, and a change would reset their counts.
            let what = "`store` can't gain or lose its `redis` while the program runs";
            let problem = Problem::new(Span::default(), what).expected("restart it, or put `store` back");
            return Err(local.or(remote).map_or_else(|| Document::new("rules", ""), Clone::clone).problems([problem]));
        }
        self.engine.set_rules(&file);
        *self.in_force.lock() = Some(Arc::new(file));
        Ok(())
    }
}

/// Returns the sources of a file: the file itself, and the config server in its `remote` section.
pub fn sources(path: &Path, file: &RuleFile) -> Result<Sources, RemoteError> {
    with_remote(Sources::new().local(path), file)
}

/// Returns the sources of a file that was read from an immutable document: that document, and the config server in its
/// `remote` section.
pub fn sources_of(document: &Document, file: &RuleFile) -> Result<Sources, RemoteError> {
    with_remote(Sources::new().document(document.clone()), file)
}

fn with_remote(sources: Sources, file: &RuleFile) -> Result<Sources, RemoteError> {
    let Some(section) = &file.remote else { return Ok(sources) };
    let mut remote = Remote::parse(section.from.reveal())?;
    if let Some(token) = &section.token {
        remote = remote.token(token.reveal());
    }
    if let Some(poll) = section.poll {
        remote = remote.poll(poll);
    }
    if let Some(long_poll) = section.long_poll {
        remote = remote.long_poll(long_poll);
    }
    if let Some(timeout) = section.timeout {
        remote = remote.timeout(timeout);
    }
    if let Some(format) = section.format {
        remote = remote.format(format);
    }
    let keep = section.keep.as_ref().map(Into::into).or_else(diana_config::default_keep);
    let sources = sources.remote(remote).when_down(section.when_down);
    Ok(match keep {
        Some(folder) => sources.keep(folder),
        None => sources,
    })
}
