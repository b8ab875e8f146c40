//! The feature matrix: each package alone, without features, with each feature, and with those that have code together.
//!
//! The list comes from cargo, so a new package or feature is checked without being named here.

use super::cargo_command;
use serde_json::Value;

/// Features with code that needs both of them.
const TOGETHER: &[(&str, &[&str])] = &[("diana-limit", &["macros,redis", "macros,rules", "redis,rules"])];

/// One package with some of its features.
#[derive(Debug, PartialEq)]
struct Selection {
    package: String,
    features: String,
}

/// Checks the library of every package that users may depend on, with every selection of features. Clippy does what a
/// check does, and shares with the other steps what it compiles of other crates.
pub(super) fn run() -> Result<(), String> {
    let output = cargo_command()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| format!("can't start cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    for Selection { package, features } in selections(&metadata) {
        let selected = ["--package", &package, "--no-default-features", "--features", &features];
        println!("{package} [{features}]");
        let mut check = cargo_command();
        check.args(["clippy", "--quiet", "--lib"]).args(selected).args(["--", "-D", "warnings"]);
        if !check.status().is_ok_and(|status| status.success()) {
            return Err(format!(
                "features failed; to repeat it: cargo clippy --lib --package {package} --no-default-features \
                 --features \"{features}\" -- -D warnings"
            ));
        }
    }
    Ok(())
}

/// Returns what to check.
fn selections(metadata: &Value) -> Vec<Selection> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let published = packages.filter(|package| package["publish"].is_null());
    published.flat_map(selections_of).collect()
}

fn selections_of(package: &Value) -> Vec<Selection> {
    let name = package["name"].as_str().unwrap_or_default();
    let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
    let single = features.map(String::as_str).filter(|feature| *feature != "default");
    let together = TOGETHER.iter().filter(|(package, _)| *package == name).flat_map(|(_, sets)| *sets).copied();
    let all = [""].into_iter().chain(single).chain(together);
    all.map(|features| Selection { package: name.to_owned(), features: features.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_of_a_published_package_is_checked_alone() {
        let metadata = serde_json::json!({"packages": [
            {"name": "diana-core", "publish": null, "features": {"default": ["calendar"], "async": [], "calendar": []}},
            {"name": "diana-limit", "publish": null, "features": {}},
            {"name": "xtask", "publish": [], "features": {"no": []}},
        ]});
        let selections = selections(&metadata);
        let actual = selections.iter().map(|one| (&*one.package, &*one.features)).collect::<Vec<_>>();
        let mut expected = vec![("diana-core", ""), ("diana-core", "async"), ("diana-core", "calendar")];
        expected.push(("diana-limit", ""));
        expected.extend(TOGETHER.iter().flat_map(|(package, sets)| sets.iter().map(move |set| (*package, *set))));
        assert_eq!(actual, expected);
    }
}
