//! Whether the program accepts requests: `/healthz` and `/readyz`.

use super::AdminState;
use axum::extract::State;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the program accepts requests, as `/readyz` reports it to load balancers.
#[derive(Debug, Default)]
pub struct Readiness {
    state: AtomicU8,
}

/// The program's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The program does not listen yet.
    Starting,
    /// The program listens.
    Ready,
    /// The program drains: finishes active requests and accepts no new ones.
    Stopping,
}

impl Phase {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

impl Readiness {
    /// Creates the state of a program that is starting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the program as ready. One that is stopping stays so.
    pub fn ready(&self) {
        // An error means that a later phase is set already.
        let _ = self.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Marks the program as stopping.
    pub fn stopping(&self) {
        self.state.store(2, Ordering::Release);
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        match self.state.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }
}

/// Reports liveness: a response is enough.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Reports readiness: whether the program accepts requests.
pub(super) async fn readyz(State(state): State<Arc<AdminState>>) -> (StatusCode, String) {
    let phase = state.readiness.phase();
    let status = if phase == Phase::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", phase.name()))
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
