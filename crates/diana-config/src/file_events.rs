//! Watches for file system events near a file.
//!
//! A watch of the file itself ends when the file is replaced. So the folders are watched: the parent folder of the
//! path, and for each symlink in the path (of the file, or of a folder) the folder of the link and the folder of its
//! target.

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Notify;

/// The maximum number of links to follow, as in Linux.
const MAX_LINKS: usize = 40;

/// A watch of the folders that are relevant to one file.
#[derive(Debug)]
pub(super) struct Watch {
    changed: Arc<Notify>,
    state: Mutex<WatchState>,
}

#[derive(Debug)]
struct WatchState {
    /// `None` if the system can't watch (for example, out of watches); the file is still polled.
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                notify.notify_one();
            }
        });
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "rule file can't be watched; polling it instead")).ok();
        Self { changed, state: Mutex::new(WatchState { watcher, folders: BTreeSet::new() }) }
    }

    /// Waits for an event since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Watches the folders that are relevant to `path` now. Existing watches are renewed, since a folder may have been
    /// recreated.
    pub(super) fn update(&self, path: &Path) {
        let folders = folders(path);
        let mut state = self.state.lock();
        let WatchState { watcher: Some(watcher), folders: watched } = &mut *state else { return };
        for removed in watched.difference(&folders) {
            // The folder, and its watch, may be removed already.
            let _ = watcher.unwatch(removed);
        }
        // A folder that can't be watched may not exist yet; polling will notice it.
        *watched =
            folders.into_iter().filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok()).collect();
    }
}

/// Returns `true` if an event may change the content; reading the file is an event too.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Returns the folders in which a change may affect the target of `path`.
fn folders(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let Ok(mut path) = std::path::absolute(path) else { return folders };
    for _ in 0..MAX_LINKS {
        folders.extend(path.parent().map(Path::to_owned));
        // The outermost link is resolved first.
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        let link = ancestors.into_iter().find_map(|ancestor| Some((ancestor, std::fs::read_link(ancestor).ok()?)));
        let Some((link, target)) = link else { break };
        let parent = link.parent().unwrap_or(Path::new("/"));
        folders.insert(parent.to_owned());
        let below = path.strip_prefix(link).unwrap_or(Path::new("")).to_owned();
        let target = parent.join(target);
        path = if below.as_os_str().is_empty() { target } else { target.join(below) };
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn watches_the_folder_of_every_link_in_the_path() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        std::fs::create_dir_all(root.join("config/..1")).unwrap();
        std::fs::write(root.join("config/..1/diana.yaml"), "rules: []").unwrap();
        link("..1", "config/..data");
        link("..data/diana.yaml", "config/diana.yaml");
        link("config", "current");

        let folders = folders(&root.join("current/diana.yaml"));
        for folder in ["", "current", "config", "config/..data", "config/..1"] {
            let folder = root.join(folder).components().collect::<PathBuf>();
            assert!(folders.contains(&folder), "{folder:?} is not in {folders:?}");
        }
    }

    #[tokio::test]
    async fn only_writes_are_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("diana.yaml");
        std::fs::write(&path, "rules: []").unwrap();
        let watch = Watch::new();
        watch.update(&path);
        for _ in 0..10 {
            std::fs::read(&path).unwrap();
            watch.update(&path);
        }
        let timeout = std::time::Duration::from_millis(300);
        assert!(
            tokio::time::timeout(timeout, watch.changed()).await.is_err(),
            "reads of the file must not wake the watch"
        );
        std::fs::write(&path, "rules: [1]").unwrap();
        watch.changed().await;
    }

    #[test]
    #[cfg(unix)]
    fn circular_links_end() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", root.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("b")).unwrap();
        assert!(folders(&root.path().join("a")).contains(root.path()));
    }
}
