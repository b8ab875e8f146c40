//! `cargo xtask release VERSION`: checks that the repository is this version, whole and documented, packages every published crate and
//! builds each from its package, builds the archive, and tags the commit. It publishes nothing: the last lines say how.

pub(crate) mod crates;

use crate::{archive, docs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Files that name the version of the image.
const WITH_IMAGE: [&str; 1] = ["packaging/kubernetes/diana.yaml"];

pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (version, tags) = match args[..] {
        [version] if !version.starts_with('-') => (version, true),
        ["--check", version] | [version, "--check"] => (version, false),
        _ => {
            eprintln!("release: expected `cargo xtask release VERSION`, with `--check` to do all but the tag");
            return ExitCode::from(2);
        }
    };
    match release(version, tags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("release: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn release(version: &str, tags: bool) -> Result<(), String> {
    println!("=== versions and changelog ===");
    let problems = problems_of(&repository(), version)?;
    let state = if tags { state(version)? } else { Vec::new() };
    let problems = problems.into_iter().chain(state).collect::<Vec<_>>();
    if !problems.is_empty() {
        return Err(format!("{version} is not ready:\n  {}", problems.join("\n  ")));
    }
    println!("\n=== documentation ===");
    docs::site()?;
    println!("\n=== packages ===");
    let crates = crates::published()?;
    println!("building each from its package: {}", crates.join(", "));
    // One folder for all, so that a dependency is built once.
    crates::package(&crates, &["--target-dir", "target/release-packages"])?;
    println!("\n=== archive ===");
    let archive = archive::build()?;
    if !tags {
        println!("\nrelease: {version} is ready; without `--check` the commit gets the tag v{version}");
        return Ok(());
    }
    git(&["tag", "--annotate", &format!("v{version}"), "--message", &format!("Diana {version}")])?;
    println!(
        "\nrelease: tagged v{version}; {} is the archive of this machine. Nothing is published yet:\n  \
         git push origin v{version}      the workflow `release` builds all archives, and makes a draft of a release\n  \
         cargo publish --workspace       uploads {}, in this order",
        archive.display(),
        crates.join(", ")
    );
    Ok(())
}

/// Returns what in the files is not of this version.
fn problems_of(root: &Path, version: &str) -> Result<Vec<String>, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("can't read {path}: {error}"));
    let mut problems = Vec::new();
    if version.split('.').count() != 3 || !version.split('.').all(|part| part.parse::<u32>().is_ok()) {
        problems.push(format!("{version} is no version; expected three numbers such as 0.1.0"));
    }
    let manifest = read("Cargo.toml")?;
    let (package, dependencies) =
        manifest.split_once("[workspace.dependencies]").ok_or("Cargo.toml: no [workspace.dependencies]")?;
    if !package.contains(&format!("\nversion = \"{version}\"\n")) {
        problems.push(format!("Cargo.toml: [workspace.package] has another version; set `version = \"{version}\"`"));
    }
    let own =
        dependencies.lines().take_while(|line| !line.starts_with('[')).filter(|line| line.contains("path = \"crates/"));
    for line in own.filter(|line| !line.contains(&format!("version = \"{version}\""))) {
        let name = line.split(' ').next().unwrap_or_default();
        problems.push(format!("Cargo.toml: the dependency {name} has another version; set `version = \"{version}\"`"));
    }
    let changelog = read("CHANGELOG.md")?;
    let first = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or_default();
    let date = first.strip_prefix(version).and_then(|rest| rest.trim().strip_prefix('(')?.strip_suffix(')'));
    if !date.is_some_and(is_date) {
        problems.push(format!("CHANGELOG.md: the first heading is `## {first}`; expected `## {version} (YYYY-MM-DD)`"));
    }
    for path in WITH_IMAGE {
        if !read(path)?.contains(&format!("image: diana:{version}\n")) {
            problems.push(format!("{path}: names another image; expected `image: diana:{version}`"));
        }
    }
    Ok(problems)
}

fn is_date(text: &str) -> bool {
    let parts = text.split('-').map(str::len).collect::<Vec<_>>();
    parts == [4, 2, 2] && text.split('-').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns what in git prevents a tag.
fn state(version: &str) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    let changed = git(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        problems.push(format!("{} files are not committed; commit or remove them", changed.lines().count()));
    }
    if !git(&["tag", "--list", &format!("v{version}")])?.is_empty() {
        problems.push(format!("the tag v{version} exists; choose the next version"));
    }
    Ok(problems)
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(repository()).output();
    let output = output.map_err(|error| format!("can't start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {} failed: {}", args[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::problems_of;
    use std::fs;

    #[test]
    fn all_that_has_another_version_is_reported_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[workspace.package]\nversion = \"0.2.0\"\n\n[workspace.dependencies]\n\
             a = { path = \"crates/a\", version = \"0.2.0\" }\nb = { path = \"crates/b\", version = \"0.1.0\" }\n\
             t = { path = \"testing\" }\n\n[profile.dev]\n",
        );
        write("CHANGELOG.md", "# Changelog\n\n## 0.2.0 (unreleased)\n");
        write("packaging/kubernetes/diana.yaml", "image: diana:0.1.0\n");
        let problems = |version: &str| problems_of(folder.path(), version).unwrap();
        let found = problems("0.2.0");
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].contains("the dependency b has another version"));
        assert!(found[1].ends_with("`## 0.2.0 (unreleased)`; expected `## 0.2.0 (YYYY-MM-DD)`"));
        assert!(found[2].starts_with("packaging/kubernetes/diana.yaml: names another image"));
        assert_eq!(problems("0.3.0").len(), 5);
        assert!(problems("next")[0].starts_with("next is no version"));
        write("CHANGELOG.md", "# Changelog\n\n## 0.2.0 (2026-11-19)\n\n## 0.1.0 (2026-01-01)\n");
        write("packaging/kubernetes/diana.yaml", "image: diana:0.2.0\n");
        assert_eq!(problems("0.2.0").len(), 1);
    }
}
