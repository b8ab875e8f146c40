//! The file of `store.snapshot`: read at start, written periodically and at the stop.
//!
//! A file that can't be used is reported, kept under another name, and the counts start anew: a limiter that does not
//! start would be worse.

use super::ServeError;
use diana::{Clock as _, Engine, EngineOptions, Snapshot, SnapshotError, SnapshotSize, SystemClock};
use diana_admin::SnapshotStatus;
use diana_rules::file::MemorySection;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default interval at which the file is written: a crash loses at most this much.
const INTERVAL: Duration = Duration::from_secs(10);
/// The memory of the counts, unless the file sets it.
const DEFAULT_MEMORY: usize = 64 << 20;
/// Room for the names of the limits in a snapshot.
const NAMES: usize = 16 << 20;

/// The file of the snapshot, and the result of its last write.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    path: PathBuf,
    interval: Duration,
    /// The largest file that is read: saved keys take at most four times their memory.
    max_bytes: u64,
    status: Mutex<SnapshotStatus>,
}

impl SnapshotFile {
    /// Returns the file that the section names.
    pub(super) fn of(memory: &MemorySection) -> Option<Arc<Self>> {
        let section = memory.snapshot.as_ref()?;
        let max_bytes = memory.ceiling.unwrap_or(DEFAULT_MEMORY).saturating_mul(4).saturating_add(NAMES);
        Some(Arc::new(Self {
            path: section.path.clone(),
            interval: section.interval.unwrap_or(INTERVAL),
            max_bytes: max_bytes as u64,
            status: Mutex::default(),
        }))
    }

    /// Reads the counts of an earlier process, and prepares the options of the engine for them.
    pub(super) fn read(&self, options: EngineOptions) -> Result<(EngineOptions, Option<Snapshot>), ServeError> {
        match Snapshot::read(&self.path, self.max_bytes) {
            Ok(Some(snapshot)) => Ok((options.snapshot(&snapshot), Some(snapshot))),
            Ok(None) => {
                tracing::info!("no saved counts at {}: starting anew", self.path.display());
                Ok((options, None))
            }
            Err(error @ SnapshotError::Io { .. }) => Err(ServeError::Snapshot(error)),
            Err(error) => self.set_aside(&error).map(|()| (options, None)),
        }
    }

    /// Loads the counts, and writes the first snapshot: if the file can't be written, the program should not start.
    pub(super) fn load(&self, engine: &Engine, snapshot: Option<&Snapshot>) -> Result<(), ServeError> {
        if let Some(snapshot) = snapshot {
            match engine.load_snapshot(snapshot) {
                Ok(SnapshotSize { limits, keys }) => {
                    let age = SystemClock.now().since(snapshot.saved_at());
                    let path = self.path.display();
                    tracing::info!(
                        "loaded the counts of {keys} keys of {limits} limits from {path}, saved {age:.1?} ago"
                    );
                }
                Err(error) => self.set_aside(&error)?,
            }
        }
        self.write(engine).map_err(ServeError::Snapshot)
    }

    /// Keeps a file that can't be used, which the next write would replace.
    fn set_aside(&self, error: &SnapshotError) -> Result<(), ServeError> {
        let mut name = self.path.file_name().map(OsString::from).unwrap_or_default();
        name.push(".ignored");
        let kept = self.path.with_file_name(name);
        let failed = |error| ServeError::Snapshot(SnapshotError::Io { path: self.path.clone(), error });
        std::fs::rename(&self.path, &kept).map_err(failed)?;
        let (path, kept) = (self.path.display(), kept.display());
        tracing::warn!("the saved counts at {path} are ignored, and kept as {kept}: {error}");
        Ok(())
    }

    /// Writes the file, and logs when writing begins to fail and when it works again.
    pub(super) fn save(&self, engine: &Engine) {
        // Reported there.
        let _ = self.write(engine);
    }

    fn write(&self, engine: &Engine) -> Result<(), SnapshotError> {
        let result = engine.save_snapshot(&self.path);
        let (now, mut status) = (SystemClock.now(), self.status.lock());
        match result {
            Ok(SnapshotSize { keys, .. }) => {
                if let Some((since, _)) = status.failing.take() {
                    tracing::info!("counts are saved again, after {:.1?}", now.since(since));
                }
                (status.saved, status.keys) = (now, keys);
                Ok(())
            }
            Err(error) => {
                status.errors += 1;
                let since = status.failing.as_ref().map(|(since, _)| *since);
                if since.is_none() {
                    tracing::warn!("counts are not saved: {error}; a restart would lose those since the last snapshot");
                }
                status.failing = Some((since.unwrap_or(now), error.to_string()));
                Err(error)
            }
        }
    }

    /// Returns the result of the last write.
    pub(super) fn status(&self) -> SnapshotStatus {
        self.status.lock().clone()
    }

    /// Writes the file periodically, until the runtime ends.
    pub(super) async fn run(self: Arc<Self>, engine: Engine) {
        loop {
            tokio::time::sleep(self.interval).await;
            let (file, engine) = (Arc::clone(&self), engine.clone());
            let _ = tokio::task::spawn_blocking(move || file.save(&engine)).await;
        }
    }
}
