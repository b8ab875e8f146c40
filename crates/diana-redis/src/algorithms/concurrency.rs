//! Concurrency on Redis: `scripts/concurrency.lua`.
//!
//! In process, a permit in use is an increment of a count. On Redis it is a lease, named by its ask's ticket, because a
//! gateway may crash with permits in use: a lease expires. So the receipt is marked with the ticket, and is void once
//! the lease has ended.

use crate::args::Args;
use crate::quota_text::{duration_from_text, duration_text};
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, Effect, Numbers, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{Algorithm, Answer, Concurrency, ConcurrencyState, MaxWait, Outcome, Receipt, Timestamp};
use std::time::Duration;

/// The highest number of nanoseconds that a script can represent exactly: 104 days, longer than any wait.
const MAX_WAIT_NANOS: u64 = (1 << 53) - 1;

impl ScriptedAlgorithm for Concurrency {
    const MODULE: Module = Module {
        name: "concurrency",
        letter: 'c',
        source: include_str!("../../scripts/concurrency.lua"),
        libraries: &[Library::SET],
    };

    fn unsupported_reason(&self) -> Option<String> {
        let is_too_long = self.first_delay() > Duration::from_nanos(MAX_WAIT_NANOS);
        is_too_long.then(|| format!("a delay of {:?} is longer than 104 days", self.first_delay()))
    }

    fn parameters(&self) -> String {
        format!("{}+{}@{}", self.limit(), self.capacity() - self.limit(), duration_text(self.first_delay()))
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let (limit, rest) = text.split_once('+')?;
        let (burst, delay) = rest.split_once('@')?;
        let limit = Self::new(limit.parse().ok()?).ok()?;
        Some(limit.with_burst(burst.parse().ok()?).with_delay(duration_from_text(delay)?))
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        push_lease(args, ask.ticket, ask.cost.get());
        args.push(self.limit());
        args.push(self.capacity());
        args.push(max_wait(ask).as_nanos());
        args.push(ask.permits_for.as_micros().min(u128::from(END)));
        args.push(self.first_delay().as_nanos());
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        self.take_args(args, ask);
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        self.extend_args(args, receipt, Duration::ZERO);
    }

    const HOLDS: bool = true;

