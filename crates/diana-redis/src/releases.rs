//! Releases of held permits that are on their way to Redis.
//!
//! A request that ends releases its permit in the background, and the next request of the same client may overtake it on the
//! way to Redis. So this process keeps in mind what it is releasing, from the moment on at which the first request ends: a
//! question that begins after that and is denied for want of a permit waits for the release, and is asked again.
//!
//! Only releases that began before the question are waited for, so that no question waits for those that follow.

use crate::request::Item;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The releases on their way, by the names of the states. There are no more than requests that were granted a permit.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    by_name: Mutex<HashMap<Vec<u8>, Vec<watch::Receiver<()>>>>,
}

/// A release on its way, until this is dropped.
#[derive(Debug)]
pub(crate) struct ReleaseGuard {
    releases: Arc<Releases>,
    names: Vec<Vec<u8>>,
    /// Its receivers hear that it is dropped.
    under_way: Option<watch::Sender<()>>,
}

/// The releases that a question may have overtaken.
#[derive(Debug, Default)]
pub(crate) struct Overtaken(SmallVec<[watch::Receiver<()>; 2]>);

impl Releases {
    /// Notes that permits of these states are being released. Nothing if there are none.
    pub(crate) fn begin(self: &Arc<Self>, names: impl Iterator<Item = Vec<u8>>) -> Option<ReleaseGuard> {
        let names = names.collect::<Vec<_>>();
        if names.is_empty() {
            return None;
        }
        let (under_way, ends) = watch::channel(());
        let mut by_name = self.by_name.lock();
        for name in &names {
            by_name.entry(name.clone()).or_default().push(ends.clone());
        }
        drop(by_name);
        Some(ReleaseGuard { releases: Arc::clone(self), names, under_way: Some(under_way) })
    }

    /// The releases that are on their way for those of `items` whose permits are held.
    pub(crate) fn of(&self, items: &[Item]) -> Overtaken {
        let mut held = items.iter().filter(|item| item.plan.kept.holds()).peekable();
        if held.peek().is_none() {
            return Overtaken::default();
        }
        let by_name = self.by_name.lock();
        Overtaken(held.filter_map(|item| by_name.get(&item.name)).flatten().cloned().collect())
    }
}

impl Overtaken {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all of them have come to Redis, or have failed.
    pub(crate) async fn done(self) {
        for mut release in self.0 {
            // Nothing is ever sent: it fails when the sender is dropped.
            while release.changed().await.is_ok() {}
        }
    }
}

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        let mut by_name = self.releases.by_name.lock();
        // By then the receivers in the map know it.
        self.under_way = None;
        for name in &self.names {
            if let Some(releases) = by_name.get_mut(name) {
                releases.retain(|release| release.has_changed().is_ok());
                if releases.is_empty() {
                    by_name.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_waits_for_the_releases_that_began_before_it() {
        let releases = Arc::<Releases>::default();
        assert!(releases.begin(std::iter::empty()).is_none());
        let of = |name: &[u8]| Overtaken(releases.by_name.lock().get(name).into_iter().flatten().cloned().collect());
        let (a, b) = (b"a".to_vec(), b"b".to_vec());
        let first = releases.begin([a.clone(), b.clone()].into_iter());
        let overtaken = of(b"a");
        let second = releases.begin([a].into_iter());
        assert_eq!((of(b"a").0.len(), of(b"b").0.len()), (2, 1));
        drop(first);
        overtaken.done().await;
        assert_eq!((of(b"a").0.len(), of(b"b").0.len()), (1, 0));
        drop(second);
        assert!(releases.by_name.lock().is_empty());
    }
}
