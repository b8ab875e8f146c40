//! The page `docs/gateway.md` leaves nothing out: every metric, every admin address and every option of `serve` is on it.
//!
//! That its files are good is looked at beside the rule file's own page (`crates/diana-rules/tests/the_gateway_page.rs`).

use std::collections::BTreeSet;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/gateway.md");
const METRICS: &str = include_str!("../../src/admin/prometheus.rs");
const ADMIN: &str = include_str!("../../src/admin.rs");

/// The texts between quotes that begin with this.
fn quoted(source: &'static str, begins: &str) -> BTreeSet<&'static str> {
    source.split('"').skip(1).step_by(2).filter(|text| text.starts_with(begins)).collect()
}

fn missing(names: BTreeSet<&'static str>, least: usize) -> Vec<&'static str> {
    assert!(names.len() >= least, "only {names:?} were found");
    names.into_iter().filter(|name| !PAGE.contains(&format!("`{name}`"))).collect()
}

#[test]
fn every_metric_is_on_it() {
    assert_eq!(missing(quoted(METRICS, "diana_"), 25), Vec::<&str>::new());
}

#[test]
fn no_metric_is_on_it_that_is_not_there() {
    let known = quoted(METRICS, "diana_");
    let told = PAGE.split("diana_").skip(1).map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next());
    let made_up = told.flatten().filter(|name| !known.contains(&*format!("diana_{name}"))).collect::<Vec<_>>();
    assert_eq!(made_up, Vec::<&str>::new());
}

#[test]
fn every_admin_address_is_on_it() {
    let routes = ADMIN.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let routes = routes.filter(|route| !route.starts_with("/page.")).collect::<BTreeSet<_>>();
    assert!(routes.len() >= 11, "only {routes:?} were found");
    let is_told = |route: &&&str| {
        ["GET", "POST"].iter().any(|method| {
            let told = format!("| `{method} {route}");
            PAGE.contains(&format!("{told}`")) || PAGE.contains(&format!("{told}?"))
        })
    };
    assert_eq!(routes.iter().filter(|route| !is_told(route)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn every_option_of_serve_is_on_it() {
    let help = Command::new(env!("CARGO_BIN_EXE_diana")).args(["serve", "-h"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help");
    let options = options.map(|word| word.trim_end_matches([',', '.'])).collect::<BTreeSet<_>>();
    assert!(options.len() >= 6, "only {options:?} were found");
    let untold = options.iter().filter(|option| !PAGE.contains(**option)).collect::<Vec<_>>();
    assert!(untold.is_empty(), "{untold:?}");
}
