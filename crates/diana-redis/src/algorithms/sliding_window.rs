//! The sliding window on Redis: `scripts/sliding_window.lua`.

use crate::args::Args;
use crate::quota_text::{duration_from_text, duration_text, quota_from_text, quota_text};
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::Module;
use diana_core::{Edge, Quota, Receipt, SlidingWindow, SlidingWindowState, Timestamp};
use std::fmt::Write;

/// The maximum number of buckets: each decision reads all that are in use.
const MAX_BUCKETS: u64 = 1_024;

/// The minimum width in nanoseconds: a microsecond, Redis's resolution.
const MIN_WIDTH_NANOS: u64 = 1_000;

/// The largest numerator of a width of which the script computes fractions: three of them must add up to less than
/// 2^53.
const MAX_NUMERATOR: u64 = 1 << 51;

/// The parameters' suffix for a weighted edge; none for a loose one.
const WEIGHTED: &str = "+weighted";
const STRICT: &str = "+strict";

impl ScriptedAlgorithm for SlidingWindow {
    const MODULE: Module = Module {
        name: "sliding_window",
        letter: 'w',
        source: include_str!("../../scripts/sliding_window.lua"),
        libraries: &[],
    };

    fn unsupported_reason(&self) -> Option<String> {
        let (precision, buckets) = (self.precision(), self.buckets());
        if buckets > MAX_BUCKETS {
            return Some(format!(
                "{buckets} buckets are not supported, at most {MAX_BUCKETS}; use a coarser precision than \
                 {precision:?}"
            ));
        }
        let (numerator, denominator) = width(self);
        let is_exact = u128::from(numerator) * u128::from(denominator) <= 1 << 53;
        if nanos(self) < MIN_WIDTH_NANOS || !is_exact {
            return Some(format!("buckets of {precision:?} can't be distinguished on Redis; use whole microseconds"));
        }
        if self.edge() == Edge::Weighted && numerator > MAX_NUMERATOR {
            return Some(format!("fractions of a bucket of {precision:?} can't be counted on Redis; use more buckets"));
        }
        too_long(&self.quota())
    }

    fn parameters(&self) -> String {
        let edge = match self.edge() {
            Edge::Loose => "",
            Edge::Weighted => WEIGHTED,
            Edge::Strict => STRICT,
        };
        format!("{}@{}{edge}", quota_text(&self.quota()), duration_text(self.precision()))
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (quota, precision) = text.split_once('@')?;
        let (precision, edge) = match precision.strip_suffix(WEIGHTED) {
            Some(precision) => (precision, Edge::Weighted),
            None => precision.strip_suffix(STRICT).map_or((precision, Edge::Loose), |rest| (rest, Edge::Strict)),
        };
        let window = Self::new(quota_from_text(quota)?).with_precision(duration_from_text(precision)?).ok()?;
        Some(window.with_edge(edge))
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        args.push(ask.cost.get());
        args.push(self.quota().permits());
        push(self, args);
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        self.take_args(args, ask);
    }

