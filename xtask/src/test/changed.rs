//! The crates that a change touches, and their tests.
//!
//! All tests are built with the features of the whole workspace and only some are run: `cargo test -p NAME` would
//! choose other features for shared dependencies, and rebuild them for each set of crates.

use super::cargo_command;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// Path prefixes, and the package whose tests check them. The first match wins.
const TESTED_BY: &[(&str, &[&str])] = &[
    ("crates/diana-admin/", &["diana-admin", "diana-server"]),
    ("crates/diana-client/", &["diana-client"]),
    ("crates/diana-config/", &["diana-config", "diana-server"]),
    ("crates/diana-core/", &["diana-core"]),
    ("crates/diana-document/", &["diana-document", "diana-rules", "diana-server"]),
    ("crates/diana-gateway/", &["diana-gateway", "diana-server"]),
    ("crates/diana-http/", &["diana-client", "diana-http"]),
    ("crates/diana-import/", &["diana-import", "diana-server"]),
    ("crates/diana-metrics/", &["diana-metrics", "diana-admin", "diana-server"]),
    ("crates/diana-net/", &["diana-net", "diana-gateway", "diana-server"]),
    ("crates/diana-macros/", &["diana-macros", "diana-limit"]),
    ("crates/diana-redis/", &["diana-redis"]),
    ("crates/diana-rules/", &["diana-rules", "diana-server"]),
    ("crates/diana-server/", &["diana-server"]),
    ("crates/diana-services/", &["diana-services", "diana-server"]),
    ("crates/diana/", &["diana-limit"]),
    ("examples/rules/", &["diana-rules", "diana-server"]),
    ("examples/", &["diana-examples"]),
    ("testing/", &["diana-testing"]),
    ("xtask/", &["xtask"]),
    ("golden/", &["diana-golden"]),
    ("docs/", &["diana-client", "diana-examples", "diana-http", "diana-limit", "diana-server", "xtask"]),
    ("packaging/", &["diana-server"]),
];

/// Returns the packages whose files differ from a revision, committed or not.
pub(super) fn packages(base: &str) -> Result<Vec<&'static str>, String> {
    let tracked = git(&["diff", "--name-only", "--relative", base])?;
    let untracked = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(packages_of(tracked.lines().chain(untracked.lines())))
}

fn packages_of<'file>(files: impl Iterator<Item = &'file str>) -> Vec<&'static str> {
    let entries = files.filter_map(|file| TESTED_BY.iter().find(|(prefix, _)| file.starts_with(prefix)));
    entries.flat_map(|(_, packages)| *packages).copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).output().map_err(|error| format!("can't start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One test program: the folder of its package, and its executable.
#[derive(Debug, PartialEq)]
struct TestProgram {
    manifest: String,
    executable: String,
}

/// Builds all tests and runs those of these packages; doctests are left to the full run.
pub(super) fn run_tests(packages: &[&str]) -> Result<(), String> {
    let mut build = cargo_command();
    build.args(["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().map_err(|error| format!("can't start cargo: {error}"))?;
    if !output.status.success() {
        return Err("can't build the tests".to_owned());
    }
    for program in test_programs(&String::from_utf8_lossy(&output.stdout), packages) {
        println!("\n--- {}", program.executable);
        let folder = Path::new(&program.manifest).parent().unwrap_or(Path::new("."));
        // Started as cargo starts it.
        let status = Command::new(&program.executable).current_dir(folder).env("CARGO_MANIFEST_DIR", folder).status();
        let status = status.map_err(|error| format!("{}: {error}", program.executable))?;
        if !status.success() {
            return Err(format!("{} failed", program.executable));
        }
    }
    Ok(())
}

/// Returns the test programs of these packages, from cargo's build messages.
fn test_programs(messages: &str, packages: &[&str]) -> Vec<TestProgram> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    let programs = tests.filter_map(|message| {
        let manifest = message["manifest_path"].as_str()?.to_owned();
        let executable = message["executable"].as_str()?.to_owned();
        // `path+file:///…/crates/diana-core#0.1.0`, or with the name before the version if the folder has another name.
        let id = message["package_id"].as_str()?;
        let (path, version) = id.rsplit_once('#')?;
        let folder = path.rsplit('/').next()?;
        let name = version.split_once('@').map_or(folder, |(name, _)| name);
        packages.contains(&name).then_some(TestProgram { manifest, executable })
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use super::{TESTED_BY, TestProgram, packages_of, test_programs};
    use std::path::Path;

    #[test]
    fn maps_files_to_the_packages_that_test_them() {
        let files = ["crates/diana/src/lib.rs", "crates/diana-core/src/cost.rs", "docs/tasks/gateway.md", "README.md"];
        let expected =
            ["diana-client", "diana-core", "diana-examples", "diana-http", "diana-limit", "diana-server", "xtask"];
        assert_eq!(packages_of(files.into_iter()), expected);
        assert_eq!(packages_of(["README.md"].into_iter()), [""; 0]);
    }

    #[test]
    fn every_member_of_the_workspace_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
        for name in crates {
            let prefix = format!("crates/{}/", name.to_string_lossy());
            assert!(TESTED_BY.iter().any(|(listed, _)| *listed == prefix), "{prefix}");
        }
        for (prefix, _) in TESTED_BY {
            assert!(root.join(prefix).is_dir(), "{prefix}");
        }
    }

    #[test]
    fn finds_test_programs_in_cargo_messages() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///d/crates/diana-core#0.1.0","manifest_path":"/d/crates/diana-core/Cargo.toml","profile":{"test":true},"executable":"/d/target/it-1"}
{"reason":"compiler-artifact","package_id":"path+file:///d/testing#diana-testing@0.1.0","manifest_path":"/d/testing/Cargo.toml","profile":{"test":true},"executable":"/d/target/it-2"}
{"reason":"compiler-artifact","package_id":"path+file:///d/crates/diana-core#0.1.0","manifest_path":"/d/crates/diana-core/Cargo.toml","profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}
"#;
        let program =
            |manifest: &str, executable: &str| TestProgram { manifest: manifest.into(), executable: executable.into() };
        assert_eq!(
            test_programs(messages, &["diana-core"]),
            [program("/d/crates/diana-core/Cargo.toml", "/d/target/it-1")]
        );
        assert_eq!(test_programs(messages, &["diana-testing"]), [program("/d/testing/Cargo.toml", "/d/target/it-2")]);
    }
}
