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
use space_saving::MAX_TEXT;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use windows::{PERIOD_SECONDS, Windows};

/// The maximum number of rules whose keys are recorded at the same time: with at most 270 KiB each, 68 MiB.
pub const MAX_RECORDED: usize = 256;
/// The maximum number of denied keys of one rule that are logged in a minute.
pub const MAX_LOGGED: usize = 10;
/// The length of a period, in nanoseconds.
const PERIOD_NANOS: u64 = PERIOD_SECONDS * 1_000_000_000;
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

/// The denials of a minute.
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
    last_denied: LastDenied,
}

/// The key that was denied last. Its next denials are counted here, which costs no more than a comparison of the key. They are
/// added to the windows before these are changed or read.
#[derive(Debug)]
struct LastDenied {
    /// When the period of that denial begins, in nanoseconds.
    from: u64,
    /// The number of denials that are not in the windows yet.
    again: u64,
    hash: u64,
    /// The length of the key; [`NO_KEY`] if there is none, or if it is too long to be compared.
    length: usize,
    text: [u8; MAX_TEXT],
}

/// A length that no key has.
const NO_KEY: usize = usize::MAX;

impl LastDenied {
    const NONE: Self = Self { from: 0, again: 0, hash: 0, length: NO_KEY, text: [0; MAX_TEXT] };

    fn new(key: &[u8], hash: u64, period: u64) -> Self {
        let mut text = [0; MAX_TEXT];
        let Some(kept) = text.get_mut(..key.len()) else { return Self::NONE };
        kept.copy_from_slice(key);
        Self { from: period * PERIOD_NANOS, again: 0, hash, length: key.len(), text }
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }

    /// Returns `true` if it is this key, and the time is in the same period.
    #[inline]
    fn is(&self, key: &[u8], now: Timestamp) -> bool {
        // A time before the period wraps around.
        if key.len() != self.length || now.as_nanos().wrapping_sub(self.from) >= PERIOD_NANOS {
            return false;
        }
        // The first and the last eight bytes are all of a short key; comparing them is cheaper than a call.
        if let (8..=16, Some(start), Some(end)) = (key.len(), key.first_chunk::<8>(), key.last_chunk::<8>()) {
            return self.text[..8] == *start && self.text[key.len() - 8..key.len()] == *end;
        }
        self.text() == key
    }
}

impl KeyRecorder {
    /// Records a request. Returns `true` if it is to be logged: it is the first one of its key in a minute.
    #[inline]
    pub(super) fn record(&self, outcome: KeyOutcome, key: &[u8], weight: u64, now: Timestamp) -> bool {
        // A client over its limit is denied many times in a row.
        if outcome == KeyOutcome::Denied && weight == 1 && self.record_again(key, now) {
            return false;
        }
        self.record_any(outcome, key, weight, now)
    }

    /// Records a denial, if its key is the one that was denied last. Else it returns `false`.
    #[inline]
    fn record_again(&self, key: &[u8], now: Timestamp) -> bool {
        let mut lists = self.0.lock();
        let Some(lists) = &mut *lists else { return false };
        let is_again = lists.last_denied.is(key, now);
        lists.last_denied.again += u64::from(is_again);
        is_again
    }

    #[inline(never)]
    fn record_any(&self, outcome: KeyOutcome, key: &[u8], weight: u64, now: Timestamp) -> bool {
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
        lists.add_last_denied();
        // Times may be out of order, since threads record them after different waits.
        if period / PERIODS_OF_MINUTE > lists.minute {
            lists.finish_minute(period / PERIODS_OF_MINUTE);
        }
        let windows = lists.windows[outcome as usize].get_or_insert_with(|| Windows::new(period));
        let is_new = windows.add(period, hash, key, weight);
        if outcome == KeyOutcome::Denied {
            lists.denied += 1;
            lists.last_denied = LastDenied::new(key, hash, period);
        }
        is_new && lists.log(outcome, hash)
    }

