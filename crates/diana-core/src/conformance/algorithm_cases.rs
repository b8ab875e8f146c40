//! Every algorithm of the crate with parameters that are soon used up, and with changed parameters.

#[cfg(feature = "calendar")]
use crate::Calendar;
use crate::{
    Algorithm, Concurrency, Edge, FixedWindow, InitialPermits, LeakyBucket, Limit, MinInterval, Quota, RefillingBucket,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket, Total, WindowStart,
};
use std::fmt;
use std::time::Duration;

/// One algorithm with one set of parameters.
pub(super) struct Case {
    name: &'static str,
    variant: &'static str,
    /// Creates a limit with the name, or the next version of one.
    make: Box<dyn Fn(Create<'_>, Strictness) -> Limit>,
}

/// How a limit is created.
#[derive(Clone, Copy)]
enum Create<'a> {
    New(&'a str),
    From(&'a Limit),
}

/// The parameters: the initial ones, stricter ones, or more generous ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Strictness {
    Plain,
    Lower,
    Higher,
}

impl Case {
    fn new<A: Algorithm, E: fmt::Display>(
        name: &'static str,
        variant: &'static str,
        algorithm: impl Fn(Strictness) -> Result<A, E> + 'static,
    ) -> Self {
        let make = move |create: Create<'_>, strictness| {
            let algorithm = algorithm(strictness).unwrap_or_else(|error| unreachable!("{name}, {variant}: {error}"));
            match create {
                Create::New(label) => Limit::new(format!("{name} {variant} {label}"), algorithm),
                Create::From(limit) => limit.changed_to(algorithm),
            }
        };
        Self { name, variant, make: Box::new(make) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Creates a limit; its label distinguishes it from others of its case.
    pub(super) fn limit(&self, label: &str) -> Limit {
        (self.make)(Create::New(label), Strictness::Plain)
    }

    /// Changes `limit` to this case.
    pub(super) fn changed(&self, limit: &Limit, strictness: Strictness) -> Limit {
        (self.make)(Create::From(limit), strictness)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, variant, .. } = self;
        if variant.is_empty() { f.write_str(name) } else { write!(f, "{name}, {variant}") }
    }
}

impl Strictness {
    /// Returns the number of this strictness.
    fn pick<T>(self, plain: T, lower: T, higher: T) -> T {
        match self {
            Self::Plain => plain,
            Self::Lower => lower,
            Self::Higher => higher,
        }
    }
}

/// Returns all cases, variants of one name next to each other.
pub(super) fn cases() -> Vec<Case> {
    let plain = |strictness: Strictness| Quota::per_second(strictness.pick(5, 2, 8));
    // An interval of a third of a second is not a whole number of nanoseconds.
    let thirds = |strictness: Strictness| Quota::per_second(3)?.with_burst(strictness.pick(7, 4, 9));
    let millis = Duration::from_millis;
    vec![
        Case::new("token_bucket", "5/s", move |strictness| plain(strictness).map(TokenBucket::new)),
        Case::new("token_bucket", "3/s, burst 7", move |strictness| thirds(strictness).map(TokenBucket::new)),
        Case::new("refilling_bucket", "3/s, burst 7", move |strictness| thirds(strictness).map(RefillingBucket::new)),
        Case::new("leaky_bucket", "queue 3", move |strictness| {
            plain(strictness).map(|quota| LeakyBucket::new(quota).with_queue(strictness.pick(3, 2, 6)))
        }),
        Case::new("leaky_bucket", "queue 4, nodelay", move |strictness| {
            thirds(strictness).map(|quota| LeakyBucket::new(quota).with_queue(strictness.pick(4, 2, 6)).without_delay())
        }),
        Case::new("leaky_bucket", "queue 4, delay 2", move |strictness| {
            plain(strictness).map(|quota| LeakyBucket::new(quota).with_queue(strictness.pick(4, 3, 6)).with_delay(2))
        }),
        Case::new("fixed_window", "aligned", move |strictness| plain(strictness).map(FixedWindow::new)),
        Case::new("fixed_window", "started by the first request", move |strictness| {
            plain(strictness).map(|quota| FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest))
        }),
        #[cfg(feature = "calendar")]
        Case::new("calendar", "days in Berlin", |strictness| {
            FixedWindow::calendar(strictness.pick(5, 2, 8), Calendar::Day, "Europe/Berlin")
        }),
        Case::new("sliding_window", "10 buckets", move |strictness| plain(strictness).map(SlidingWindow::new)),
        Case::new("sliding_window", "3 buckets", move |strictness| {
            let window = plain(strictness).map(SlidingWindow::new).map_err(|error| error.to_string())?;
            window.with_buckets(strictness.pick(3, 3, 4)).map_err(|error| error.to_string())
        }),
        Case::new("sliding_window", "10 buckets, weighted edge", move |strictness| {
            plain(strictness).map(|quota| SlidingWindow::new(quota).with_edge(Edge::Weighted))
        }),
        Case::new("sliding_window", "3 buckets, weighted edge", move |strictness| {
            let window = plain(strictness).map(SlidingWindow::new).map_err(|error| error.to_string())?;
            let window = window.with_edge(Edge::Weighted).with_buckets(strictness.pick(3, 3, 4));
            window.map_err(|error| error.to_string())
        }),
        Case::new("sliding_window", "10 buckets, strict edge", move |strictness| {
            plain(strictness).map(|quota| SlidingWindow::new(quota).with_edge(Edge::Strict))
        }),
        Case::new("sliding_log", "", move |strictness| plain(strictness).map(SlidingLog::new)),
        Case::new("smooth_bursty", "5/s", |strictness| {
            SmoothBursty::new(strictness.pick(5.0, 2.0, 8.0))
                .map(|smooth| smooth.with_initial_permits(InitialPermits::Full))
        }),
        Case::new("smooth_warming_up", "5/s", move |strictness| {
            SmoothWarmingUp::new(strictness.pick(5.0, 2.0, 8.0), millis(2_000))
        }),
        Case::new("concurrency", "5", |strictness| Concurrency::new(strictness.pick(5, 2, 8))),
        Case::new("concurrency", "3, burst 4", move |strictness| {
            Concurrency::new(3).map(|limit| limit.with_burst(strictness.pick(4, 1, 6)).with_delay(millis(100)))
        }),
        Case::new("total", "", |strictness| Total::new(strictness.pick(8, 3, 12))),
        Case::new("min_interval", "", move |strictness| MinInterval::new(millis(strictness.pick(200, 500, 100)))),
    ]
}
