//! The files in `packaging` fit the program: the rule file is valid, systemd accepts the unit, Kubernetes the manifests, and
//! numbers that occur in two places are the same in both.

use crate::support::json_of;
use diana_admin::AdminSection;
use diana_gateway::section::GatewaySection;
use diana_rules::{Document, RuleFile};
use diana_testing::{kubernetes_validate, systemd_analyze};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const UNIT: &str = include_str!("../../../../packaging/diana.service");
const DOCKERFILE: &str = include_str!("../../../../packaging/Dockerfile");
const MANIFESTS: &str = include_str!("../../../../packaging/kubernetes/diana.yaml");

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

/// Returns what systemd reports about a unit, without messages about other units of the machine.
fn problems_of_unit(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("diana.service");
    // systemd checks that the program exists.
    std::fs::write(&unit, text.replace("/usr/local/bin/diana", env!("CARGO_BIN_EXE_diana"))).unwrap();
    let verified = systemd_analyze(&["verify", "--man=no", unit.to_str().unwrap()]).unwrap();
    let errors = String::from_utf8_lossy(&verified.stderr);
    let ours = errors.lines().filter(|line| line.contains("diana")).map(str::to_owned).collect::<Vec<_>>();
    assert!(verified.status.success() || !ours.is_empty(), "{errors}");
    ours
}

#[test]
fn systemd_accepts_the_unit() {
    assert_eq!(problems_of_unit(UNIT), Vec::<String>::new());
    // The check can fail.
    let broken = problems_of_unit(&UNIT.replace("TimeoutStopSec=", "TimeoutStopSecs="));
    assert!(broken.iter().any(|line| line.contains("TimeoutStopSecs")), "{broken:#?}");
}

/// The exposure from 0 (none) to 10. What is left: the network, one capability, and the files of /proc that `load` reads.
#[test]
fn systemd_rates_the_exposure_of_the_unit_as_low() {
    let unit = folder().join("diana.service");
    let analyzed = systemd_analyze(&["security", "--offline=true", "--no-pager", unit.to_str().unwrap()]).unwrap();
    let text = String::from_utf8_lossy(&analyzed.stdout);
    let level = text.lines().find_map(|line| line.split("Overall exposure level for diana.service: ").nth(1));
    let level = level.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&analyzed.stderr)));
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level < 2.0, "{text}");
}

#[test]
fn the_manifests_match_the_schemas_of_kubernetes() {
    let manifests = folder().join("kubernetes/diana.yaml");
    for version in ["1.30", "1.37"] {
        let validated = kubernetes_validate(version, &manifests).unwrap();
        assert!(validated.status.success(), "{}", String::from_utf8_lossy(&validated.stderr));
    }
    // The check can fail.
    let broken = tempfile::tempdir().unwrap();
    let file = broken.path().join("broken.yaml");
    std::fs::write(&file, MANIFESTS.replace("minAvailable:", "minAvailabel:")).unwrap();
    assert!(!kubernetes_validate("1.37", &file).unwrap().status.success());
}

