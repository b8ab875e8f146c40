//! Programs and client libraries that Debian lacks. `cargo xtask install` installs them from pip (`python/`) and npm
//! (`node/`) into one folder, which `.cargo/config.toml` names for every process that cargo starts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the folder. A variable set by the user wins over cargo's configuration.
const FOLDER: &str = "DIANA_TEST_TOOLS";

/// Returns the path of a program that pip has installed.
pub(crate) fn python_program(name: &str) -> io::Result<PathBuf> {
    installed(Path::new("python/bin").join(name))
}

/// Returns the path of a server that Debian installs in a directory that is only in root's `PATH`, or its name.
pub(crate) fn system_program(name: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(name);
    if path.is_file() { path } else { name.into() }
}

/// Returns the version that a program reports, such as `1.22.1`. Fails if the program is not installed.
pub(crate) fn version_of(program: &Path, option: &str) -> io::Result<String> {
    let output = Command::new(program).arg(option).output().map_err(|error| {
        let hint = "`cargo xtask install` and `cargo xtask bench` install the programs that they need";
        io::Error::new(error.kind(), format!("cannot start `{}`: {error}; {hint}", program.display()))
    })?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split([' ', '/', '\n']);
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    let problem = || io::Error::other(format!("`{}` reports no version: {text}", program.display()));
    words.find(is_version).map(str::to_owned).ok_or_else(problem)
}

/// Returns the folder that contains npm's `node_modules`.
pub(crate) fn node_folder() -> io::Result<PathBuf> {
    let mut folder = installed("node/node_modules")?;
    folder.pop();
    Ok(folder)
}

/// Returns a path in the folder.
pub(crate) fn installed(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let folder = std::env::var_os(FOLDER).ok_or_else(|| {
        let problem = format!("`{FOLDER}` is not set; start tests with cargo, in a folder of the workspace");
        io::Error::new(io::ErrorKind::NotFound, problem)
    })?;
    let path = Path::new(&folder).join(path);
    if path.exists() {
        return Ok(path);
    }
    let problem = format!("`{}` is missing; `cargo xtask install` installs it", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, problem))
}
