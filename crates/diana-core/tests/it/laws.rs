//! Laws that are true for every algorithm, in any state of the key.
//!
//! A law is a function over any [`Algorithm`](diana_core::Algorithm). A new algorithm is checked against all of them
//! with one line, `laws!(name, a strategy for its parameters)`, and if its permits can be counted with one more,
//! `counts!`. A script of random events ([`script`]) brings the key into some state first; then the law is checked.

mod extremes;
mod general;
mod rates;
mod script;

use diana_core::{
    Adaptive, Calendar, Concurrency, Edge, FixedWindow, LeakyBucket, MaxWait, MinInterval, Quota, WindowStart,
};
use diana_core::{
    InitialPermits, RefillingBucket, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TimeDebt, TokenBucket,
    Total,
};
use proptest::prelude::*;
use std::time::Duration;

/// The laws of every algorithm, for one of them.
macro_rules! laws {
    ($name:ident, $algorithms:expr) => {
        mod $name {
            use super::*;
            use crate::laws::script::{costs, extreme_scripts, max_waits, scripts};

            proptest! {
                #[test]
                fn a_denial_changes_nothing_and_peek_equals_take(a in $algorithms, script in scripts()) {
                    general::denial_and_peek(&a, &script)?;
                }

                #[test]
                fn the_retry_time_is_exact_to_the_nanosecond(
                    a in $algorithms, script in scripts(), cost in costs(), max_wait in max_waits(),
                ) {
                    general::retry_is_exact(&a, &script, cost, max_wait)?;
                }

                #[test]
                fn an_idle_key_answers_as_a_fresh_one(a in $algorithms, script in scripts(), probe in scripts()) {
                    general::idle_equals_fresh(&a, &script, &probe)?;
                }

                #[test]
                fn a_saved_state_answers_as_before(a in $algorithms, script in scripts(), probe in scripts()) {
                    general::saved_equals_original(&a, &script, &probe)?;
                }

                #[test]
                fn an_immediate_refund_restores_the_status(
                    a in $algorithms, script in scripts(), cost in costs(), max_wait in max_waits(),
                ) {
                    general::refund_undoes(&a, &script, cost, max_wait, &[])?;
                }

                #[test]
                fn nothing_overflows_for_any_time_and_cost(
                    a in prop::collection::vec($algorithms, 1..4), script in extreme_scripts(),
                ) {
                    extremes::never_overflows(&a, &script)?;
                }

                #[test]
                fn a_clock_that_steps_back_restores_nothing(
                    a in $algorithms, script in scripts(), back in any::<u64>(), cost in costs(), max_wait in max_waits(),
                ) {
                    extremes::stepping_back_restores_nothing(&a, &script, back, cost, max_wait)?;
                }
            }
        }
    };
}

/// A refund undoes a grant exactly, for one algorithm.
///
/// Not for those with floats, whose sums differ in the last bit by how they are divided, nor for the bucket with whole
/// refills, which stores the time of the last grant.
macro_rules! undoes {
    ($name:ident, $algorithms:expr) => {
        mod $name {
            use super::*;
            use crate::laws::script::{costs, max_waits, scripts};

            proptest! {
                #[test]
                fn an_immediate_refund_restores_the_state(
                    a in $algorithms, script in scripts(), cost in costs(), max_wait in max_waits(), probe in scripts(),
                ) {
                    general::refund_undoes(&a, &script, cost, max_wait, &probe)?;
                }
            }
        }
    };
}

/// The laws of algorithms that count permits, for one algorithm and requests with `$max_wait`.
macro_rules! counts {
    ($name:ident, $algorithms:expr, $max_wait:expr) => {
        mod $name {
            use super::*;
            use crate::laws::script::{costs, scripts};

            proptest! {
                #[test]
                fn a_sum_costs_as_much_as_its_parts(a in $algorithms, script in scripts(), x in costs(), y in costs()) {
                    general::adds_up(&a, &script, x, y, $max_wait)?;
                }

                #[test]
                fn exactly_the_remaining_permits_can_be_taken(a in $algorithms, script in scripts()) {
                    general::remaining_is_exact(&a, &script, $max_wait)?;
                }

                #[test]
                fn nothing_is_denied_only_over_the_limit(a in $algorithms, script in scripts()) {
                    general::zero_is_denied_over_the_limit(&a, &script)?;
                }
            }
        }
    };
}

laws!(token_bucket, token_buckets());
laws!(leaky_bucket, leaky_buckets());
laws!(concurrency, concurrencies());
laws!(adaptive, adaptives());
laws!(total, totals());
laws!(min_interval, min_intervals());
laws!(refilling_bucket, refilling_buckets());
laws!(fixed_window, fixed_windows());
laws!(sliding_window, sliding_windows());
laws!(sliding_log, sliding_logs());
laws!(smooth_bursty, smooth_bursties());
laws!(smooth_warming_up, smooth_warming_ups());
laws!(time_debt, Just(TimeDebt));

