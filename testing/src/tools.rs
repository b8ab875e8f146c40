//! Programs and client libraries that Debian lacks. `cargo xtask install` installs them from pip (`python/`) and npm
//! (`node/`) into one folder, which `.cargo/config.toml` names for every process that cargo starts.

use std::io;
use std::path::{Path, PathBuf};

/// The environment variable with the folder. A variable set by the user wins over cargo's configuration.
const FOLDER: &str = "DIANA_TEST_TOOLS";

/// Returns the path of a program that pip has installed.
pub(crate) fn python_program(name: &str) -> io::Result<PathBuf> {
    installed(Path::new("python/bin").join(name))
}

/// Returns the folder that contains npm's `node_modules`.
pub(crate) fn node_folder() -> io::Result<PathBuf> {
    let mut folder = installed(Path::new("node/node_modules").into())?;
    folder.pop();
    Ok(folder)
}

fn installed(path: PathBuf) -> io::Result<PathBuf> {
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
