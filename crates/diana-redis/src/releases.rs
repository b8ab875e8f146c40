//! Releases of held permits that are in flight to Redis.
//!
//! A request that finishes releases its permit in the background, and the next request of the same client may overtake
//! the release. So this process tracks its pending releases, starting when the first request finishes: a query that
//! begins after that and is denied because no permit is free waits for the release, and is retried.
//!
//! A query waits only for releases that began before it, so that it never waits for later ones: releases are numbered
//! in the order in which they begin, and each name publishes the lowest number that is still pending.

use crate::script_call::Item;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

/// The pending releases, by the names of the states. There are no more than requests that were granted a permit.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The number of the next release.
    next: u64,
    by_name: HashMap<Vec<u8>, PendingOfName>,
}

/// The pending releases of one name, at least one.
#[derive(Debug)]
struct PendingOfName {
    numbers: BTreeSet<u64>,
    /// The lowest of the numbers. Dropped when there is none.
    lowest: watch::Sender<u64>,
}

/// A pending release, until this guard is dropped.
#[derive(Debug)]
pub(crate) struct ReleaseGuard {
    releases: Arc<Releases>,
    number: u64,
    names: Vec<Vec<u8>>,
}

/// The releases that a query may have overtaken: releases of some names with lower numbers than this.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    before: u64,
    names: SmallVec<[watch::Receiver<u64>; 2]>,
}

impl Releases {
    /// Records that permits of these states are being released. Returns `None` if there are none.
    pub(crate) fn begin(self: &Arc<Self>, names: impl Iterator<Item = Vec<u8>>) -> Option<ReleaseGuard> {
        let names = names.collect::<Vec<_>>();
        if names.is_empty() {
            return None;
        }
        let mut pending = self.pending.lock();
        let number = pending.next;
        pending.next += 1;
        for name in &names {
            let new = || PendingOfName { numbers: BTreeSet::new(), lowest: watch::Sender::new(number) };
            pending.by_name.entry(name.clone()).or_insert_with(new).numbers.insert(number);
        }
        drop(pending);
        Some(ReleaseGuard { releases: Arc::clone(self), number, names })
    }

    /// Returns `true` if no release is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.lock().by_name.is_empty()
    }

    /// Returns the pending releases for those of `items` whose permits are held.
    pub(crate) fn pending_for(&self, items: &[Item]) -> Overtaken {
        let mut held = items.iter().filter(|item| item.config.algorithm.holds()).peekable();
        if held.peek().is_none() {
            return Overtaken::default();
        }
        self.pending_for_names(held.map(|item| &item.name[..]))
    }

    fn pending_for_names<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Overtaken {
        let pending = self.pending.lock();
        let names = names.filter_map(|name| Some(pending.by_name.get(name)?.lowest.subscribe())).collect();
        Overtaken { before: pending.next, names }
    }
}

impl Overtaken {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Waits until these releases have reached Redis, or have failed.
    pub(crate) async fn done(self) {
        for mut lowest in self.names {
            // An error means that the sender is dropped: no release is pending.
            let _ = lowest.wait_for(|lowest| *lowest >= self.before).await;
        }
    }
}

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        let mut pending = self.releases.pending.lock();
        for name in &self.names {
            let Some(of_name) = pending.by_name.get_mut(name) else { continue };
            of_name.numbers.remove(&self.number);
            match of_name.numbers.first() {
                Some(lowest) if *lowest > self.number => drop(of_name.lowest.send_replace(*lowest)),
                Some(_) => {}
                None => drop(pending.by_name.remove(name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_query_waits_for_the_releases_that_began_before_it() {
        let releases = Arc::<Releases>::default();
        assert!(releases.begin(std::iter::empty()).is_none());
        let pending = |name: &'static [u8]| releases.pending_for_names([name].into_iter());
        let (a, b) = (b"a".to_vec(), b"b".to_vec());
        let first = releases.begin([a.clone(), b].into_iter());
        let second = releases.begin([a.clone()].into_iter());
        let mut overtaken = Box::pin(pending(b"a").done());
        let third = releases.begin([a].into_iter());
        assert!(!pending(b"a").is_empty() && !pending(b"b").is_empty() && pending(b"c").is_empty());
        // Releases may end in any order.
        drop(second);
        assert_eq!((&mut overtaken).now_or_never(), None);
        drop(first);
        assert_eq!((&mut overtaken).now_or_never(), Some(()));
        assert!(!pending(b"a").is_empty() && pending(b"b").is_empty());
        let overtaken = pending(b"a").done();
        drop(third);
        assert_eq!(overtaken.now_or_never(), Some(()));
        assert!(releases.pending.lock().by_name.is_empty());
    }
}
