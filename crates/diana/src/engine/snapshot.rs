//! Counts that survive a restart: a file with the keys of this process that are in use for longer than a minute.
//!
//! ```text
//!   magic │ version │ time │ secret of the hash │ limits │ end │ SHA-256 of all before it
//!                                                 └ name │ parameters │ pieces of keys │ end
//! ```
//!
//! Numbers have eight bytes, the lowest first; a text and a piece begin with their length. The file is written beside its
//! place, synced and renamed, so that a crash leaves the previous one. It has no key in plain text, but the secret of
//! their hash: only its owner can read it.
//!
//! # What always holds (tests/it/snapshot.rs)
//! - A limit with the same name and parameters answers as it would have without the restart. With other parameters, its
//!   keys keep their permits in use. Limits that no longer exist are left out.
//! - A file that was damaged or cut off anywhere is an error, and nothing of it is loaded.

use super::Engine;
use diana_core::{HashSecret, Limit, Timestamp};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"dianacnt";
const VERSION: u64 = 1;
/// The bytes of the checksum at the end.
const CHECKSUM: usize = 32;
/// Keys that are in use for less than this are not saved: a restart takes about as long.
const MIN_USE: Duration = Duration::from_secs(60);
/// A file from further in the future than this is not loaded: its keys would be limited until then.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(60);

/// The counts of an earlier process, [read](Self::read) from a file.
///
/// ```
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana::{EngineOptions, Snapshot};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = &folder.path().join("counts");
/// let document = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 1000/d}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// let mut options = EngineOptions::of(&file);
/// let snapshot = Snapshot::read(path, 1 << 30)?;
/// if let Some(snapshot) = &snapshot {
///     options = options.snapshot(snapshot);
/// }
/// let engine = options.build(&file);
/// if let Some(snapshot) = &snapshot {
///     engine.load_snapshot(snapshot)?;
/// }
/// engine.save_snapshot(path)?; // from time to time, and before the process ends
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    secret: HashSecret,
    saved_at: Timestamp,
    limits: HashMap<String, SavedLimit>,
}

/// The keys of one limit.
#[derive(Debug)]
struct SavedLimit {
    parameters: String,
    words: Vec<u64>,
}

/// How many keys were saved or loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSize {
    /// The limits with keys.
    pub limits: usize,
    /// The keys.
    pub keys: usize,
}

/// Why counts could not be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file can't be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not a snapshot.
    #[error("{}: not a snapshot of Diana's counts", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by another version of Diana.
    #[error("{}: version {version} of the format is unknown; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of its format.
        version: u64,
    },
    /// The file is damaged.
    #[error("{}: damaged: the SHA-256 does not match", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than its bound.
    #[error("{}: larger than {max_bytes} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        max_bytes: u64,
    },
    /// The counts are from the future.
    #[error("the counts are from the future, by {0:?}: the clock was set back")]
    FromTheFuture(Duration),
    /// The engine was not built for this snapshot.
    #[error("the engine was not built with `EngineOptions::snapshot`")]
    OtherSecret,
}

impl Snapshot {
    /// Reads a file of at most `max_bytes`; `None` if there is none.
    pub fn read(path: &Path, max_bytes: u64) -> Result<Option<Self>, SnapshotError> {
        let io = |error| SnapshotError::Io { path: path.to_owned(), error };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(io)?,
        };
        let mut bytes = Vec::new();
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > max_bytes {
            return Err(SnapshotError::TooLarge { path: path.to_owned(), max_bytes });
        }
        let path = || path.to_owned();
        let mut reader = Reader(&bytes);
        if reader.bytes(MAGIC.len()) != Some(&MAGIC) {
            return Err(SnapshotError::Foreign { path: path() });
        }
        let version = reader.number().ok_or_else(|| SnapshotError::Damaged { path: path() })?;
        if version != VERSION {
            return Err(SnapshotError::Version { path: path(), version });
        }
        let checked = bytes.split_last_chunk::<CHECKSUM>();
        let checked = checked.filter(|(content, sum)| Sha256::digest(content).as_slice() == sum.as_slice());
        let content = checked.and_then(|(content, _)| content.get(MAGIC.len() + 8..));
        content
            .and_then(|content| Self::parse(Reader(content)))
            .map_or_else(|| Err(SnapshotError::Damaged { path: path() }), |snapshot| Ok(Some(snapshot)))
    }

    /// Returns when the counts were saved.
    pub fn saved_at(&self) -> Timestamp {
        self.saved_at
    }

    pub(super) fn secret(&self) -> HashSecret {
        self.secret
    }

    fn parse(mut reader: Reader<'_>) -> Option<Self> {
        let saved_at = Timestamp::from_nanos(reader.number()?);
        let secret = HashSecret([reader.number()?, reader.number()?]);
        let mut limits = HashMap::new();
        loop {
            let name = reader.text()?;
            if name.is_empty() {
                return reader.0.is_empty().then_some(Self { secret, saved_at, limits });
            }
            let parameters = reader.text()?;
            let mut words = Vec::new();
            loop {
                let count = usize::try_from(reader.number()?).ok()?;
                if count == 0 {
                    break;
                }
                let (piece, []) = reader.bytes(count.checked_mul(8)?)?.as_chunks() else { return None };
                words.extend(piece.iter().map(|word| u64::from_le_bytes(*word)));
            }
            limits.insert(name, SavedLimit { parameters, words });
        }
    }
}

