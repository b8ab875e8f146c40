//! Type-erased algorithms, so that limits of different kinds can be in one list.

use super::budget::Budget;
use super::erased_table::AnyTable;
use super::table::{OnFull, Table};
use crate::algorithm::Packed;
use crate::algorithm::erased_state::{AlgorithmState, AnyState};
use crate::sync::Arc;
use crate::{Algorithm, Properties, Quota, Timestamp, WaitMode};
use std::any::Any;
use std::fmt::Debug;

/// An [`Algorithm`] of any type. Implemented for every algorithm.
pub(crate) trait AnyAlgorithm: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn is_equal(&self, other: &dyn AnyAlgorithm) -> bool;
    fn properties(&self) -> Properties<'_>;
    fn describe(&self, rate: Option<Quota>) -> Option<String>;
    fn capacity(&self) -> u64;
    fn wait_mode(&self) -> WaitMode;
    fn packed(&self) -> Option<Packed>;
    fn new_table(&self, on_full: OnFull, budget: Arc<Budget>) -> Box<dyn AnyTable>;
    fn new_state(&self, now: Timestamp) -> Box<dyn AnyState>;
    /// Returns a state with `used` permits in use.
    fn occupied(&self, used: u64, now: Timestamp) -> Box<dyn AnyState>;
}

impl<A: Algorithm> AnyAlgorithm for A {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_equal(&self, other: &dyn AnyAlgorithm) -> bool {
        other.as_any().downcast_ref::<A>() == Some(self)
    }

    fn properties(&self) -> Properties<'_> {
        Algorithm::properties(self)
    }

    fn describe(&self, rate: Option<Quota>) -> Option<String> {
        Algorithm::describe(self, rate)
    }

    fn capacity(&self) -> u64 {
        self.status(&self.fresh(Timestamp::EPOCH), Timestamp::EPOCH).limit
    }

    fn wait_mode(&self) -> WaitMode {
        Algorithm::wait_mode(self)
    }

    fn packed(&self) -> Option<Packed> {
        Algorithm::packed(self)
    }

    fn new_table(&self, on_full: OnFull, budget: Arc<Budget>) -> Box<dyn AnyTable> {
        Box::new(Table::new(self.clone(), on_full, budget))
    }

    fn new_state(&self, now: Timestamp) -> Box<dyn AnyState> {
        Box::new(AlgorithmState::new(self.clone(), self.fresh(now), now))
    }

    fn occupied(&self, used: u64, now: Timestamp) -> Box<dyn AnyState> {
        Box::new(AlgorithmState::new(self.clone(), Algorithm::occupied(self, used, now), now))
    }
}
