//! Samples the machine's load in a thread, for `load` rules.
//!
//! # How it works
//! Four times per second it reads the statistics of Linux (`/proc/stat`, `/proc/meminfo`), and those of the process's
//! cgroups (v2) if these have limits, as in containers: the highest usage counts. On other systems CPU and memory are
//! unknown, which is logged once; rules about connections and traffic work everywhere.
//!
//! The thread only runs while an active rule needs it.

mod cgroup;
mod machine;

use diana::Engine;
use diana::{Clock, SystemClock};
use machine::Machine;
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

/// The sampling interval: short enough to notice an overload before queues are long, long enough for a negligible cost.
const EVERY: Duration = Duration::from_millis(250);

/// Samples the machine's load for an engine, while a rule of the engine needs it.
///
/// ```
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana::Engine;
/// use diana_http::LoadSampler;
/// use std::sync::Arc;
///
/// let rules = "rules: [{name: overload, load: {cpu: 85%, memory: 90%}}]";
/// let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default())?;
/// let engine = Arc::new(Engine::new(&file));
///
/// let sampler = LoadSampler::new(&engine);
/// assert!(sampler.is_running());
///
/// let without = RuleFile::read(&Document::new("diana.yaml", "rules: []"), &Registry::default())?;
/// engine.set_rules(&without);
/// sampler.follow(); // say so whenever the rules have changed
/// assert!(!sampler.is_running());
/// # Ok::<(), diana::rules::Problems>(())
/// ```
///
/// Dropping it stops the thread; so does dropping the engine.
pub struct LoadSampler {
    engine: Weak<Engine>,
    running: Mutex<Option<SamplerState>>,
}

/// The thread, and its stop signal.
struct SamplerState {
    ends: Arc<AtomicBool>,
    thread: Thread,
}

impl LoadSampler {
    /// Creates a sampler for `engine`, and starts it if the rules need it.
    pub fn new(engine: &Arc<Engine>) -> Self {
        let sampler = Self { engine: Arc::downgrade(engine), running: Mutex::default() };
        sampler.follow();
        sampler
    }

    /// Starts or stops the thread as the active rules require.
    pub fn follow(&self) {
        let mut running = self.running.lock();
        let asks = self.engine.upgrade().is_some_and(|engine| asks(&engine));
        match (&*running, asks) {
            (Some(_), false) => *running = None,
            (None, true) => *running = SamplerState::start(Weak::clone(&self.engine)),
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Returns `true` if the thread is running.
    pub fn is_running(&self) -> bool {
        self.running.lock().is_some()
    }
}

impl SamplerState {
    fn start(engine: Weak<Engine>) -> Option<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("diana-load".to_owned()).spawn(move || look(&engine, &told));
        match thread {
            Ok(thread) => Some(Self { ends, thread: thread.thread().clone() }),
            Err(error) => {
                tracing::error!(%error, "no thread to look at the machine's load: `load` rules refuse nobody");
                None
            }
        }
    }
}

impl Drop for SamplerState {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn asks(engine: &Engine) -> bool {
    engine.rules().rules().iter().any(|rule| rule.rule().load.is_some())
}

fn look(engine: &Weak<Engine>, ends: &AtomicBool) {
    let mut machine = Machine::default();
    if !machine.is_known() {
        tracing::warn!(
            "nothing is known of this system's processors and memory: `load` goes by connections and traffic"
        );
    }
    while !ends.load(Ordering::Acquire) {
        // Held only briefly, so that the owner's drop of the engine takes effect immediately.
        let Some(engine) = engine.upgrade() else { return };
        let seen = machine.look(SystemClock.now());
        let load = engine.load();
        if let Some(cpu) = seen.cpu {
            load.set_cpu(cpu);
        }
        if let Some(memory) = seen.memory {
            load.set_memory(memory);
        }
        load.tick(engine.now());
        drop(engine);
        SystemClock.park(EVERY);
    }
}

impl fmt::Debug for LoadSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadSampler").field("is_running", &self.is_running()).finish_non_exhaustive()
    }
}
