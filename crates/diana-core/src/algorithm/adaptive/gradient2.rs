//! Gradient2: computes from the latency how many requests a service can process at a time without queueing.
//!
//! # How it works
//! A service below its capacity has the same latency for any number of requests. Above it, requests queue in the
//! service, and the latency grows with their number: at twice the capacity, each takes twice as long. So the ratio of
//! the latency without a queue to the current one, the *gradient*, is the share of requests in flight that are served
//! rather than queued:
//!
//! ```text
//!  gradient  = tolerance × baseline / latency, within 0.5 ..= 1        tolerance = 1.5
//!  new limit = limit × gradient + √limit                               space for a short queue, so that it can grow
//!  limit     = 0.8 × limit + 0.2 × new limit                           step by step
//! ```
//!
//! This is Netflix's [concurrency-limits](https://github.com/Netflix/concurrency-limits). Samples are collected for a
//! tenth of a second, at least ten, and their mean is used: single latencies vary, and slow ones would weigh more than
//! fast ones, since a gradient is never above 1.
//!
//! # Where the original fails
//! Its baseline is the mean of *all* recent latencies. Under lasting overload that becomes the latency of the overload
//! itself, the gradient becomes 1, and the limit grows to its bound (its pull request 134, and issue 165 about the
//! drift). And while fewer than half of the limit are in flight the limit does not change, however slow the responses
//! are. So this implementation differs:
//!
//! 1. The baseline is learned only while fewer than half of the limit are in flight and the latency is within the
//!    tolerance: it contains no queue caused by the limit itself.
//! 2. While the limit is always in use there are no such times. So if the latency is then above the tolerance, or there
//!    has never been such a time, the limit is *probed*: cut to 0.7 until twenty responses have come whose requests
//!    started under it. If they are faster in proportion, requests were queueing: then the limit can be cut to 0.7
//!    again without loss, since a service with a queue stays busy. If they are not faster, nothing was queued: their
//!    latency is the baseline.
//! 3. Slow responses lower the limit even while few are in flight; fast ones raise it only while at least half of it is
//!    in use.
//! 4. Each failed response (timeout, 5xx) lowers the gradient by its share of all responses.
//!
//! # What a probe costs
//! For a healthy service, nothing. Its limit grows until it is no longer reached, and a limit that is not reached, or
//! whose latency is within the tolerance of a known baseline, is never probed. For a service that became permanently
//! slower, three tenths of the limit for some three latencies, once.

use super::{Sample, SampleKind};
use crate::Timestamp;
use std::time::Duration;

const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
/// The lowest gradient: the limit is never cut by more than a tenth at a time.
const MIN_GRADIENT: f64 = 0.5;
/// The number of windows in the baseline's mean.
const BASELINE_WINDOWS: f64 = 600.0;
/// How long samples are collected, and the minimum number.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_SAMPLES: u32 = 10;
/// The part of the limit that must be in flight for it to count as reached. (A sample has the number in flight when its
/// request started; the limit may have grown since.)
const REACHED: f64 = 0.8;
/// How long the limit counts as reached after that: the longer of this time and this many latencies.
const REACHED_TTL: Duration = Duration::from_millis(500);
const REACHED_TTL_LATENCIES: f64 = 2.0;
/// How long a limit must be reached, with its latency in doubt, before it is probed: the longer of both.
const PROBE_AFTER: Duration = Duration::from_secs(1);
const PROBE_AFTER_LATENCIES: f64 = 10.0;
/// How long a baseline is fresh: the longer of both.
const BASELINE_TTL: Duration = Duration::from_secs(10);
const BASELINE_TTL_LATENCIES: f64 = 100.0;
/// The part to which a probe cuts the limit, and again while the latency falls below that part.
const PROBE_FACTOR: f64 = 0.7;
const FALLING_FACTOR: f64 = 0.85;
/// A probe step ends after this many responses, or with the fewest after the longest time (the longer of both).
const PROBE_SAMPLES: u32 = 20;
const MIN_PROBE_SAMPLES: u32 = 5;
const MAX_PROBE_STEP: Duration = Duration::from_secs(1);
const MAX_PROBE_STEP_LATENCIES: f64 = 3.0;
/// The weight of the latest window in the recent latency.
const RECENT_WEIGHT: f64 = 0.3;

