//! Signals: stop (SIGTERM, SIGINT), reload (SIGHUP), or reopen the access log and the audit log (SIGUSR1).

use std::io;

/// The action of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Stop,
    Reload,
    ReopenLog,
}

/// The handled signals.
#[cfg(unix)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    user_1: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hang_up.recv() => Signal::Reload,
            _ = self.user_1.recv() => Signal::ReopenLog,
        }
    }
}

/// The handled signals: only Ctrl-C on other systems.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        let _ = tokio::signal::ctrl_c().await;
        Signal::Stop
    }
}

impl Signals {
    /// Waits for the next stop signal.
    pub(super) async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}
