//! The files in `packaging` fit the program: the rule file is valid, systemd accepts the unit, and numbers that occur
//! in two places are the same in both.

use diana_admin::AdminSection;
use diana_gateway::section::GatewaySection;
use diana_rules::{Document, RuleFile};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const UNIT: &str = include_str!("../../../../packaging/diana.service");
const DOCKERFILE: &str = include_str!("../../../../packaging/Dockerfile");
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"))
}

fn file() -> RuleFile {
    let document = Document::new("diana.yaml", include_str!("../../../../packaging/diana.yaml"));
    RuleFile::read(&document, &diana_server::registry()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the value of a setting of the unit.
fn setting(name: &str) -> &'static str {
    let values = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let values = values.collect::<Vec<_>>();
    assert_eq!(values.len(), 1, "{name}");
    values[0]
}

#[test]
fn the_packaged_file_passes_check() {
    let checked = Command::new(env!("CARGO_BIN_EXE_diana")).arg("check").arg(folder().join("diana.yaml")).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_packaged_file_is_valid_with_its_comments_enabled() {
    // `  # tls:` is a disabled setting; prose has a lower-case word after the space, and none of our keys.
    let keys = ["tls:", "  listen: 0.0.0.0:8443", "  certificates:", "trusted_proxies:", "identity:", "  account:"];
    let keys = keys.into_iter().chain(["  jwt:", "store:"]);
    let text = include_str!("../../../../packaging/diana.yaml");
    let enabled = keys.fold(text.to_owned(), |text, key| text.replacen(&format!("# {key}"), key, 1));
    assert!(!enabled.contains("# tls:") && !enabled.contains("# store:"));
    let variable = |name: &str| Some(format!("secret-of-{name}-that-is-long-enough"));
    let read = RuleFile::read_with(&Document::new("diana.yaml", enabled), &diana_server::registry(), variable);
    let file = read.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(file.section::<GatewaySection>().unwrap().unwrap().tls.is_some() && file.store.redis.is_some());
}

#[test]
fn systemd_accepts_the_unit() {
    let runs = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if runs(&["--version"]).is_err() {
        eprintln!("systemd-analyze is not installed; skipped");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("diana.service");
    // systemd checks that the program exists.
    std::fs::write(&unit, UNIT.replace("/usr/local/bin/diana", env!("CARGO_BIN_EXE_diana"))).unwrap();
    let verified = runs(&["verify", "--man=no", unit.to_str().unwrap()]).unwrap();
    let errors = String::from_utf8_lossy(&verified.stderr);
    // Ignores messages about other units of the machine.
    let ours = errors.lines().filter(|line| line.contains("diana")).collect::<Vec<_>>();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn systemd_waits_longer_than_the_program_takes_to_stop() {
    let seconds = |text: &str| Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap());
    let stop = file().section::<GatewaySection>().unwrap().unwrap().timeouts.stop;
    assert!(seconds(setting("TimeoutStopSec")) > stop, "{stop:?}");
    assert!(DOCKERFILE.contains("--stop-timeout 40"));
    // Replacing a single mounted file is not noticed.
    assert!(!DOCKERFILE.contains(".yaml:/etc") && DOCKERFILE.contains("-v ./etc:/etc/diana:ro"));
}

#[test]
fn the_unit_allows_enough_file_descriptors() {
    let max_connections = file().section::<GatewaySection>().unwrap().unwrap().bounds.connections;
    assert!(setting("LimitNOFILE").parse::<usize>().unwrap() > 2 * max_connections);
}

#[test]
fn the_image_uses_the_tested_rust_and_exposes_the_port() {
    let version = WORKSPACE.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.split('"').next());
    assert!(DOCKERFILE.contains(&format!("FROM rust:{}-slim", version.unwrap())), "{version:?}");
    let file = file();
    let port = file.section::<GatewaySection>().unwrap().unwrap().listen[0].port();
    assert!(DOCKERFILE.contains(&format!("EXPOSE {port}\n")));
    let admin = file.section::<AdminSection>().unwrap().unwrap().listen[0];
    assert!(DOCKERFILE.contains(&format!("/dev/tcp/{}/{}", admin.ip(), admin.port())));
}
