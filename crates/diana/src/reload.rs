//! An engine that follows its sources: whatever they bring is checked, and put in force.

use crate::Engine;
use diana_core::Store;
use diana_rules::{Apply, Document, Problem, Problems, Registry, Remote, RemoteError, RuleFile, Sources, Span};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Puts the documents that [`Sources`] bring in force in an [`Engine`].
///
/// Rules take effect at once, with the counts that they have. What the file says about the machine (`gateway`, `admin`,
/// `store`, `remote`) takes effect with the next start.
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
    /// What is brought is put in force in `engine`, and may name what `registry` knows.
    pub fn new(engine: Arc<Engine<S>>, registry: Registry) -> Arc<Self> {
        Arc::new(Self { engine, registry, in_force: Mutex::default() })
    }

    /// The file in force, with the rules of the configuration centre if it has any.
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
            // Which rules are shared follows from it, and their counts would begin anew on the way.
            let what = "`store` can't gain or lose its `redis` while the program runs";
            let problem = Problem::new(Span::default(), what).expected("restart it, or put `store` back");
            return Err(local.or(remote).map_or_else(|| Document::new("rules", ""), Clone::clone).problems([problem]));
        }
        self.engine.set_rules(&file);
        *self.in_force.lock() = Some(Arc::new(file));
        Ok(())
    }
}

/// The sources of a file: the file itself, and the configuration centre that its `remote` names.
pub fn sources(path: &Path, file: &RuleFile) -> Result<Sources, RemoteError> {
    with_remote(Sources::new().local(path), file)
}

/// The sources of a file that was read from a document that can't change: that document, and the configuration centre that its
/// `remote` names.
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
    let keep = section.keep.as_ref().map(Into::into).or_else(diana_rules::default_keep);
    let sources = sources.remote(remote).when_down(section.when_down);
    Ok(match keep {
        Some(folder) => sources.keep(folder),
        None => sources,
    })
}
