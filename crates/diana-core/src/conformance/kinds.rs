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
pub(super) struct Kind {
    name: &'static str,
    variant: &'static str,
    /// Creates a limit with the name, or the next version of one.
    make: Box<dyn Fn(Made<'_>, Size) -> Limit>,
}

/// How a limit is created.
#[derive(Clone, Copy)]
enum Made<'a> {
    New(&'a str),
    From(&'a Limit),
}

/// The parameters: the initial ones, stricter ones, or more generous ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Plain,
    Lower,
    Higher,
}

impl Kind {
    fn new<A: Algorithm, E: fmt::Display>(
        name: &'static str,
        variant: &'static str,
        algorithm: impl Fn(Size) -> Result<A, E> + 'static,
    ) -> Self {
        let make = move |made: Made<'_>, size| {
            let algorithm = algorithm(size).unwrap_or_else(|error| unreachable!("{name}, {variant}: {error}"));
            match made {
                Made::New(label) => Limit::new(format!("{name} {variant} {label}"), algorithm),
                Made::From(limit) => limit.changed_to(algorithm),
            }
        };
        Self { name, variant, make: Box::new(make) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Creates a limit; its label distinguishes it from others of its kind.
    pub(super) fn limit(&self, label: &str) -> Limit {
        (self.make)(Made::New(label), Size::Plain)
    }

    /// `limit`, changed to this kind.
    pub(super) fn changed(&self, limit: &Limit, size: Size) -> Limit {
        (self.make)(Made::From(limit), size)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, variant, .. } = self;
        if variant.is_empty() { f.write_str(name) } else { write!(f, "{name}, {variant}") }
    }
}

impl Size {
    /// One of three numbers.
    fn of<T>(self, plain: T, lower: T, higher: T) -> T {
        match self {
            Self::Plain => plain,
            Self::Lower => lower,
            Self::Higher => higher,
        }
    }
}

/// All of them, variants of one name next to each other.
pub(super) fn all() -> Vec<Kind> {
    let plain = |size: Size| Quota::per_second(size.of(5, 2, 8));
    // An interval of a third of a second is not a whole number of nanoseconds.
    let thirds = |size: Size| Quota::per_second(3)?.with_burst(size.of(7, 4, 9));
    let millis = Duration::from_millis;
    vec![
        Kind::new("token_bucket", "5/s", move |size| plain(size).map(TokenBucket::new)),
        Kind::new("token_bucket", "3/s, burst 7", move |size| thirds(size).map(TokenBucket::new)),
        Kind::new("refilling_bucket", "3/s, burst 7", move |size| thirds(size).map(RefillingBucket::new)),
        Kind::new("leaky_bucket", "queue 3", move |size| {
            plain(size).map(|quota| LeakyBucket::new(quota).with_queue(size.of(3, 2, 6)))
        }),
        Kind::new("leaky_bucket", "queue 4, nodelay", move |size| {
            thirds(size).map(|quota| LeakyBucket::new(quota).with_queue(size.of(4, 2, 6)).without_delay())
        }),
        Kind::new("leaky_bucket", "queue 4, delay 2", move |size| {
            plain(size).map(|quota| LeakyBucket::new(quota).with_queue(size.of(4, 3, 6)).with_delay(2))
        }),
        Kind::new("fixed_window", "aligned", move |size| plain(size).map(FixedWindow::new)),
        Kind::new("fixed_window", "opened by the first request", move |size| {
            plain(size).map(|quota| FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest))
        }),
        #[cfg(feature = "calendar")]
        Kind::new("calendar", "days in Berlin", |size| {
            FixedWindow::calendar(size.of(5, 2, 8), Calendar::Day, "Europe/Berlin")
        }),
        Kind::new("sliding_window", "10 buckets", move |size| plain(size).map(SlidingWindow::new)),
        Kind::new("sliding_window", "3 buckets", move |size| {
            let window = plain(size).map(SlidingWindow::new).map_err(|error| error.to_string())?;
            window.with_buckets(size.of(3, 3, 4)).map_err(|error| error.to_string())
        }),
        Kind::new("sliding_window", "10 buckets, weighted edge", move |size| {
            plain(size).map(|quota| SlidingWindow::new(quota).with_edge(Edge::Weighted))
        }),
        Kind::new("sliding_window", "3 buckets, weighted edge", move |size| {
            let window = plain(size).map(SlidingWindow::new).map_err(|error| error.to_string())?;
            let window = window.with_edge(Edge::Weighted).with_buckets(size.of(3, 3, 4));
            window.map_err(|error| error.to_string())
        }),
        Kind::new("sliding_window", "10 buckets, strict edge", move |size| {
            plain(size).map(|quota| SlidingWindow::new(quota).with_edge(Edge::Strict))
        }),
        Kind::new("sliding_log", "", move |size| plain(size).map(SlidingLog::new)),
        Kind::new("smooth_bursty", "5/s", |size| {
            SmoothBursty::new(size.of(5.0, 2.0, 8.0)).map(|smooth| smooth.with_initial_permits(InitialPermits::Full))
        }),
        Kind::new("smooth_warming_up", "5/s", move |size| SmoothWarmingUp::new(size.of(5.0, 2.0, 8.0), millis(2_000))),
        Kind::new("concurrency", "5", |size| Concurrency::new(size.of(5, 2, 8))),
        Kind::new("concurrency", "3, burst 4", move |size| {
            Concurrency::new(3).map(|limit| limit.with_burst(size.of(4, 1, 6)).with_delay(millis(100)))
        }),
        Kind::new("total", "", |size| Total::new(size.of(8, 3, 12))),
        Kind::new("min_interval", "", move |size| MinInterval::new(millis(size.of(200, 500, 100)))),
    ]
}
