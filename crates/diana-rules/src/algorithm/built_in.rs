//! The built-in algorithms, with their options.

use super::{AlgorithmOptions, DynAlgorithm, RegisteredAlgorithm, invalid};
use crate::json_schema::{flag, object, reference, reference_with, requiring, word};
use diana_core::{
    Calendar, Edge, FixedWindow, LeakyBucket, MAX_PERMITS, Quota, RefillingBucket, SlidingLog, SlidingWindow,
    WindowStart,
};
use diana_core::{InitialPermits, SmoothBursty, SmoothWarmingUp, TokenBucket};
use diana_document::Problem;
use diana_document::Span;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use std::fmt::Display;
use std::time::Duration;

/// The values of `edge`.
const EDGES: [&str; 3] = ["loose", "weighted", "strict"];
/// The fields of `refill`.
const REFILL: [&str; 2] = ["tokens", "every"];

/// The built-in algorithms, by name.
pub(crate) fn algorithms() -> [(&'static str, RegisteredAlgorithm); 7] {
    let described = |name, options, build: fn(Quota, &mut AlgorithmOptions<'_, '_>) -> _, description| {
        (
            name,
            RegisteredAlgorithm {
                description: Some(description),
                schema: schema_of,
                ..RegisteredAlgorithm::new(options, build)
            },
        )
    };
    [
        described(
            "token_bucket",
            &["burst", "refill"],
            token_bucket,
            "at most burst + rate × t in any time t; the burst may be used at once",
        ),
        described(
            "leaky_bucket",
            &["burst", "delay", "nodelay"],
            leaky_bucket,
            "one by one at an even rate; `burst` requests may be queued, and requests over that are denied",
        ),
        described(
            "fixed_window",
            &["opens", "time_zone"],
            fixed_window,
            "a count for each window: aligned to the clock or the calendar, or starting at the first request",
        ),
        described(
            "sliding_window",
            &["buckets", "precision", "edge"],
            sliding_window,
            "a count for a window that slides in steps, set by `buckets` or `precision`",
        ),
        described(
            "sliding_log",
            &[],
            |quota, _| Some(SlidingLog::new(quota).into()),
            "an exact count for any window; memory grows with the limit",
        ),
        described(
            "smooth_bursty",
            &["burst_seconds", "starts"],
            smooth_bursty,
            "Guava's SmoothBursty: an even rate; permits unused for up to `burst_seconds` are saved",
        ),
        described(
            "smooth_warming_up",
            &["warm_up", "cold_factor"],
            smooth_warming_up,
            "Guava's SmoothWarmingUp: an even rate, slower after a pause for the time of `warm_up`",
        ),
    ]
}

/// `refill: {every: 1min}` adds the tokens of a minute all at once, rather than one by one.
fn token_bucket(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    let Some(refill) = options.node("refill") else { return Some(DynAlgorithm::from(TokenBucket::new(quota))) };
    let problems = options.problems();
    let mut fields = MapReader::of(refill, "`refill`", REFILL, problems)?;
    let (given, before) = (fields.take("tokens"), problems.len());
    let tokens = given.and_then(|node| scalar::count(node, "`tokens`", 1, problems));
    let every = fields.require("every", problems).and_then(|node| scalar::duration(node, "`every`", problems));
    fields.finish(problems);
    let has_problems = problems.len() > before;
    let every = every.filter(|_| !has_problems)?;
    let tokens = refilled(quota, given.and(tokens.map(|tokens| (tokens, refill.span))), every, options)?;
    let bucket = or_report(Quota::new(tokens, every), options)?;
    // A bucket that is smaller than one refill would never reach its rate.
    let has_burst = options.node("burst").is_some() || quota.burst() != quota.permits();
    let burst = if has_burst { quota.burst() } else { quota.burst().max(tokens) };
    let bucket = or_report(bucket.with_burst(burst), options)?;
    Some(DynAlgorithm::from(RefillingBucket::new(bucket)))
}

/// Returns the number of tokens of one refill, which must match the limit's rate: the configured number, or that of the
/// rate.
fn refilled(
    quota: Quota,
    given: Option<(u64, Span)>,
    every: Duration,
    options: &mut AlgorithmOptions<'_, '_>,
) -> Option<u64> {
    let (tokens, period) = (u128::from(quota.permits()).saturating_mul(every.as_nanos()), quota.period().as_nanos());
    let whole = tokens.is_multiple_of(period).then(|| u64::try_from(tokens / period).ok()).flatten();
    let whole = whole.filter(|tokens| (1..=MAX_PERMITS).contains(tokens));
    let (rate, time) = (quota.with_burst(quota.permits()).unwrap_or(quota), scalar::time(every));
    let (span, what) = match given {
        Some((tokens, _)) if whole == Some(tokens) => return whole,
        None if whole.is_some() => return whole,
        Some((tokens, span)) => (span, format!("`refill` of {tokens} per {time} does not match the limit {rate}")),
        None => (options.span(), format!("{rate} is not a whole number of tokens per {time}")),
    };
    let expected = match whole {
        Some(tokens) => format!("use {{every: {time}}}, which adds {tokens} at once, or a limit of the same rate"),
        None => "expected a limit of the same rate, such as 100/min with {every: 1min}".to_owned(),
    };
    options.problem(Problem::new(span, what).expected(expected));
    None
}

/// The burst of a leaky bucket is its queue.
fn leaky_bucket(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    // The default is an empty queue: a quota's own burst is its count.
    let queue = options.count("burst", 0).unwrap_or(0);
    let bucket = LeakyBucket::new(quota).with_queue(queue);
    let (delay, nodelay) = (options.count("delay", 0), options.flag("nodelay"));
    Some(DynAlgorithm::from(match (delay, nodelay) {
        (Some(_), Some(true)) => {
            let span = options.node("nodelay")?.span;
            options.problem(
                Problem::new(span, "`nodelay` and `delay` cannot be used together").expected("remove one of the two"),
            );
            return None;
        }
        (_, Some(true)) => bucket.without_delay(),
        (Some(permits), _) => bucket.with_delay(permits),
        _ => bucket,
    }))
}

/// The window is aligned to the clock, starts at the first request, or follows the calendar of a time zone.
fn fixed_window(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    let Some(zone) = options.text("time_zone") else {
        let opens = match options.word("opens", &["clock", "first_request"]) {
            Some(1) => WindowStart::FirstRequest,
            _ => WindowStart::OnTheClock,
        };
        return Some(DynAlgorithm::from(FixedWindow::new(quota).with_window_start(opens)));
    };
    if let Some(opens) = options.node("opens") {
        let problem = Problem::new(
            opens.span,
            "`opens` and `time_zone` cannot be used together: calendar days start at midnight",
        );
        options.problem(problem.expected("remove one of the two"));
        return None;
    }
    const DAY: Duration = Duration::from_secs(86_400);
    let unit = [(DAY, Calendar::Day), (DAY * 7, Calendar::Week), (DAY * 30, Calendar::Month)];
    let Some((_, unit)) = unit.into_iter().find(|(length, _)| *length == quota.period()) else {
        let what = format!("`time_zone` needs a limit per day, week or month, found {quota}");
        let span = options.span();
        options.problem(Problem::new(span, what).expected("use a limit such as 1000/day, or remove `time_zone`"));
        return None;
    };
    or_report_at(FixedWindow::calendar(quota.permits(), unit, zone), "time_zone", options).map(DynAlgorithm::from)
}

fn sliding_window(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    let edge = match options.word("edge", &EDGES) {
        Some(1) => Edge::Weighted,
        Some(2) => Edge::Strict,
        _ => Edge::Loose,
    };
    let window = SlidingWindow::new(quota).with_edge(edge);
    let (buckets, precision) = (options.count("buckets", 1), options.duration("precision"));
    let divided = match (buckets, precision) {
        (Some(_), Some(_)) => {
            let span = options.node("precision")?.span;
            let problem = Problem::new(span, "`buckets` and `precision` cannot be used together");
            options.problem(problem.expected("remove one of the two"));
            return None;
        }
        (Some(buckets), None) => window.with_buckets(buckets),
        (None, Some(precision)) => window.with_precision(precision),
        (None, None) => Ok(window),
    };
    let divided = or_report_at(divided, if precision.is_some() { "precision" } else { "buckets" }, options)?;
    if let Some((precision, node)) = precision.zip(options.node("precision"))
        && precision > quota.period()
    {
        let (window, precision) = (scalar::time(quota.period()), scalar::time(precision));
        let what = format!("`precision` {precision} is longer than the window of {window}");
        options.problem(Problem::new(node.span, what).expected("expected a part of the window"));
        return None;
    }
    Some(DynAlgorithm::from(divided))
}

fn smooth_bursty(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    let smooth = or_report(SmoothBursty::new(per_second(&quota)), options)?;
    let smooth = match options.number("burst_seconds") {
        Some(seconds) => or_report_at(smooth.with_saved_seconds(seconds), "burst_seconds", options)?,
        None => smooth,
    };
    // With many keys, an idle one must equal a new one; a single limiter may start as Guava's does.
    let starts = match options.word("starts", &["full", "empty"]) {
        Some(1) => InitialPermits::Empty,
        _ => InitialPermits::Full,
    };
    Some(DynAlgorithm::from(smooth.with_initial_permits(starts)))
}

fn smooth_warming_up(quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
    let Some(warm_up) = options.duration("warm_up") else {
        if options.node("warm_up").is_none() {
            let span = options.span();
            let problem = Problem::new(span, "`smooth_warming_up` needs a `warm_up`");
            options.problem(problem.expected("add the warm-up time, such as `warm_up: 10s`"));
        }
        return None;
    };
    let smooth = or_report(SmoothWarmingUp::new(per_second(&quota), warm_up), options)?;
    let smooth = match options.number("cold_factor") {
        Some(factor) if factor < 1.0 => {
            // Guava's formula accepts it, and is then faster when cold: the opposite of a warm-up.
            let node = options.node("cold_factor")?;
            let what = format!("`cold_factor` {factor} is out of range: a cold start would be faster than a warm one");
            options.problem(Problem::new(node.span, what).expected("expected a number of at least 1, such as 3"));
            return None;
        }
        Some(factor) => or_report_at(smooth.with_cold_factor(factor), "cold_factor", options)?,
        None => smooth,
    };
    Some(DynAlgorithm::from(smooth))
}

/// The rate in permits per second.
fn per_second(quota: &Quota) -> f64 {
    quota.permits() as f64 / quota.period().as_secs_f64()
}

/// Returns the value, or reports the error at one of the options.
fn or_report_at<T, E: Display>(result: Result<T, E>, name: &str, options: &mut AlgorithmOptions<'_, '_>) -> Option<T> {
    let span = options.node(name).map_or_else(|| options.span(), |node| node.span);
    result.map_err(|error| options.problem(Problem::new(span, error.to_string()))).ok()
}

/// Returns the value, or reports the error.
fn or_report<T, E: Display>(result: Result<T, E>, options: &mut AlgorithmOptions<'_, '_>) -> Option<T> {
    result.map_err(|error| invalid(error, options)).ok()
}

/// The options of the built-in algorithms.
fn schema_of(name: &str) -> Option<serde_json::Value> {
    Some(match name {
        "burst" => reference("count_or_none", "the maximum number at once; of a leaky bucket, the queue length"),
        "refill" => requiring(
            object("adds several tokens at once, rather than one by one", &REFILL, |field| match field {
                "tokens" => reference("count", "the number of tokens of one refill; derived from the rate by default"),
                _ => reference("duration", "the time between two refills"),
            }),
            &["every"],
        ),
        "delay" => reference("count_or_none", "the number of queued requests that are not delayed"),
        "nodelay" => flag("whether queued requests are not delayed, so that only their number is limited"),
        "opens" => {
            word("when a window starts: aligned to the clock, or at the first request", &["clock", "first_request"])
        }
        "time_zone" => reference_with(
            "text",
            "the time zone of the days, weeks or months",
            &["UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York"],
        ),
        "buckets" => reference("count", "the number of steps of the sliding window; 10 by default"),
        "precision" => reference("duration", "the length of a step of the sliding window"),
        "edge" => word(
            "how the oldest step counts, which the window covers in part: not at all, in proportion, or fully",
            &EDGES,
        ),
        "burst_seconds" => {
            reference("number", "the number of seconds for which unused permits are saved; 1 by default")
        }
        "starts" => word("whether a new key starts with all permits that could be saved, or none", &["full", "empty"]),
        "warm_up" => reference("duration", "the warm-up time after a pause"),
        "cold_factor" => reference("number", "the slowdown factor when cold; 3 by default"),
        _ => return None,
    })
}
