//! Every algorithm that the shared store supports, with random parameters.

use diana_core::{Calendar, Concurrency, Edge, FixedWindow, LeakyBucket, Limit, MinInterval, Quota, WindowStart};
use diana_core::{
    InitialPermits, RefillingBucket, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket, Total,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

/// One algorithm with its parameters.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
    MinInterval(MinInterval),
    RefillingBucket(RefillingBucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    SmoothBursty(SmoothBursty),
    SmoothWarmingUp(SmoothWarmingUp),
    Concurrency(Concurrency),
    Total(Total),
}

/// How two stores migrate a key to other parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migration {
    Equal,
    /// Equal for all requests at whole microseconds; but on Redis the time is rounded up to a multiple of the limit's
    /// tick, a microsecond at most. A second migration to a slower rate would multiply that.
    Rounded,
    Different,
}

/// Zones with half-hour offsets, with half an hour of summer time, and on either side of the date line.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe"];

/// `$body` with `$algorithm` as the algorithm of a kind.
macro_rules! each {
    ($kind:expr, $algorithm:ident => $body:expr) => {
        match $kind {
            Kind::TokenBucket($algorithm) => $body,
            Kind::LeakyBucket($algorithm) => $body,
            Kind::MinInterval($algorithm) => $body,
            Kind::RefillingBucket($algorithm) => $body,
            Kind::FixedWindow($algorithm) => $body,
            Kind::SlidingWindow($algorithm) => $body,
            Kind::SlidingLog($algorithm) => $body,
            Kind::SmoothBursty($algorithm) => $body,
            Kind::SmoothWarmingUp($algorithm) => $body,
            Kind::Concurrency($algorithm) => $body,
            Kind::Total($algorithm) => $body,
        }
    };
}

#[allow(clippy::clone_on_copy, reason = "not all of them can be copied")]
impl Kind {
    pub(crate) fn limit(&self, name: &str) -> Limit {
        each!(self, algorithm => Limit::new(name, algorithm.clone()))
    }

    /// Returns `limit`, changed to this.
    pub(crate) fn changed(&self, limit: &Limit) -> Limit {
        each!(self, algorithm => limit.changed_to(algorithm.clone()))
    }

    /// Returns how both stores migrate a key from `old`.
    pub(crate) fn migration_from(&self, old: &Self) -> Migration {
        match (self, old) {
            // In process, token buckets whose interval is whole nanoseconds are in another kind of table than others.
            // From one to the other whole permits are migrated, rounded up; on Redis, fractions of them as well.
            (Self::TokenBucket(new), Self::TokenBucket(old))
                if (new.quota().interval().1 == 1) != (old.quota().interval().1 == 1) =>
            {
                Migration::Different
            }
            (Self::TokenBucket(_), Self::TokenBucket(_))
            | (Self::LeakyBucket(_), Self::LeakyBucket(_))
            | (Self::MinInterval(_), Self::MinInterval(_)) => Migration::Rounded,
            _ => Migration::Equal,
        }
    }

    /// Returns `true` if receipts from before a change from `old` have the same effect in both stores.
    pub(crate) fn keeps_receipts_of(&self, old: &Self) -> bool {
        let is_whole = |window: &FixedWindow| window.quota().period().as_nanos().is_multiple_of(1_000);
        let windows = |window: &FixedWindow| {
            (window.quota().period(), window.window_start(), window.dates().map(|(unit, zone)| (unit, zone.to_owned())))
        };
        match (self, old) {
            // A receipt identifies its window by its end. On Redis two windows that end within a microsecond are the
            // same one. In process, two that end at the same time are, even if the window had another length in
            // between.
            (Self::FixedWindow(new), Self::FixedWindow(old)) => {
                is_whole(new) && is_whole(old) && windows(new) == windows(old)
            }
            // The mark of a receipt is specific to its algorithm.
            _ => std::mem::discriminant(self) == std::mem::discriminant(old),
        }
    }
}

/// The number of parameter sets of a family.
pub(crate) const PARAMETERS: usize = 3;

/// One algorithm with several parameter sets.
pub(crate) fn families() -> impl Strategy<Value = Vec<Kind>> {
    prop_oneof![
        3 => vec(token_buckets().prop_map(Kind::TokenBucket), PARAMETERS),
        2 => vec(leaky_buckets().prop_map(Kind::LeakyBucket), PARAMETERS),
        1 => vec(min_intervals().prop_map(Kind::MinInterval), PARAMETERS),
        1 => vec(refilling_buckets().prop_map(Kind::RefillingBucket), PARAMETERS),
        2 => vec(fixed_windows().prop_map(Kind::FixedWindow), PARAMETERS),
        2 => vec(sliding_windows().prop_map(Kind::SlidingWindow), PARAMETERS),
        2 => vec(sliding_logs().prop_map(Kind::SlidingLog), PARAMETERS),
        1 => vec(smooth_bursties().prop_map(Kind::SmoothBursty), PARAMETERS),
        2 => vec(smooth_warming_ups().prop_map(Kind::SmoothWarmingUp), PARAMETERS),
        2 => vec(concurrencies().prop_map(Kind::Concurrency), PARAMETERS),
        1 => vec(totals().prop_map(Kind::Total), PARAMETERS),
    ]
}

/// Few and odd permits, and so many that one takes less than a microsecond.
fn permits() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..12_u64, 1 => 1..2_000_000_u64, 1 => Just(600_000_001_u64)]
}

/// Nanoseconds: short ones where all times collide, non-divisors of a second, and up to months.
fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 1..5_000_u64,
        2 => 1..5_000_000_000_u64,
        3 => Just(1_000_000_000_u64),
        1 => Just(86_400_000_000_000_u64),
        1 => 1..10_000_000_000_000_000_u64,
    ]
}