    /// Returns the heaviest keys of a window.
    pub(super) fn top(&self, outcome: KeyOutcome, window: Window, limit: usize, now: Timestamp) -> TopKeys {
        let mut lists = self.0.lock();
        let Some(lists) = &mut *lists else { return TopKeys::default() };
        lists.add_last_denied();
        let Some(windows) = &mut lists.windows[outcome as usize] else { return TopKeys::default() };
        windows.advance(period(now));
        windows.top(window, limit)
    }

    /// Returns the last minute that is over, if not all of its denials were logged at once; each minute once. Frees the
    /// memory of a rule without requests for an hour.
    pub(super) fn finish_minute(&self, now: Timestamp) -> Option<DeniedMinute> {
        let mut guard = self.0.lock();
        let lists = guard.as_mut()?;
        lists.add_last_denied();
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
            last_denied: LastDenied::NONE,
        }))
    }

    /// Adds the denials of the last key to the windows, before these are changed or read.
    fn add_last_denied(&mut self) {
        if let Some(windows) = &mut self.windows[KeyOutcome::Denied as usize]
            && self.last_denied.again > 0
        {
            windows.add_to_current(self.last_denied.hash, self.last_denied.text(), self.last_denied.again);
            self.denied += self.last_denied.again;
        }
        (self.last_denied.length, self.last_denied.again) = (NO_KEY, 0);
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
            // A minute that was not read yet is added to this one.
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
    now.as_nanos() / PERIOD_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One step of a random history.
    #[derive(Clone, Debug)]
    enum Step {
        Record {
            outcome: KeyOutcome,
            key: usize,
            weight: u64,
        },
        Top,
        FinishMinute,
        /// The time changes by seconds, also backwards.
        Pause(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let outcomes = prop::sample::select(vec![
            KeyOutcome::Denied,
            KeyOutcome::Denied,
            KeyOutcome::Denied,
            KeyOutcome::Delayed,
            KeyOutcome::Allowed,
        ]);
        let record = (outcomes, 0_usize..6, prop::sample::select(vec![1_u64, 1, 1, 64]));
        prop_oneof![
            12 => record.prop_map(|(outcome, key, weight)| Step::Record { outcome, key, weight }),
            1 => Just(Step::Top),
            1 => Just(Step::FinishMinute),
            2 => (-15_i64..40).prop_map(Step::Pause),
        ]
    }

    proptest! {
        /// The comparison with the last denied key changes no count and no line of the log.
        #[test]
        fn a_key_that_is_denied_again_is_counted_like_any_other(steps in prop::collection::vec(step(), 1..200)) {
            // Shorter than eight bytes, up to 16, longer, as long as the text that is kept, and longer than that.
            let long = |length, last| [vec![b'k'; length - 1], vec![last]].concat();
            let keys = [vec![], long(3, b'a'), long(15, b'a'), long(15, b'b'), long(MAX_TEXT, b'a'), long(MAX_TEXT + 1, b'a')];
            let (fast, plain) = (KeyRecorder::default(), KeyRecorder::default());
            let mut seconds = 1_000_i64;
            for step in steps {
                let now = Timestamp::from_secs(seconds.unsigned_abs());
                match step {
                    Step::Record { outcome, key, weight } => {
                        let is_logged = plain.record_any(outcome, &keys[key], weight, now);
                        prop_assert_eq!(fast.record(outcome, &keys[key], weight, now), is_logged);
                    }
                    Step::Top => {
                        for window in [Window::Minute, Window::Hour] {
                            let top = |recorder: &KeyRecorder| recorder.top(KeyOutcome::Denied, window, 10, now);
                            prop_assert_eq!(top(&fast), top(&plain));
                        }
                    }
                    Step::FinishMinute => prop_assert_eq!(fast.finish_minute(now), plain.finish_minute(now)),
                    Step::Pause(time) => seconds += time,
                }
            }
            let now = Timestamp::from_secs(seconds.unsigned_abs());
            for outcome in [KeyOutcome::Denied, KeyOutcome::Delayed, KeyOutcome::Allowed] {
                prop_assert_eq!(fast.top(outcome, Window::Hour, 10, now), plain.top(outcome, Window::Hour, 10, now));
            }
        }
    }
}
