//! The crates that are published, from cargo's metadata, and their packages.

use crate::test::cargo_command;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns the names of the published crates; each follows those that it depends on, which is the order to publish them in.
pub(crate) fn published() -> Result<Vec<String>, String> {
    in_order(&metadata()?)
}

/// Returns the folders of all packages of the workspace.
pub(crate) fn folders() -> Result<Vec<PathBuf>, String> {
    let metadata = metadata()?;
    let manifests = metadata["packages"].as_array().into_iter().flatten();
    let manifests = manifests.filter_map(|package| package["manifest_path"].as_str());
    Ok(manifests.filter_map(|manifest| Path::new(manifest).parent()).map(Path::to_owned).collect())
}

fn metadata() -> Result<Value, String> {
    let metadata = cargo_command().args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let metadata = metadata.map_err(|error| format!("can't start cargo: {error}"))?;
    if !metadata.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&metadata.stderr).trim()));
    }
    serde_json::from_slice(&metadata.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn in_order(metadata: &Value) -> Result<Vec<String>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    // `publish = false` is an empty list of registries; without it there is none.
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let mut waiting = published.map(|package| (name(package), needs(package))).collect::<BTreeMap<_, _>>();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let is_ready = |needs: &Vec<String>| !needs.iter().any(|need| waiting.contains_key(need));
        let ready = waiting.iter().find(|(_, needs)| is_ready(needs)).map(|(name, _)| name.clone());
        let ready = ready.ok_or_else(|| format!("{:?} depend on each other", waiting.keys()))?;
        waiting.remove(&ready);
        order.push(ready);
    }
    Ok(order)
}

/// The names of the packages of this workspace that a package needs to be published.
fn needs(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    // Those with a path are of this workspace. One without a version, which tests use, is left out of the package.
    let own = dependencies.filter(|dependency| dependency["path"].is_string() && dependency["req"] != "*");
    own.filter_map(|dependency| dependency["name"].as_str()).map(str::to_owned).collect()
}

/// Packages these crates as they would be uploaded: metadata, files, and versions of all that they depend on. With `options` such as
/// `--no-verify`; without, each is built from its package, with the packages of the others.
pub(crate) fn package(crates: &[String], options: &[&str]) -> Result<(), String> {
    let mut package = cargo_command();
    // Uncommitted changes are reported by `cargo xtask release`.
    package.args(["package", "--allow-dirty", "--quiet"]).args(options);
    for name in crates {
        package.args(["--package", name]);
    }
    match package.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the packages can't be built".to_owned()),
        Err(error) => Err(format!("can't start cargo: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{in_order, published};
    use serde_json::json;

    #[test]
    fn every_crate_follows_what_it_depends_on() {
        let on = |name: &str, req: &str| json!({"name": name, "path": "/x", "req": req});
        let metadata = json!({"packages": [
            {"name": "a", "publish": null, "dependencies": [on("b", "^1"), {"name": "serde", "path": null, "req": "^1"}]},
            {"name": "b", "publish": null, "dependencies": [on("tests", "*"), on("c", "^1")]},
            {"name": "c", "publish": null, "dependencies": []},
            {"name": "tests", "publish": [], "dependencies": [on("a", "^1")]},
        ]});
        assert_eq!(in_order(&metadata).unwrap(), ["c", "b", "a"]);
        let circle = json!({"packages": [{"name": "a", "publish": null, "dependencies": [on("a", "^1")]}]});
        assert!(in_order(&circle).is_err());
    }

    #[test]
    fn the_workspace_publishes_its_crates_and_not_its_tools() {
        let crates = published().unwrap();
        let place = |name: &str| crates.iter().position(|published| published == name);
        assert!(place("diana-core") < place("diana-rules") && place("diana-rules") < place("diana-server"));
        assert!(
            place("diana-core").is_some() && place("xtask").is_none() && place("diana-testing").is_none(),
            "{crates:?}"
        );
    }
}
