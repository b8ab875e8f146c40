//! The token bucket on Redis: `scripts/token_bucket.lua`.

use crate::args::Args;
use crate::fraction::{END, Fractions, Time};
use crate::module::{Library, Module};
use crate::parameters::{parse_quota, quota_text};
use crate::scripted::{Asking, Body, LeaseCall, Leasing, Numbers, Over, Scripted, Written};
use diana_core::{BucketState, Quota, Receipt, Timestamp, TokenBucket};

impl Scripted for TokenBucket {
    const MODULE: Module = Module {
        name: "token_bucket",
        letter: 't',
        source: include_str!("../../scripts/token_bucket.lua"),
        libraries: &[Library::MOMENT],
    };

    fn why_not(&self) -> Option<String> {
        why_not(&self.quota(), self.quota().burst())
    }

    fn parameters(&self) -> String {
        quota_text(&self.quota())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        parse_quota(text).map(Self::new)
    }

    fn take_args(&self, args: &mut Args, asking: &Asking) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, asking.cost.get())));
        args.push(fractions.denominator());
        if asking.cost.get() > quota.burst() {
            push_never(args);
        } else {
            let room = ticks_of(&quota, quota.burst()) + fractions.of_nanos(asking.patience.as_nanos());
            push(args, fractions.time(room));
        }
    }

    fn charge_args(&self, args: &mut Args, asking: &Asking) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(ticks_of(&quota, asking.cost.get())));
        args.push(fractions.denominator());
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        push(args, fractions.time(receipt.mark()));
        push(args, fractions.time(ticks_of(&quota, receipt.cost().get())));
        push(args, fractions.time(ticks_of(&quota, quota.burst())));
        args.push(fractions.denominator());
    }

    fn seen(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<BucketState> {
        let time = Time { micros: numbers.whole(0)?, numerator: numbers.whole(1)? };
        Some(BucketState::from_ticks(fractions(&self.quota()).ticks(time)))
    }

    /// What is out on lease counts as spent.
    fn read(&self, body: &Body, now: Timestamp) -> Option<BucketState> {
        let fractions = fractions(&self.quota());
        let Body::Text(text) = body else { return None };
        let leases = text.split(' ').nth(3).unwrap_or("").split(',').filter(|lease| !lease.is_empty());
        let out = leases.map(|lease| {
            let mut fields = lease.split(':').skip(1).map(|number| number.parse::<u64>().ok());
            Some(fractions.ticks(Time { micros: fields.next()??, numerator: fields.next()?? }))
        });
        let out = out.sum::<Option<u128>>()?;
        let ticks = fractions.ticks(read_moment(body, now)?);
        let ticks = if out == 0 { ticks } else { ticks.max(fractions.of_nanos(now.as_nanos())) + out };
        Some(BucketState::from_ticks(ticks))
    }

    fn write(&self, state: &BucketState, now: Timestamp) -> Written {
        write_moment(fractions(&self.quota()).time(state.ticks()), now)
    }

    fn leasing(&self) -> Leasing {
        Leasing::ByScript
    }

    fn lease_args(&self, args: &mut Args, lease: &LeaseCall<'_>) {
        let (quota, fractions) = (self.quota(), fractions(&self.quota()));
        let time = |permits| fractions.time(ticks_of(&quota, permits));
        args.push(fractions.denominator());
        push(args, time(quota.burst()));
        args.push(format_args!("{:x}", lease.id));
        args.push(lease.lasts.as_micros());
        args.push(lease.over.len());
        for Over { id, spent } in lease.over {
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

/// Why a schedule of this rate with room for `limit` permits can't be kept.
pub(super) fn why_not(quota: &Quota, limit: u64) -> Option<String> {
    let Some(fractions) = Fractions::new(quota.interval()) else {
        return Some(format!("{quota} is finer than Redis can count"));
    };
    // Half of what a script can count is left to the clock.
    let is_too_long = fractions.time(ticks_of(quota, limit)).micros >= END / 2;
    is_too_long.then(|| format!("{limit} permits of {quota} take more than 140 years to come back"))
}

/// How this rate's times are written. Only rates that pass [`why_not`] come here.
pub(super) fn fractions(quota: &Quota) -> Fractions {
    Fractions::new(quota.interval()).unwrap_or_else(|| unreachable!("checked when the limit was first seen"))
}

pub(super) fn ticks_of(quota: &Quota, permits: u64) -> u128 {
    u128::from(permits) * u128::from(quota.interval().0)
}

pub(super) fn push(args: &mut Args, time: Time) {
    args.push(time.micros);
    args.push(time.numerator);
}

/// A room that nothing fits, for a cost above the capacity, which no patience helps.
pub(super) fn push_never(args: &mut Args) {
    args.push(-1);
    args.push(0);
}

/// A moment as lib/moment.lua writes it, put back if the clock was.
pub(super) fn read_moment(body: &Body, now: Timestamp) -> Option<Time> {
    let Body::Text(text) = body else { return None };
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
    let time = Time { micros: numbers.next()??, numerator: numbers.next()?? };
    let furthest = now.as_micros().saturating_add(numbers.next()??.saturating_mul(1_000_000));
    Some(if time.micros > furthest { Time { micros: furthest, numerator: 0 } } else { time })
}

/// A moment as lib/moment.lua reads it.
pub(super) fn write_moment(time: Time, now: Timestamp) -> Written {
    let fresh_at = time.micros + u64::from(time.numerator > 0);
    let ahead = time.micros.saturating_sub(now.as_micros()).div_ceil(1_000_000);
    let body = Body::Text(format!("{} {} {ahead}", time.micros, time.numerator));
    Written { body: (fresh_at > now.as_micros()).then_some(body), fresh_at: Some(fresh_at) }
}

/// A rate and burst of which `instances` make up this one: the rate exactly, the burst at least 1.
pub(super) fn divided_rate(quota: &Quota, instances: u64) -> Quota {
    let instances = instances.max(1);
    let period = u32::try_from(instances).ok().and_then(|instances| quota.period().checked_mul(instances));
    let slower = period.and_then(|period| Quota::new(quota.permits(), period).ok()).unwrap_or(*quota);
    slower.with_burst((quota.burst() / instances).max(1)).unwrap_or(slower)
}
