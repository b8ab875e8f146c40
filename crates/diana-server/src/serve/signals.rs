//! What the outside tells a running program: to stop (SIGTERM, SIGINT), or to read everything again (SIGHUP).

use std::io;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Stop,
    Reload,
}

/// The signals that are listened to.
#[cfg(unix)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next order.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }
}

/// The signals that are listened to: only Ctrl-C, where there are no others.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// The next order.
    pub(super) async fn next(&mut self) -> Signal {
        let _ = tokio::signal::ctrl_c().await;
        Signal::Stop
    }
}

impl Signals {
    /// The next order to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}