/// Returns the rule file in the ConfigMap.
fn file_in_config_map() -> RuleFile {
    let block = MANIFESTS.split("  diana.yaml: |\n").nth(1).unwrap().split("\n---\n").next().unwrap();
    let text = block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let variable = |name: &str| Some(format!("secret-of-{name}-that-is-long-enough"));
    let read = RuleFile::read_with(&Document::new("diana.yaml", text), &diana_server::registry(), variable);
    read.unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn the_manifests_agree_with_their_rule_file() {
    let file = file_in_config_map();
    let gateway = file.section::<GatewaySection>().unwrap().unwrap();
    let admin = file.section::<AdminSection>().unwrap().unwrap();
    for (name, port) in [("http", gateway.listen[0].port()), ("admin", admin.listen[0].port())] {
        assert!(MANIFESTS.contains(&format!("- {{name: {name}, containerPort: {port}}}\n")), "{name}");
    }
    let grace = MANIFESTS.split("terminationGracePeriodSeconds: ").nth(1).unwrap().split('\n').next().unwrap();
    let grace = Duration::from_secs(grace.parse().unwrap());
    assert!(grace > gateway.timeouts.drain + gateway.timeouts.stop, "{grace:?}");
    // The pod is removed from the Service before its listeners are closed: after one failed probe, and some time for the nodes.
    assert!(MANIFESTS.contains("periodSeconds: 2\n            failureThreshold: 1\n"));
    assert!(gateway.timeouts.drain >= Duration::from_secs(5));
    let user = DOCKERFILE.lines().find_map(|line| line.strip_prefix("USER ")?.split(':').next()).unwrap();
    assert!(MANIFESTS.contains(&format!("runAsUser: {user}\n")));
    let version = env!("CARGO_PKG_VERSION");
    assert!(MANIFESTS.contains(&format!("image: diana:{version}\n")));
}

/// Returns the manifest of this kind.
fn manifest(kind: &str) -> Map<String, Value> {
    let documents = MANIFESTS.split("\n---\n").map(|text| Document::new("diana.yaml", text).parse().unwrap());
    let documents = documents.map(|document| json_of(&document)).collect::<Vec<_>>();
    let found = documents.into_iter().find(|document| document["kind"] == kind);
    found.and_then(|document| document.as_object().cloned()).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn the_manifests_refer_to_each_other() {
    let [deployment, secret, budget, scaler] =
        ["Deployment", "Secret", "PodDisruptionBudget", "HorizontalPodAutoscaler"].map(manifest);
    let target = &scaler["spec"]["scaleTargetRef"];
    assert_eq!((&target["kind"], &target["name"]), (&deployment["kind"], &deployment["metadata"]["name"]));
    // Otherwise each `kubectl apply` resets what the autoscaler chose, or no node can be drained.
    assert_eq!(deployment["spec"].get("replicas"), None);
    assert!(scaler["spec"]["minReplicas"].as_u64() > budget["spec"]["minAvailable"].as_u64());
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let reference = &container["env"][0]["valueFrom"]["secretKeyRef"];
    assert_eq!(reference["name"], secret["metadata"]["name"]);
    assert!(container["resources"]["requests"].get("cpu").is_some(), "the autoscaler's percentage is of this");
    // The token of the file is no password that everybody knows: Diana does not start with it.
    let token = secret["stringData"][reference["key"].as_str().unwrap()].as_str().unwrap();
    let text = MANIFESTS.split("  diana.yaml: |\n").nth(1).unwrap().split("\n---\n").next().unwrap();
    let text = text.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let read =
        RuleFile::read_with(&Document::new("diana.yaml", text), &diana_server::registry(), |_| Some(token.to_owned()));
    let Err(problems) = read else { panic!("an empty token is accepted") };
    assert!(problems.to_string().contains("invalid `token`"), "{problems}");
}

#[test]
fn systemd_waits_longer_than_the_program_takes_to_stop() {
    let seconds = |text: &str| Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap());
    let file = file();
    let timeouts = &file.section::<GatewaySection>().unwrap().unwrap().timeouts;
    let stop = timeouts.drain + timeouts.stop;
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
fn the_image_exposes_the_ports_of_the_file() {
    let file = file();
    let port = file.section::<GatewaySection>().unwrap().unwrap().listen[0].port();
    assert!(DOCKERFILE.contains(&format!("EXPOSE {port}\n")));
    let admin = file.section::<AdminSection>().unwrap().unwrap().listen[0];
    assert!(DOCKERFILE.contains(&format!("/dev/tcp/{}/{}", admin.ip(), admin.port())));
}

/// The packages that `rust:VERSION-slim` adds to Debian.
const IN_RUST_IMAGE: [&str; 3] = ["ca-certificates", "gcc", "libc6-dev"];

/// The crates of the program that are not Rust alone, and the Debian packages with what their build scripts start.
const NEEDED_TO_BUILD: [(&str, &[&str]); 2] =
    [("ring", &["gcc", "libc6-dev"]), ("tikv-jemalloc-sys", &["gcc", "libc6-dev", "make"])];

/// The crates by which build scripts start compilers, or look for libraries.
const STARTS_COMPILERS: [&str; 7] = ["autotools", "bindgen", "cc", "cmake", "meson", "pkg-config", "vcpkg"];

/// Returns the crates of the program for Linux whose build scripts start compilers, or look for libraries.
fn crates_with_other_languages() -> BTreeSet<String> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--offline", "--locked", "--format-version=1"]).current_dir(folder());
    let metadata = metadata.arg("--filter-platform=x86_64-unknown-linux-gnu").output().unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names = list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), text(&package["name"])));
    let names = names.collect::<BTreeMap<_, _>>();
    let nodes = list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), list(&node["deps"])));
    let nodes = nodes.collect::<BTreeMap<_, _>>();
    let has_kind =
        |dependency: &Value, kind: Value| list(&dependency["dep_kinds"]).iter().any(|own| own["kind"] == kind);
    let mut todo =
        names.iter().filter(|(_, name)| *name == "diana-server").map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in &nodes[&id] {
            let (package, builds) = (text(&dependency["pkg"]), has_kind(dependency, "build".into()));
            if builds && STARTS_COMPILERS.contains(&names[&package].as_str()) {
                found.insert(names[&id].clone());
            }
            if builds || has_kind(dependency, Value::Null) {
                todo.push(package);
            }
        }
    }
    found
}

#[test]
fn the_build_stage_has_what_the_crates_need() {
    let known = NEEDED_TO_BUILD.map(|(name, _)| name.to_owned());
    assert_eq!(crates_with_other_languages(), BTreeSet::from(known), "see `NEEDED_TO_BUILD`");
    let needed = NEEDED_TO_BUILD.iter().flat_map(|(_, packages)| *packages).copied();
    let needed = needed.filter(|package| !IN_RUST_IMAGE.contains(package)).collect::<BTreeSet<_>>();
    let stage = DOCKERFILE.split("AS build\n").nth(1).unwrap().split("\nFROM ").next().unwrap();
    let installed = stage.split("apt-get install -y --no-install-recommends ").nth(1);
    let installed = installed.map(|rest| rest.split(" &&").next().unwrap().split(' ').collect::<BTreeSet<_>>());
    assert_eq!(installed, Some(needed));
    let before_build = stage.find("apt-get install").unwrap() < stage.find("cargo build").unwrap();
    assert!(before_build, "{stage}");
}
