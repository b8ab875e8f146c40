//! Hot reload: documents from the sources are checked, then loaded into the engine.

use crate::Engine;
use diana_config::Apply;
use diana_rules::document::Span;
use diana_rules::{Document, Problem, Problems, Registry, RuleFile};
use parking_lot::Mutex;
use std::sync::Arc;

/// Loads the documents of [`Sources`](diana_config::Sources) into an [`Engine`].
///
/// Rules take effect immediately and keep their counts. Settings of the process (`gateway`, `services`, `admin`, `store`,
/// `remote`) are up to the caller; the program `diana` applies the upstreams, the routes and the tokens of the admin API, and
/// reports which other changes need a restart.
///
/// ```no_run
/// use diana::config::Sources;
/// use diana::rules::{Document, RuleFile};
/// use diana::{Engine, Reloader};
/// use std::sync::Arc;
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let document = Document::new("diana.yaml", std::fs::read_to_string("diana.yaml")?);
/// let file = RuleFile::read(&document, &diana::registry())?;
/// let engine = Engine::new(&file);
/// let sources = Sources::new().local("diana.yaml").remote_of(&file)?;
/// let running = sources.start(Reloader::new(engine.clone(), diana::registry())).await?;
/// println!("{:?}", running.status().active);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reloader {
    engine: Engine,
    registry: Registry,
    active: Mutex<Option<Arc<RuleFile>>>,
}

impl Reloader {
    /// Creates a reloader for `engine`; rule files may use all names that are in `registry`.
    pub fn new(engine: Engine, registry: Registry) -> Arc<Self> {
        Arc::new(Self { engine, registry, active: Mutex::default() })
    }

    /// Returns the active file, including the rules of the config server, if any.
    pub fn file(&self) -> Option<Arc<RuleFile>> {
        self.active.lock().clone()
    }
}

impl Apply for Reloader {
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems> {
        let local_file = match local {
            Some(document) => RuleFile::read(document, &self.registry)?,
            None => RuleFile::default(),
        };
        let file = match remote {
            Some(document) => local_file.with_remote(document, &self.registry)?,
            None => local_file,
        };
        if file.store.redis.is_some() != self.engine.has_shared() {
            // `store.redis` determines which rules are shared, and a change would reset their counts.
            let message = "`store.redis` can't be added or removed while the program runs";
            let problem = Problem::new(Span::default(), message).expected("restart the program, or revert `store`");
            return Err(local.or(remote).map_or_else(|| Document::new("rules", ""), Clone::clone).problems([problem]));
        }
        self.engine.set_rules(&file);
        *self.active.lock() = Some(Arc::new(file));
        Ok(())
    }
}
