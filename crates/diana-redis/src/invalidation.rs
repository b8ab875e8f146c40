//! Notifies the other instances of refunds and resets: they may have cached a denial of the key, or have queued
//! requests for it.
//!
//! An instance that refunds or resets a key publishes this on a channel. Instances subscribe if they cache denials,
//! hold leases, or have reset listeners. If a message is lost (Redis was unreachable), a cached denial and a bucket's
//! lease still expire within a second, and reset listeners are notified that resets may have been missed.

use crate::direct_store::DirectStore;
use std::sync::Arc;

/// A change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// Permits were refunded to the key.
    Refunded,
    /// The key was reset, including all of its leases.
    Reset,
}

impl Invalidation {
    /// Returns the first byte of a message.
    pub(crate) const fn letter(self) -> u8 {
        match self {
            Self::Refunded => b'g',
            Self::Reset => b'r',
        }
    }
}

/// Publishes a change of these names in the background.
pub(crate) fn publish(client: &Arc<DirectStore>, invalidation: Invalidation, names: impl Iterator<Item = Vec<u8>>) {
    let commands = names.map(|name| {
        let mut cmd = redis::cmd("PUBLISH");
        cmd.arg(channel(client)).arg([&[invalidation.letter()][..], &name].concat());
        cmd
    });
    let (client, commands) = (Arc::clone(client), commands.collect::<Vec<_>>());
    let runtime = client.runtime.clone();
    runtime.spawn(async move {
        for cmd in commands {
            let part = client.runner.link.registry_part();
            // If this fails, the other instances' entries expire within a second.
            let _ = client.runner.link.call(part, &cmd, client.runner.link.budget()).await;
        }
    });
}

/// Returns the channel on which changes are published.
pub(crate) fn channel(client: &DirectStore) -> String {
    format!("{}:returned", client.prefix)
}
