//! `cargo xtask archive`: the program for every Linux with glibc 2.31 or later, as an archive with its checksum and its list of
//! dependencies (SBOM).
//!
//! zig is the linker, since it knows the symbols of each version of glibc. The result is examined (which versions it asks for, which
//! libraries it needs), and with `--try` run in a root of Debian 11, whose glibc is 2.31.

use crate::install;
use crate::release::crates;
use crate::test::cargo_command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The oldest glibc that the program runs with: that of Debian 11 and Ubuntu 20.04.
const GLIBC: (u32, u32) = (2, 31);

/// The Debian with that glibc.
const OLDEST_DEBIAN: &str = "bullseye";

/// What an archive has beside the program.
const FILES: [&str; 6] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "SECURITY.md", "packaging"];

pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        [] => build().map(|_| ()),
        ["--try"] => build().and_then(|archive| try_out(&archive)),
        _ => {
            eprintln!("archive: unknown arguments `{}`; expected none or `--try`", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("archive: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn repository() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.parent().unwrap_or(path).to_owned()
}

/// Builds the archive; returns its path. Beside it are the checksum and the SBOM.
pub(crate) fn build() -> Result<PathBuf, String> {
    let target = target()?;
    let path = install::release_tools()?;
    let (major, minor) = GLIBC;
    println!("building for {target} with glibc {major}.{minor} (a few minutes)");
    let mut zigbuild = cargo_command();
    zigbuild.args(["zigbuild", "--release", "--locked", "--package", "diana-server"]);
    zigbuild.arg("--target").arg(format!("{target}.{major}.{minor}")).env("PATH", path);
    succeed(zigbuild.current_dir(repository()))?;
    let program = repository().join("target").join(&target).join("release/diana");
    examine(&program)?;
    let name = format!("diana-{}-{target}", env!("CARGO_PKG_VERSION"));
    let archives = repository().join("target/archives");
    let content = archives.join(&name);
    let problem = |error: std::io::Error| format!("can't write to {}: {error}", archives.display());
    if content.exists() {
        fs::remove_dir_all(&content).map_err(problem)?;
    }
    fs::create_dir_all(&content).map_err(problem)?;
    succeed(Command::new("strip").arg("-o").arg(content.join("diana")).arg(&program))?;
    succeed(Command::new("cp").arg("-R").args(FILES).arg(&content).current_dir(repository()))?;
    // The same files make the same archive: no names of users, and the time of the commit.
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(repository()))?;
    fs::write(content.join("sbom.cdx.json"), sbom(time.trim())?).map_err(problem)?;
    fs::copy(content.join("sbom.cdx.json"), archives.join(format!("{name}.sbom.cdx.json"))).map_err(problem)?;
    let archive = archives.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rwX,go+rX,go-w"]);
    tar.arg(format!("--mtime=@{}", time.trim())).args(["--use-compress-program", "gzip -9 --no-name"]);
    succeed(tar.arg("-cf").arg(&archive).arg(&name).current_dir(&archives))?;
    let sum = output(Command::new("sha256sum").arg(format!("{name}.tar.gz")).current_dir(&archives))?;
    fs::write(archives.join(format!("{name}.tar.gz.sha256")), &sum).map_err(problem)?;
    let size = fs::metadata(&archive).map_err(problem)?.len();
    println!("archive: {} ({:.1} MB)\n{}", archive.display(), size as f64 / 1e6, sum.trim());
    Ok(archive)
}

/// The target of this machine, as rustc names it.
fn target() -> Result<String, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    if host.ends_with("-unknown-linux-gnu") {
        return Ok(host.to_owned());
    }
    Err(format!("an archive with a chosen glibc can be built on Linux with glibc only, and this is {host}"))
}

/// Fails if the program needs a newer glibc, or a library that a minimal system may not have.
fn examine(program: &Path) -> Result<(), String> {
    let text = output(Command::new("readelf").args(["--wide", "--version-info", "--dynamic"]).arg(program))?;
    let newest = newest_glibc(&text).ok_or("readelf shows no version of glibc")?;
    if newest > GLIBC {
        return Err(format!(
            "the program asks for glibc {}.{}, at most {}.{} is allowed",
            newest.0, newest.1, GLIBC.0, GLIBC.1
        ));
    }
    let others =
        libraries(&text).filter(|name| !OF_GLIBC.iter().any(|known| name.starts_with(known))).collect::<Vec<_>>();
    if !others.is_empty() {
        return Err(format!("the program needs {}, which are not part of glibc", others.join(", ")));
    }
    println!("needs glibc {}.{} and no other library", newest.0, newest.1);
    Ok(())
}