undoes!(token_bucket_undoes, token_buckets());
undoes!(leaky_bucket_undoes, leaky_buckets());
undoes!(concurrency_undoes, concurrencies());
undoes!(adaptive_undoes, adaptives());
undoes!(total_undoes, totals());
undoes!(min_interval_undoes, min_intervals());
undoes!(fixed_window_undoes, fixed_windows());
undoes!(sliding_window_undoes, sliding_windows());
undoes!(sliding_log_undoes, sliding_logs());

counts!(token_bucket_counts, token_buckets(), MaxWait::NONE);
// Free slots in a queue, or in a burst over the limit, are only for requests that wait.
counts!(leaky_bucket_counts, leaky_buckets(), MaxWait::FOREVER);
counts!(concurrency_counts, concurrencies(), MaxWait::FOREVER);
counts!(total_counts, totals(), MaxWait::NONE);
counts!(refilling_bucket_counts, refilling_buckets(), MaxWait::NONE);
counts!(fixed_window_counts, fixed_windows(), MaxWait::NONE);
counts!(sliding_window_counts, sliding_windows(), MaxWait::NONE);
counts!(sliding_log_counts, sliding_logs(), MaxWait::NONE);

/// Small numbers, which collide often, and realistic ones, whose intervals are fractions.
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
        let bucket = LeakyBucket::new(quota).with_queue(queue);
        delay.map_or(bucket.clone().without_delay(), |permits| bucket.with_delay(permits))
    })
}

fn concurrencies() -> impl Strategy<Value = Concurrency> {
    (1..8_u64, prop_oneof![Just(0), 0..8_u64], 0..1_000_000_u64).prop_map(|(limit, burst, delay)| {
        Concurrency::new(limit).unwrap().with_burst(burst).with_delay(Duration::from_nanos(delay))
    })
}

fn adaptives() -> impl Strategy<Value = Adaptive> {
    (1..4_u64, 1..12_u64, 1..12_u64).prop_map(|(min, initial, max)| Adaptive::new(min, initial, max).unwrap())
}

fn totals() -> impl Strategy<Value = Total> {
    (1..40_u64).prop_map(|limit| Total::new(limit).unwrap())
}

fn min_intervals() -> impl Strategy<Value = MinInterval> {
    prop_oneof![1..12_u64, 1..2_000_000_000_u64]
        .prop_map(|nanos| MinInterval::new(Duration::from_nanos(nanos)).unwrap())
}

fn refilling_buckets() -> impl Strategy<Value = RefillingBucket> {
    quotas().prop_map(RefillingBucket::new)
}

fn fixed_windows() -> impl Strategy<Value = FixedWindow> {
    let starts = prop_oneof![Just(WindowStart::OnTheClock), Just(WindowStart::FirstRequest)];
    let plain = (quotas(), starts).prop_map(|(quota, start)| FixedWindow::new(quota).with_window_start(start));
    let spans = prop_oneof![Just(Calendar::Day), Just(Calendar::Week), Just(Calendar::Month)];
    let zones = prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("America/St_Johns"), Just("Asia/Kolkata")];
    let calendar =
        (1..12_u64, spans, zones).prop_map(|(limit, span, zone)| FixedWindow::calendar(limit, span, zone).unwrap());
    prop_oneof![4 => plain, 1 => calendar]
}

fn sliding_windows() -> impl Strategy<Value = SlidingWindow> {
    let edges = prop_oneof![Just(Edge::Loose), Just(Edge::Weighted), Just(Edge::Strict)];
    (quotas(), 1..8_u32, edges).prop_map(|(quota, buckets, edge)| {
        SlidingWindow::new(quota).with_edge(edge).with_buckets(buckets.into()).unwrap()
    })
}

fn sliding_logs() -> impl Strategy<Value = SlidingLog> {
    prop::collection::vec(quotas(), 1..4).prop_map(|quotas| SlidingLog::several(quotas).unwrap())
}

fn smooth_bursties() -> impl Strategy<Value = SmoothBursty> {
    (smooth_rates(), 0..5_u32, any::<bool>()).prop_map(|(rate, burst, full)| {
        let limiter = SmoothBursty::new(rate).unwrap().with_saved_seconds(f64::from(burst)).unwrap();
        limiter.with_initial_permits(if full { InitialPermits::Full } else { InitialPermits::Empty })
    })
}

fn smooth_warming_ups() -> impl Strategy<Value = SmoothWarmingUp> {
    (smooth_rates(), 1..5_000_u64, 1..10_u32).prop_map(|(rate, millis, factor)| {
        let limiter = SmoothWarmingUp::new(rate, Duration::from_millis(millis)).unwrap();
        limiter.with_cold_factor(f64::from(factor)).unwrap()
    })
}

fn smooth_rates() -> impl Strategy<Value = f64> {
    prop_oneof![(1..1_000_u32).prop_map(|rate| f64::from(rate) / 7.0), 0.01..1e6_f64]
}
