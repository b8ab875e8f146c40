//! What holds for every algorithm, whatever happened to the key before.
//!
//! A law is a function over any [`Algorithm`](diana_core::Algorithm). A new algorithm is put under all of them with one
//! line, `laws!(name, a strategy for its parameters)`, and where its permits can be counted with one more, `counts!`.
//! A script of random events ([`script`]) brings the key into some state first; then the law is asked of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

#[path = "laws/counts.rs"]
mod counts;
#[path = "laws/every.rs"]
mod every;
#[path = "laws/extremes.rs"]
mod extremes;
#[path = "laws/rates.rs"]
mod rates;
#[path = "laws/script.rs"]
mod script;

use diana_core::{Concurrency, LeakyBucket, MinInterval, Patience, Quota, TokenBucket, Total};
use proptest::prelude::*;
use std::time::Duration;

/// The laws of [`every`] and [`extremes`], for one algorithm.
macro_rules! laws {
    ($name:ident, $algorithms:expr) => {
        mod $name {
            use super::*;
            use crate::script::{costs, extreme_scripts, patiences, scripts};

            proptest! {
                #[test]
                fn a_refusal_changes_nothing_and_peek_tells_what_take_does(a in $algorithms, script in scripts()) {
                    every::refusal_and_peek(&a, &script)?;
                }

                #[test]
                fn waiting_exactly_as_told_succeeds_and_a_nanosecond_less_does_not(
                    a in $algorithms, script in scripts(), cost in costs(), patience in patiences(),
                ) {
                    every::retry_is_exact(&a, &script, cost, patience)?;
                }

                #[test]
                fn an_idle_key_answers_as_a_fresh_one(a in $algorithms, script in scripts(), probe in scripts()) {
                    every::idle_equals_fresh(&a, &script, &probe)?;
                }

                #[test]
                fn an_immediate_refund_leaves_the_key_as_it_stood(
                    a in $algorithms, script in scripts(), cost in costs(), patience in patiences(), probe in scripts(),
                ) {
                    every::refund_undoes(&a, &script, cost, patience, &probe)?;
                }

                #[test]
                fn nothing_overflows_whatever_the_time_and_the_cost(
                    a in prop::collection::vec($algorithms, 1..4), script in extreme_scripts(),
                ) {
                    extremes::survives(&a, &script)?;
                }

                #[test]
                fn a_clock_that_steps_back_gives_nothing_back(
                    a in $algorithms, script in scripts(), back in any::<u64>(), cost in costs(), patience in patiences(),
                ) {
                    extremes::stepping_back_gives_nothing(&a, &script, back, cost, patience)?;
                }
            }
        }
    };
}

/// The laws of [`counts`], for one algorithm and those who have `$patience`.
macro_rules! counts {
    ($name:ident, $algorithms:expr, $patience:expr) => {
        mod $name {
            use super::*;
            use crate::script::{costs, scripts};

            proptest! {
                #[test]
                fn a_sum_costs_what_its_parts_cost(a in $algorithms, script in scripts(), x in costs(), y in costs()) {
                    counts::adds_up(&a, &script, x, y, $patience)?;
                }

                #[test]
                fn what_remains_is_exactly_what_can_be_taken(a in $algorithms, script in scripts()) {
                    counts::remaining_is_exact(&a, &script, $patience)?;
                }
            }
        }
    };
}

laws!(token_bucket, token_buckets());
laws!(leaky_bucket, leaky_buckets());
laws!(concurrency, concurrencies());
laws!(total, totals());
laws!(min_interval, min_intervals());

counts!(token_bucket_counts, token_buckets(), Patience::NONE);
// What is free in a line, or beyond a limit, is there for those who will wait for it.
counts!(leaky_bucket_counts, leaky_buckets(), Patience::FOREVER);
counts!(concurrency_counts, concurrencies(), Patience::FOREVER);
counts!(total_counts, totals(), Patience::NONE);

/// Small numbers, where everything collides, and real ones, whose intervals are fractions.
fn quotas() -> impl Strategy<Value = Quota> {
    let periods = prop_oneof![1..12_u64, 1..2_000_000_000_u64, Just(1_000_000_000_u64), Just(86_400_000_000_000_u64)];
    let permits = prop_oneof![4 => 1..12_u64, 1 => 1..2_000_000_u64];
    (permits, periods, 1..12_u64).prop_map(|(permits, period, burst)| {
        Quota::new(permits, Duration::from_nanos(period)).unwrap().with_burst(burst).unwrap()
    })
}

fn token_buckets() -> impl Strategy<Value = TokenBucket> {
    quotas().prop_map(TokenBucket::new)
}

fn leaky_buckets() -> impl Strategy<Value = LeakyBucket> {
    (quotas(), 0..8_u64, prop::option::of(0..5_u64)).prop_map(|(quota, queue, delay)| {
        let bucket = LeakyBucket::new(quota).queue(queue);
        delay.map_or(bucket.clone().nodelay(), |permits| bucket.delay(permits))
    })
}

fn concurrencies() -> impl Strategy<Value = Concurrency> {
    (1..8_u64, prop_oneof![Just(0), 0..8_u64], 0..1_000_000_u64).prop_map(|(limit, burst, delay)| {
        Concurrency::new(limit).unwrap().burst(burst).delay(Duration::from_nanos(delay))
    })
}

fn totals() -> impl Strategy<Value = Total> {
    (1..40_u64).prop_map(|limit| Total::new(limit).unwrap())
}

fn min_intervals() -> impl Strategy<Value = MinInterval> {
    prop_oneof![1..12_u64, 1..2_000_000_000_u64]
        .prop_map(|nanos| MinInterval::new(Duration::from_nanos(nanos)).unwrap())
}
