//! The Prometheus metrics: their format, their numbers, and the maximum number of samples.

use crate::support::Server;
use diana_metrics::{CheckStatus, Metric, Metrics, Outcome, ServiceTotals, Totals, UpstreamStatus, UpstreamTotals};
use diana_testing::RedisServer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Returns the samples of a page, by name and labels, after checking its format: each family has its help and type once
/// and before its samples, no sample occurs twice, names and labels are well formed, and histograms add up.
fn checked(page: &str) -> BTreeMap<String, f64> {
    let (mut kinds, mut helps, mut samples) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut family = String::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helps.insert(name.to_owned()), "{name} twice");
            assert!(help.len() > 5 && !help.contains('\\'), "{line}");
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family, "the type follows the help");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            kinds.insert(name.to_owned(), kind.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) =
                series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest.strip_suffix('}').unwrap()));
            let is_word =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_word(name), "{line}");
            let plain = |name: &str| {
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
            };
            let has_parts = ["histogram", "summary"].contains(&&*kinds[&family]);
            assert_eq!(if has_parts { plain(name) } else { name.to_owned() }, family, "{line}");
            for label in labels.split("\",").filter(|label| !label.is_empty()) {
                let (label, text) = label.split_once("=\"").unwrap();
                assert!(is_word(label) && !text.contains('\n'), "{line}");
            }
            let value: f64 = value.parse().unwrap();
            assert!(value >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
        }
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        histogram_adds_up(name, page);
    }
    samples
}

fn histogram_adds_up(name: &str, page: &str) {
    let mut last = 0;
    for line in page.lines().filter(|line| line.starts_with(&format!("{name}_"))) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        if series.contains("_bucket") {
            let value = value.parse::<u64>().unwrap();
            assert!(value >= last, "{line}");
            last = value;
        } else if series.contains("_count") {
            assert_eq!(value.parse::<u64>().unwrap(), last, "{line}");
            last = 0;
        }
    }
}

async fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let response = server.get("/metrics").await;
    assert!(response.has("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", response.head);
    checked(&response.body)
}

#[tokio::test]
async fn exports_all_counts() {
    let server =
        Server::start("rules: [{name: a, by: account, limit: 2/h}, {name: b, by: ip, limit: 1/h, shadow: true}]").await;
    for _ in 0..5 {
        server.decide("alice").await;
    }
    let shard = server.metrics.shard(1);
    shard.request(Outcome::Forwarded, Duration::from_micros(900));
    shard.request(Outcome::Forwarded, Duration::from_millis(20));
    shard.request(Outcome::Denied, Duration::from_micros(20));
    shard.decision_seconds.observe(Duration::from_micros(2));
    shard.wait_seconds.observe(Duration::from_millis(500));
    shard.upstream_seconds.observe(Duration::from_millis(15));
    shard.upstream_failures.increment();
    shard.bytes_in.add(10);
    shard.bytes_out.add(20);
    shard.connection_opened();
    server.metrics.shard(0).connection_opened();
    shard.connection_closed();
    shard.connections_rejected.increment();

    let samples = scrape(&server).await;
    let is = |name: &str, value: f64| assert_eq!(samples.get(name), Some(&value), "{name}");
    is("diana_decisions_total{rule=\"a\",outcome=\"allowed\"}", 2.0);
    is("diana_decisions_total{rule=\"a\",outcome=\"denied\"}", 3.0);
    is("diana_decisions_total{rule=\"b\",outcome=\"shadow_denied\"}", 1.0);
    is("diana_requests_total{outcome=\"forwarded\"}", 2.0);
    is("diana_requests_total{outcome=\"failed\"}", 0.0);
    is("diana_request_seconds_bucket{outcome=\"forwarded\",le=\"0.001\"}", 1.0);
    is("diana_request_seconds_bucket{outcome=\"forwarded\",le=\"0.025\"}", 2.0);
    is("diana_request_seconds_bucket{outcome=\"forwarded\",le=\"+Inf\"}", 2.0);
    is("diana_request_seconds_sum{outcome=\"forwarded\"}", 0.0209);
    is("diana_request_seconds_count{outcome=\"denied\"}", 1.0);
    is("diana_decision_seconds_count", 1.0);
    is("diana_upstream_seconds_sum", 0.015);
    is("diana_upstream_failures_total", 1.0);
    is("diana_received_bytes_total", 10.0);
    is("diana_sent_bytes_total", 20.0);
    is("diana_connections", 1.0);
    is("diana_connections_accepted_total", 2.0);
    is("diana_connections_rejected_total", 1.0);
    is("diana_keys", 2.0);
    is("diana_rules", 2.0);
    is("diana_rule_keys{rule=\"a\"}", 1.0);
    is("diana_rule_keys{rule=\"b\"}", 1.0);
    is("diana_rule_waiting{rule=\"a\"}", 0.0);
    is("diana_rule_wait_seconds_count{rule=\"a\"}", 0.0);
    is("diana_wait_seconds_sum", 0.5);
    is("diana_wait_seconds_count", 1.0);
    is("diana_ready", 0.0);
    let is_absent = |name: &str| assert!(!samples.keys().any(|known| known.starts_with(name)), "{name}");
    // There is no shared store, no upstream, no certificate, and no source of rules that could fail.
    ["diana_store", "diana_upstream_requests", "diana_certificate", "diana_degraded"].into_iter().for_each(is_absent);
}

