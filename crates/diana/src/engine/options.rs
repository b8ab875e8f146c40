//! Options of an engine.

use super::cl_throttle::ClThrottleLimits;
use super::local_counts::LocalCounts;
use super::shared_store::{Background, SharedStore};
use super::{ActiveRules, Engine, EngineState, Snapshot};
use crate::RuleSet;
use crate::overload::{LoadMeter, Sheddings};
use arc_swap::ArcSwap;
use diana_core::{Clock, MemoryStore, OnFull, Store, TableOptions};
use diana_rules::RuleFile;
use diana_rules::file::OnFullKeys;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Options of an engine, in addition to those of its file.
///
/// ```
/// use diana::{EngineOptions, ManualClock, TableOptions};
/// use diana::rules::{Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "rules: [{name: everyone, limit: 5/s}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// let engine = EngineOptions::of(&file).clock(ManualClock::new()).build(&file);
/// # let _ = engine;
/// # Ok::<(), diana::rules::Problems>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    table: TableOptions,
    clock: Option<Arc<dyn Clock>>,
}

impl EngineOptions {
    /// Returns the options for the local counts in the file's `store` section.
    pub fn of(file: &RuleFile) -> Self {
        let memory = &file.store.memory;
        let mut table = TableOptions::default();
        if let Some(ceiling) = memory.ceiling {
            table = table.memory(ceiling);
        }
        if let Some(on_full) = memory.on_full {
            table = table.on_full(match on_full {
                OnFullKeys::Share => OnFull::Share,
                OnFullKeys::Deny => OnFull::Deny,
                OnFullKeys::Allow => OnFull::Allow,
                _ => OnFull::default(),
            });
        }
        Self { table, clock: None }
    }

    /// Replaces the system clock, for tests and simulations.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Configures the table of the local counts.
    #[must_use]
    pub fn table(self, table: TableOptions) -> Self {
        Self { table, ..self }
    }

    /// Prepares the engine for the counts of an earlier process, which
    /// [`load_snapshot`](Engine::load_snapshot) then loads. Call it after [`table`](Self::table).
    #[must_use]
    pub fn snapshot(self, snapshot: &Snapshot) -> Self {
        Self { table: self.table.hash_secret(snapshot.secret()), ..self }
    }

    /// Builds an engine that counts everything in this process.
    pub fn build(self, file: &RuleFile) -> Engine {
        self.engine(file, None)
    }

    /// Builds an engine that counts `store: shared` rules in the shared store.
    pub fn build_shared(self, file: &RuleFile, shared: impl Store + 'static) -> Engine {
        self.build_with(file, Some(shared))
    }

    /// Builds an engine with or without a shared store, for programs whose configuration file decides it.
    pub fn build_with(self, file: &RuleFile, shared: Option<impl Store + 'static>) -> Engine {
        let shared = shared.map(|shared| Arc::new(shared) as Arc<dyn SharedStore>);
        if let Some(shared) = &shared {
            shared.configure(file.revision);
        }
        let engine = self.engine(file, shared);
        if let Some(shared) = &engine.state.shared {
            let counts: Weak<LocalCounts> = Arc::downgrade(&engine.state.counts);
            shared.on_reset(counts);
        }
        engine
    }

    fn engine(self, file: &RuleFile, shared: Option<Arc<dyn SharedStore>>) -> Engine {
        let sheddings = Sheddings::default();
        sheddings.set_rules(file);
        let state = EngineState {
            counts: Arc::new(LocalCounts::new(MemoryStore::new(self.table), self.clock)),
            shared,
            background: Background::new(),
            leases: Arc::default(),
            load: LoadMeter::default(),
            sheddings,
            cl_throttle_limits: ClThrottleLimits::default(),
            removed: Mutex::default(),
            saving: Mutex::default(),
        };
        let (rules, state) = (Arc::new(RuleSet::new(file)), Arc::new(state));
        let active = ActiveRules { rules, state: Arc::clone(&state) };
        Engine { rules: Arc::new(ArcSwap::from_pointee(active)), state }
    }
}
