//! The checks, by name.

use super::algorithm_cases::Case;
use super::pair::{Comparison, Pair};
use crate::Store;

mod change;
mod charge_reset_and_time;
mod decide;
mod refund;
mod several;

/// A check: a name, and a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    AnswersAsTheAlgorithm,
    DenialChangesNothing,
    PeekChangesNothing,
    SameCountTwice,
    KeysAreSeparate,
    EqualLimitsAreSeparate,
    TemporaryAndPermanentDenials,
    ExtremeCosts,
    RefundRestores,
    RefundOfADenial,
    LateRefund,
    ChargeExceedsLimit,
    ResetRestoresKey,
    IdleKeyIsFresh,
    TimeNeverGoesBack,
    LowerLimitKeepsUsage,
    HigherLimitKeepsUsage,
    OldVersionUsesTheNew,
    AllOrNothing,
    ManyLimits,
    ConcurrentRequests,
    OtherAlgorithmKeepsUsage,
}

impl Check {
    /// The checks of each algorithm on its own.
    pub(super) const EACH: &[Self] = &[
        Self::AnswersAsTheAlgorithm,
        Self::DenialChangesNothing,
        Self::PeekChangesNothing,
        Self::SameCountTwice,
        Self::KeysAreSeparate,
        Self::EqualLimitsAreSeparate,
        Self::TemporaryAndPermanentDenials,
        Self::ExtremeCosts,
        Self::RefundRestores,
        Self::RefundOfADenial,
        Self::LateRefund,
        Self::ChargeExceedsLimit,
        Self::ResetRestoresKey,
        Self::IdleKeyIsFresh,
        Self::TimeNeverGoesBack,
        Self::LowerLimitKeepsUsage,
        Self::HigherLimitKeepsUsage,
        Self::OldVersionUsesTheNew,
    ];

    /// The checks of all algorithms together.
    pub(super) const SEVERAL: &[Self] =
        &[Self::AllOrNothing, Self::ManyLimits, Self::ConcurrentRequests, Self::OtherAlgorithmKeepsUsage];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AnswersAsTheAlgorithm => "the same asks at the same times get the algorithm's answers",
            Self::DenialChangesNothing => "a denied request changes nothing",
            Self::PeekChangesNothing => "peek answers what decide would, and changes nothing",
            Self::SameCountTwice => "the same limit and key twice is charged once, at the higher cost",
            Self::KeysAreSeparate => "keys are separate, whatever their bytes",
            Self::EqualLimitsAreSeparate => "limits with equal parameters are separate",
            Self::TemporaryAndPermanentDenials => "temporary and permanent denials are distinguished",
            Self::ExtremeCosts => "extreme costs are counted correctly",
            Self::RefundRestores => "a refund restores the permits of a grant",
            Self::RefundOfADenial => "a refund of a denial restores nothing",
            Self::LateRefund => "a refund restores nothing that time has already restored",
            Self::ChargeExceedsLimit => "a charge is unconditional, even over the limit",
            Self::ResetRestoresKey => "a reset restores a key in full, and only that key",
            Self::IdleKeyIsFresh => "a key that is full again answers like a fresh one",
            Self::TimeNeverGoesBack => "time that goes back restores nothing",
            Self::LowerLimitKeepsUsage => "a lowered limit keeps each key's usage, clamped",
            Self::HigherLimitKeepsUsage => "a raised limit keeps each key's usage",
            Self::OldVersionUsesTheNew => "once a limit has changed, asks with its old version use the new one",
            Self::AllOrNothing => "either every ask is charged or none",
            Self::ManyLimits => "requests over many limits and keys get the algorithms' answers",
            Self::ConcurrentRequests => "concurrent requests act as if in some order",
            Self::OtherAlgorithmKeepsUsage => {
                "a limit that changes to another algorithm keeps each key's usage, clamped"
            }
        }
    }

    /// Runs the check on a fresh pair, with one case or with all of them.
    pub(super) async fn run<S: Store>(self, pair: &mut Pair<S>, cases: &[Case]) -> Comparison {
        let [case, ..] = cases else { return Ok(()) };
        match self {
            Self::AnswersAsTheAlgorithm => decide::random_script(pair, case).await,
            Self::DenialChangesNothing => decide::denial_changes_nothing(pair, case).await,
            Self::PeekChangesNothing => decide::peek_changes_nothing(pair, case).await,
            Self::SameCountTwice => decide::same_count_twice(pair, case).await,
            Self::KeysAreSeparate => decide::keys_are_separate(pair, case).await,
            Self::EqualLimitsAreSeparate => decide::equal_limits_are_separate(pair, case).await,
            Self::TemporaryAndPermanentDenials => decide::temporary_and_permanent_denials(pair, case).await,
            Self::ExtremeCosts => decide::extreme_costs(pair, case).await,
            Self::RefundRestores => refund::refund_restores(pair, case).await,
            Self::RefundOfADenial => refund::refund_of_a_denial(pair, case).await,
            Self::LateRefund => refund::late_refund(pair, case).await,
            Self::ChargeExceedsLimit => charge_reset_and_time::charge_exceeds_limit(pair, case).await,
            Self::ResetRestoresKey => charge_reset_and_time::reset_restores_key(pair, case).await,
            Self::IdleKeyIsFresh => charge_reset_and_time::idle_key_is_fresh(pair, case).await,
            Self::TimeNeverGoesBack => charge_reset_and_time::time_never_goes_back(pair, case).await,
            Self::LowerLimitKeepsUsage => change::lowered(pair, case).await,
            Self::HigherLimitKeepsUsage => change::raised(pair, case).await,
            Self::OldVersionUsesTheNew => change::old_version(pair, case).await,
            Self::OtherAlgorithmKeepsUsage => change::other_algorithm(pair, cases).await,
            Self::AllOrNothing => several::all_or_nothing(pair, cases).await,
            Self::ManyLimits => several::random_script(pair, cases).await,
            Self::ConcurrentRequests => several::concurrent(pair, cases).await,
        }
    }
}
