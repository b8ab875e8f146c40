//! Whether the program takes requests.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the program takes requests, as `/readyz` tells load balancers.
#[derive(Debug, Default)]
pub struct Readiness {
    state: AtomicU8,
}

/// How far the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does not listen yet.
    Starting,
    /// It listens.
    Ready,
    /// It finishes what is under way, and takes nothing new.
    Stopping,
}

impl Phase {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

impl Readiness {
    /// A program that is starting.
    pub fn new() -> Self {
        Self::default()
    }

    /// It listens. One that is stopping stays so.
    pub fn ready(&self) {
        // An error means that it is further already.
        let _ = self.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It takes nothing new.
    pub fn stopping(&self) {
        self.state.store(2, Ordering::Release);
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.state.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stops_does_not_become_ready() {
        let readiness = Readiness::new();
        assert_eq!(readiness.phase(), Phase::Starting);
        readiness.ready();
        assert_eq!(readiness.phase(), Phase::Ready);
        readiness.stopping();
        readiness.ready();
        assert_eq!(readiness.phase(), Phase::Stopping);
    }
}
