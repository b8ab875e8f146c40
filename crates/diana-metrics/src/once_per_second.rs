//! The repetition of warnings: at most once a second.

use diana_core::{Limiter, Quota};

/// A limit for a warning that is logged at most once a second.
#[derive(Debug)]
pub struct OncePerSecond(Option<Limiter>);

impl Default for OncePerSecond {
    fn default() -> Self {
        Self(Quota::per_second(1).ok().map(Limiter::new))
    }
}

impl OncePerSecond {
    /// Returns whether it may be logged now.
    pub fn check(&self) -> bool {
        self.0.as_ref().is_some_and(|limiter| limiter.check().is_granted())
    }
}
