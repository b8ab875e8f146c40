//! Notifies the other instances of refunds and resets: they may have cached a denial of the key, or have queued
//! requests for it.
//!
//! An instance that refunds or resets a key publishes this on a channel. Instances subscribe if they cache denials,
//! hold leases, or have reset listeners. If a message is lost (Redis was unreachable), a cached denial and a bucket's
//! lease still expire within a second, and reset listeners are notified that resets may have been missed.

use crate::deny_cache::StateCache;
use crate::direct_store::Client;
use crate::leases::LeasePools;
use diana_core::ResetListener;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The delay before a new subscription after the connection broke.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(500);

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
    const fn letter(self) -> u8 {
        match self {
            Self::Refunded => b'g',
            Self::Reset => b'r',
        }
    }
}

/// The local data that invalidations apply to.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    pub(crate) deny_cache: Weak<StateCache>,
    pub(crate) leases: Weak<LeasePools>,
    /// Alive as long as the store is.
    pub(crate) listeners: Weak<ResetListeners>,
}

/// Listeners that are notified when a key is reset.
#[derive(Default)]
pub(crate) struct ResetListeners {
    all: Mutex<Vec<Weak<dyn ResetListener>>>,
}

impl ResetListeners {
    pub(crate) fn add(&self, listener: Weak<dyn ResetListener>) {
        self.all.lock().push(listener);
    }

    fn notify(&self) {
        self.all.lock().retain(|listener| listener.upgrade().inspect(|listener| listener.key_reset()).is_some());
    }
}

impl Listeners {
    fn apply(&self, message: &[u8]) {
        let Some((letter, name)) = message.split_first() else { return };
        if let Some(deny_cache) = self.deny_cache.upgrade() {
            deny_cache.invalidate(name);
        }
        if *letter != Invalidation::Reset.letter() {
            return;
        }
        if let Some(leases) = self.leases.upgrade() {
            leases.drop_blocks(name);
        }
        // Only now: a notified listener queries the store again.
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.notify();
        }
    }

    /// Invalidates all that may have changed while there was no subscription.
    fn invalidate_all(&self) {
        if let Some(deny_cache) = self.deny_cache.upgrade() {
            deny_cache.clear();
        }
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.notify();
        }
    }

    fn is_alive(&self) -> bool {
        self.listeners.strong_count() > 0
    }
}

/// Listens until the store is dropped.
pub(crate) async fn listen(client: Weak<Client>, listeners: Listeners) {
    loop {
        let subscription = match client.upgrade() {
            Some(client) => client.runner.link.subscribe(&channel(&client)).await,
            None => return,
        };
        if let Ok(mut messages) = subscription {
            listeners.invalidate_all();
            loop {
                // Checks periodically whether the store still exists.
                match tokio::time::timeout(Duration::from_secs(1), messages.next()).await {
                    Ok(Some(message)) => listeners.apply(message.get_payload_bytes()),
                    Ok(None) => break,
                    Err(_) if !listeners.is_alive() => return,
                    Err(_) => {}
                }
            }
        }
        tokio::time::sleep(RESUBSCRIBE_DELAY).await;
    }
}

/// Publishes a change of these names in the background.
pub(crate) fn publish(client: &Arc<Client>, invalidation: Invalidation, names: impl Iterator<Item = Vec<u8>>) {
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

fn channel(client: &Client) -> String {
    format!("{}:returned", client.prefix)
}