/// The unread rest of a file.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }
}

/// A file that is written, and its checksum.
struct Writer {
    file: BufWriter<File>,
    sum: Sha256,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.number(text.len() as u64)?;
        self.bytes(text.as_bytes())
    }

    /// Writes the keys of `limit`; nothing if it has none.
    fn limit(&mut self, name: &str, limit: &Limit, pieces: impl Iterator<Item = Vec<u64>>) -> io::Result<bool> {
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return Ok(false);
        }
        self.text(name)?;
        self.text(&limit.parameters())?;
        let mut bytes = Vec::new();
        for piece in pieces {
            self.number(piece.len() as u64)?;
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|word| word.to_le_bytes()));
            self.bytes(&bytes)?;
        }
        self.number(0)?;
        Ok(true)
    }

    /// Writes the checksum, and waits until the disk has the file.
    fn finish(mut self) -> io::Result<()> {
        let sum = self.sum.finalize();
        self.file.write_all(&sum)?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl Engine {
    /// Saves the counts of this process that are in use for longer than a minute: those of rules with `store: local`, and
    /// of `CL.THROTTLE` without a shared store. Permits that running requests hold are left out.
    ///
    /// The file is replaced at once and is readable by its owner only. Decisions are made meanwhile. Only one process may
    /// use the same file. It blocks: in a server, call it on a thread of its own.
    pub fn save_snapshot(&self, path: &Path) -> Result<SnapshotSize, SnapshotError> {
        self.write_snapshot(path).map_err(|error| SnapshotError::Io { path: path.to_owned(), error })
    }

    fn write_snapshot(&self, path: &Path) -> io::Result<SnapshotSize> {
        // All use the same temporary file.
        let _saving = self.state.saving.lock();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let temporary = temporary_path(path);
        // A name of its own would be left over by each crash.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = BufWriter::with_capacity(1 << 18, options.open(&temporary)?);
        let mut writer = Writer { file, sum: Sha256::new() };
        let (now, store) = (self.now(), self.local());
        let HashSecret([first, second]) = store.hash_secret();
        writer.bytes(&MAGIC)?;
        for number in [VERSION, now.as_nanos(), first, second] {
            writer.number(number)?;
        }
        let mut size = SnapshotSize::default();
        for (name, limit) in self.snapshot_limits() {
            let pieces = store.save(&limit, now, now + MIN_USE);
            let pieces = pieces.inspect(|piece| size.keys += diana_core::saved_key_count(piece));
            if writer.limit(&name, &limit, pieces)? {
                size.limits += 1;
            }
        }
        writer.text("")?;
        writer.finish()?;
        std::fs::rename(&temporary, path)?;
        // The name, too, must reach the disk.
        File::open(folder)?.sync_all()?;
        Ok(size)
    }

    /// Loads the counts of the limits that the active rules still have. Call it before the first decision.
    ///
    /// The engine must have been [built](super::EngineOptions::snapshot) for this snapshot. Keys that are in use already
    /// stay as they are.
    pub fn load_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotSize, SnapshotError> {
        let (now, store) = (self.now(), self.local());
        if store.hash_secret() != snapshot.secret {
            return Err(SnapshotError::OtherSecret);
        }
        let ahead = snapshot.saved_at.since(now);
        if ahead > MAX_CLOCK_STEP {
            return Err(SnapshotError::FromTheFuture(ahead));
        }
        let mut size = SnapshotSize::default();
        for (name, limit) in self.snapshot_limits() {
            let Some(saved) = snapshot.limits.get(&name) else { continue };
            match store.load(&limit, &saved.parameters, &saved.words, now) {
                Ok(keys) => {
                    size.limits += 1;
                    size.keys += keys;
                }
                Err(error) => tracing::warn!("counts of `{}` not restored: {error}", limit.name()),
            }
        }
        Ok(size)
    }

    /// Returns the limits that are counted in this process. A rule that counts other keys than before starts with new counts, so
    /// their names include the keys.
    fn snapshot_limits(&self) -> Vec<(String, Limit)> {
        let rules = self.rules();
        let named = rules.local_limits().map(|(by, limit)| (format!("{} by {by:?}", limit.name()), limit.clone()));
        let mut limits = named.collect::<Vec<_>>();
        if self.state.shared.is_none() {
            let cl_throttle_limits = self.state.cl_throttle_limits.as_slice().iter();
            limits.extend(cl_throttle_limits.map(|limit| (limit.name().to_owned(), limit.clone())));
        }
        limits
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".tmp");
    path.with_file_name(name)
}
