//! The windows against their simplest models: a list of all grants, and a scan of it.

use diana_core::{Algorithm, Cost, Edge, MaxWait, Quota, Receipt, Refund, Retry, SlidingLog, SlidingWindow, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Ask for a cost, this many nanoseconds after the last step, or before it.
    Ask(i64, u64),
    Charge(i64, u64),
    /// Refund one of the receipts.
    Refund(i64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let later = prop_oneof![8 => 0..6_i64, 1 => -4..0_i64, 1 => 6..60_i64];
    let step = prop_oneof![
        8 => (later.clone(), 1..5_u64).prop_map(|(later, cost)| Step::Ask(later, cost)),
        1 => (later.clone(), 1..9_u64).prop_map(|(later, cost)| Step::Charge(later, cost)),
        2 => (later, 0..64_usize).prop_map(|(later, index)| Step::Refund(later, index)),
    ];
    prop::collection::vec(step, 1..60)
}

/// All grants that were not refunded: the effective time and the cost of each.
#[derive(Default)]
struct Model {
    grants: Vec<(u64, u64)>,
    /// The time of the newest grant: time does not go back before it.
    newest: u64,
}

impl Model {
    /// The usage at `now`, if a grant of time `t` counts until `expires_at(t)`, and in the last `fading` before that in
    /// proportion to the rest of it.
    fn used(&self, now: u64, Resolution { width, fading }: Resolution, expires_at: impl Fn(u64) -> u64) -> u64 {
        let now = now.max(self.newest / width * width);
        let in_use = self
            .grants
            .iter()
            .map(|(time, cost)| (expires_at(*time), cost))
            .filter(|(expires_at, _)| *expires_at > now);
        let parts: u64 = in_use.map(|(expires_at, cost)| cost * (expires_at - now).min(fading)).sum();
        parts.div_ceil(fading)
    }

    fn add(&mut self, now: u64, cost: u64) {
        self.newest = self.newest.max(now);
        self.grants.push((self.newest, cost));
    }
}

/// The time resolution of a window.
#[derive(Clone, Copy)]
struct Resolution {
    /// Of a grant only the span of this length that contains it is known.
    width: u64,
    /// How long a grant takes to expire, in nanoseconds; 1 for at once.
    fading: u64,
}

/// A clock that may go back, but not before a refund: the newest grant is the only record of the latest time.
struct BackwardClock {
    now: u64,
    floor: u64,
}

impl BackwardClock {
    fn move_by(&mut self, by: i64) -> u64 {
        self.now = self.now.saturating_add_signed(by).max(self.floor);
        self.now
    }
}

/// Runs `algorithm` and the model side by side.
fn compare<A: Algorithm>(
    algorithm: &A,
    windows: &[Quota],
    resolution: Resolution,
    expires_at: impl Fn(&Quota, u64) -> u64,
    steps: &[Step],
    charges: bool,
) -> Result<(), TestCaseError>
where
    A::State: PartialEq,
{
    let (mut clock, mut model) = (BackwardClock { now: 1_000, floor: 0 }, Model::default());
    let mut state = algorithm.fresh(Timestamp::from_nanos(clock.now));
    let mut receipts: Vec<(Receipt, (u64, u64))> = Vec::new();
    let fits = |model: &Model, now: u64, cost: u64| {
        windows
            .iter()
            .all(|window| model.used(now, resolution, |time| expires_at(window, time)) + cost <= window.permits())
    };
    for step in steps {
        match *step {
            Step::Ask(later, cost) => {
                let now = clock.move_by(later);
                let time = Timestamp::from_nanos(now);
                let before = state.clone();
                let outcome = algorithm.take(&mut state, time, Cost::new(cost).unwrap(), MaxWait::NONE);
                prop_assert_eq!(outcome.is_granted(), fits(&model, now, cost), "{:?} at {}", step, now);
                match outcome.retry() {
                    None => {
                        model.add(now, cost);
                        receipts.push((outcome.receipt().unwrap(), *model.grants.last().unwrap()));
                    }
                    Some(retry) => {
                        prop_assert_eq!(&state, &before);
                        let limit = windows.iter().map(Quota::permits).min().unwrap();
                        match retry {
                            Retry::After(wait) => {
                                let wait = u64::try_from(wait.as_nanos()).unwrap();
                                prop_assert!(fits(&model, now + wait, cost));
                                prop_assert!(!fits(&model, now + wait - 1, cost));
                            }
                            other => prop_assert_eq!((other, cost > limit), (Retry::Never, true)),
                        }
                    }
                }
            }
            Step::Charge(later, cost) if charges => {
                let now = clock.move_by(later);
                algorithm.charge(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap());
                model.add(now, cost);
            }
            Step::Charge(..) => {}
            Step::Refund(later, index) => {
                clock.floor = model.newest.max(clock.now);
                let now = clock.move_by(later);
                if receipts.is_empty() {
                    continue;
                }
                let (receipt, grant) = receipts.swap_remove(index % receipts.len());
                let refund = algorithm.refund(&mut state, Timestamp::from_nanos(now), &receipt);
                let counts = windows.iter().any(|window| expires_at(window, grant.0) > now.max(model.newest));
                prop_assert_eq!(refund == Refund::Returned, counts, "{:?} at {}", grant, now);
                if let Some(position) = model.grants.iter().position(|other| *other == grant).filter(|_| counts) {
                    model.grants.remove(position);
                }
            }
        }
        let now = clock.now;
        let remaining = |window: &Quota| {
            window.permits().saturating_sub(model.used(now, resolution, |time| expires_at(window, time)))
        };
        let time = Timestamp::from_nanos(now);
        prop_assert_eq!(algorithm.status(&state, time).remaining, windows.iter().map(remaining).min().unwrap());
        let unused = windows.iter().all(|window| model.used(now, resolution, |time| expires_at(window, time)) == 0);
        prop_assert_eq!(algorithm.is_fresh(&state, time), unused);
    }
    Ok(())
}

fn nanos(permits: u64, period: u64) -> Quota {
    Quota::new(permits, Duration::from_nanos(period)).unwrap()
}

proptest! {
    #[test]
    fn a_sliding_log_equals_the_list_of_its_grants(
        limits in prop::collection::vec((1..8_u64, 1..40_u64), 1..4),
        steps in steps(),
    ) {
        let windows: Vec<Quota> = limits.iter().map(|(permits, period)| nanos(*permits, *period)).collect();
        let log = SlidingLog::several(windows.iter().copied()).unwrap();
        let expires_at = |window: &Quota, time: u64| time + u64::try_from(window.period().as_nanos()).unwrap();
        // A charge that finds the log full makes the newest entry later, which the list does not.
        compare(&log, &windows, Resolution { width: 1, fading: 1 }, expires_at, &steps, false)?;
    }

    #[test]
    fn a_sliding_window_equals_the_list_of_its_grants_by_buckets(
        permits in 1..8_u64,
        period in 1..40_u64,
        buckets in 1..12_u64,
        edge in prop_oneof![Just(Edge::Loose), Just(Edge::Weighted), Just(Edge::Strict)],
        steps in steps(),
    ) {
        let quota = nanos(permits, period);
        let window = SlidingWindow::new(quota).with_buckets(buckets).unwrap().with_edge(edge);
        let (width, n) = (u64::try_from(window.precision().as_nanos()).unwrap(), window.buckets());
        prop_assert!(width * n >= period);
        // The oldest bucket, which the window covers in part, counts not at all, in proportion to the part, or fully.
        let (n, fading) = match edge {
            Edge::Loose => (n, 1),
            Edge::Weighted => (n + 1, width),
            Edge::Strict => (n + 1, 1),
        };
        compare(&window, &[quota], Resolution { width, fading }, |_, time| (time / width + n) * width, &steps, true)?;
    }

    /// The documented guarantees for any requests: never over the limit with a strict edge, and up to twice the limit
    /// with the others; with all of them never over the limit in a window less one bucket.
    #[test]
    fn no_span_exceeds_the_guarantee_of_its_edge(
        permits in 1..8_u64,
        period in 1..40_u64,
        buckets in 1..12_u64,
        edge in prop_oneof![Just(Edge::Loose), Just(Edge::Weighted), Just(Edge::Strict)],
        asks in prop::collection::vec((prop_oneof![4 => 0..6_u64, 1 => 0..60_u64], 1..5_u64), 1..80),
    ) {
        let window = SlidingWindow::new(nanos(permits, period)).with_buckets(buckets).unwrap().with_edge(edge);
        let width = u64::try_from(window.precision().as_nanos()).unwrap();
        let whole = width * window.buckets();
        let (mut now, mut state) = (1_000, window.fresh(Timestamp::EPOCH));
        let mut grants = Vec::new();
        for (later, cost) in asks {
            now += later;
            let outcome = window.take(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap(), MaxWait::NONE);
            if outcome.is_granted() {
                grants.push((now, cost));
            }
        }
        for (begin, _) in &grants {
            // As long as a window, except its last nanosecond: a grant at its first one expires then.
            let within = |span: u64| -> u64 {
                grants.iter().filter(|(at, _)| (*begin..*begin + span).contains(at)).map(|(_, cost)| cost).sum()
            };
            let max = if edge == Edge::Strict { permits } else { 2 * permits };
            prop_assert!(within(whole) <= max, "{} in a window of {whole} from {begin} on: {grants:?}", within(whole));
            let less = whole - width + 1;
            prop_assert!(within(less) <= permits, "{} in a span of {less} from {begin} on: {grants:?}", within(less));
        }
    }
}
