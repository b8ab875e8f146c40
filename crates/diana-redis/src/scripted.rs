//! What an algorithm of diana-core needs in order to live on Redis.

use crate::args::Args;
use crate::scripts::Module;
use diana_core::{Algorithm, Answer, Cost, MaxWait, Outcome, Receipt, Retry, Status, Timestamp};
use redis::Value;
use std::any::Any;
use std::time::Duration;

/// An algorithm that has a script.
///
/// The script keeps the state and decides; what is shown is reckoned here from the state that the script saw, with the
/// algorithm itself. So there is one place where remaining permits and retry times come from, and a script that decides
/// otherwise than the algorithm is found out (`tests/it/conformance.rs`).
pub(crate) trait Scripted: Algorithm {
    /// Its file.
    const MODULE: Module;

    /// Why a limit with these parameters can't be kept on Redis, if it can't.
    fn why_not(&self) -> Option<String> {
        None
    }

    /// The parameters as text without blanks, which is written with each state: whoever finds other ones than its own
    /// knows from them how to carry the state over.
    fn parameters(&self) -> String;

    /// The algorithm with these parameters.
    fn from_parameters(text: &str) -> Option<Self>;

    /// The script's arguments to take.
    fn take_args(&self, args: &mut Args, asking: &Asking);

    /// The script's arguments to charge.
    fn charge_args(&self, args: &mut Args, asking: &Asking);

    /// The receipt for a charge of what `asking` asks for, by the state that the script saw before it: by this, what turns out
    /// not to be used of it is given back. `None` where that can't be told.
    ///
    /// A charge that a grant could have been has the receipt of that grant.
    fn charged(&self, numbers: Numbers<'_>, asking: &Asking, now: Timestamp) -> Option<Receipt> {
        let asking = Asking { max_wait: MaxWait::FOREVER, ..*asking };
        self.answer_to(numbers, &asking, now, Effect::Taken)?.receipt()
    }

    /// The script's arguments to give back.
    fn refund_args(&self, args: &mut Args, receipt: &Receipt);

    /// Whether permits are held until they are given back, rather than used up: then no clock says when they come back, and
    /// who holds them for long must say so.
    const HOLDS: bool = false;

    /// The script's arguments to hold what `receipt` took for as long again, where permits are [held](Self::HOLDS).
    fn extend_args(&self, _args: &mut Args, _receipt: &Receipt, _permits_for: Duration) {}

    /// The state that the script saw. Not needed where [`answer_to`](Self::answer_to) does without it.
    fn seen(&self, _numbers: Numbers<'_>, _now: Timestamp) -> Option<Self::State> {
        None
    }

    /// What the algorithm answers to the state that the script saw. `None` if it makes no sense of it.
    fn answer_to(&self, numbers: Numbers<'_>, asking: &Asking, now: Timestamp, effect: Effect) -> Option<Answer> {
        Some(self.answer_to_state(self.seen(numbers, now)?, asking, now, effect))
    }

    /// What the algorithm answers to `state`.
    fn answer_to_state(&self, mut state: Self::State, asking: &Asking, now: Timestamp, effect: Effect) -> Answer {
        match effect {
            Effect::Taken => Algorithm::answer(self, &mut state, now, asking.cost, asking.max_wait),
            Effect::None => Answer {
                outcome: self.peek(&state, now, asking.cost, asking.max_wait),
                status: self.status(&state, now),
            },
        }
    }

    /// What the deny cache keeps of what a script saw, and of what the ask then took. Nothing if that does not tell enough.
    fn remembered(
        &self,
        numbers: Numbers<'_>,
        asking: &Asking,
        now: Timestamp,
        effect: Effect,
    ) -> Option<Remembered<Self::State>> {
        let mut state = self.seen(numbers, now)?;
        if effect == Effect::Taken {
            let _ = self.take(&mut state, now, asking.cost, asking.max_wait);
        }
        Some(Remembered::State(state))
    }

    /// The state that was written as `body`.
    fn read(&self, body: &Body, now: Timestamp) -> Option<Self::State>;

    /// What to write for `state`.
    fn write(&self, state: &Self::State, now: Timestamp) -> Written;

    /// What a key without a state has in store in the moment `at` of a change from `old`, under which it had `stored`: as
    /// if it had been kept. `None` where that is what a fresh key has.
    fn stored_after_change(&self, _old: &Self, _stored: Option<f64>, _at: Timestamp) -> Option<f64> {
        None
    }

    /// How blocks of permits are leased, if they can be.
    fn leasing(&self) -> Leasing {
        Leasing::None
    }