/// The libraries of glibc.
const OF_GLIBC: [&str; 7] = ["ld-linux", "libc.so", "libdl.so", "libm.so", "libpthread.so", "librt.so", "libutil.so"];

/// The newest version of glibc among those that `readelf` shows.
fn newest_glibc(text: &str) -> Option<(u32, u32)> {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max()
}

/// The libraries that `readelf` shows as needed.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.contains("(NEEDED)")).filter_map(|line| line.split(['[', ']']).nth(1))
}

/// The crates in the program, in CycloneDX's format.
fn sbom(time: &str) -> Result<String, String> {
    let mut sbom = Command::new("cargo");
    sbom.args(["cyclonedx", "--manifest-path", "crates/diana-server/Cargo.toml", "--describe", "binaries"]);
    sbom.args(["--format", "json", "--spec-version", "1.5", "--no-build-deps", "-q"]);
    output(sbom.current_dir(repository()).env("SOURCE_DATE_EPOCH", time))?;
    // It writes a file beside the manifest of every package that has a program.
    let mut sbom = None;
    for package in crates::folders()? {
        let unreadable = |error: std::io::Error| format!("{}: {error}", package.display());
        for entry in fs::read_dir(&package).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.file_name().is_some_and(|name| name == "diana_bin.cdx.json") {
                sbom = Some(fs::read_to_string(&path).map_err(unreadable)?);
            }
            if path.to_string_lossy().ends_with("_bin.cdx.json") {
                fs::remove_file(&path).map_err(unreadable)?;
            }
        }
    }
    let sbom = sbom.ok_or("cargo cyclonedx wrote no list of the program's crates")?;
    Ok(sbom.replace(&format!("{}/", repository().display()), ""))
}

/// Unpacks the archive in a minimal Debian with the oldest glibc, and runs the program there.
fn try_out(archive: &Path) -> Result<(), String> {
    const SCRIPT: &str = r#"
set -e
root=$1 archive=$2
cd "$(dirname "$archive")"; sha256sum --quiet --check --strict "$archive.sha256"
cd "$root/opt"; tar -xzf "$archive"; folder=$(echo diana-*)
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; ip link set lo up
diana() { chroot "$root" "/opt/$folder/diana" "$@"; }
chroot "$root" sh -c 'getconf GNU_LIBC_VERSION'
diana --version
diana check "/opt/$folder/packaging/diana.yaml" >/dev/null
chroot "$root" "/opt/$folder/diana" serve >"$root/tmp/log" 2>&1 & pid=$!
for attempt in $(seq 100); do curl -sf -o /dev/null http://127.0.0.1:9090/readyz && break; sleep 0.1; done
[ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/hello)" = 200 ] || { cat "$root/tmp/log"; exit 1; }
kill -TERM $pid; wait $pid
echo "checked a file, answered a request, stopped with status 0"
"#;
    install::install_missing(&["curl", "debootstrap", "ip", "unshare"])?;
    let root = repository().join("target/archives").join(OLDEST_DEBIAN);
    if root.exists() {
        fs::remove_dir_all(&root).map_err(|error| format!("can't remove {}: {error}", root.display()))?;
    }
    crate::image::debootstrap(OLDEST_DEBIAN, None, &root)?;
    let mut run = Command::new("unshare");
    run.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", SCRIPT, "try"]);
    succeed(run.arg(&root).arg(archive))
}

/// Runs a command whose output the user sees.
fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed: {status}")),
        Err(error) => Err(format!("can't start {program}: {error}")),
    }
}

/// Runs a command; returns its output.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("can't start {program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{program}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{FILES, libraries, newest_glibc, repository};

    #[test]
    fn the_newest_glibc_and_the_libraries_are_read() {
        let text = "  0x0001 (NEEDED)             Shared library: [libc.so.6]\n  0x0001 (NEEDED)   Shared library: [libz.so.1]\n\
                    004:   2 (GLIBC_2.2.5)   3 (GLIBC_2.28) Name: GLIBC_2.9  Flags: none\n";
        assert_eq!(newest_glibc(text), Some((2, 28)));
        assert_eq!(libraries(text).collect::<Vec<_>>(), ["libc.so.6", "libz.so.1"]);
        assert_eq!(newest_glibc("nothing"), None);
    }

    #[test]
    fn the_files_of_an_archive_exist() {
        assert!(FILES.iter().all(|file| repository().join(file).exists()));
    }
}
