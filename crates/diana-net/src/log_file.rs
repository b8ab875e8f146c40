//! The file of the access log or of another log, which can be reopened after another program, such as logrotate, has renamed it.
//!
//! Neither opening nor reopening it ever waits: not for the reader of a FIFO, and not for a line that is being written. A
//! write may wait for a slow reader, so each log writes in a thread of its own.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log file. Cloning is cheap; clones write to the same file.
///
/// ```
/// use diana_net::LogFile;
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let (path, renamed) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
/// let mut log = LogFile::open(&path)?;
/// log.write_all(b"one\n")?;
/// std::fs::rename(&path, &renamed)?;
/// log.reopen()?;
/// log.write_all(b"two\n")?;
/// assert_eq!((std::fs::read(renamed)?, std::fs::read(path)?), (b"one\n".to_vec(), b"two\n".to_vec()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogFile {
    path: Arc<Path>,
    /// Locked to copy or to replace it, never during a write.
    file: Arc<Mutex<Arc<File>>>,
    access: FileAccess,
}

/// The read permissions of a file that is created. An existing file keeps its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAccess {
    Group,
    Owner,
}

impl LogFile {
    /// Opens a file to append to it; creates it if it does not exist, readable by its owner and group. A device such as
    /// `/dev/stdout`, or a FIFO that another program reads, is written too.
    ///
    /// # Errors
    /// The path is something else, or the system denies it.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_for(path.into(), FileAccess::Group)
    }

    /// Opens a file like [`open`](Self::open); one that is created is readable by its owner only.
    pub fn open_private(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_for(path.into(), FileAccess::Owner)
    }

    fn open_for(path: PathBuf, access: FileAccess) -> io::Result<Self> {
        let path: Arc<Path> = path.into();
        let file = Arc::new(Mutex::new(Arc::new(append(&path, access)?)));
        Ok(Self { path, file, access })
    }

    /// Opens the path again: later lines go to the file that has this name now. If that fails, they go to the old file.
    pub fn reopen(&self) -> io::Result<()> {
        let file = Arc::new(append(&self.path, self.access)?);
        *self.file.lock() = file;
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn current(&self) -> Arc<File> {
        Arc::clone(&self.file.lock())
    }
}

#[cfg(not(unix))]
fn append(path: &Path, _access: FileAccess) -> io::Result<File> {
    // The permissions are those of the folder.
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(unix)]
fn append(path: &Path, access: FileAccess) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

    let mode = match access {
        FileAccess::Group => 0o640,
        FileAccess::Owner => 0o600,
    };
    // Without this flag, opening a FIFO waits for a reader.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().append(true).create(true).mode(mode).custom_flags(flags).open(path);
    let file = opened.map_err(|error| {
        // These errors do not say what the path is.
        let is_unclear = [Errno::NXIO, Errno::ISDIR].iter().any(|of| error.raw_os_error() == Some(of.raw_os_error()));
        let metadata = std::fs::metadata(path).ok().filter(|_| is_unclear);
        match metadata.and_then(|metadata| unsuitable(metadata.file_type())) {
            Some(what) => unsuitable_error(error.kind(), what),
            None => error,
        }
    })?;
    let kind = file.metadata()?.file_type();
    // A FIFO that is open has a reader.
    if let Some(what) = unsuitable(kind).filter(|_| !kind.is_fifo()) {
        return Err(unsuitable_error(io::ErrorKind::InvalidInput, what));
    }
    // From now on a write waits until there is room for the whole line.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Returns what a path is if no log can be written to it; a FIFO can, if it has a reader.
#[cfg(unix)]
fn unsuitable(kind: std::fs::FileType) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => Some("a FIFO that no program reads"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_block_device() => Some("a block device"),
        _ => None,
    }
}

#[cfg(unix)]
fn unsuitable_error(kind: io::ErrorKind, what: &str) -> io::Error {
    io::Error::new(kind, format!("it is {what}; expected a regular file, a device or a pipe with a reader"))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.current()).write(bytes)
    }

    /// Writes all of it to one file, also if it is reopened meanwhile.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.current()).write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.current()).flush()
    }
}
