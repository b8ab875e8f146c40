//! The input of the commands: rule files and other files, from disk and from standard input.

use super::check_files;
use super::output::usage_error;
use diana_rules::document::Node;
use diana_rules::file::NotChecked;
use diana_rules::{Document, Problem, Problems, Registry, RuleFile};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The reason why a rule file can't be used.
#[derive(Debug)]
pub(super) enum InputError {
    /// The file can't be read, with the reason.
    Unreadable(String),
    /// The file is invalid.
    Problems(Problems),
}

/// The source of `${VARIABLES}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variables {
    FromEnvironment,
    /// No variable is replaced; the values that have variables are not checked.
    Unresolved,
}

/// Whether the files that a rule file names are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsFiles {
    Checked,
    Ignored,
}

/// Reads a rule file, and replaces its rules by those of a config server's document, if there is one.
pub(super) fn rule_file(path: &Path, remote: Option<&Path>, registry: &Registry) -> Result<RuleFile, InputError> {
    rule_file_with(path, remote, registry, Variables::FromEnvironment, TlsFiles::Ignored).map(|(file, _)| file)
}

/// Reads a rule file like [`rule_file`], with this source of variables, and its TLS files if they are to be checked. Also
/// returns the values that were not checked.
pub(super) fn rule_file_with(
    path: &Path,
    remote: Option<&Path>,
    registry: &Registry,
    variables: Variables,
    tls_files: TlsFiles,
) -> Result<(RuleFile, Vec<NotChecked>), InputError> {
    let local = document(path)?;
    let read = match variables {
        Variables::FromEnvironment => RuleFile::read(&local, registry).map(|file| (file, Vec::new())),
        Variables::Unresolved => RuleFile::read_without_environment(&local, registry),
    };
    let of_files = if tls_files == TlsFiles::Checked { tls_problems(&local, variables) } else { Vec::new() };
    let (file, not_checked) = match read {
        Ok(read) if of_files.is_empty() => read,
        Ok(_) => return Err(InputError::Problems(local.problems(of_files))),
        // All problems are reported at once.
        Err(others) => {
            return Err(InputError::Problems(local.problems(others.iter().cloned().chain(of_files))));
        }
    };
    match remote {
        None => Ok((file, not_checked)),
        Some(remote) => {
            let file = file.with_remote(&document(remote)?, registry).map_err(InputError::Problems)?;
            Ok((file, not_checked))
        }
    }
}

/// Returns the problems of the files that a document names; none if it can't be parsed.
fn tls_problems(document: &Document, variables: Variables) -> Vec<Problem> {
    let tree = match variables {
        Variables::FromEnvironment => document.parse_with(|name| std::env::var(name).ok()),
        Variables::Unresolved => document.parse(),
    };
    // A path with variables that are left as they are names no file.
    let is_checked =
        |node: &Node| variables == Variables::FromEnvironment || node.text().is_some_and(|path| !path.contains("${"));
    tree.map(|tree| check_files::problems(&tree, is_checked)).unwrap_or_default()
}

/// Returns the display name of a file, also for standard input.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a file or standard input, up to a maximum size.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if is_stdin(path) { read_limited(io::stdin().lock()) } else { read_limited(File::open(path)?) }
}

pub(super) fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = Document::MAX_SIZE;
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {max} bytes")));
    }
    Ok(bytes)
}

fn document(path: &Path) -> Result<Document, InputError> {
    let name = name(path);
    let unreadable =
        |reason: &dyn std::fmt::Display| InputError::Unreadable(format!("{name}: can't be read: {reason}"));
    let bytes = bytes(path).map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(&error))?;
    Ok(Document::new(&name, text))
}

/// Fails if standard input is named more than once: it can be read only once.
pub(super) fn require_single_stdin<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), ExitCode> {
    if paths.into_iter().filter(|path| is_stdin(path)).count() <= 1 {
        return Ok(());
    }
    Err(usage_error("`-` given more than once; standard input can be read only once"))
}
