//! Which keys a rule limits: the heaviest keys of the last minute and hour, and which denials are logged.
//!
//! ```text
//!  a denied, delayed or sampled allowed request ──▶ KeyRecorder (one per rule) ──▶ Windows ──▶ SpaceSaving
//!                                                    first of its key?               /top, the dashboard, `diana top`
//!                                                    ──▶ the log
//! ```
//!
//! # What always holds (the tests below and in the submodules; diana: tests/it/top_keys.rs)
//! - Memory is bounded: a rule has at most 64 counters in each of 19 periods, for each of three lists, and at most
//!   [`MAX_RECORDED`] rules have any. Rules without requests for an hour have none.
//! - A count is wrong by at most the reported error: a 64th of the total in the last minute, a 32nd in the last hour.
//! - Of each key at most one denial a minute is to be logged, and of each rule at most [`MAX_LOGGED`].

mod sampling;
mod space_saving;
mod windows;

pub use sampling::sample;
pub use windows::{TopKey, TopKeys, Window};

use diana_core::Timestamp;
use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use windows::{PERIOD_SECONDS, Windows};

/// The maximum number of rules whose keys are recorded at the same time: with at most 270 KiB each, 68 MiB.
pub const MAX_RECORDED: usize = 256;
/// The maximum number of denied keys of one rule that are logged in a minute.
pub const MAX_LOGGED: usize = 10;
/// The periods of a minute.
const PERIODS_OF_MINUTE: u64 = 60 / PERIOD_SECONDS;

/// The number of rules whose keys are recorded, in this process.
static RECORDED: AtomicUsize = AtomicUsize::new(0);
/// Hashes keys, at random for each process: clients can't make their keys collide.
static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// Which requests of a key are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyOutcome {
    /// Denied or rerouted by the rule, or denied if the rule were no shadow rule.
    Denied,
    /// Allowed after a wait.
    Delayed,
    /// Allowed at once. The counts are estimated from a sample.
    Allowed,
}

impl KeyOutcome {
    const COUNT: usize = 3;
}

/// What was denied in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeniedMinute {
    /// The number of denials.
    pub denied: u64,
    /// The key with the most denials.
    pub heaviest: Option<TopKey>,
}

/// Records the keys of one rule.
#[derive(Debug, Default)]
pub(super) struct KeyRecorder(Mutex<Option<Box<Lists>>>);

#[derive(Debug)]
struct Lists {
    windows: [Option<Windows>; KeyOutcome::COUNT],
    /// The minute that the next three are of.
    minute: u64,
    denied: u64,
    /// The hashes of the keys whose denials, and whose delays, are logged: at most [`MAX_LOGGED`] each.
    logged_denials: SmallVec<[u64; 4]>,
    logged_delays: SmallVec<[u64; 4]>,
    /// The last minute with denials that were not logged.
    finished: Option<DeniedMinute>,
}

impl KeyRecorder {
    /// Records a request. Returns `true` if it is to be logged: it is the first one of its key in a minute.
    pub(super) fn record(&self, outcome: KeyOutcome, key: &[u8], weight: u64, now: Timestamp) -> bool {
        let period = period(now);
        let mut hasher = HASHER.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        let mut lists = self.0.lock();
        let lists = match &mut *lists {
            Some(lists) => lists,
            none => match Lists::start(outcome, period) {
                Some(new) => none.insert(new),
                None => return false,
            },
        };
        // Times may be out of order, since threads record them after different waits.
        if period / PERIODS_OF_MINUTE > lists.minute {
            lists.finish_minute(period / PERIODS_OF_MINUTE);
        }
        let windows = lists.windows[outcome as usize].get_or_insert_with(|| Windows::new(period));
        let is_new = windows.add(period, hash, key, weight);
        lists.denied += u64::from(outcome == KeyOutcome::Denied);
        is_new && lists.log(outcome, hash)
    }

    /// Returns the heaviest keys of a window.
    pub(super) fn top(&self, outcome: KeyOutcome, window: Window, limit: usize, now: Timestamp) -> TopKeys {
        let mut lists = self.0.lock();
        let Some(windows) = lists.as_mut().and_then(|lists| lists.windows[outcome as usize].as_mut()) else {
            return TopKeys::default();
        };
        windows.advance(period(now));
        windows.top(window, limit)
    }

    /// Returns the last minute that is over, if not all of its denials were logged at once; each minute once. Frees the
    /// memory of a rule without requests for an hour.
    pub(super) fn finish_minute(&self, now: Timestamp) -> Option<DeniedMinute> {
        let mut guard = self.0.lock();
        let lists = guard.as_mut()?;
        let minute = period(now) / PERIODS_OF_MINUTE;
        if minute > lists.minute {
            lists.finish_minute(minute);
        }
        let finished = lists.finished.take();
        for windows in lists.windows.iter_mut().flatten() {
            windows.advance(period(now));
        }
        if lists.windows.iter().flatten().all(Windows::is_empty) {
            *guard = None;
        }
        finished
    }
}

impl Lists {
    /// Starts to record a rule, unless too many are recorded.
    #[cold]
    fn start(outcome: KeyOutcome, period: u64) -> Option<Box<Self>> {
        // Rules that only allow requests leave half of the room to those that deny them.
        let max = if outcome == KeyOutcome::Allowed { MAX_RECORDED / 2 } else { MAX_RECORDED };
        let count = |recorded: usize| (recorded < max).then_some(recorded + 1);
        RECORDED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).ok()?;
        Some(Box::new(Self {
            windows: [None, None, None],
            minute: period / PERIODS_OF_MINUTE,
            denied: 0,
            logged_denials: SmallVec::new(),
            logged_delays: SmallVec::new(),
            finished: None,
        }))
    }

    /// Returns `true` if a request whose key is new in this period is to be logged.
    #[cold]
    fn log(&mut self, outcome: KeyOutcome, hash: u64) -> bool {
        let logged = match outcome {
            KeyOutcome::Denied => &mut self.logged_denials,
            KeyOutcome::Delayed => &mut self.logged_delays,
            KeyOutcome::Allowed => return false,
        };
        let is_logged = logged.len() < MAX_LOGGED && !logged.contains(&hash);
        if is_logged {
            logged.push(hash);
        }
        is_logged
    }

    #[cold]
    fn finish_minute(&mut self, minute: u64) {
        if self.denied > self.logged_denials.len() as u64 {
            let first = self.minute * PERIODS_OF_MINUTE;
            let denied = self.windows[KeyOutcome::Denied as usize].as_ref();
            let heaviest = denied.and_then(|windows| windows.heaviest(first..first + PERIODS_OF_MINUTE));
            // A minute that nobody has asked for yet is added to this one.
            let before = self.finished.take().map_or(0, |before| before.denied);
            self.finished = Some(DeniedMinute { denied: before + self.denied, heaviest });
        }
        (self.minute, self.denied) = (minute, 0);
        self.logged_denials.clear();
        self.logged_delays.clear();
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        RECORDED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of the period of a time.
fn period(now: Timestamp) -> u64 {
    now.as_nanos() / (PERIOD_SECONDS * 1_000_000_000)
}
