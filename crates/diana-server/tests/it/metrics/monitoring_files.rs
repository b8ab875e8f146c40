//! The dashboard for Grafana and the alerts for Prometheus use metrics that exist, and a real Prometheus accepts them.

use crate::support::client::get_with;
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::{EtcdServer, Port, PrometheusServer, RedisServer, TlsFiles, promtool, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tempfile::TempDir;

const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/diana.json");
const ALERTS: &str = include_str!("../../../../../packaging/prometheus/alerts.yaml");

fn packaging(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(name)
}

/// A program with every part, so that it has every metric.
struct Everything {
    diana: Diana,
    _redis: RedisServer,
    _etcd: EtcdServer,
    _upstream: Upstream,
    _cache: TempDir,
}

impl Everything {
    fn start() -> Self {
        let (redis, etcd, upstream) = (RedisServer::start().unwrap(), EtcdServer::start().unwrap(), Upstream::echo());
        let (folder, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let rules =
            "rules: [{name: each-key, by: header(x-key), limit: 3/h}, {name: own, limit: 1000/s, store: local}]";
        etcd.put("/rules", rules).unwrap();
        TlsFiles::create(folder.path()).unwrap();
        let [envoy, http, resp] = [(); 3].map(|()| Port::claim().unwrap());
        let pair = "certificate: '$FOLDER/certificate.pem', key: '$FOLDER/key.pem'";
        let file = format!(
            "gateway: {{listen: $LISTEN, upstream: '{}', health: /, access_log: json, tls: {{listen: $TLS, certificates: [{{{pair}}}]}}}}\n\
             services: {{envoy: '127.0.0.1:{}', http: '127.0.0.1:{}', resp: '127.0.0.1:{}'}}\n\
             store: {{redis: '{}'}}\nremote: {{from: 'etcd://127.0.0.1:{}/rules', keep: '{}'}}\nrules: []\n",
            upstream.url(),
            envoy.number(),
            http.number(),
            resp.number(),
            redis.url(),
            etcd.port(),
            cache.path().display()
        );
        let diana = Diana::serve_in(folder, &file);
        for _ in 0..5 {
            get_with(diana.port(), "/", "x-key: a\r\n");
        }
        Self { diana, _redis: redis, _etcd: etcd, _upstream: upstream, _cache: cache }
    }

    fn metrics(&self) -> String {
        self.diana.admin("/metrics").text()
    }
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let starts = text.match_indices("diana_").map(|(start, _)| &text[start..]);
    starts.map(|rest| rest.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap()).collect()
}

/// Returns all expressions of the dashboard, with their variables replaced.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let replaced = [("$instance", ".*"), ("$rule", ".*"), ("$__rate_interval", "1m")];
    expressions.map(|text| replaced.iter().fold(text, |text, (from, to)| text.replace(from, to))).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_exists() {
    let everything = Everything::start();
    let text = everything.metrics();
    let samples: BTreeSet<&str> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
    for (file, content) in [("diana.json", DASHBOARD), ("alerts.yaml", ALERTS)] {
        let used = names(content);
        assert!(used.len() >= 8, "only {used:?} found in {file}");
        assert_eq!(used.difference(&samples).collect::<Vec<_>>(), Vec::<&&str>::new(), "{file}");
    }
    // And the dashboard shows each of them, in some form.
    let is_shown = |name: &&&str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        DASHBOARD.contains(base)
    };
    assert_eq!(samples.iter().filter(|name| !is_shown(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn promtool_accepts_the_metrics() {
    let everything = Everything::start();
    let checked = promtool(&["check", "metrics"], &everything.metrics()).unwrap();
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && errors.trim().is_empty(), "{errors}");
}

#[test]
fn promtool_accepts_the_alerts_and_they_fire_when_they_should() {
    let alerts = packaging("prometheus/alerts.yaml");
    let checked = promtool(&["check", "rules", alerts.to_str().unwrap()], "").unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let config = packaging("prometheus/prometheus.yml");
    let checked = promtool(&["check", "config", config.to_str().unwrap()], "").unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let folder = TempDir::new().unwrap();
    let test = folder.path().join("alerts_test.yaml");
    let alerts = alerts.canonicalize().unwrap();
    let text = include_str!("../../alerts_test.yaml").replace("- ALERTS", &format!("- '{}'", alerts.display()));
    std::fs::write(&test, text).unwrap();
    let tested = promtool(&["test", "rules", test.to_str().unwrap()], "").unwrap();
    let output = String::from_utf8_lossy(&tested.stdout).into_owned() + &String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success() && output.contains("SUCCESS"), "{output}");
}

#[test]
fn prometheus_answers_every_query_of_the_dashboard() {
    let everything = Everything::start();
    let alerts = packaging("prometheus/alerts.yaml");
    let prometheus = PrometheusServer::start(everything.diana.admin_port(), Some(&alerts)).unwrap();
    let query = |expression: &str| serde_json::from_str::<Value>(&prometheus.query(expression).unwrap()).unwrap();
    let has_results = |answer: &Value| answer["data"]["result"].as_array().is_some_and(|results| !results.is_empty());
    // Two scrapes, for rates.
    let scraped = || has_results(&query("count_over_time(diana_ready[1m]) >= 2")).then_some(());
    wait_until("two scrapes", LONG, scraped).unwrap();
    let all = expressions();
    assert!(all.len() > 50, "only {} expressions found", all.len());
    for expression in &all {
        let answer = query(expression);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        // Nothing is degraded, and the time of an outage is shown only then.
        let is_optional = expression.contains("diana_degraded_since_seconds");
        assert!(is_optional || has_results(&answer), "no result: {expression}");
    }
    // Every alert has been evaluated without an error, and none fires.
    let evaluated = || {
        let rules: Value = serde_json::from_str(&prometheus.rules().unwrap()).unwrap();
        let rules = rules["data"]["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    };
    let rules = wait_until("the alerts to be evaluated", LONG, evaluated).unwrap();
    assert_eq!(rules.len(), ALERTS.matches("- alert:").count());
    let firing: Vec<_> = rules.iter().filter(|rule| rule["state"] == "firing").collect();
    assert!(firing.is_empty(), "{firing:?}");
}