/// Whatever a list of metrics has is on the page, with its help and type, and in the status and on the dashboard if it should be.
#[tokio::test]
async fn every_metric_of_the_lists_is_exported() {
    let check = CheckStatus { passing: true, passed: 1, failed: 0, error: None };
    let upstream = |number: usize| UpstreamStatus {
        address: format!("http://u{number}"),
        routes: vec!["/".to_owned()],
        ejected_until: None,
        ejections: 1,
        check: Some(CheckStatus { passing: number != 200, ..check.clone() }),
        weight: 2,
        totals: UpstreamTotals::default(),
    };
    let upstreams = (0..203).map(upstream).collect::<Vec<_>>();
    let server = Server::start_with("rules: []", |state| {
        state.upstreams = Arc::new(move || upstreams.clone());
        state.services = Arc::new(|| vec![("resp", ServiceTotals::default())]);
    });
    let server = server.await;
    let page = server.get("/metrics").await.body;
    let status = server.get("/status").await.json();
    let script = server.get("/page/metrics.js").await.body;
    assert_exported(Totals::METRICS, &page, &status, &script);
    assert_exported(ServiceTotals::METRICS, &page, &serde_json::Value::Null, &script);
    assert_exported(UpstreamStatus::METRICS, &page, &status["upstreams"][0], &script);

    let samples = checked(&page);
    let others = |name: &str| samples[&format!("diana_upstream_{name}upstream=\"other\"}}")];
    assert_eq!((others("ejections_total{"), others("weight{"), others("healthy{")), (3.0, 6.0, 0.0));
    assert_eq!(samples["diana_upstream_checks_total{upstream=\"other\",result=\"passed\"}"], 3.0);
    assert_eq!(
        (samples["diana_upstream_healthy{upstream=\"http://u1\"}"], status["upstreams"][0]["weight"].as_u64()),
        (1.0, Some(2))
    );
}

fn assert_exported<T>(metrics: &[Metric<T>], page: &str, status: &serde_json::Value, script: &str) {
    for metric in metrics {
        let Metric { name, help, .. } = metric;
        let family = format!("# HELP {name} {help}\n# TYPE {name} {}\n{name}", metric.kind.name());
        assert!(page.contains(&family), "{family}");
        if let Some(field) = metric.field {
            assert!(!status[field].is_null(), "{name}: {field}");
            assert_eq!(script.contains(&format!("[\"{field}\",\"{help}\"]")), metric.is_shown, "{name}: {script}");
        }
    }
}

