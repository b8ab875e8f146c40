//! What one instance gives back, the others must hear of: they may remember that it was refused, or queue requests for it.
//!
//! Whoever refunds or resets a key says so on a channel, and all instances listen that remember refusals, hold leases, or have
//! somebody who wants to hear of resets. If a word is lost (Redis was away), a refusal is still forgotten, and a bucket's
//! lease over, within a second; and who wants to hear of resets is told that there may have been some.

use crate::client::Client;
use crate::deny_cache::DenyCache;
use crate::leases::Leases;
use diana_core::ResetListener;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait before listening again, when the connection broke.
const AGAIN: Duration = Duration::from_millis(500);

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// Something was given back to it.
    PendingRefund,
    /// It was made as good as new, with all that is out on lease.
    Reset,
}

impl Invalidation {
    /// What a message begins with.
    const fn letter(self) -> u8 {
        match self {
            Self::PendingRefund => b'g',
            Self::Reset => b'r',
        }
    }
}

/// What is kept here that news are about.
#[derive(Clone, Debug)]
pub(crate) struct Erased {
    pub(crate) deny_cache: Weak<DenyCache>,
    pub(crate) leases: Weak<Leases>,
    /// There as long as the store is.
    pub(crate) listeners: Weak<ResetListeners>,
}

/// Those who want to hear that a key was reset.
#[derive(Default)]
pub(crate) struct ResetListeners {
    all: Mutex<Vec<Weak<dyn ResetListener>>>,
}

impl ResetListeners {
    pub(crate) fn add(&self, listener: Weak<dyn ResetListener>) {
        self.all.lock().push(listener);
    }

    fn tell(&self) {
        self.all.lock().retain(|listener| listener.upgrade().inspect(|listener| listener.key_reset()).is_some());
    }
}

impl Erased {
    fn hear(&self, message: &[u8]) {
        let Some((letter, name)) = message.split_first() else { return };
        if let Some(deny_cache) = self.deny_cache.upgrade() {
            deny_cache.forget(name);
        }
        if *letter != Invalidation::Reset.letter() {
            return;
        }
        if let Some(leases) = self.leases.upgrade() {
            leases.forget(name);
        }
        // Only now: who is told asks again.
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.tell();
        }
    }

    /// Forgets what may have changed while nobody listened.
    fn hear_that_words_were_lost(&self) {
        if let Some(deny_cache) = self.deny_cache.upgrade() {
            deny_cache.clear();
        }
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.tell();
        }
    }

    fn is_there(&self) -> bool {
        self.listeners.strong_count() > 0
    }
}

/// Listens until the store is dropped.
pub(crate) async fn listen(client: Weak<Client>, erased: Erased) {
    loop {
        let listening = match client.upgrade() {
            Some(client) => client.runner.link.subscribe(&channel(&client)).await,
            None => return,
        };
        if let Ok(mut heard) = listening {
            erased.hear_that_words_were_lost();
            loop {
                // Looks up now and then whether anybody still needs to know.
                match tokio::time::timeout(Duration::from_secs(1), heard.next()).await {
                    Ok(Some(message)) => erased.hear(message.get_payload_bytes()),
                    Ok(None) => break,
                    Err(_) if !erased.is_there() => return,
                    Err(_) => {}
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Says what happened to these names, behind whoever did it.
pub(crate) fn tell(client: &Arc<Client>, news: Invalidation, names: impl Iterator<Item = Vec<u8>>) {
    let commands = names.map(|name| {
        let mut cmd = redis::cmd("PUBLISH");
        cmd.arg(channel(client)).arg([&[news.letter()][..], &name].concat());
        cmd
    });
    let (client, commands) = (Arc::clone(client), commands.collect::<Vec<_>>());
    let runtime = client.runtime.clone();
    runtime.spawn(async move {
        for cmd in commands {
            let part = client.runner.link.home();
            // If it fails, the others find out within a second.
            let _ = client.runner.link.call(part, &cmd, client.runner.link.budget()).await;
        }
    });
}

fn channel(client: &Client) -> String {
    format!("{}:returned", client.prefix)
}
