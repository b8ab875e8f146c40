//! `cargo xtask image`: the steps of `packaging/Dockerfile` without Docker, and a trial of the result.
//!
//! The base images are roots made by debootstrap, the commands run in them with `chroot`, and the result is started as a container
//! would be: with a network and processes of its own, as the user of the image. The trial asks the health check and the gateway, and
//! stops the program. This needs root, and takes some ten minutes, most of it for building the program, so `cargo xtask test` does not
//! do it.

mod dockerfile;

use crate::install;
use crate::test::timed;
use dockerfile::{Instruction, Stage};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const DOCKERFILE: &str = "packaging/Dockerfile";
const IGNORED: &str = "packaging/Dockerfile.dockerignore";

/// The packages that the official image `rust:…-slim-bookworm` adds to Debian's, without Rust itself.
const RUST_PACKAGES: &str = "ca-certificates,gcc,libc6-dev";

pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let builds = match args[..] {
        [] => Builds::All,
        ["--try"] => Builds::Nothing,
        _ => {
            eprintln!(
                "image: unknown arguments `{}`; expected none, or `--try` for the result of the last build",
                args.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    match build_and_try(builds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("image: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// What is built before the trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Builds {
    All,
    Nothing,
}

fn build_and_try(builds: Builds) -> Result<(), String> {
    if !install::is_root() {
        return Err("debootstrap and chroot need root: sudo -E env PATH=\"$PATH\" cargo xtask image".to_owned());
    }
    install::install_missing(&["curl", "debootstrap", "ip", "unshare"])?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = repository.parent().unwrap_or(repository);
    let text = fs::read_to_string(repository.join(DOCKERFILE)).map_err(|error| format!("{DOCKERFILE}: {error}"))?;
    let stages = dockerfile::parse(&text).map_err(|problem| format!("{DOCKERFILE}:{problem}"))?;
    let folder = repository.join("target/image");
    let mut roots: Vec<(String, PathBuf)> = Vec::new();
    for (number, stage) in stages.iter().enumerate() {
        let root = folder.join(number.to_string());
        if builds == Builds::All {
            println!("=== FROM {}", stage.base);
            let (built, elapsed) = timed(|| build(repository, stage, &root, &roots));
            built?;
            println!("built in {:.0} s", elapsed.as_secs_f64());
        }
        roots.push((stage.name.clone(), root));
    }
    let (stage, (_, root)) = stages.last().zip(roots.last()).ok_or("no FROM")?;
    let program = root.join("usr/local/bin/diana");
    let size = fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    println!("=== the program has {:.1} MB", size as f64 / 1e6);
    for (title, arguments, request) in [
        ("its own command", stage.command.clone(), ""),
        // The command of the Dockerfile's header, which the README has, too.
        ("the sample rules", ["serve", "--listen", "0.0.0.0:8080"].map(str::to_owned).to_vec(), "/hello"),
    ] {
        println!("=== started with {title}: {}", arguments.join(" "));
        try_out(stage, root, &arguments, request)?;
    }
    println!("image: every step of {DOCKERFILE} works, and so does the result");
    Ok(())
}

/// Makes the root of a stage.
fn build(repository: &Path, stage: &Stage, root: &Path, earlier: &[(String, PathBuf)]) -> Result<(), String> {
    if root.exists() {
        fs::remove_dir_all(root).map_err(|error| format!("can't remove {}: {error}", root.display()))?;
    }
    let suite = stage.suite()?;
    let packages = stage.has_rust().then(|| format!("--include={RUST_PACKAGES}"));
    debootstrap(&suite, packages.as_deref(), root)?;
    let mut folder = "/";
    for instruction in &stage.instructions {
        match instruction {
            Instruction::Enter(name) => {
                let path = inside(root, folder, name);
                fs::create_dir_all(&path).map_err(|error| format!("can't create {}: {error}", path.display()))?;
                folder = name;
            }
            Instruction::Run(command) => {
                println!("RUN {command}");
                in_root(stage, root, folder, command)?;
            }
            Instruction::Copy { from: None, source, target } if source == "." => {
                println!("COPY . {target}");
                copy_context(repository, &inside(root, folder, target))?;
            }
            Instruction::Copy { from, source, target } => {
                println!("COPY {source} {target}");
                let from = match from {
                    None => repository,
                    Some(name) => {
                        let stage = earlier.iter().find(|(earlier, _)| earlier == name);
                        stage.map(|(_, root)| root).ok_or_else(|| format!("no stage {name}"))?
                    }
                };
                let target = inside(root, folder, target);
                let parent = target.parent().unwrap_or(root);
                fs::create_dir_all(parent).map_err(|error| format!("can't create {}: {error}", parent.display()))?;
                shell(Command::new("cp").arg("-aL").arg(from.join(source.trim_start_matches('/'))).arg(&target))?;
            }
        }
    }
    Ok(())
}

/// Makes a minimal Debian of this suite in a folder, from the mirror that this machine uses.
pub(crate) fn debootstrap(suite: &str, packages: Option<&str>, root: &Path) -> Result<(), String> {
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase"]).args(packages).arg(suite).arg(root);
    command.args(mirror());
    let output = command.output().map_err(|error| format!("can't start debootstrap: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().rev().take(5).collect::<Vec<_>>();
    Err(format!("debootstrap {suite}: {}", last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// The mirror of Debian's packages that apt of this machine uses; none on another distribution.
fn mirror() -> Option<String> {
    let sites =
        Command::new("apt-get").args(["indextargets", "--format", "$(SITE)", "Origin: Debian"]).output().ok()?;
    let sites = String::from_utf8(sites.stdout).ok()?;
    sites.lines().find(|site| site.ends_with("/debian") || site.ends_with("/debian/")).map(str::to_owned)
}

/// Returns the path of a file of the image in its root.
fn inside(root: &Path, folder: &str, path: &str) -> PathBuf {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    root.join(path.trim_start_matches('/'))
}

/// Copies the repository without what the ignore file lists.
fn copy_context(repository: &Path, to: &Path) -> Result<(), String> {
    let ignored = fs::read_to_string(repository.join(IGNORED)).map_err(|error| format!("{IGNORED}: {error}"))?;
    let ignored = ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    fs::create_dir_all(to).map_err(|error| format!("can't create {}: {error}", to.display()))?;
    let pipe = "folder=$1; target=$2; shift 2; tar -C \"$folder\" \"$@\" -c . | tar -C \"$target\" -x";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", pipe, "copy"]).arg(repository).arg(to);
    shell(command.args(ignored.map(|name| format!("--exclude=./{name}"))))
}

/// Runs a command in a root, with this machine's network, and with its Rust if the image has Rust.
fn in_root(stage: &Stage, root: &Path, folder: &str, command: &str) -> Result<(), String> {
    const SCRIPT: &str = r#"
set -e
root=$1 folder=$2 command=$3 toolchain=$4 cargo=$5
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
for file in /etc/resolv.conf /etc/hosts; do touch "$root$file"; mount --bind "$file" "$root$file"; done
if [ -n "$toolchain" ]; then
    mkdir -p "$root/usr/local/rust" "$root/usr/local/cargo"
    mount --bind "$toolchain" "$root/usr/local/rust"
    mount --bind "$cargo" "$root/usr/local/cargo"
    mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
fi
export PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/cargo HOME=/root
export DEBIAN_FRONTEND=noninteractive
exec chroot "$root" sh -c 'cd "$1" && eval "$2"' run "$folder" "$command"
"#;
    let (toolchain, cargo) = if stage.has_rust() { rust()? } else { (String::new(), String::new()) };
    let mut run = Command::new("unshare");
    run.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "run"]);
    run.arg(root).args([folder, command, &toolchain, &cargo]);
    // Those of this `cargo xtask`, which are for another build.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_") || name.to_string_lossy().starts_with("RUSTUP_") {
            run.env_remove(name);
        }
    }
    let status = run.status().map_err(|error| format!("can't start unshare: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{command}` failed in {}", root.display())) }
}

/// The folder of this machine's Rust, and that of its cargo.
fn rust() -> Result<(String, String), String> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map_err(|error| format!("can't start rustc: {error}"))?;
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let home = home.map_err(|_| "neither CARGO_HOME nor HOME is set")?;
    Ok((String::from_utf8_lossy(&sysroot.stdout).trim().to_owned(), home))
}

/// Starts the program as a container would be started, asks its health check and the gateway, and stops it.
fn try_out(stage: &Stage, root: &Path, arguments: &[String], request: &str) -> Result<(), String> {
    const SCRIPT: &str = r#"
root=$1 user=$2 health=$3 request=$4; shift 4
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; ip link set lo up
program() { chroot --userspec="$user" "$root" "$@"; }
chroot --userspec="$user" "$root" "$@" >"$root/tmp/log" 2>&1 & pid=$!
fail() { echo "$*"; sed 's/^/    /' "$root/tmp/log"; exit 1; }
for attempt in $(seq 100); do
    if eval "program $health" 2>/dev/null; then healthy=yes; break; fi
    kill -0 $pid 2>/dev/null || fail "it ended"
    sleep 0.1
done
[ -n "$healthy" ] || fail "the health check failed for 10 s"
echo "healthy"
uid=$(awk '/^Uid:/ {print $2}' "$root/proc/$pid/status")
[ "$uid" = "${user%%:*}" ] || fail "it runs as user $uid, not as $user"
echo "runs as user $uid"
if [ -n "$request" ]; then
    status=$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:8080$request")
    [ "$status" = 200 ] || fail "$request has status $status, not 200"
    echo "$request is answered with 200"
fi
kill -TERM $pid; wait $pid; ended=$?
[ $ended = 0 ] || fail "SIGTERM ended it with status $ended, not 0"
eval "program $health" 2>/dev/null && fail "the health check passes after the end"
echo "stopped with status 0"
"#;
    let health = stage.health.as_ref().ok_or("no HEALTHCHECK")?;
    let health = health.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ");
    let mut run = Command::new("unshare");
    // A group of namespaces of its own, in which `mount -t proc` shows only what the image runs.
    run.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", SCRIPT, "try"]);
    run.arg(root).args([&stage.user, &health, request]).args(&stage.entrypoint).args(arguments);
    run.env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(stage.variables.clone());
    let status = run.status().map_err(|error| format!("can't start unshare: {error}"))?;
    if status.success() { Ok(()) } else { Err("the image does not work".to_owned()) }
}

fn shell(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("can't start {program}: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