    fn extend_args(&self, args: &mut Args, receipt: &Receipt, permits_for: Duration) {
        push_lease(args, receipt.mark(), receipt.cost().get());
        args.push(receipt.at().as_micros());
        args.push(receipt.at().as_nanos() % 1_000);
        args.push(""); // placeholder for the maximum wait
        args.push(permits_for.as_micros().min(u128::from(END)));
        args.push(self.first_delay().as_nanos());
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<ConcurrencyState> {
        Some(ConcurrencyState::new(numbers.whole(0)?, Duration::from_nanos(numbers.whole(1)?)))
    }

    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        let mut state = self.parse_state(numbers, now)?;
        let before = state;
        let mut answer = Algorithm::answer(self, &mut state, now, ask.cost, max_wait(ask));
        if let Outcome::Granted { wait, .. } = answer.outcome {
            // The time is when the request proceeds, so that its duration can be computed when it finishes; the mark
            // has no space for the wait beside the ticket.
            let receipt = Receipt::new(ask.cost, now + wait).with_mark(ask.ticket);
            answer.outcome = Outcome::Granted { wait, receipt };
        }
        if effect == Effect::None {
            answer = answer.with_status(self.status(&before, now));
        }
        Some(answer)
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<ConcurrencyState> {
        let LeaseSet { live, unit, .. } = LeaseSet::read(body, now)?;
        let permits = live.iter().fold(0, |sum: u64, lease| sum.saturating_add(lease.cost));
        Some(if permits == 0 { self.fresh(now) } else { ConcurrencyState::new(permits, unit) })
    }

    /// Writes only new states: the counts of another kind of limit are not held permits, and a change of parameters
    /// [migrates](Self::migrate) the leases themselves.
    fn write(&self, _state: &ConcurrencyState, _now: Timestamp) -> StoredState {
        StoredState { body: None, fresh_at: None }
    }

    /// Keeps every lease, even over the new capacity, as the algorithm does.
    fn migrate(&self, old: &Self, body: &Body, now: Timestamp) -> Option<StoredState> {
        let mut state = old.read(body, now)?;
        self.rescale(&mut state, old, now);
        let LeaseSet { live, fresh_at, .. } = LeaseSet::read(body, now)?;
        if live.is_empty() {
            return Some(self.write(&state, now));
        }
        let mut members = vec![
            ("used".to_owned(), format!("-{}", state.permits())),
            ("unit".to_owned(), format!("-{}", state.unit().as_nanos())),
        ];
        members.extend(live.into_iter().map(|lease| (lease.member, lease.ends.to_string())));
        Some(StoredState { body: Some(Body::Set(members)), fresh_at: Some(fresh_at) })
    }

    fn divided(&self, instances: u64) -> Self {
        let share = |permits: u64| permits / instances.max(1);
        let burst = share(self.capacity() - self.limit());
        let limit =
            Self::new(share(self.limit()).max(1)).map(|limit| limit.with_burst(burst).with_delay(self.first_delay()));
        limit.unwrap_or_else(|_| self.clone())
    }
}

/// A sorted set as the script writes it.
struct LeaseSet {
    /// The leases that have not ended.
    live: Vec<Lease>,
    unit: Duration,
    /// When the last one ends, in microseconds.
    fresh_at: u64,
}

struct Lease {
    member: String,
    cost: u64,
    ends: u64,
}

impl LeaseSet {
    fn read(body: &Body, now: Timestamp) -> Option<Self> {
        let Body::Set(members) = body else { return None };
        let mut leases = Self { live: Vec::new(), unit: Duration::ZERO, fresh_at: 0 };
        for (member, score) in members {
            if member == "unit" {
                leases.unit = Duration::from_nanos(score.trim_start_matches('-').parse().ok()?);
            } else if let Some((_, cost)) = member.split_once(':') {
                let (cost, ends) = (cost.parse().ok()?, score.parse().ok()?);
                if ends > now.as_micros() {
                    leases.fresh_at = leases.fresh_at.max(ends);
                    leases.live.push(Lease { member: member.clone(), cost, ends });
                }
            }
        }
        Some(leases)
    }
}

fn push_lease(args: &mut Args, ticket: u128, cost: u64) {
    args.push(format_args!("{ticket:x}:{cost}"));
    args.push(cost);
}

/// Returns the maximum wait, capped at what a script can represent, so that both sides agree.
fn max_wait(ask: &AskArgs) -> MaxWait {
    ask.max_wait.min(MaxWait::up_to(Duration::from_nanos(MAX_WAIT_NANOS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_back() {
        let pool = Concurrency::new(3).unwrap();
        assert_eq!(pool.parameters(), "3+0@0s");
        for pool in [pool.clone(), pool.with_burst(4).with_delay(Duration::from_millis(100))] {
            assert_eq!(Concurrency::from_parameters(&pool.parameters()), Some(pool));
        }
        for text in ["", "3", "3+1", "0+1@0s", "3+1@", "3@0s"] {
            assert_eq!(Concurrency::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn live_leases_are_migrated_and_ended_ones_are_removed() {
        let set = [("used", "-6"), ("unit", "-500"), ("a:1", "1000"), ("b:2", "2000"), ("c:3", "3000")];
        let body = Body::Set(set.map(|(member, score)| (member.to_owned(), score.to_owned())).to_vec());
        let (old, new) = (Concurrency::new(9).unwrap(), Concurrency::new(2).unwrap());
        let migrate = |micros| new.migrate(&old, &body, Timestamp::from_micros(micros)).unwrap();

        let StoredState { body: Some(Body::Set(members)), fresh_at } = migrate(1_000) else {
            panic!("no state was written")
        };
        let members = members.iter().map(|(member, score)| (&**member, &**score)).collect::<Vec<_>>();
        assert_eq!(members, [("used", "-5"), ("unit", "-500"), ("b:2", "2000"), ("c:3", "3000")]);
        assert_eq!(fresh_at, Some(3_000));
        assert_eq!(migrate(3_000).body, None);
    }

    #[test]
    fn a_share_is_at_least_one() {
        let pool = Concurrency::new(10).unwrap().with_burst(3);
        let share = |instances| (pool.divided(instances).limit(), pool.divided(instances).capacity());
        assert_eq!([share(1), share(3), share(100)], [(10, 13), (3, 4), (1, 1)]);
    }
}
