//! Gradient2: how many requests a service takes at a time without making them queue, from how long its answers take.
//!
//! # How it works
//! A service that is not full answers in the same time however many it serves. Once it is full, requests queue in it, and the
//! latency grows with their number: of twice as many as it has room for, each takes twice as long. So the ratio of the
//! latency without a queue to that of now, the *gradient*, is the share of those in flight that are served rather than queued:
//!
//! ```text
//!  gradient  = tolerance × baseline / latency, within 0.5 ..= 1        tolerance = 1.5
//!  new limit = limit × gradient + √limit                               room for a short queue, so that it can grow
//!  limit     = 0.8 × limit + 0.2 × new limit                           step by step
//! ```
//!
//! That is Netflix's [concurrency-limits](https://github.com/Netflix/concurrency-limits). Samples are gathered for a tenth of
//! a second, ten at least, and their mean is what counts: of single latencies, which scatter, the slow ones would weigh more
//! than the quick ones, since a gradient is never above 1.
//!
//! # Where the original fails
//! Its baseline is the mean of *all* latencies of late. Under lasting overload that becomes the latency of the overload
//! itself, the gradient becomes 1, and the limit grows to its bound (its pull request 134, and issue 165 about the drift). And
//! where fewer than half of the limit are in flight the limit stays as it is, however slow the answers are. So here:
//!
//! 1. The baseline is learned only from times in which fewer than half of the limit were in flight, and latency was within the
//!    tolerance: no queue of our making is in it.
//! 2. While the limit is in use all the time there are no such times. So every ten seconds (a hundred latencies, if that is
//!    longer) the limit is *probed*: cut to a quarter until ten answers have come that began under it. Their mean is the
//!    baseline from then on. The limit settles below 2.5 times what the service has room for (1.5 × room + √limit), so a
//!    quarter of it makes no queue.
//! 3. Slow answers lower the limit also while few are in flight; quick ones raise it only while at least half of it is in use.
//! 4. Of answers that were none (time-outs, 5xx), each lowers the gradient by its share of all answers.

use super::{Sample, SampleKind};
use crate::Timestamp;
use std::time::Duration;

const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
/// The least gradient: the limit is never cut by more than a tenth at a time.
const STEEPEST: f64 = 0.5;
/// How many windows the baseline remembers.
const BASELINE_WINDOWS: f64 = 600.0;
/// How long samples are gathered, and how many at least.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_SAMPLES: u32 = 10;
/// How often the limit is probed while it is in use all the time, and in latencies; the first time, earlier.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_EVERY_LATENCIES: f64 = 100.0;
const FIRST_PROBE: Duration = Duration::from_secs(1);
/// To which part the limit is cut.
const PROBE_PART: f64 = 0.25;
const PROBE_SAMPLES: u32 = 10;
/// A probe ends after so long with what it has.
const LONGEST_PROBE: Duration = Duration::from_secs(5);

/// Gradient2, with its bounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gradient2 {
    min: u64,
    initial: u64,
    max: u64,
}

/// What has been learned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gradient2State {
    pub(super) limit: f64,
    /// The latency without a queue, in seconds; 0 while unknown.
    pub(super) baseline: f64,
    /// How many windows the baseline is the mean of, until they are enough.
    windows: f64,
    window: Window,
    /// Since when the limit has been in use all the time, and was not probed.
    in_use_since: Option<Timestamp>,
    has_adapted: bool,
    has_probed: bool,
    probe: Option<Probe>,
}

/// Samples that are gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Window {
    began: Timestamp,
    seconds: f64,
    answered: u32,
    dropped: u32,
    most_in_flight: u64,
}

/// A time in which the limit is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    began: Timestamp,
    limit: f64,
    seconds: f64,
    answered: u32,
}

impl Gradient2 {
    /// A limit from `min` to `max` that begins with `initial`.
    pub(super) fn new(min: u64, initial: u64, max: u64) -> Self {
        Self { min, initial, max }
    }