/// Gradient2, with its bounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gradient2 {
    min: u64,
    initial: u64,
    max: u64,
}

/// The learned state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gradient2State {
    pub(super) limit: f64,
    /// The latency without a queue, in seconds; 0 while unknown.
    pub(super) baseline: f64,
    /// The number of windows in the baseline's mean so far.
    windows: f64,
    window: Window,
    /// The recent latency, in seconds.
    recent_latency: f64,
    /// When the baseline was last confirmed without a queue, if ever.
    confirmed_at: Option<Timestamp>,
    /// When the limit was last reached.
    reached: Option<Timestamp>,
    /// Since when the limit has always been reached while it was unknown whether the latency includes a queue.
    uncertain_since: Option<Timestamp>,
    has_adapted: bool,
    probe: Option<Probe>,
}

/// Collected samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Window {
    started: Timestamp,
    seconds: f64,
    answered: u32,
    dropped: u32,
    max_in_flight: u64,
}

/// A step of a probe, during which the limit is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    started: Timestamp,
    limit: f64,
    /// The latency before the cut.
    latency_before: f64,
    seconds: f64,
    answered: u32,
}

impl Gradient2 {
    /// Creates a limit from `min` to `max`, initially `initial`.
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

    /// Learns from one response.
    pub(super) fn learn(&self, state: &mut Gradient2State, now: Timestamp, sample: &Sample) {
        let in_flight = u64::try_from(sample.receipt.mark()).unwrap_or(u64::MAX);
        if state.probe.is_some() {
            self.probe(state, now, sample, in_flight);
            return;
        }
        let window = &mut state.window;
        if window.answered + window.dropped == 0 {
            window.started = now;
        }
        match sample.kind {
            SampleKind::Answered => {
                window.answered += 1;
                window.seconds += sample.latency.as_secs_f64();
            }
            SampleKind::Dropped => window.dropped += 1,
        }
        window.max_in_flight = window.max_in_flight.max(in_flight);
        if window.answered + window.dropped >= WINDOW_SAMPLES && now.since(window.started) >= WINDOW {
            let window = std::mem::take(window);
            self.adapt(state, now, &window);
        }
    }

    /// Adapts the limit to the samples of one window.
    fn adapt(&self, state: &mut Gradient2State, now: Timestamp, window: &Window) {
        state.has_adapted = true;
        let dropped = f64::from(window.dropped) / f64::from(window.answered + window.dropped);
        let is_in_use = float(window.max_in_flight) >= state.limit / 2.0;
        // Requests may come in bursts whose first ones find few in flight, so this does not depend on one window only.
        if float(window.max_in_flight) >= state.limit * REACHED {
            state.reached = Some(now);
        }
        let reached_ttl = at_least(REACHED_TTL, state.recent_latency * REACHED_TTL_LATENCIES);
        let is_reached = state.reached.is_some_and(|reached| now.since(reached) <= reached_ttl);
        let mut gradient = 1.0_f64;
        if window.answered > 0 {
            let latency = (window.seconds / f64::from(window.answered)).max(f64::MIN_POSITIVE);
            state.record_latency(now, latency, is_in_use || is_reached);
            gradient = TOLERANCE * state.baseline / latency;
        }
        let gradient = (gradient.min(1.0) * (1.0 - dropped)).max(MIN_GRADIENT);
        let new = state.limit * gradient + state.limit.sqrt();
        if is_in_use || new < state.limit {
            let smooth = state.limit * (1.0 - SMOOTHING) + new * SMOOTHING;
            state.limit = smooth.clamp(float(self.min), float(self.max));
        }
        if !is_reached || !state.is_uncertain() {
            state.uncertain_since = None;
            return;
        }
        let since = *state.uncertain_since.get_or_insert(window.started);
        let is_lasting = now.since(since) >= at_least(PROBE_AFTER, state.recent_latency * PROBE_AFTER_LATENCIES);
        if is_lasting && !state.has_fresh_baseline(now) {
            state.probe = Some(self.step(now, state.limit, state.recent_latency));
        }
    }

