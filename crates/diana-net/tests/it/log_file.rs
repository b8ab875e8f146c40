//! The file of a log: what it may be, and that neither opening nor reopening it waits.

use diana_net::LogFile;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Returns the path of a new FIFO.
fn fifo(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("fifo");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    path
}

/// Opens a FIFO for reading, without waiting for a writer.
fn reader_of(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn only_what_can_be_written_without_a_wait_is_opened_as_a_log_file() {
    let folder = tempfile::tempdir().unwrap();
    let (fifo, socket) = (fifo(&folder), folder.path().join("socket"));
    let _listener = UnixListener::bind(&socket).unwrap();
    for (path, what) in [
        (&*fifo, "it is a FIFO that no program reads"),
        (&*socket, "it is a socket"),
        (folder.path(), "it is a directory"),
    ] {
        let expected = format!("{what}; expected a regular file, a device or a pipe with a reader");
        assert_eq!(LogFile::open(path).unwrap_err().to_string(), expected);
        assert_eq!(LogFile::open_private(path).unwrap_err().to_string(), expected);
    }
    for path in ["/dev/null", "/dev/zero"] {
        LogFile::open(path).unwrap().write_all(b"line\n").unwrap();
    }
}

#[test]
fn a_fifo_with_a_reader_gets_whole_lines_that_are_larger_than_its_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(&folder);
    let mut reader = reader_of(&path);
    let mut log = LogFile::open(&path).unwrap();
    let line = vec![b'x'; 1 << 20];
    let written = line.clone();
    let writer = std::thread::spawn(move || log.write_all(&written));
    let mut read = vec![0; line.len()];
    reader.read_exact(&mut read).unwrap();
    writer.join().unwrap().unwrap();
    assert!(read == line);
}

#[test]
fn a_log_whose_reader_is_too_slow_is_reopened_without_a_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(&folder);
    let mut reader = reader_of(&path);
    let log = LogFile::open(&path).unwrap();
    let mut writer = log.clone();
    let written = std::thread::spawn(move || writer.write_all(&vec![b'x'; 1 << 20]));
    // The writer has the FIFO by now, and waits for the rest of it to be read.
    reader.read_exact(&mut [0; 1]).unwrap();
    std::fs::remove_file(&path).unwrap();
    log.reopen().unwrap();
    log.clone().write_all(b"to the new file\n").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"to the new file\n");
    reader.read_exact(&mut vec![0; (1 << 20) - 1]).unwrap();
    written.join().unwrap().unwrap();
}