    pub(super) fn initial(&self) -> u64 {
        self.initial
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn fresh(&self) -> Gradient2State {
        Gradient2State { limit: float(self.initial), ..Gradient2State::default() }
    }

    /// Learns from one answer.
    pub(super) fn learn(&self, state: &mut Gradient2State, now: Timestamp, sample: &Sample) {
        let in_flight = u64::try_from(sample.receipt.mark()).unwrap_or(u64::MAX);
        if state.probe.is_some() {
            self.probe(state, now, sample, in_flight);
            return;
        }
        let window = &mut state.window;
        if window.answered + window.dropped == 0 {
            window.began = now;
        }
        match sample.kind {
            SampleKind::Answered => {
                window.answered += 1;
                window.seconds += sample.latency.as_secs_f64();
            }
            SampleKind::Dropped => window.dropped += 1,
        }
        window.most_in_flight = window.most_in_flight.max(in_flight);
        if window.answered + window.dropped >= WINDOW_SAMPLES && now.since(window.began) >= WINDOW {
            let window = std::mem::take(window);
            self.adapt(state, now, &window);
        }
    }

    /// Adapts the limit to what was seen in one window.
    fn adapt(&self, state: &mut Gradient2State, now: Timestamp, window: &Window) {
        state.has_adapted = true;
        let dropped = f64::from(window.dropped) / f64::from(window.answered + window.dropped);
        let is_in_use = float(window.most_in_flight) >= state.limit / 2.0;
        let mut gradient = 1.0_f64;
        if window.answered > 0 {
            let latency = (window.seconds / f64::from(window.answered)).max(f64::MIN_POSITIVE);
            state.teach(latency, is_in_use);
            gradient = TOLERANCE * state.baseline / latency;
        }
        let gradient = (gradient.min(1.0) * (1.0 - dropped)).max(STEEPEST);
        let new = state.limit * gradient + state.limit.sqrt();
        if is_in_use || new < state.limit {
            let smooth = state.limit * (1.0 - SMOOTHING) + new * SMOOTHING;
            state.limit = smooth.clamp(float(self.min), float(self.max));
        }
        if !is_in_use {
            state.in_use_since = None;
            return;
        }
        let since = *state.in_use_since.get_or_insert(window.began);
        if now.since(since) >= state.probe_every() {
            let limit = (state.limit * PROBE_PART).max(float(self.min));
            state.probe = Some(Probe { began: now, limit, seconds: 0.0, answered: 0 });
        }
    }

    /// Takes the baseline from answers that began under the lower limit.
    fn probe(&self, state: &mut Gradient2State, now: Timestamp, sample: &Sample, in_flight: u64) {
        let Some(mut probe) = state.probe else { return };
        let began = sample.receipt.at() >= probe.began && float(in_flight) <= probe.limit.floor().max(1.0);
        if began && sample.kind == SampleKind::Answered {
            probe.seconds += sample.latency.as_secs_f64();
            probe.answered += 1;
        }
        state.probe = Some(probe);
        if probe.answered < PROBE_SAMPLES && now.since(probe.began) < LONGEST_PROBE {
            return;
        }
        if probe.answered > 0 {
            state.baseline = (probe.seconds / f64::from(probe.answered)).max(f64::MIN_POSITIVE);
            state.windows = BASELINE_WINDOWS;
        }
        (state.probe, state.in_use_since, state.has_probed) = (None, Some(now), true);
        state.window = Window::default();
    }
}

impl Gradient2State {
    /// How many may be in flight.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the bounds, which are counts")]
    pub fn limit(&self) -> u64 {
        (self.probe.map_or(self.limit, |probe| probe.limit) as u64).max(1)
    }

    /// Whether there is much to remember.
    pub(super) fn has_learned(&self) -> bool {
        self.has_adapted
    }

    fn teach(&mut self, latency: f64, is_in_use: bool) {
        if self.windows == 0.0 {
            // Better than nothing; the first probe will tell.
            (self.baseline, self.windows) = (latency, 1.0);
            return;
        }
        let is_quiet = !is_in_use && latency <= self.baseline * TOLERANCE;
        // Quicker than ever without a queue: that needs no proof, and is no outlier, being a mean.
        if is_quiet || latency < self.baseline {
            self.windows = (self.windows + 1.0).min(BASELINE_WINDOWS);
            self.baseline += (latency - self.baseline) / ((self.windows + 1.0) / 2.0).max(1.0);
        }
        if latency * 2.0 < self.baseline {
            // Back from a slow time: the mean would take too long.
            self.baseline *= 0.95;
        }
    }

    fn probe_every(&self) -> Duration {
        if !self.has_probed {
            return FIRST_PROBE;
        }
        let latencies = Duration::try_from_secs_f64(self.baseline * PROBE_EVERY_LATENCIES).unwrap_or(PROBE_EVERY);
        PROBE_EVERY.max(latencies)
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2⁵³")]
fn float(count: u64) -> f64 {
    count as f64
}
