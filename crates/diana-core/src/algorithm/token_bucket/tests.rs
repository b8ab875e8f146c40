//! The one-word bucket answers as the two-word one does, to the nanosecond, up to the last timestamp.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    /// Waits for this many eighths of the time until the bucket is full.
    WaitFraction(u8),
    Take(u64, u64),
    Charge(u64),
    Refund(prop::sample::Index),
    Rescale(prop::sample::Index),
}

/// Quotas whose interval is whole nanoseconds, with a capacity of at most a hundred years.
fn quotas() -> impl Strategy<Value = Quota> {
    let intervals = prop_oneof![1..20_u64, 1..2_000_000_000_u64, 1..YEAR / 10];
    (1..1_000_u64, intervals, 1..1_000_u64).prop_filter_map(
        "more than a hundred years",
        |(permits, interval, burst)| {
            let period = permits.checked_mul(interval)?;
            (burst.checked_mul(interval)? <= 100 * YEAR).then_some(())?;
            Quota::new(permits, Duration::from_nanos(period)).ok()?.with_burst(burst).ok()
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![4 => 1..8_u64, 1 => 1..1_200_u64];
    let max_wait = prop_oneof![3 => Just(0), 1 => 0..5_000_000_000_u64, 1 => 0..YEAR];
    prop_oneof![
        1 => (0..40_u32).prop_map(|bits| Step::Wait(1 << bits)),
        1 => (0..1_000_u64).prop_map(Step::Wait),
        2 => (0..=8_u8).prop_map(Step::WaitFraction),
        6 => (cost(), max_wait).prop_map(|(cost, max_wait)| Step::Take(cost, max_wait)),
        1 => prop_oneof![4 => 1..8_u64, 1 => 1..=Cost::MAX.get()].prop_map(Step::Charge),
        3 => any::<prop::sample::Index>().prop_map(Step::Refund),
        1 => any::<prop::sample::Index>().prop_map(Step::Rescale),
    ]
}

proptest! {
    #[test]
    fn packed_bucket_equals_the_two_word_bucket(
        buckets in prop::collection::vec(quotas(), 1..4),
        // 584 years from 1970 are the year 2554, the maximum of a word.
        start in prop_oneof![Just(0), Just(56 * YEAR), any::<u64>(), u64::MAX - 200 * YEAR..=u64::MAX],
        script in prop::collection::vec(steps(), 1..60),
    ) {
        let pairs: Vec<_> = buckets
            .into_iter()
            .map(TokenBucket::new)
            .map(|wide| (wide.packed().expect("whole nanoseconds").0, wide))
            .collect();
        let (mut narrow, mut wide) = pairs[0].clone();
        let mut now = Timestamp::from_nanos(start);
        let (mut word, mut words) = (narrow.fresh(now), wide.fresh(now));
        let mut receipts = Vec::new();
        for step in script {
            match step {
                Step::Wait(nanos) => now = now + Duration::from_nanos(nanos),
                Step::WaitFraction(eighths) => {
                    now = now + wide.status(&words, now).reset / 8 * u32::from(eighths);
                }
                Step::Take(cost, max_wait) => {
                    let (cost, max_wait) = (Cost::new(cost).unwrap(), MaxWait::up_to(Duration::from_nanos(max_wait)));
                    prop_assert_eq!(narrow.peek(&word, now, cost, max_wait), wide.peek(&words, now, cost, max_wait));
                    let answer = wide.answer(&mut words, now, cost, max_wait);
                    prop_assert_eq!(narrow.answer(&mut word, now, cost, max_wait), answer);
                    receipts.extend(answer.receipt());
                }
                Step::Charge(cost) => {
                    let cost = Cost::new(cost).unwrap();
                    narrow.charge(&mut word, now, cost);
                    wide.charge(&mut words, now, cost);
                }
                Step::Refund(index) if !receipts.is_empty() => {
                    let receipt = receipts.swap_remove(index.index(receipts.len()));
                    prop_assert_eq!(narrow.refund(&mut word, now, &receipt), wide.refund(&mut words, now, &receipt));
                }
                Step::Refund(_) => {}
                Step::Rescale(index) => {
                    let (new_narrow, new_wide) = index.get(&pairs).clone();
                    new_narrow.rescale(&mut word, &narrow, now);
                    new_wide.rescale(&mut words, &wide, now);
                    (narrow, wide) = (new_narrow, new_wide);
                }
            }
            prop_assert_eq!(narrow.status(&word, now), wide.status(&words, now));
            prop_assert_eq!(narrow.is_fresh(&word, now), wide.is_fresh(&words, now));
        }
    }
}

#[test]
fn fractional_nanoseconds_or_a_huge_burst_cannot_be_packed() {
    let packed = |quota: &str| TokenBucket::new(quota.parse().unwrap()).packed();
    assert!(packed("1000/s").is_some());
    assert!(packed("3/s").is_none());
    assert!(packed("2/ns").is_none());
    assert!(packed("1/day burst 4294967295").is_none());
    assert!(packed("1/day burst 100000").is_some());
}

/// Quotas of any size, with intervals and capacities of more than a word too.
fn any_quotas() -> impl Strategy<Value = Quota> {
    let numbers = || prop_oneof![1..20_u64, 1..2_000_000_000_u64, 1..=u64::MAX];
    (numbers(), numbers(), numbers()).prop_filter_map("an invalid quota", |(permits, period, burst)| {
        Quota::new(permits, Duration::from_nanos(period)).ok()?.with_burst(burst).ok()
    })
}

proptest! {
    #[test]
    fn the_status_of_an_answer_is_the_status_of_the_state(
        quota in any_quotas(),
        charged in prop_oneof![0..8_u64, 0..=u64::MAX],
        times in prop::collection::vec(prop_oneof![0..4_000_000_000_u64, 0..200 * YEAR, any::<u64>()], 1..20),
    ) {
        let (bucket, leaky) = (TokenBucket::new(quota), crate::LeakyBucket::new(quota));
        let (mut state, mut leaky_state) = (BucketState::default(), leaky.fresh(Timestamp::EPOCH));
        if let Ok(cost) = Cost::new(charged) {
            bucket.charge(&mut state, Timestamp::EPOCH, cost);
            leaky.charge(&mut leaky_state, Timestamp::EPOCH, cost);
        }
        for now in times.into_iter().map(Timestamp::from_nanos) {
            let answer = bucket.answer(&mut state, now, Cost::ONE, MaxWait::NONE);
            prop_assert_eq!(answer.status(), bucket.status(&state, now));
            prop_assert_eq!(answer, Answer::new(answer.outcome, bucket.status(&state, now)));
            let answer = leaky.answer(&mut leaky_state, now, Cost::ONE, MaxWait::NONE);
            prop_assert_eq!(answer.status(), leaky.status(&leaky_state, now));
        }
    }
}
