//! The bucket with whole refills on Redis: `scripts/refilling_bucket.lua`.

use crate::args::Args;
use crate::quota_text::{quota_from_text, quota_text};
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{Cost, MAX_PERMITS, Quota, Receipt, RefillingBucket, RefillingState, Timestamp};

impl ScriptedAlgorithm for RefillingBucket {
    const MODULE: Module = Module {
        name: "refilling_bucket",
        letter: 'r',
        source: include_str!("../../scripts/refilling_bucket.lua"),
        libraries: &[Library::FIELDS],
    };

    fn unsupported_reason(&self) -> Option<String> {
        let quota = self.quota();
        if !quota.period().as_nanos().is_multiple_of(1_000) {
            return Some(format!("the period of {quota} must be a whole number of microseconds on Redis"));
        }
        // Half of a script's number range is reserved for the clock.
        let is_too_long = phase_lifetime(&quota) >= END / 2;
        is_too_long.then(|| format!("{} permits of {quota} take more than 140 years to refill", quota.burst()))
    }

    fn parameters(&self) -> String {
        quota_text(&self.quota())
    }

    fn from_parameters(text: &str) -> Option<Self> {
        quota_from_text(text).map(Self::new)
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        push(args, &self.quota(), ask.cost);
        args.push(self.quota().burst());
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        push(args, &self.quota(), ask.cost);
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        push(args, &self.quota(), receipt.cost());
        let after = RefillingState::after(receipt);
        args.push(after.stepped().as_micros().min(END));
        args.push(after.missing().min(MAX_PERMITS));
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<RefillingState> {
        let [missing, stepped, granted] = [numbers.whole(0)?, numbers.whole(1)?, numbers.whole(2)?];
        Some(RefillingState::new(missing, Timestamp::from_micros(stepped), Timestamp::from_micros(granted)))
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<RefillingState> {
        let Body::Text(text) = body else { return None };
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
        let missing = numbers.next()??;
        // A time in the future counts as now, as in the script.
        let [stepped, granted] =
            [numbers.next()??, numbers.next()??].map(Timestamp::from_micros).map(|time| time.min(now));
        Some(RefillingState::new(missing, stepped, granted))
    }

    fn write(&self, state: &RefillingState, now: Timestamp) -> StoredState {
        let (quota, missing) = (self.quota(), state.missing().min(MAX_PERMITS));
        let (stepped, granted) = (state.stepped().as_micros(), state.granted().as_micros());
        let refills = missing.div_ceil(quota.permits());
        let refilled = stepped.saturating_add(refills.saturating_mul(micros(&quota)));
        // Strictly later than the phase is stored.
        let phase_ends = granted.saturating_add(phase_lifetime(&quota)).saturating_add(1);
        let fresh_at = refilled.max(phase_ends).min(END);
        let is_stored = missing > 0 && fresh_at > now.as_micros();
        let body = is_stored.then(|| Body::Text(format!("{missing} {stepped} {granted}")));
        StoredState { body, fresh_at: Some(fresh_at) }
    }

    fn divided(&self, instances: u64) -> Self {
        let (quota, instances) = (self.quota(), instances.max(1));
        let burst = (quota.burst() / instances).max(1);
        // The size of a refill is divided, not its frequency. If a refill is too small for that, one token is added
        // less often, so that the shares together don't exceed the rate.
        let factor = u32::try_from(instances.div_ceil(quota.permits())).ok();
        let period = factor.and_then(|times| quota.period().checked_mul(times)).unwrap_or(quota.period());
        let share = Quota::new((quota.permits() / instances).max(1), period).and_then(|share| share.with_burst(burst));
        Self::new(share.unwrap_or(quota))
    }
}

/// Adds the arguments that refill a state, and the cost.
fn push(args: &mut Args, quota: &Quota, cost: Cost) {
    args.push(quota.permits());
    args.push(micros(quota));
    args.push(phase_lifetime(quota));
    args.push(cost.get());
}

/// Returns the period in microseconds.
fn micros(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX)
}

/// Returns how long after the last grant the phase is stored, in microseconds: until the bucket is full.
fn phase_lifetime(quota: &Quota) -> u64 {
    quota.burst().div_ceil(quota.permits()).saturating_mul(micros(quota))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana_core::Algorithm;
    use std::time::Duration;

    fn bucket(quota: &str) -> RefillingBucket {
        RefillingBucket::new(quota.parse().unwrap())
    }

    #[test]
    fn parameters_are_parsed_back() {
        for bucket in [bucket("3/s burst 7"), bucket("2/10s"), bucket("1/month burst 9")] {
            assert_eq!(RefillingBucket::from_parameters(&bucket.parameters()), Some(bucket));
        }
    }

    #[test]
    fn periods_are_whole_microseconds() {
        assert_eq!(bucket("1/us").unsupported_reason(), None);
        assert_eq!(
            bucket("5/1500ns").unsupported_reason().unwrap(),
            "the period of 5/1500ns must be a whole number of microseconds on Redis",
        );
        assert!(bucket("1/month burst 2000").unsupported_reason().is_some());
    }

    #[test]
    fn a_state_is_stored_exactly_until_it_is_fresh() {
        let bucket = bucket("2/10s burst 4");
        // Of five tokens that are missing after a charge, the last is refilled with the third refill; the phase expires
        // later than two refills after the grant.
        for (missing, stepped, granted) in [(5, 3, 4), (1, 3, 12), (4, 3, 3), (1, 3, 3)] {
            let state = RefillingState::new(missing, Timestamp::from_secs(stepped), Timestamp::from_secs(granted));
            let StoredState { body, fresh_at } = bucket.write(&state, Timestamp::from_secs(granted));
            assert_eq!(bucket.read(&body.unwrap(), Timestamp::from_secs(granted)), Some(state));
            let fresh_at = fresh_at.unwrap();
            assert!(bucket.is_fresh(&state, Timestamp::from_micros(fresh_at)), "{state:?}");
            assert!(!bucket.is_fresh(&state, Timestamp::from_micros(fresh_at - 1)), "{state:?}");
            assert_eq!(bucket.write(&state, Timestamp::from_micros(fresh_at)).body, None);
        }
    }

    #[test]
    fn shares_do_not_exceed_the_whole() {
        let share = |quota, instances| bucket(quota).divided(instances).quota();
        assert_eq!(share("100/min", 3), "33/min".parse().unwrap());
        assert_eq!(share("3/10s burst 7", 7), "1/30s".parse().unwrap());
        assert_eq!(share("3/10s burst 7", 1), "3/10s burst 7".parse().unwrap());
        assert_eq!(share("3/10s burst 7", 0).period(), Duration::from_secs(10));
    }
}