    /// A charge is in the window from now on, regardless of the state before.
    fn charged(&self, _numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        Some(Receipt::new(ask.cost, now).with_mark(u128::from(now.as_nanos())))
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        args.push(receipt.cost().get());
        args.push(receipt.mark() / u128::from(nanos(self)));
        push(self, args);
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<SlidingWindowState> {
        Some(SlidingWindowState::from_counts(self, counts(numbers.text(0)?)?))
    }

    /// Reads the state, corrected if the clock was set back.
    fn read(&self, body: &Body, now: Timestamp) -> Option<SlidingWindowState> {
        let Body::Text(text) = body else { return None };
        let counts = counts(text)?;
        let newest = counts.last().map_or(0, |(bucket, _)| *bucket);
        let back = newest.saturating_sub(now.as_nanos() / nanos(self));
        let counts = counts.into_iter().filter_map(|(bucket, count)| Some((bucket.checked_sub(back)?, count)));
        Some(SlidingWindowState::from_counts(self, counts))
    }

    fn write(&self, state: &SlidingWindowState, now: Timestamp) -> StoredState {
        let mut text = String::new();
        let mut fresh_at = 0;
        for (bucket, count) in state.in_use() {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a `String` does not fail.
            let _ = write!(text, "{comma}{bucket}:{count}");
            if count > 0 {
                let leaves = u128::from(bucket + self.counted_buckets()) * u128::from(nanos(self));
                fresh_at = u64::try_from(leaves.div_ceil(1_000)).unwrap_or(END).min(END);
            }
        }
        StoredState { body: (fresh_at > now.as_micros()).then_some(Body::Text(text)), fresh_at: Some(fresh_at) }
    }

    fn divided(&self, instances: u64) -> Self {
        Self::new(divided_count(&self.quota(), instances))
            .with_precision(self.precision())
            .map_or_else(|_| self.clone(), |window| window.with_edge(self.edge()))
    }
}

/// Returns why a window of this length can't be stored, or `None` if it can.
pub(super) fn too_long(quota: &Quota) -> Option<String> {
    // Half of a script's number range is reserved for the clock.
    let is_too_long = quota.period().as_micros() >= u128::from(END / 2);
    is_too_long.then(|| format!("the window of {quota} is longer than 140 years"))
}

/// Returns the count of one of `instances`, at least 1, in the same window.
pub(super) fn divided_count(quota: &Quota, instances: u64) -> Quota {
    Quota::new((quota.permits() / instances.max(1)).max(1), quota.period()).unwrap_or(*quota)
}

fn nanos(window: &SlidingWindow) -> u64 {
    // A window's period fits.
    u64::try_from(window.precision().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a bucket's width in microseconds, in lowest terms.
fn width(window: &SlidingWindow) -> (u64, u64) {
    let nanos = nanos(window);
    let (mut common, mut rest) = (nanos, 1_000);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    (nanos / common, 1_000 / common)
}

fn push(window: &SlidingWindow, args: &mut Args) {
    let (numerator, denominator) = width(window);
    args.push(window.counted_buckets());
    args.push(numerator);
    args.push(denominator);
    args.push(u8::from(window.edge() == Edge::Weighted));
}

/// Parses buckets with their counts, as the script writes them.
fn counts(text: &str) -> Option<Vec<(u64, u64)>> {
    let each = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
        let (bucket, count) = pair.split_once(':')?;
        Some((bucket.parse().ok()?, count.parse().ok()?))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn per_minute(permits: u64) -> SlidingWindow {
        SlidingWindow::new(Quota::per_minute(permits).unwrap())
    }

    #[test]
    fn parameters_are_parsed_back() {
        let window = per_minute(5);
        assert_eq!(window.parameters(), "5/60s*5@6s");
        for buckets in [1, 7, 60, 1_000] {
            let window = window.clone().with_buckets(buckets).unwrap();
            for edge in [Edge::Loose, Edge::Weighted, Edge::Strict] {
                let window = window.clone().with_edge(edge);
                assert_eq!(SlidingWindow::from_parameters(&window.parameters()), Some(window));
            }
        }
        for text in ["", "5/60s*5", "5/60s*5@", "5/60s*5@0s", "5/60s@6s", "5/60s*5@6s+", "5/60s*5@+strict"] {
            assert_eq!(SlidingWindow::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn an_unsupported_window_has_a_reason() {
        assert_eq!(per_minute(5).with_buckets(1_024).unwrap().unsupported_reason(), None);
        assert!(per_minute(5).with_buckets(1_025).unwrap().unsupported_reason().unwrap().contains("coarser precision"));
        let period = |nanos| SlidingWindow::new(Quota::new(1, Duration::from_nanos(nanos)).unwrap());
        assert!(period(100).unsupported_reason().unwrap().contains("whole microseconds"));
        assert!(period(u64::MAX).unsupported_reason().is_some());
        let wide = period(80 * 365 * 86_400 * 1_000_000_000).with_buckets(1).unwrap();
        assert_eq!(wide.unsupported_reason(), None);
        assert!(wide.with_edge(Edge::Weighted).unsupported_reason().unwrap().contains("use more buckets"));
        // A year in seven buckets, none of which is a whole number of microseconds.
        let odd = period(365 * 24 * 3_600 * 1_000_000_000).with_buckets(7).unwrap();
        assert!(odd.unsupported_reason().unwrap().contains("whole microseconds"));
    }

    #[test]
    fn buckets_move_back_with_the_clock() {
        let window = per_minute(5);
        let body = Body::Text("100:2,103:1".to_owned());
        let state = |secs| window.read(&body, Timestamp::from_secs(secs)).unwrap().in_use().collect::<Vec<_>>();
        assert_eq!(state(620), [(100, 2), (103, 1)]);
        assert_eq!(state(60), [(7, 2), (10, 1)]);
        assert_eq!(state(6), [(1, 1)]);
    }
}
