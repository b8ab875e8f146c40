//! The checks, by name.

use super::kinds::Kind;
use super::pair::{Pair, Verdict};
use crate::Store;

mod asking;
mod changing;
mod returning;
mod together;

/// A check: a name, and a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    AnswersAsTheAlgorithm,
    DenialChangesNothing,
    PeekChangesNothing,
    SameCountTwice,
    KeysAreApart,
    AlikeLimitsAreApart,
    LaterAndNever,
    ExtremeCosts,
    RefundGivesBack,
    RefundOfADenial,
    LateRefund,
    ChargeGoesBeyond,
    ResetMakesNew,
    IdleIsAsNew,
    TimeNeverGoesBack,
    LowerLimitKeepsUse,
    HigherLimitKeepsUse,
    OldVersionGoesByTheNew,
    AllOrNothing,
    AllAtOnce,
    InterleavedRequests,
    OtherAlgorithmKeepsUse,
}

impl Check {
    /// The checks of each algorithm on its own.
    pub(super) const EACH: &[Self] = &[
        Self::AnswersAsTheAlgorithm,
        Self::DenialChangesNothing,
        Self::PeekChangesNothing,
        Self::SameCountTwice,
        Self::KeysAreApart,
        Self::AlikeLimitsAreApart,
        Self::LaterAndNever,
        Self::ExtremeCosts,
        Self::RefundGivesBack,
        Self::RefundOfADenial,
        Self::LateRefund,
        Self::ChargeGoesBeyond,
        Self::ResetMakesNew,
        Self::IdleIsAsNew,
        Self::TimeNeverGoesBack,
        Self::LowerLimitKeepsUse,
        Self::HigherLimitKeepsUse,
        Self::OldVersionGoesByTheNew,
    ];

    /// The checks of all algorithms together.
    pub(super) const TOGETHER: &[Self] =
        &[Self::AllOrNothing, Self::AllAtOnce, Self::InterleavedRequests, Self::OtherAlgorithmKeepsUse];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AnswersAsTheAlgorithm => "the same asks at the same times get the algorithm's answers",
            Self::DenialChangesNothing => "a denied request changes nothing",
            Self::PeekChangesNothing => "peek answers what decide would, and changes nothing",
            Self::SameCountTwice => "the same limit and key twice is charged once, at the larger cost",
            Self::KeysAreApart => "keys are separate, whatever their bytes",
            Self::AlikeLimitsAreApart => "limits with equal parameters are separate",
            Self::LaterAndNever => "later and never are told apart",
            Self::ExtremeCosts => "extreme costs do no harm",
            Self::RefundGivesBack => "a refund gives back what a grant took",
            Self::RefundOfADenial => "a refund of a denial gives nothing",
            Self::LateRefund => "a refund gives nothing that time has given back already",
            Self::ChargeGoesBeyond => "a charge is taken without asking, beyond the capacity too",
            Self::ResetMakesNew => "a reset makes a key as good as new, and only that key",
            Self::IdleIsAsNew => "a key that has come back in full answers as a new one",
            Self::TimeNeverGoesBack => "time that goes back gives nothing",
            Self::LowerLimitKeepsUse => "a limit that is lowered keeps each key's use, clamped",
            Self::HigherLimitKeepsUse => "a limit that is raised keeps each key's use",
            Self::OldVersionGoesByTheNew => "once a limit has changed, its older version goes by the newer",
            Self::AllOrNothing => "either every ask is charged or none",
            Self::AllAtOnce => "requests over many limits and keys get the algorithms' answers",
            Self::InterleavedRequests => "requests at the same time act as if in some order",
            Self::OtherAlgorithmKeepsUse => "a limit that changes to another algorithm keeps each key's use, clamped",
        }
    }

    /// Runs the check on a fresh pair, with one kind of limit or with all of them.
    pub(super) async fn run<S: Store>(self, pair: &mut Pair<S>, kinds: &[Kind]) -> Verdict {
        let [kind, ..] = kinds else { return Ok(()) };
        match self {
            Self::AnswersAsTheAlgorithm => asking::random_script(pair, kind).await,
            Self::DenialChangesNothing => asking::denial_changes_nothing(pair, kind).await,
            Self::PeekChangesNothing => asking::peek_changes_nothing(pair, kind).await,
            Self::SameCountTwice => asking::same_count_twice(pair, kind).await,
            Self::KeysAreApart => asking::keys_are_apart(pair, kind).await,
            Self::AlikeLimitsAreApart => asking::alike_limits_are_apart(pair, kind).await,
            Self::LaterAndNever => asking::later_and_never(pair, kind).await,
            Self::ExtremeCosts => asking::extreme_costs(pair, kind).await,
            Self::RefundGivesBack => returning::refund_gives_back(pair, kind).await,
            Self::RefundOfADenial => returning::refund_of_a_denial(pair, kind).await,
            Self::LateRefund => returning::late_refund(pair, kind).await,
            Self::ChargeGoesBeyond => returning::charge_goes_beyond(pair, kind).await,
            Self::ResetMakesNew => returning::reset_makes_new(pair, kind).await,
            Self::IdleIsAsNew => returning::idle_is_as_new(pair, kind).await,
            Self::TimeNeverGoesBack => returning::time_never_goes_back(pair, kind).await,
            Self::LowerLimitKeepsUse => changing::lowered(pair, kind).await,
            Self::HigherLimitKeepsUse => changing::raised(pair, kind).await,
            Self::OldVersionGoesByTheNew => changing::old_version(pair, kind).await,
            Self::OtherAlgorithmKeepsUse => changing::other_algorithm(pair, kinds).await,
            Self::AllOrNothing => together::all_or_nothing(pair, kinds).await,
            Self::AllAtOnce => together::random_script(pair, kinds).await,
            Self::InterleavedRequests => together::interleaved(pair, kinds).await,
        }
    }
}
