//! The last good remote document, on disk, for a start while the config server is unreachable.
//!
//! There is one file per config server, named by a hash of its URL (without user and password, so that a new password
//! finds the same file). The first line has a marker, the SHA-256 and the version; the document follows unchanged. It
//! is written to a temporary file and renamed, so that it is always complete, and only its owner can read it.

use super::coordinator::{SourceDocument, hex};
use super::file::read_capped;
use super::remote_url::Remote;
use super::status::Origin;
use diana_rules::Document;
use diana_rules::document::Format;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The marker at the beginning of the file.
const MAGIC: &str = "# diana: the last good remote document";

/// The cache file of one config server.
#[derive(Clone, Debug)]
pub(super) struct DiskCache {
    path: PathBuf,
    name: String,
    format: Format,
}

/// Returns the default state folder: systemd's `STATE_DIRECTORY`, else `diana` in `XDG_STATE_HOME` or `~/.local/state`.
/// `None` if the environment sets none of them.
pub fn default_keep() -> Option<PathBuf> {
    keep_from(|name| std::env::var_os(name))
}

fn keep_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The variable may have several folders, separated by colons.
    let systemd = variable("STATE_DIRECTORY").and_then(|folders| std::env::split_paths(&folders).next());
    let home = || Some(variable("HOME")?.join(".local/state"));
    systemd.or_else(|| Some(variable("XDG_STATE_HOME").or_else(home)?.join("diana")))
}

impl DiskCache {
    pub(super) fn new(folder: &Path, remote: &Remote) -> Self {
        let hash = hex(&Sha256::digest(remote.identity()));
        let path = folder.join(format!("remote-{}.rules", hash.get(..16).unwrap_or_default()));
        Self { path, name: remote.redacted().to_owned(), format: remote.effective_format() }
    }

    /// Reads the cached document; `None` if there is none.
    pub(super) async fn read(&self) -> Result<Option<SourceDocument>, String> {
        let cache = self.clone();
        let read = tokio::task::spawn_blocking(move || cache.read_now()).await;
        read.unwrap_or_else(|_| Err("read canceled".to_owned()))
    }

    /// Replaces the cached document.
    pub(super) async fn write(&self, document: &SourceDocument) -> Result<(), String> {
        let (cache, document) = (self.clone(), document.clone());
        let written = tokio::task::spawn_blocking(move || cache.write_now(&document)).await;
        let written = written.unwrap_or_else(|_| Err(std::io::Error::other("write canceled")));
        written.map_err(|error| format!("{} can't be written: {error}", self.path.display()))
    }

    fn read_now(&self) -> Result<Option<SourceDocument>, String> {
        if !self.path.exists() {
            return Ok(None);
        }
        let in_file = |what: String| format!("{}: {what}", self.path.display());
        // The first line does not count toward the size of the document.
        let whole = read_capped(&self.path, MAX_HEAD).map_err(in_file)?;
        let (head, text) = whole.split_once('\n').ok_or_else(|| in_file("not a cache file of Diana".to_owned()))?;
        let mut words = head.strip_prefix(MAGIC).unwrap_or_default().splitn(3, ' ').skip(1);
        let (hash, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if hash != hex(&Sha256::digest(text)) {
            return Err(in_file("damaged: the SHA-256 does not match".to_owned()));
        }
        let document = Document::new(&self.name, text).with_format(self.format);
        let mut cached = SourceDocument::hashed(Origin::LastGood, document);
        version.clone_into(&mut cached.version);
        Ok(Some(cached))
    }

    fn write_now(&self, document: &SourceDocument) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // On Unix, only the owner may read a temporary file.
        let mut file = tempfile::Builder::new().prefix(".remote-").tempfile_in(folder)?;
        let text = document.document.text();
        let version: String = document.version.chars().filter(|character| !character.is_control()).take(256).collect();
        writeln!(file, "{MAGIC} {} {version}", hex(&Sha256::digest(text)))?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// The maximum length of the first line.
const MAX_HEAD: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_determines_the_state_folder() {
        let keep = |variables: &[(&str, &str)]| {
            let value = |name: &str| Some(OsString::from(variables.iter().find(|(other, _)| *other == name)?.1));
            keep_from(value).map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/me");
        assert_eq!(keep(&[]), None);
        assert_eq!(keep(&[home]).unwrap(), "/home/me/.local/state/diana");
        assert_eq!(keep(&[home, ("XDG_STATE_HOME", "")]).unwrap(), "/home/me/.local/state/diana");
        assert_eq!(keep(&[home, ("XDG_STATE_HOME", "/state")]).unwrap(), "/state/diana");
        assert_eq!(keep(&[home, ("STATE_DIRECTORY", "/var/lib/diana:/var/lib/other")]).unwrap(), "/var/lib/diana");
    }
}
