//! Listens to the [invalidations](crate::invalidation) of other instances, and applies them to the data of this process.

use crate::deny_cache::StateCache;
use crate::direct_store::DirectStore;
use crate::invalidation::{Invalidation, channel};
use crate::leases::LeasePools;
use diana_core::ResetListener;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::sync::Weak;
use std::time::Duration;

/// The delay before a new subscription after the connection broke.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(500);

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
        // Listeners are notified last: a notified listener queries the store again.
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
pub(crate) async fn listen(client: Weak<DirectStore>, listeners: Listeners) {
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
