//! The total on Redis: `scripts/total.lua`.

use crate::args::Args;
use crate::scripted_algorithm::{AskArgs, Body, Effect, Leasing, Numbers, ScriptedAlgorithm, StoredState, with_mark};
use crate::scripts::{Library, Module};
use diana_core::{Answer, MAX_PERMITS, Receipt, Timestamp, Total, TotalState};

impl ScriptedAlgorithm for Total {
    const MODULE: Module = Module {
        name: "total",
        letter: 'n',
        source: include_str!("../../scripts/total.lua"),
        libraries: &[Library::FIELDS],
    };

    fn parameters(&self) -> String {
        self.limit().to_string()
    }

    fn from_parameters(text: &str) -> Option<Self> {
        Self::new(text.parse().ok()?).ok()
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        args.push(ask.cost.get());
        args.push(self.limit());
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        args.push(ask.cost.get());
    }

    fn charged(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        Some(Receipt::new(ask.cost, now).with_mark(u128::from(numbers.whole(1)?)))
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        args.push(receipt.cost().get());
        args.push(receipt.mark());
    }

    /// The receipt is marked with the creation time of the state, so that it is void after a reset.
    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        let answer = self.answer_to_state(self.parse_state(numbers, now)?, ask, now, effect);
        Some(with_mark(answer, u128::from(numbers.whole(1)?)))
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<TotalState> {
        numbers.whole(0).map(TotalState::new)
    }

    fn read(&self, body: &Body, _now: Timestamp) -> Option<TotalState> {
        let Body::Text(used) = body else { return None };
        used.parse().ok().map(TotalState::new)
    }

    fn write(&self, state: &TotalState, _now: Timestamp) -> StoredState {
        StoredState { body: Some(Body::Text(state.used().min(MAX_PERMITS).to_string())), fresh_at: None }
    }

    fn leasing(&self) -> Leasing {
        Leasing::ByTaking
    }

    fn divided(&self, instances: u64) -> Self {
        Self::new((self.limit() / instances.max(1)).max(1)).unwrap_or_else(|_| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_back() {
        for limit in [1, 8, MAX_PERMITS] {
            let total = Total::new(limit).unwrap();
            assert_eq!(Total::from_parameters(&total.parameters()), Some(total));
        }
        for text in ["", "0", "-1", "9007199254740993"] {
            assert_eq!(Total::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn a_fully_refunded_total_is_still_stored() {
        let written = Total::new(8).unwrap().write(&TotalState::new(0), Timestamp::EPOCH);
        assert_eq!((written.body, written.fresh_at), (Some(Body::Text("0".to_owned())), None));
    }

    #[test]
    fn a_share_is_at_least_one() {
        let total = Total::new(8).unwrap();
        assert_eq!(total.divided(3).limit(), 2);
        assert_eq!(total.divided(9).limit(), 1);
        assert_eq!(total.divided(0).limit(), 8);
    }
}
