//! The numbers in the descriptions of buckets are reached by a client that always sends, and never exceeded.
use crate::algorithm::DynAlgorithm;
use crate::{Document, Registry, RuleFile};
use diana_core::{
    Algorithm, Cost, LeakyBucket, MaxWait, Outcome, RefillingBucket, SmoothBursty, Timestamp, TokenBucket,
};
use std::time::Duration;

/// Returns when the requests of a client proceed that sends as many as are granted, every 10 ms for 30 seconds.
fn departures<A: Algorithm>(algorithm: &A, wait: MaxWait) -> Vec<Duration> {
    let start = Timestamp::from_secs(1_000_000);
    let mut state = algorithm.fresh(start);
    let mut departures = Vec::new();
    for step in 0..3_000 {
        let after = Duration::from_millis(10) * step;
        while let Outcome::Granted { wait, .. } = algorithm.take(&mut state, start + after, Cost::ONE, wait) {
            departures.push(after + wait);
        }
    }
    departures
}

fn departures_of(limit: &DynAlgorithm) -> Vec<Duration> {
    let token = limit.downcast::<TokenBucket>().map(|bucket| departures(bucket, MaxWait::NONE));
    let refilling = || Some(departures(limit.downcast::<RefillingBucket>()?, MaxWait::NONE));
    let smooth = || Some(departures(limit.downcast::<SmoothBursty>()?, MaxWait::NONE));
    let leaky = || Some(departures(limit.downcast::<LeakyBucket>()?, MaxWait::FOREVER));
    token.or_else(refilling).or_else(smooth).or_else(leaky).unwrap()
}

/// The number before or after some words of a description.
fn number(text: &str, before: &str, after: &str) -> usize {
    let (start, end) = (text.find(before).unwrap() + before.len(), text.find(after).unwrap());
    text[start..end].parse().unwrap()
}

#[test]
fn what_a_bucket_allows_at_most_is_reached_and_not_exceeded() {
    for limit in [
        "5/s",
        "5/s burst 1",
        "5/s burst 20",
        "20/2s burst 3",
        "5/s, refill: {every: 1s}",
        "5/s burst 2, refill: {every: 1s}",
        "5/s burst 8, refill: {every: 1s}",
        "5/s, algorithm: leaky_bucket, burst: 5, nodelay: true",
        "3/s, algorithm: leaky_bucket, burst: 50, delay: 8",
        "5/s, algorithm: smooth_bursty",
        "5/s, algorithm: smooth_bursty, burst_seconds: 2.5",
        "20/2s, algorithm: smooth_bursty, burst_seconds: 3",
    ] {
        let document = Document::new("diana.yaml", format!("rules: [{{name: a, limit: {limit}}}]"));
        let file = RuleFile::read(&document, &Registry::default()).unwrap();
        let (rule, text) = (&file.rules[0], super::super::rule(&file.rules[0]).limit);
        let departures = departures_of(&rule.limits[0].configured);
        let period = Duration::from_secs(if limit.contains("2s") { 2 } else { 1 });
        let within = |time: Duration| {
            let from = |start: &Duration| departures.iter().filter(|at| (*start..=*start + time).contains(at)).count();
            departures.iter().map(from).max().unwrap()
        };
        assert_eq!(within(period), number(&text, "at most ", " in any "), "{limit}: {text}");
        if text.contains("up to ") {
            assert_eq!(within(Duration::ZERO), number(&text, "up to ", " at once"), "{limit}: {text}");
        }
    }
}
