//! A request over several limits is decided in one pass, and nevertheless as if all limits were checked without effect
//! first, and charged only if all of them grant.

use crate::support::{T0, ms, quota};
use diana_core::{
    Answer, Ask, Concurrency, Cost, Decision, FixedWindow, LeakyBucket, Limit, LocalStore, MaxWait, MemoryStore,
    MinInterval, OnFull, RefillingBucket, SlidingLog, SlidingWindow, SmoothBursty, TableOptions, Timestamp,
    TokenBucket, Total,
};
use proptest::prelude::*;
use proptest::sample::Index;

const KEYS: [&str; 3] = ["", "alice", "bob"];
const KINDS: usize = 11;
const MAX_ASKS: usize = 10;
/// More than are decided in one pass.
const MANY_ASKS: usize = 19;

/// One ask: a limit, a key, a cost, and a maximum wait in milliseconds.
#[derive(Clone, Debug)]
struct RandomAsk {
    limit: Index,
    key: usize,
    cost: u64,
    max_wait: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    /// The time goes forward by this many milliseconds, or back if the store has one shard.
    Time(i64),
    /// A request with a maximum wait in milliseconds.
    Decide(Vec<RandomAsk>, u64),
    /// An earlier decision is refunded.
    Refund(Index),
    Charge(RandomAsk),
    Reset(Index, usize),
    /// A limit gets other parameters, or another algorithm.
    Change(Index, usize, u64),
}

fn random_asks() -> impl Strategy<Value = RandomAsk> {
    (any::<Index>(), 0..KEYS.len(), 1..4_u64, prop::option::weighted(0.3, 0..500_u64))
        .prop_map(|(limit, key, cost, max_wait)| RandomAsk { limit, key, cost, max_wait })
}

/// Most requests have few asks, and some have more than are decided in one pass.
fn random_requests() -> impl Strategy<Value = Vec<RandomAsk>> {
    use prop::collection::vec;
    prop_oneof![3 => vec(random_asks(), 0..MAX_ASKS), 1 => vec(random_asks(), MAX_ASKS..MANY_ASKS)]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (-200..1_000_i64).prop_map(Step::Time),
        8 => (random_requests(), prop_oneof![Just(0), 0..1_000_u64])
            .prop_map(|(asks, max_wait)| Step::Decide(asks, max_wait)),
        2 => any::<Index>().prop_map(Step::Refund),
        1 => random_asks().prop_map(Step::Charge),
        1 => (any::<Index>(), 0..KEYS.len()).prop_map(|(limit, key)| Step::Reset(limit, key)),
        1 => (any::<Index>(), 0..KINDS, 1..9_u64).prop_map(|(limit, kind, size)| Step::Change(limit, kind, size)),
    ]
}

/// A limit of some kind and size: a new one, or `old` changed to it.
fn limit(old: Option<&Limit>, kind: usize, size: u64) -> Limit {
    macro_rules! limit {
        ($algorithm:expr) => {{
            let algorithm = $algorithm;
            match old {
                Some(old) => old.changed_to(algorithm),
                None => Limit::new(format!("{kind}"), algorithm),
            }
        }};
    }
    let per_second = quota(&format!("{size}/s"));
    match kind {
        0 | 1 => limit!(TokenBucket::new(per_second)),
        // Not a whole number of nanoseconds for each permit.
        2 => limit!(TokenBucket::new(quota(&format!("{size}/7s")))),
        3 => limit!(LeakyBucket::new(per_second)),
        4 => limit!(FixedWindow::new(per_second)),
        5 => limit!(SlidingWindow::new(per_second)),
        6 => limit!(SlidingLog::new(per_second)),
        7 => limit!(MinInterval::new(ms(size * 20)).unwrap()),
        8 => limit!(Concurrency::new(size).unwrap()),
        9 => limit!(RefillingBucket::new(per_second)),
        10 => limit!(SmoothBursty::new(f64::from(u32::try_from(size).unwrap())).unwrap()),
        _ => limit!(Total::new(size * 10).unwrap()),
    }
}

/// Decides one ask after the other, in a store of its own.
struct Reference(MemoryStore);

impl Reference {
    fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        // A request with one ask records its time even if it is denied.
        if let [ask] = asks {
            return Decision::new([self.0.decide_one(*ask, now, max_wait)]);
        }
        let checked = Self::each(asks, |ask| self.0.peek(&[ask], now, max_wait).answers()[0]);
        if !checked.is_granted() {
            return checked;
        }
        Self::each(asks, |ask| self.0.decide_one(ask, now, max_wait))
    }

    /// Calls `answer` once for each count, with the highest cost and the shortest maximum wait of its asks.
    fn each(asks: &[Ask<'_>], mut answer: impl FnMut(Ask<'_>) -> Answer) -> Decision {
        let mut answers = Vec::new();
        for ask in asks {
            let first = asks.iter().position(|other| other.same_count(ask)).unwrap();
            let same = || asks.iter().filter(|other| other.same_count(ask));
            let cost = same().map(|other| other.cost).max().unwrap();
            let max_wait = same().map(|other| other.max_wait).min().unwrap();
            let known = answers.get(first).copied();
            let first = Ask { cost, max_wait, ..asks[first] };
            answers.push(known.unwrap_or_else(|| answer(first)));
        }
        Decision::new(answers)
    }
}

