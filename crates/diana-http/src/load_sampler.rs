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

use diana::{Clock, SystemClock};
use diana::{Engine, WeakEngine};
use machine::Machine;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The sampling interval: short enough to notice an overload before queues are long, long enough for a negligible cost.
const INTERVAL: Duration = Duration::from_millis(250);

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
/// let engine = Engine::new(&file);
///
/// let sampler = LoadSampler::new(&engine);
/// assert!(sampler.is_running());
///
/// let without = RuleFile::read(&Document::new("diana.yaml", "rules: []"), &Registry::default())?;
/// engine.set_rules(&without);
/// sampler.update(); // to be called whenever the rules change
/// assert!(!sampler.is_running());
/// # Ok::<(), diana::rules::Problems>(())
/// ```
///
/// Dropping it stops the thread; so does dropping the engine.
pub struct LoadSampler {
    engine: WeakEngine,
    thread: Mutex<Option<SamplerThread>>,
}

/// The thread, and its stop signal.
struct SamplerThread {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl LoadSampler {
    /// Creates a sampler for `engine`, and starts it if the rules need it.
    pub fn new(engine: &Engine) -> Self {
        let sampler = Self { engine: engine.downgrade(), thread: Mutex::default() };
        sampler.update();
        sampler
    }

    /// Starts or stops the thread as the active rules require.
    pub fn update(&self) {
        let mut thread = self.thread.lock();
        let is_needed = self.engine.upgrade().is_some_and(|engine| needs_load(&engine));
        match (&*thread, is_needed) {
            (Some(_), false) => *thread = None,
            (None, true) => *thread = SamplerThread::start(self.engine.clone()),
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Returns `true` if the thread is running.
    pub fn is_running(&self) -> bool {
        self.thread.lock().is_some()
    }
}

impl SamplerThread {
    fn start(engine: WeakEngine) -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("diana-load".to_owned()).spawn(move || run(&engine, &is_stopping));
        match thread {
            Ok(thread) => Some(Self { stop, thread: thread.thread().clone() }),
            Err(error) => {
                tracing::error!(%error, "cannot start the load sampler: `load` rules deny no requests");
                None
            }
        }
    }
}

impl Drop for SamplerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn needs_load(engine: &Engine) -> bool {
    engine.rules().rules().iter().any(|rule| rule.rule().load.is_some())
}

fn run(engine: &WeakEngine, stop: &AtomicBool) {
    let mut machine = Machine::default();
    if !machine.is_known() {
        tracing::warn!(
            "cannot read the CPU and memory usage of this system: `load` rules only use connections and traffic"
        );
    }
    while !stop.load(Ordering::Acquire) {
        // Held only briefly, so that the owner's drop of the engine takes effect immediately.
        let Some(engine) = engine.upgrade() else { return };
        let sample = machine.sample(SystemClock.now());
        let load = engine.load();
        if let Some(cpu) = sample.cpu {
            load.set_cpu(cpu);
        }
        if let Some(memory) = sample.memory {
            load.set_memory(memory);
        }
        load.tick(engine.now());
        drop(engine);
        SystemClock.park(INTERVAL);
    }
}

impl fmt::Debug for LoadSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadSampler").field("is_running", &self.is_running()).finish_non_exhaustive()
    }
}
