//! A limit on repeated warnings: a client must not be able to fill a log.

use diana::{InvalidQuota, Limiter, Quota};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The number of times in a row that one warning or error is logged. After that it is logged once a second.
pub const BURST: u64 = 10;

/// The state of each call site. Their number is that of the log calls in the program.
#[derive(Debug)]
pub(super) struct Repeats {
    quota: Quota,
    callsites: Mutex<HashMap<Identifier, Arc<CallSite>>>,
}

#[derive(Debug)]
struct CallSite {
    limiter: Limiter,
    suppressed: AtomicU64,
    metadata: &'static Metadata<'static>,
}

/// The number of suppressed lines of one call site.
pub(super) struct Suppressed {
    pub(super) lines: u64,
    pub(super) metadata: &'static Metadata<'static>,
}

impl Repeats {
    pub(super) fn new() -> Result<Self, InvalidQuota> {
        let quota = Quota::per_second(1)?.with_burst(BURST)?;
        Ok(Self { quota, callsites: Mutex::default() })
    }

    /// Returns whether an event of this call site may be logged now.
    fn check(&self, metadata: &'static Metadata<'static>) -> bool {
        // Levels are in descending order: `ERROR` is the least.
        if *metadata.level() > Level::WARN {
            return true;
        }
        let callsite = Arc::clone(self.callsites.lock().entry(metadata.callsite()).or_insert_with(|| {
            let limiter = Limiter::new(self.quota);
            Arc::new(CallSite { limiter, suppressed: AtomicU64::new(0), metadata })
        }));
        let may_log = callsite.limiter.check().is_granted();
        if !may_log {
            callsite.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        may_log
    }

    /// Returns the lines suppressed since the last call.
    pub(super) fn take_suppressed(&self) -> Vec<Suppressed> {
        let callsites = self.callsites.lock().values().cloned().collect::<Vec<_>>();
        let suppressed = callsites.into_iter().map(|callsite| Suppressed {
            lines: callsite.suppressed.swap(0, Ordering::Relaxed),
            metadata: callsite.metadata,
        });
        suppressed.filter(|suppressed| suppressed.lines > 0).collect()
    }

    pub(super) fn layer(self: Arc<Self>) -> RepeatsLayer {
        RepeatsLayer(self)
    }
}

/// Suppresses events that repeat too often.
pub(super) struct RepeatsLayer(Arc<Repeats>);

impl<S: Subscriber> Layer<S> for RepeatsLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.check(event.metadata())
    }
}
