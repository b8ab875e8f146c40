//! What one instance gives back, the others must hear of: they may remember that it was refused, or queue requests for it.
//!
//! Whoever refunds or resets a key says so on a channel, and all instances listen that remember refusals, hold leases, or have
//! somebody who wants to hear of resets. If a word is lost (Redis was away), a refusal is still forgotten, and a bucket's
//! lease over, within a second; and who wants to hear of resets is told that there may have been some.

use crate::leases::Leases;
use crate::refusals::Refusals;
use crate::remote::Remote;
use diana_core::ResetListener;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait before listening again, when the connection broke.
const AGAIN: Duration = Duration::from_millis(500);

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something was given back to it.
    Returned,
    /// It was made as good as new, with all that is out on lease.
    Reset,
}

impl News {
    /// What a message begins with.
    const fn letter(self) -> u8 {
        match self {
            Self::Returned => b'g',
            Self::Reset => b'r',
        }
    }
}

/// What is kept here that news are about.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) refusals: Weak<Refusals>,
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

impl Kept {
    fn hear(&self, message: &[u8]) {
        let Some((letter, name)) = message.split_first() else { return };
        if let Some(refusals) = self.refusals.upgrade() {
            refusals.forget(name);
        }
        if *letter != News::Reset.letter() {
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
        if let Some(refusals) = self.refusals.upgrade() {
            refusals.clear();
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
pub(crate) async fn listen(remote: Weak<Remote>, kept: Kept) {
    loop {
        let listening = match remote.upgrade() {
            Some(remote) => remote.caller.link.subscribe(&channel(&remote)).await,
            None => return,
        };
        if let Ok(mut heard) = listening {
            kept.hear_that_words_were_lost();
            loop {
                // Looks up now and then whether anybody still needs to know.
                match tokio::time::timeout(Duration::from_secs(1), heard.next()).await {
                    Ok(Some(message)) => kept.hear(message.get_payload_bytes()),
                    Ok(None) => break,
                    Err(_) if !kept.is_there() => return,
                    Err(_) => {}
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Says what happened to these names, behind whoever did it.
pub(crate) fn tell(remote: &Arc<Remote>, news: News, names: impl Iterator<Item = Vec<u8>>) {
    let commands = names.map(|name| {
        let mut cmd = redis::cmd("PUBLISH");
        cmd.arg(channel(remote)).arg([&[news.letter()][..], &name].concat());
        cmd
    });
    let (remote, commands) = (Arc::clone(remote), commands.collect::<Vec<_>>());
    let runtime = remote.runtime.clone();
    runtime.spawn(async move {
        for cmd in commands {
            let part = remote.caller.link.home();
            // If it fails, the others find out within a second.
            let _ = remote.caller.link.call(part, &cmd, remote.caller.link.budget()).await;
        }
    });
}

fn channel(remote: &Remote) -> String {
    format!("{}:returned", remote.prefix)
}
