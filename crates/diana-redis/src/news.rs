//! What one instance gives back, the others must hear of: they may remember that it was refused.
//!
//! Whoever refunds or resets a key says its name on a channel, and all instances that remember refusals listen. If a word
//! is lost (Redis was away), a refusal is still forgotten within a second.

use crate::refusals::Refusals;
use crate::remote::Remote;
use futures_util::StreamExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait before listening again, when the connection broke.
const AGAIN: Duration = Duration::from_millis(500);

/// Listens until the store is dropped.
pub(crate) async fn listen(remote: Weak<Remote>, refusals: Weak<Refusals>) {
    loop {
        let listening = match remote.upgrade() {
            Some(remote) => remote.caller.link.subscribe(&channel(&remote)).await,
            None => return,
        };
        if let Ok(mut heard) = listening {
            // What was said while nobody listened is not known.
            if let Some(refusals) = refusals.upgrade() {
                refusals.clear();
            }
            loop {
                // Looks up now and then whether anybody still needs to know.
                match tokio::time::timeout(Duration::from_secs(1), heard.next()).await {
                    Ok(Some(name)) => match refusals.upgrade() {
                        Some(refusals) => refusals.forget(name.get_payload_bytes()),
                        None => return,
                    },
                    Ok(None) => break,
                    Err(_) if refusals.strong_count() == 0 => return,
                    Err(_) => {}
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Says that something was given back to these names, behind whoever gave it back.
pub(crate) fn tell(remote: &Arc<Remote>, names: impl Iterator<Item = Vec<u8>>) {
    let commands = names.map(|name| {
        let mut cmd = redis::cmd("PUBLISH");
        cmd.arg(channel(remote)).arg(name);
        cmd
    });
    let (remote, commands) = (Arc::clone(remote), commands.collect::<Vec<_>>());
    tokio::spawn(async move {
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
