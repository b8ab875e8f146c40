//! The pages about the gateway are correct and complete: the defaults are the program's, and no metric, no admin path and no
//! option of `serve` is missing.

use diana_gateway::section::{ClientBounds, Timeouts};
use diana_metrics::{ServiceTotals, Totals, UpstreamStatus};
use std::collections::BTreeSet;
use std::process::Command;

const ADMIN_API: &str = include_str!("../../../../docs/reference/admin-api.md");
const METRICS_PAGE: &str = include_str!("../../../../docs/reference/metrics.md");
const BEHAVIOUR: &str = include_str!("../../../../docs/reference/gateway-behaviour.md");
const FIRST_STEPS: &str = include_str!("../../../../docs/start/first-steps.md");
/// The metrics of other parts than the gateway, its upstreams and the services, which have lists.
const OTHER_METRICS: &str = concat!(
    include_str!("../../../diana-admin/src/prometheus.rs"),
    include_str!("../../../diana-admin/src/prometheus/program_and_sources.rs"),
    include_str!("../../../diana-admin/src/prometheus/rules.rs"),
);
const ADMIN: &str = include_str!("../../../diana-admin/src/lib.rs");

/// Returns the string literals that begin with this.
fn quoted(source: &'static str, begins: &str) -> BTreeSet<&'static str> {
    source.split('"').skip(1).step_by(2).filter(|text| text.starts_with(begins)).collect()
}

/// Returns the names of all metrics.
fn metrics() -> BTreeSet<&'static str> {
    let gateway = Totals::METRICS.iter().map(|metric| metric.name);
    let services = ServiceTotals::METRICS.iter().map(|metric| metric.name);
    let upstreams = UpstreamStatus::METRICS.iter().map(|metric| metric.name);
    let others = quoted(OTHER_METRICS, "diana_");
    assert!(others.len() >= 25, "only {others:?} found");
    gateway.chain(services).chain(upstreams).chain(others).collect()
}

#[test]
fn the_page_lists_every_metric() {
    let missing = metrics().into_iter().filter(|name| !METRICS_PAGE.contains(&format!("`{name}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_page_lists_no_unknown_metric() {
    let known = metrics();
    let documented =
        METRICS_PAGE.split("diana_").skip(1).map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next());
    let unknown = documented.flatten().filter(|name| !known.contains(&*format!("diana_{name}"))).collect::<Vec<_>>();
    assert_eq!(unknown, Vec::<&str>::new());
}

#[test]
fn the_page_lists_every_admin_path() {
    let routes = ADMIN.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let routes = routes.filter(|route| !route.starts_with("/page")).collect::<BTreeSet<_>>();
    assert!(routes.len() >= 11, "only {routes:?} were found");
    let is_documented = |route: &&&str| {
        ["GET", "POST"].iter().any(|method| {
            let documented = format!("| `{method} {route}");
            ADMIN_API.contains(&format!("{documented}`")) || ADMIN_API.contains(&format!("{documented}?"))
        })
    };
    assert_eq!(routes.iter().filter(|route| !is_documented(route)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn the_page_lists_every_option_of_serve() {
    let help = Command::new(env!("CARGO_BIN_EXE_diana")).args(["serve", "-h"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help");
    let options = options.map(|word| word.trim_end_matches([',', '.'])).collect::<BTreeSet<_>>();
    assert!(options.len() >= 6, "only {options:?} were found");
    let undocumented = options.iter().filter(|option| !FIRST_STEPS.contains(**option)).collect::<Vec<_>>();
    assert!(undocumented.is_empty(), "{undocumented:?}");
}

/// The cells of the table row whose first cell is this.
fn row(first: &str) -> Vec<&'static str> {
    let begins = format!("| {first} | ");
    let row = BEHAVIOUR.lines().find(|line| line.starts_with(&begins)).unwrap_or_else(|| panic!("no row for {first}"));
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

#[test]
fn the_defaults_match_the_program() {
    let Timeouts { header, body, idle, connect, response, tunnel, drain, stop, .. } = Timeouts::default();
    let times = [header, body, idle, connect, response, tunnel, drain, stop];
    let names = ["header", "body", "idle", "connect", "response", "tunnel", "drain", "stop"];
    for (name, time) in names.into_iter().zip(times) {
        let shown = row(&format!("`timeouts.{name}`"))[1];
        let seconds = if time.as_secs() == 3_600 { "1h".to_owned() } else { format!("{}s", time.as_secs()) };
        assert_eq!(shown, seconds, "timeouts.{name}");
    }
    let ClientBounds { header, headers, body, connections, streams, memory, .. } = ClientBounds::default();
    assert_eq!(row("`bounds.header`")[1], format!("{}KiB", header >> 10));
    assert_eq!(row("`bounds.headers`")[1], headers.to_string());
    assert_eq!((row("`bounds.body`")[1], body), ("any length", None));
    assert_eq!(row("`bounds.connections`")[1], connections.to_string());
    assert_eq!(row("`bounds.streams`")[1], streams.to_string());
    assert_eq!(row("`bounds.memory`")[1], format!("{}GiB", memory >> 30));
}
