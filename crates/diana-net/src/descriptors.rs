//! File descriptors: how many there are, and which part of the program may use the last ones.
//!
//! The system gives each new descriptor the lowest free number, so a high number means that few are left. A client
//! connection whose number is above the share of [`CLIENTS`](User::Clients) is closed at once, which reserves
//! descriptors for upstream connections; these in turn reserve some for the rest of the program: the admin address, the
//! shared store, rule files.
//!
//! ```text
//!  0 ──────────── clients ───────────▶│── upstreams ──▶│── admin, store, files ──▶│ limit
//!                                      1/8 of the limit   1/16, at least 8
//! ```

/// The user of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Connections of clients.
    Clients,
    /// Connections to upstreams.
    Upstreams,
}

#[cfg(unix)]
mod unix {
    use super::User;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    use std::sync::OnceLock;

    /// Raises the soft limit of this process to the hard limit: the soft limit only protects programs that can't handle
    /// more.
    pub fn raise_descriptor_limit() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if let (Some(current), Some(maximum)) = (current, maximum)
            && current < maximum
        {
            let raised = Rlimit { current: Some(maximum), maximum: Some(maximum) };
            if let Err(error) = setrlimit(Resource::Nofile, raised) {
                tracing::debug!(%error, current, maximum, "cannot raise the limit of file descriptors");
            }
        }
    }

    /// Returns the first number that is not for clients, and the first that is not for upstreams.
    pub(super) fn shares(limit: u64) -> (u64, u64) {
        let upstreams = limit.saturating_sub((limit / 16).clamp(8, 128));
        (upstreams.saturating_sub(limit / 8), upstreams)
    }

    /// Returns whether a socket has a descriptor that is reserved for users other than `user`.
    pub fn is_reserved(socket: &impl AsRawFd, user: User) -> bool {
        static SHARES: OnceLock<(u64, u64)> = OnceLock::new();
        let limit = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let (clients, upstreams) = *SHARES.get_or_init(|| shares(limit()));
        let first = match user {
            User::Clients => clients,
            User::Upstreams => upstreams,
        };
        u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= first)
    }
}

#[cfg(unix)]
pub use unix::is_reserved;
#[cfg(unix)]
pub use unix::raise_descriptor_limit;

/// Does nothing: other systems have no such limit.
#[cfg(not(unix))]
pub fn raise_descriptor_limit() {}

#[cfg(not(unix))]
pub fn is_reserved<S>(_: &S, _: User) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::unix::shares;

    #[test]
    fn reserves_descriptors_for_upstreams_and_the_program() {
        assert_eq!(shares(64), (48, 56));
        assert_eq!(shares(1_024), (832, 960));
        assert_eq!(shares(1 << 20), ((1 << 20) - 128 - (1 << 17), (1 << 20) - 128));
        let (clients, upstreams) = shares(u64::MAX);
        assert!(clients < upstreams && upstreams < u64::MAX);
        assert_eq!(shares(0), (0, 0));
    }
}
