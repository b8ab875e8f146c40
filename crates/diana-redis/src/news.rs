//! What one instance gives back, the others must hear of: they may remember that it was refused.
//!
//! Whoever refunds or resets a key says so on a channel, and all instances listen that remember refusals or hold leases. If
//! a word is lost (Redis was away), a refusal is still forgotten, and a bucket's lease over, within a second.

use crate::leases::Leases;
use crate::refusals::Refusals;
use crate::remote::Remote;
use futures_util::StreamExt;
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
}

impl Kept {
    fn hear(&self, message: &[u8]) {
        let Some((letter, name)) = message.split_first() else { return };
        if let Some(refusals) = self.refusals.upgrade() {
            refusals.forget(name);
        }
        if let Some(leases) = self.leases.upgrade().filter(|_| *letter == News::Reset.letter()) {
            leases.forget(name);
        }
    }

    fn is_there(&self) -> bool {
        self.refusals.strong_count() > 0 || self.leases.strong_count() > 0
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
            // What was said while nobody listened is not known.
            if let Some(refusals) = kept.refusals.upgrade() {
                refusals.clear();
            }
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