    /// The script's arguments to lease, where that is done by the script.
    fn lease_args(&self, _args: &mut Args, _lease: &LeaseCall<'_>) {}

    /// What a state of `old`, which was written as `body`, comes to under these parameters.
    fn carried(&self, old: &Self, body: &Body, now: Timestamp) -> Option<Written> {
        self.carried_over(old, body, now)
    }

    /// The same, where the state is all there is.
    fn carried_over(&self, old: &Self, body: &Body, now: Timestamp) -> Option<Written> {
        let mut state = old.read(body, now)?;
        self.rescale(&mut state, old, now);
        Some(self.write(&state, now))
    }

    /// The share of one instance when `instances` go by counts of their own: at least 1.
    #[must_use]
    fn divided(&self, instances: u64) -> Self;
}

/// The same answer with another mark on its receipt, if it has one.
pub(crate) fn with_mark(mut answer: Answer, mark: u128) -> Answer {
    if let Outcome::Granted { receipt, .. } = &mut answer.outcome {
        *receipt = receipt.with_mark(mark);
    }
    answer
}

/// One ask, as an algorithm needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) cost: Cost,
    /// In whole microseconds, as Redis counts.
    pub(crate) max_wait: MaxWait,
    /// What the time is here: a guess at Redis's, for those who need to know the date.
    pub(crate) about: Timestamp,
    /// A number that no other ask has.
    pub(crate) ticket: u128,
    /// How long permits in flight are kept for somebody who does not give them back.
    pub(crate) permits_for: Duration,
    /// What a key without a state has in store, where that is not what a fresh one has: in the moment of a change.
    pub(crate) stored: Option<f64>,
    /// How long the key is kept after a grant, at least.
    pub(crate) keeps: Duration,
}

/// Whether a request took what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Taken,
    None,
}

/// What the deny cache keeps of a state.
#[derive(Debug)]
pub(crate) enum Remembered<S> {
    /// All of it.
    State(S),
    /// What was reported, where the state is not sent.
    Report(Report),
}

/// What is known of a state that is not sent: it holds until the first of what is in use is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) status: Status,
    /// When it was so.
    pub(crate) at: Timestamp,
    /// For how long it is true: until the first of what is in use leaves a window.
    pub(crate) lasts: Duration,
    /// A cost that is denied, and until when.
    pub(crate) denied: Option<(Cost, Duration)>,
}

impl Report {
    /// The report at `now`: times are shorter by what has passed. `None` if it does not tell.
    pub(crate) fn answer(&self, asking: &Asking, now: Timestamp) -> Option<Answer> {
        let (passed, cost) = (now.since(self.at), asking.cost);
        if passed >= self.lasts {
            return None;
        }
        let mut status = self.status;
        status.reset = status.reset.saturating_sub(passed);
        let outcome = if cost.get() > status.limit {
            Outcome::never()
        } else if cost.get() <= status.remaining {
            Outcome::granted(Receipt::new(cost, now))
        } else {
            let (_, until) = self.denied.filter(|(denied, _)| *denied == cost)?;
            Outcome::Denied { retry: Retry::After(until.checked_sub(passed).filter(|after| !after.is_zero())?) }
        };
        Some(Answer { outcome, status })
    }
}

/// What the deny cache keeps of a state, without its type.
#[derive(Debug)]
pub(crate) struct Recalled {
    state: Box<dyn Any + Send + Sync>,
    heap_bytes: usize,
}

impl Recalled {
    pub(crate) fn new<S: Send + Sync + 'static>(remembered: Remembered<S>, heap_bytes: usize) -> Self {
        Self { state: Box::new(remembered), heap_bytes }
    }

    pub(crate) fn get<S: 'static>(&self) -> Option<&Remembered<S>> {
        self.state.downcast_ref()
    }

    /// The bytes that the state keeps outside of itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

/// How an algorithm leases blocks of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leasing {
    /// Not at all.
    None,
    /// The state keeps a note of each block until it is over, so that what comes back meanwhile is not granted twice.
    ByScript,
    /// A block is taken like a request of that cost. What is not spent is given back, as long as the window lasts.
    ByTaking,
}

/// A call to lease a block, and to tell what became of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseCall<'a> {
    pub(crate) id: u128,
    pub(crate) lasts: Duration,
    /// The leases that are over.
    pub(crate) over: &'a [Over],
    /// How many permits the block may have, the largest first; none to take no block.
    pub(crate) sizes: &'a [u64],
}

/// A lease that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) id: u128,
    pub(crate) spent: u64,
}

/// What a script saw of one state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a>(pub(crate) &'a [Value]);

impl Numbers<'_> {
    /// The number at `place`, if it is a whole one.
    pub(crate) fn whole(&self, place: usize) -> Option<u64> {
        match self.0.get(place)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The text at `place`.
    pub(crate) fn text(&self, place: usize) -> Option<&str> {
        match self.0.get(place)? {
            Value::BulkString(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The number at `place`, if it is a finite one. Scripts must send it as text: of a number, Redis sends the whole part.
    pub(crate) fn real(&self, place: usize) -> Option<f64> {
        self.text(place)?.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// What is written at a key, without the parameters and the configuration that they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Text(String),
    /// Members of a sorted set, each with its score.
    Set(Vec<(String, String)>),
}

/// A state to write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// `None` if it is as good as none.
    pub(crate) body: Option<Body>,
    /// When it will be as good as none, in microseconds; `None` for never.
    pub(crate) fresh_at: Option<u64>,
}
