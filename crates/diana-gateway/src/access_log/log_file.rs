//! The file of the access log or of another log, which can be reopened after another program, such as logrotate, has renamed it.

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
    access: FileAccess,
}

/// Who may read a file that is created. An existing file keeps its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAccess {
    Group,
    Owner,
}

impl LogFile {
    /// Opens a file to append to it; creates it if it does not exist, readable by its owner and group.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_for(path.into(), FileAccess::Group)
    }

    /// The same, but a file that is created is readable by its owner only.
    pub fn open_private(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_for(path.into(), FileAccess::Owner)
    }

    fn open_for(path: PathBuf, access: FileAccess) -> io::Result<Self> {
        let path: Arc<Path> = path.into();
        let file = Arc::new(Mutex::new(append(&path, access)?));
        Ok(Self { path, file, access })
    }

    /// Opens the path again: later lines go to the file that has this name now. If that fails, they go to the old file.
    pub fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path, self.access)?;
        *self.file.lock() = file;
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg_attr(not(unix), expect(unused_variables, reason = "permissions are those of the folder"))]
fn append(path: &Path, access: FileAccess) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        let mode = match access {
            FileAccess::Group => 0o640,
            FileAccess::Owner => 0o600,
        };
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    }
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