fn quota(permits: u64, nanos: u64, burst: u64) -> Quota {
    Quota::new(permits, Duration::from_nanos(nanos)).unwrap().with_burst(burst).unwrap()
}

fn quotas() -> impl Strategy<Value = Quota> {
    (permits(), periods(), 1..=50_u64).prop_map(|(permits, nanos, burst)| quota(permits, nanos, burst))
}

/// Quotas that are used up by few requests.
fn counts() -> impl Strategy<Value = Quota> {
    (1..12_u64, periods()).prop_map(|(permits, nanos)| quota(permits, nanos, permits))
}

fn token_buckets() -> impl Strategy<Value = TokenBucket> {
    quotas().prop_map(TokenBucket::new)
}

fn leaky_buckets() -> impl Strategy<Value = LeakyBucket> {
    (quotas(), 0..12_u64, prop::option::of(0..8_u64)).prop_map(|(quota, queue, delay)| {
        let bucket = LeakyBucket::new(quota).with_queue(queue);
        delay.map_or(bucket.clone().without_delay(), |permits| bucket.with_delay(permits))
    })
}

fn min_intervals() -> impl Strategy<Value = MinInterval> {
    periods().prop_map(|nanos| MinInterval::new(Duration::from_nanos(nanos)).unwrap())
}

/// The shared store supports only periods of whole microseconds, and rejects others.
fn refilling_buckets() -> impl Strategy<Value = RefillingBucket> {
    (permits(), periods(), 1..=50_u64)
        .prop_map(|(permits, nanos, burst)| RefillingBucket::new(quota(permits, nanos.next_multiple_of(1_000), burst)))
}

fn fixed_windows() -> impl Strategy<Value = FixedWindow> {
    // For longer windows on the clock, the store supports only whole microseconds, and rejects others.
    let clock = counts().prop_map(|quota| {
        let micros = Duration::from_micros(u64::try_from(quota.period().as_micros()).unwrap().max(1));
        let period = if quota.period().as_secs() >= 9_000 { micros } else { quota.period() };
        FixedWindow::new(Quota::new(quota.permits(), period).unwrap())
    });
    let first = counts().prop_map(|quota| FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest));
    let units = prop_oneof![Just(Calendar::Day), Just(Calendar::Week), Just(Calendar::Month)];
    let calendar = (1..12_u64, units, prop::sample::select(&ZONES[..]))
        .prop_map(|(limit, unit, zone)| FixedWindow::calendar(limit, unit, zone).unwrap());
    prop_oneof![2 => clock, 2 => first, 1 => calendar]
}

/// Widths of fractional microseconds are supported as far as a script can represent them, and none is below one.
fn sliding_windows() -> impl Strategy<Value = SlidingWindow> {
    let fine = (1..12_u64, 20_000..5_000_000_000_u64, 1..=20_u64).prop_map(|(limit, nanos, buckets)| {
        SlidingWindow::new(quota(limit, nanos, limit)).with_buckets(buckets).unwrap()
    });
    let long = (1..12_u64, 1..=20_u64, 1..10_000_000_000_u64).prop_map(|(limit, buckets, micros)| {
        SlidingWindow::new(quota(limit, buckets * micros * 1_000, limit)).with_buckets(buckets).unwrap()
    });
    let seconds = (1..12_u64, 1..=20_u64).prop_map(|(limit, buckets)| {
        SlidingWindow::new(quota(limit, 1_000_000_000, limit)).with_buckets(buckets).unwrap()
    });
    let edges = prop_oneof![2 => Just(Edge::Loose), 2 => Just(Edge::Weighted), 1 => Just(Edge::Strict)];
    (prop_oneof![2 => fine, 1 => long, 1 => seconds], edges).prop_map(|(window, edge)| window.with_edge(edge))
}

fn sliding_logs() -> impl Strategy<Value = SlidingLog> {
    vec(counts(), 1..4).prop_map(|quotas| SlidingLog::several(quotas).unwrap())
}

fn smooth_rates() -> impl Strategy<Value = f64> {
    prop_oneof![(1..1_000_u32).prop_map(|rate| f64::from(rate) / 7.0), 0.01..1e7_f64]
}

/// A limiter that starts empty is not supported on Redis.
fn smooth_bursties() -> impl Strategy<Value = SmoothBursty> {
    (smooth_rates(), 0.0..5.0_f64).prop_map(|(rate, burst)| {
        let limiter = SmoothBursty::new(rate).unwrap().with_saved_seconds(burst).unwrap();
        limiter.with_initial_permits(InitialPermits::Full)
    })
}

fn smooth_warming_ups() -> impl Strategy<Value = SmoothWarmingUp> {
    (smooth_rates(), 1..5_000_000_u64, 0.5..10.0_f64).prop_map(|(rate, micros, factor)| {
        let limiter = SmoothWarmingUp::new(rate, Duration::from_micros(micros)).unwrap();
        limiter.with_cold_factor(factor).unwrap()
    })
}

fn concurrencies() -> impl Strategy<Value = Concurrency> {
    let delays = prop_oneof![Just(0), 1..5_000_u64, 1..5_000_000_000_u64];
    (1..8_u64, prop_oneof![Just(0), 0..8_u64], delays).prop_map(|(limit, burst, delay)| {
        Concurrency::new(limit).unwrap().with_burst(burst).with_delay(Duration::from_nanos(delay))
    })
}

fn totals() -> impl Strategy<Value = Total> {
    (1..40_u64).prop_map(|limit| Total::new(limit).unwrap())
}
