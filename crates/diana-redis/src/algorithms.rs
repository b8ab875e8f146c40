//! The algorithms that have a script. A new algorithm needs a line in this file, a file in `algorithms/` and one in
//! `scripts/`.

mod concurrency;
mod fixed_window;
mod gcra;
mod guava;
mod leaky_bucket;
mod min_interval;
mod refilling_bucket;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
mod token_bucket;
mod total;

use crate::erased_algorithm::{Erased, ErasedAlgorithm};
use crate::scripted_algorithm::ScriptedAlgorithm;
use crate::scripts::Module;
use diana_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, MinInterval, RefillingBucket, SlidingLog, SlidingWindow,
};
use diana_core::{SmoothBursty, SmoothWarmingUp, TokenBucket, Total};
use std::sync::Arc;

/// A limit's algorithm with its script, or why it can't be stored on Redis.
type LookupResult = Result<Arc<dyn ErasedAlgorithm>, String>;

/// An algorithm that has a script.
#[derive(Debug)]
struct Kind {
    module: &'static Module,
    of_limit: fn(&Limit, usize) -> Option<LookupResult>,
    of_text: fn(&str, usize) -> Option<Arc<dyn ErasedAlgorithm>>,
}

/// The algorithms. Their order is specific to this version: no data on Redis depends on it.
static KINDS: &[Kind] = &[
    Kind::of::<TokenBucket>(),
    Kind::of::<LeakyBucket>(),
    Kind::of::<MinInterval>(),
    Kind::of::<RefillingBucket>(),
    Kind::of::<FixedWindow>(),
    Kind::of::<Total>(),
    Kind::of::<SlidingWindow>(),
    Kind::of::<SlidingLog>(),
    Kind::of::<SmoothBursty>(),
    Kind::of::<SmoothWarmingUp>(),
    Kind::of::<Concurrency>(),
];

/// Returns the scripts of all algorithms, in the order of [`KINDS`].
pub(crate) fn modules() -> Vec<&'static Module> {
    KINDS.iter().map(|kind| kind.module).collect()
}

impl Kind {
    const fn of<A: ScriptedAlgorithm>() -> Self {
        Self { module: &A::MODULE, of_limit: of_limit::<A>, of_text: of_text::<A> }
    }
}

/// Returns the limit's algorithm with its script, or why it can't be stored on Redis.
pub(crate) fn scripted_algorithm(limit: &Limit) -> LookupResult {
    let scripted = KINDS.iter().enumerate().find_map(|(index, kind)| (kind.of_limit)(limit, index));
    scripted.unwrap_or_else(|| Err("the algorithm has no Redis script; count it in process".to_owned()))
}

/// Returns the algorithm that wrote `parameters` at the head of a state.
pub(crate) fn written_by(parameters: &str) -> Option<Arc<dyn ErasedAlgorithm>> {
    let letter = parameters.chars().next()?;
    let (index, kind) = KINDS.iter().enumerate().find(|(_, kind)| kind.module.letter == letter)?;
    (kind.of_text)(parameters, index)
}

fn of_limit<A: ScriptedAlgorithm>(limit: &Limit, index: usize) -> Option<LookupResult> {
    let algorithm = limit.algorithm::<A>()?;
    Some(match algorithm.unsupported_reason() {
        Some(reason) => Err(reason),
        None => Ok(Arc::new(Erased::new(algorithm.clone(), index))),
    })
}

fn of_text<A: ScriptedAlgorithm>(parameters: &str, index: usize) -> Option<Arc<dyn ErasedAlgorithm>> {
    let algorithm = A::from_parameters(parameters.strip_prefix(A::MODULE.letter)?)?;
    let is_supported = algorithm.unsupported_reason().is_none();
    is_supported.then(|| -> Arc<dyn ErasedAlgorithm> { Arc::new(Erased::new(algorithm, index)) })
}