#[tokio::test]
async fn at_most_a_thousand_rules_have_their_own_samples() {
    // One of them has the label of the remaining rules.
    let names = (0..2_000).map(|index| if index == 7 { "other".to_owned() } else { format!("r{index}") });
    let rules =
        names.map(|name| format!("  - {{name: {name}, by: account, match: {{path: '/{name}/**'}}, limit: 1/h}}\n"));
    let server = Server::start(&format!("rules:\n{}", rules.collect::<String>())).await;
    for path in ["/r5/x", "/other/x", "/r1500/x", "/r1999/x"] {
        let request = diana_rules::attributes::SyntheticRequest::new("GET", path).named("account", "alice");
        assert!(server.engine.acquire(&request).await.is_ok());
        assert!(server.engine.acquire(&request).await.is_err());
    }
    let samples = scrape(&server).await;
    let of_rules = samples.keys().filter(|name| name.starts_with("diana_decisions_total")).count();
    assert_eq!(of_rules, 1_000 * 5, "999 and the others, with five outcomes each");
    assert_eq!(samples["diana_decisions_total{rule=\"r5\",outcome=\"denied\"}"], 1.0);
    assert_eq!(samples["diana_decisions_total{rule=\"other\",outcome=\"denied\"}"], 3.0);
    assert_eq!(samples["diana_decisions_total{rule=\"other\",outcome=\"allowed\"}"], 3.0);
    assert_eq!(samples["diana_rules"], 2_000.0);
    let all = server.get("/rules").await.json();
    assert_eq!(all["rules"].as_array().unwrap().len(), 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_the_status_of_the_shared_store() {
    let mut redis = RedisServer::start().unwrap();
    let text =
        format!("{{store: {{redis: '{}', timeout: 5s}}, rules: [{{name: a, by: account, limit: 2/h}}]}}", redis.url());
    let server = Server::start(&text).await;
    assert!(server.decide("alice").await);
    let samples = scrape(&server).await;
    assert_eq!(samples["diana_store_up"], 1.0);
    assert_eq!(samples["diana_degraded{part=\"redis\"}"], 0.0);
    assert!(!samples.contains_key("diana_rule_keys{rule=\"a\"}"), "Redis has its keys");
    assert!(samples["diana_store_commands_total"] >= 1.0);
    let report = server.get("/peek?rule=a&key=alice").await.json();
    assert_eq!((report["counted"].as_str(), report["limits"][0]["remaining"].as_u64()), (Some("shared"), Some(1)));
    redis.kill().unwrap();
    let engine = server.engine.clone();
    diana_testing::wait_until("the store to be down", Duration::from_secs(60), || {
        (engine.shared::<diana::redis::RedisStore>().unwrap().link().health != diana::redis::Health::Healthy)
            .then_some(())
    })
    .unwrap();
    let samples = scrape(&server).await;
    assert_eq!((samples["diana_store_up"], samples["diana_degraded{part=\"redis\"}"]), (0.0, 1.0));
    assert!(samples["diana_degraded_since_seconds{part=\"redis\"}"] > 1.7e9);
    let status = server.get("/status").await.json();
    assert_eq!(status["degraded"][0]["part"], "redis");
    let store = &status["store"];
    assert!(store["up"] == false && store["reason"].is_string(), "{store}");
}

#[test]
fn concurrent_counts_are_not_lost() {
    let metrics = Metrics::new(4);
    std::thread::scope(|scope| {
        // Twice as many workers as shards: two share one.
        for worker in 0..8 {
            let shard = metrics.shard(worker);
            scope.spawn(move || {
                for index in 0..10_000_u64 {
                    shard.request(Outcome::Forwarded, Duration::from_nanos(index));
                    shard.bytes_in.add(2);
                    shard.connection_opened();
                    shard.connection_closed();
                }
            });
        }
        for _ in 0..100 {
            assert!(metrics.totals().connections <= 8, "closed before it was opened");
        }
    });
    let totals = metrics.totals();
    assert_eq!(totals.requests(Outcome::Forwarded), 80_000);
    assert_eq!((totals.bytes_in, totals.connections, totals.connections_accepted), (160_000, 0, 80_000));
}
