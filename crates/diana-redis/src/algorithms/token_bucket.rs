//! The token bucket on Redis: `scripts/token_bucket.lua`.

use super::gcra::{divided_rate, format_time, fractions, parse_time, push, push_never, ticks_of, unsupported_reason};
use crate::args::Args;
use crate::quota_text::{quota_from_text, quota_text};
use crate::rational_time::{END, Time};
use crate::scripted_algorithm::{
    AskArgs, Body, Effect, EndedLease, LeaseRequest, Leasing, Numbers, ScriptedAlgorithm, StoredState, with_mark,
};
use crate::scripts::{Library, Module};
use diana_core::{Algorithm, Answer, BucketState, MaxWait, Receipt, Timestamp, TokenBucket};

impl ScriptedAlgorithm for TokenBucket {
    const MODULE: Module = Module {
        name: "token_bucket",
        letter: 't',
        source: include_str!("../../scripts/token_bucket.lua"),
        libraries: &[Library::GCRA],
    };

    fn unsupported_reason(&self) -> Option<String> {
        unsupported_reason(&self.quota(), self.quota().burst())
    }

    fn parameters(&self) -> String {
        quota_text(&self.quota())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        quota_from_text(text).map(Self::new)
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, ask.cost.get())));
        args.push(fractions.denominator());
        if ask.cost.get() > quota.burst() {
            push_never(args);
        } else {
            let capacity = ticks_of(&quota, quota.burst()) + fractions.of_nanos(ask.max_wait.as_nanos());
            push(args, fractions.time(capacity));
        }
        if !ask.min_expiry.is_zero() {
            args.push(ask.min_expiry.as_micros().min(u128::from(END / 2)));
        }
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, ask.cost.get())));
        args.push(fractions.denominator());
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(receipt.mark()));
        push(args, fractions.time(ticks_of(&quota, receipt.cost().get())));
        push(args, fractions.time(ticks_of(&quota, quota.burst())));
        args.push(fractions.denominator());
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<BucketState> {
        let time = Time { micros: numbers.whole(0)?, numerator: numbers.whole(1)? };
        Some(BucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    /// While permits are leased, a receipt is computed without them: they are not part of the stored time, and are
    /// refilled separately.
    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        let answer = self.answer_to_state(self.parse_state(numbers, now)?, ask, now, effect);
        let (Some(micros), Some(numerator)) = (numbers.whole(2), numbers.whole(3)) else { return Some(answer) };
        let bare = Time { micros, numerator };
        let mut bare = BucketState::from_ticks(fractions(&self.quota()).ticks(bare));
        let taken = self.take(&mut bare, now, ask.cost, MaxWait::FOREVER);
        Some(with_mark(answer, taken.receipt().map_or(0, |receipt| receipt.mark())))
    }

    /// Leased permits count as spent.
    fn read(&self, body: &Body, now: Timestamp) -> Option<BucketState> {
        let fractions = fractions(&self.quota());
        let Body::Text(text) = body else { return None };
        let leases = text.split(' ').nth(3).unwrap_or("").split(',').filter(|lease| !lease.is_empty());
        let out = leases.map(|lease| {
            let mut fields = lease.split(':').skip(1).map(|number| number.parse::<u64>().ok());
            Some(fractions.ticks(Time { micros: fields.next()??, numerator: fields.next()?? }))
        });
        let out = out.sum::<Option<u128>>()?;
        let ticks = fractions.ticks(parse_time(body, now)?);
        let ticks = if out == 0 { ticks } else { ticks.max(fractions.of_nanos(now.as_nanos())) + out };
        Some(BucketState::from_ticks(ticks))
    }

    fn write(&self, state: &BucketState, now: Timestamp) -> StoredState {
        format_time(fractions(&self.quota()).time_from(state.ticks()), now)
    }

    /// Returns the stored time under the new parameters, and every lease unchanged: its holder continues to spend it until it
    /// ends.
    fn migrate(&self, old: &Self, body: &Body, now: Timestamp) -> Option<StoredState> {
        let Body::Text(text) = body else { return None };
        let Some(leases) = text.split(' ').nth(3) else { return self.migrate_state(old, body, now) };
        let (before, after) = (fractions(&old.quota()), fractions(&self.quota()));
        let mut state = BucketState::from_ticks(before.ticks(parse_time(body, now)?));
        self.rescale(&mut state, old, now);
        let time = after.time_from(state.ticks());
        let (mut texts, mut last, mut out) = (Vec::new(), 0, 0);
        for lease in leases.split(',') {
            let mut fields = lease.split(':');
            let id = fields.next()?;
            let mut numbers = fields.map(|number| number.parse::<u64>().ok());
            let taken = before.ticks(Time { micros: numbers.next()??, numerator: numbers.next()?? });
            let ends = numbers.next()??;
            let permits = u64::try_from(taken / u128::from(old.quota().interval().0)).ok()?;
            let taken = after.time(ticks_of(&self.quota(), permits));
            texts.push(format!("{id}:{}:{}:{ends}", taken.micros, taken.numerator));
            (last, out) = (last.max(ends), out + taken.micros + 1);
        }
        let StoredState { body, .. } = format_time(time, now);
        // A time in the past is written too, because of the leases beside it.
        let time_text = match body {
            Some(Body::Text(text)) => text,
            _ => format!("{} 0 0", now.as_micros()),
        };
        let fresh_at = time.micros.max(last) + out + 1;
        Some(StoredState {
            body: Some(Body::Text(format!("{time_text} {}", texts.join(",")))),
            fresh_at: Some(fresh_at),
        })
    }

    fn leasing(&self) -> Leasing {
        Leasing::ByScript
    }

    fn lease_args(&self, args: &mut Args, lease: &LeaseRequest<'_>) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        let time = |permits| fractions.time(ticks_of(&quota, permits));
        args.push(fractions.denominator());
        push(args, time(quota.burst()));
        args.push(format_args!("{:x}", lease.id));
        args.push(lease.duration.as_micros());
        args.push(lease.ended.len());
        for EndedLease { id, spent } in lease.ended {
            args.push(format_args!("{id:x}"));
            push(args, time(*spent));
        }
        args.push(lease.sizes.len());
        for size in lease.sizes {
            args.push(size);
            push(args, time(*size));
        }
    }

    fn divided(&self, instances: u64) -> Self {
        Self::new(divided_rate(&self.quota(), instances))
    }
}