fn ask<'a>(random: &RandomAsk, limits: &'a [Limit]) -> Ask<'a> {
    let ask = Ask::new(random.limit.get(limits), KEYS[random.key], Cost::new(random.cost).unwrap());
    random.max_wait.map_or(ask, |wait| ask.with_max_wait(MaxWait::up_to(ms(wait))))
}

fn one_pass_equals_reference(kinds: &[(usize, u64)], shards: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let new_store = || MemoryStore::new(TableOptions::default().shards(shards));
    let (store, reference) = (new_store(), Reference(new_store()));
    let mut limits: Vec<Limit> = kinds.iter().map(|(kind, size)| limit(None, *kind, *size)).collect();
    let mut granted: Vec<(Vec<RandomAsk>, Decision)> = Vec::new();
    let mut now = T0;
    for step in steps {
        match step {
            // Which keys share a clock depends on the hashes, unless there is one shard.
            Step::Time(millis) if *millis < 0 && shards == 1 => {
                now = Timestamp::from_nanos(now.as_nanos() - millis.unsigned_abs() * 1_000_000);
            }
            Step::Time(millis) => now = now + ms(millis.unsigned_abs()),
            Step::Decide(random, max_wait) => {
                let asks: Vec<Ask<'_>> = random.iter().map(|random| ask(random, &limits)).collect();
                let max_wait = MaxWait::up_to(ms(*max_wait));
                let expected = reference.decide(&asks, now, max_wait);
                let decision = store.decide(&asks, now, max_wait);
                prop_assert_eq!(&decision, &expected);
                if decision.is_granted() {
                    granted.push((random.clone(), decision));
                }
            }
            Step::Refund(index) if !granted.is_empty() => {
                let (random, decision) = granted.swap_remove(index.index(granted.len()));
                let asks: Vec<Ask<'_>> = random.iter().map(|random| ask(random, &limits)).collect();
                store.refund(&asks, &decision, now);
                reference.0.refund(&asks, &decision, now);
            }
            Step::Refund(_) => {}
            Step::Charge(random) => {
                store.charge(ask(random, &limits), now);
                reference.0.charge(ask(random, &limits), now);
            }
            Step::Reset(limit, key) => {
                store.reset(limit.get(&limits), KEYS[*key].as_bytes(), now);
                reference.0.reset(limit.get(&limits), KEYS[*key].as_bytes(), now);
            }
            Step::Change(index, kind, size) => {
                let index = index.index(limits.len());
                limits[index] = limit(Some(&limits[index]), *kind, *size);
            }
        }
        prop_assert_eq!(store.len(), reference.0.len());
        // Every state is as in the reference, now and later, and so is the latest time that each table has seen: a peek
        // at an earlier time is answered as of that.
        let earlier = if shards == 1 { Timestamp::EPOCH } else { now };
        for at in [earlier, now, now + ms(7), now + ms(333)] {
            for (limit, key) in limits.iter().flat_map(|limit| KEYS.iter().map(move |key| (limit, key))) {
                let peek = |store: &MemoryStore| store.peek(&[Ask::one(limit, *key)], at, MaxWait::FOREVER);
                prop_assert_eq!(peek(&store), peek(&reference.0), "{:?} for {:?}", limit, key);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn one_pass_equals_checking_all_and_then_taking_all(
        kinds in prop_oneof![
            prop::collection::vec((0..=KINDS, 1..9_u64), 1..6),
            prop::collection::vec((0..=KINDS, 1..9_u64), 40..50),
        ],
        shards in prop::sample::select(vec![1, 4, 256]),
        steps in prop::collection::vec(steps(), 1..40),
    ) {
        one_pass_equals_reference(&kinds, shards, &steps)?;
    }
}

#[test]
fn a_denied_request_does_not_advance_the_time_of_its_other_limits() {
    let store = MemoryStore::new(TableOptions::default().shards(1));
    let (first, second) =
        (Limit::new("first", TokenBucket::new(quota("10/s"))), Limit::new("second", Total::new(1).unwrap()));
    let asks = [Ask::one(&first, "key"), Ask::one(&second, "key")];
    assert!(store.decide(&asks, T0, MaxWait::NONE).is_granted());
    let before = store.peek(&asks, T0, MaxWait::NONE);
    assert!(!store.decide(&asks, T0 + ms(50), MaxWait::NONE).is_granted());
    assert_eq!(store.peek(&asks, T0, MaxWait::NONE), before);
}

#[test]
fn a_denied_request_adds_no_key() {
    // With `OnFull::Deny`, the answers of a denied request depend on free memory, which is reserved to find that out.
    for on_full in [OnFull::Share, OnFull::Allow] {
        let store = MemoryStore::new(TableOptions::default().on_full(on_full));
        let first = Limit::new("first", TokenBucket::new(quota("10/s")));
        let window = Limit::new("window", SlidingWindow::new(quota("10/s")));
        let last = Limit::new("last", Total::new(1).unwrap());
        assert!(store.decide(&[Ask::one(&last, "key")], T0, MaxWait::NONE).is_granted());
        let (keys, memory) = (store.len(), store.memory_used());
        for asks in [
            [Ask::one(&first, "a"), Ask::one(&window, "b"), Ask::one(&last, "key")],
            [Ask::one(&last, "key"), Ask::one(&first, "key"), Ask::one(&window, "key")],
            [Ask::one(&first, "a"), Ask::one(&last, "other"), Ask::new(&window, "b", Cost::MAX)],
        ] {
            assert!(!store.decide(&asks, T0, MaxWait::NONE).is_granted());
            assert_eq!((store.len(), store.memory_used()), (keys, memory));
        }
    }
}
