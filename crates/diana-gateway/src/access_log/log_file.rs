//! The file of the access log, which can be reopened after another program, such as logrotate, has renamed it.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log file. Cloning is cheap; clones write to the same file.
///
/// ```
/// use diana_gateway::access_log::LogFile;
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
    file: Arc<Mutex<File>>,
}

impl LogFile {
    /// Opens a file to append to it; creates it if it does not exist, readable by its owner and group.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path: Arc<Path> = path.into().into();
        let file = Arc::new(Mutex::new(append(&path)?));
        Ok(Self { path, file })
    }

    /// Opens the path again: later lines go to the file that has this name now. If that fails, they go to the old file.
    pub fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        *self.file.lock() = file;
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().write(bytes)
    }

    /// Writes all of it to one file, also if it is reopened meanwhile.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.lock().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().flush()
    }
}