    /// Returns the next step down from a limit with this latency.
    fn step(&self, now: Timestamp, limit: f64, latency: f64) -> Probe {
        let limit = (limit * PROBE_FACTOR).max(float(self.min));
        Probe { started: now, limit, latency_before: latency, seconds: 0.0, answered: 0 }
    }

    /// Learns from responses to requests that started under the lower limit whether requests were queueing.
    fn probe(&self, state: &mut Gradient2State, now: Timestamp, sample: &Sample, in_flight: u64) {
        let Some(mut probe) = state.probe else { return };
        let started_under_probe =
            sample.receipt.at() >= probe.started && float(in_flight) <= probe.limit.floor().max(1.0);
        if started_under_probe && sample.kind == SampleKind::Answered {
            probe.seconds += sample.latency.as_secs_f64();
            probe.answered += 1;
        }
        state.probe = Some(probe);
        let max_step = at_least(MAX_PROBE_STEP, probe.latency_before * MAX_PROBE_STEP_LATENCIES);
        if probe.answered < PROBE_SAMPLES && now.since(probe.started) < max_step {
            return;
        }
        if probe.answered >= MIN_PROBE_SAMPLES {
            let latency = (probe.seconds / f64::from(probe.answered)).max(f64::MIN_POSITIVE);
            if latency < probe.latency_before * FALLING_FACTOR && probe.limit > float(self.min) {
                state.probe = Some(self.step(now, probe.limit, latency));
                return;
            }
            (state.baseline, state.windows, state.confirmed_at) = (latency, BASELINE_WINDOWS, Some(now));
        }
        (state.probe, state.uncertain_since) = (None, None);
        state.window = Window::default();
    }
}

impl Gradient2State {
    /// Returns the maximum number in flight.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the bounds, which are counts")]
    pub fn limit(&self) -> u64 {
        (self.probe.map_or(self.limit, |probe| probe.limit) as u64).max(1)
    }

    /// Returns `true` if the learned state is worth keeping.
    pub(super) fn has_learned(&self) -> bool {
        self.has_adapted
    }

    fn record_latency(&mut self, now: Timestamp, latency: f64, is_in_use: bool) {
        if self.windows == 0.0 {
            // A first estimate, until an idle time or a probe corrects it.
            (self.baseline, self.windows, self.recent_latency) = (latency, 1.0, latency);
        }
        self.recent_latency += (latency - self.recent_latency) * RECENT_WEIGHT;
        let is_quiet = !is_in_use && latency <= self.baseline * TOLERANCE;
        if is_quiet {
            self.confirmed_at = Some(now);
        }
        // Faster than ever without a queue: that needs no confirmation, and as a mean it is no outlier.
        if is_quiet || latency < self.baseline {
            self.windows = (self.windows + 1.0).min(BASELINE_WINDOWS);
            self.baseline += (latency - self.baseline) / ((self.windows + 1.0) / 2.0).max(1.0);
        }
        if latency * 2.0 < self.baseline {
            // Recovering from a slow time: the mean would take too long.
            self.baseline *= 0.95;
        }
    }

    /// Returns `true` if it is unknown whether the recent latency includes a queue.
    fn is_uncertain(&self) -> bool {
        self.confirmed_at.is_none() || self.recent_latency > self.baseline * TOLERANCE
    }

    /// Returns `true` if the baseline was confirmed recently.
    fn has_fresh_baseline(&self, now: Timestamp) -> bool {
        let ttl = at_least(BASELINE_TTL, self.baseline * BASELINE_TTL_LATENCIES);
        self.confirmed_at.is_some_and(|confirmed| now.since(confirmed) < ttl)
    }
}

/// Returns the longer of `time` and `seconds`.
fn at_least(time: Duration, seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).map_or(time, |seconds| seconds.max(time))
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2⁵³")]
fn float(count: u64) -> f64 {
    count as f64
}
