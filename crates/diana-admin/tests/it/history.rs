//! `/history`: counts of each second, sampled from the counters of the rules and the gateway, on a clock of the test.

use crate::support::{Server, read};
use diana::ManualClock;
use diana::Timestamp;
use diana_admin::{History, Sampler};
use diana_metrics::{Outcome, ServiceMetrics};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = "
rules:
  - {name: each-account, by: account, limit: 3/h}
  - {name: quiet, by: ip, limit: 1/h, shadow: true}
";

const SECOND: Duration = Duration::from_secs(1);

/// A server whose history is sampled by the test.
struct Sampled {
    server: Server,
    sampler: Sampler,
    clock: ManualClock,
    service: ServiceMetrics,
}

impl Sampled {
    async fn start(rules: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_000));
        let history = Arc::new(History::new());
        let service = ServiceMetrics::new("resp", 1);
        let server = Server::start_with(rules, |state| state.history = Arc::clone(&history)).await;
        let counted = service.clone();
        let sampler = Sampler::new(
            history,
            server.engine.clone(),
            Arc::clone(&server.metrics),
            Arc::new(move || vec![("resp", counted.totals())]),
            Arc::new(clock.clone()),
        );
        Self { server, sampler, clock, service }
    }

    fn tick(&mut self, time: Duration) {
        self.clock.advance(time);
        self.sampler.sample();
    }

    async fn history(&self, query: &str) -> Value {
        self.server.get(&format!("/history?{query}")).await.json()
    }
}

#[tokio::test]
async fn counts_of_a_rule_are_those_of_each_second() {
    let mut sampled = Sampled::start(RULES).await;
    for requests in [2, 0, 3] {
        for _ in 0..requests {
            sampled.server.decide("alice").await;
        }
        sampled.tick(SECOND);
    }
    let report = sampled.history("rule=each-account&seconds=4").await;
    assert_eq!((&report["start"], &report["step"]), (&json!(999), &json!(1)));
    assert_eq!((&report["allowed"], &report["denied"]), (&json!([0, 2, 0, 1]), &json!([0, 0, 0, 2])));
    assert_eq!(report.get("latency"), None);
    let report = sampled.history("rule=quiet&seconds=4&step=2").await;
    // Steps start at even seconds, and the last one is complete.
    assert_eq!((&report["start"], &report["step"]), (&json!(998), &json!(2)));
    assert_eq!((&report["allowed"], &report["shadow_denied"]), (&json!([0, 1]), &json!([0, 1])));
    let sums = &sampled.history("seconds=10&sums=true").await["rules"];
    let first =
        json!({"rule": "each-account", "allowed": 3, "denied": 2, "delayed": 0, "rerouted": 0, "shadow_denied": 0});
    assert_eq!((&sums[0], &sums[1]["rule"], &sums[1]["shadow_denied"]), (&first, &json!("quiet"), &json!(2)));
}

#[tokio::test]
async fn a_late_sample_loses_nothing() {
    let mut sampled = Sampled::start(RULES).await;
    for _ in 0..7 {
        sampled.server.decide("alice").await;
    }
    // Three seconds pass at once; then one sample comes too early for the next second.
    sampled.tick(3 * SECOND);
    sampled.server.decide("alice").await;
    sampled.tick(Duration::from_millis(900));
    assert_eq!(sampled.history("rule=each-account&seconds=3").await["denied"], json!([2, 1, 1]));
    sampled.tick(Duration::from_millis(100));
    assert_eq!(sampled.history("rule=each-account&seconds=4").await["denied"], json!([2, 1, 1, 1]));
}

#[tokio::test]
async fn totals_are_those_of_the_gateway_and_the_services_with_percentiles() {
    let mut sampled = Sampled::start(RULES).await;
    let shard = sampled.server.metrics.shard(0);
    shard.request(Outcome::Forwarded, Duration::from_millis(2));
    shard.request(Outcome::Denied, Duration::from_micros(20));
    shard.request(Outcome::Rerouted, Duration::from_millis(2));
    shard.request(Outcome::Failed, Duration::from_millis(2));
    shard.upstream_seconds.observe(Duration::from_millis(2));
    sampled.service.shard(0).batch(4, 5, 6);
    sampled.server.decide("alice").await;
    sampled.server.decide("alice").await;
    sampled.tick(SECOND);
    sampled.tick(SECOND);
    let report = sampled.history("seconds=2").await;
    assert_eq!((&report["allowed"], &report["denied"]), (&json!([6, 0]), &json!([6, 0])));
    assert_eq!((&report["rerouted"], &report["failed"]), (&json!([1, 0]), &json!([7, 0])));
    assert_eq!(report["shadow_denied"], json!([1, 0]), "the sum over the shadow rules");
    // Between the bounds of 1 and 2.5 ms; a denial is not among the requests.
    assert_eq!(report["latency"]["request"]["p50"], json!([1.75, null]));
    assert_eq!(report["latency"]["upstream"]["p99"], json!([2.5, null]));
    assert_eq!(report["latency"]["decision"]["p95"], json!([null, null]));
}

#[tokio::test]
async fn a_change_of_the_rules_loses_no_count() {
    let mut sampled = Sampled::start(RULES).await;
    sampled.server.decide("alice").await;
    sampled.tick(SECOND);
    sampled.server.decide("alice").await;
    // `quiet` is removed, `each-account` gets another limit and another place, and `new` is added.
    let rules = "rules: [{name: new, limit: 9/h}, {name: each-account, by: account, limit: 5/h}]";
    sampled.server.engine.set_rules(&read(rules));
    sampled.server.decide("alice").await;
    sampled.tick(SECOND);
    assert_eq!(sampled.history("rule=each-account&seconds=2").await["allowed"], json!([1, 2]));
    assert_eq!(sampled.history("rule=quiet&seconds=2").await["shadow_denied"], json!([0, 1]));
    assert_eq!(sampled.history("rule=new&seconds=2").await["allowed"], json!([0, 1]));
}

#[tokio::test]
async fn rules_are_sorted_by_what_they_denied_in_the_last_hour() {
    let rules =
        "rules: [{name: a, limit: 9/h}, {name: b, limit: 8/h, shadow: true}, {name: c, by: account, limit: 1/h}]";
    let mut sampled = Sampled::start(rules).await;
    for _ in 0..3 {
        sampled.server.decide("alice").await;
    }
    sampled.tick(SECOND);
    let report = sampled.server.get("/rules?sort=denied").await.json();
    assert_eq!(report["rules"][0]["name"], "c");
    let report = sampled.server.get("/rules?sort=denied&limit=1&offset=1").await.json();
    assert_eq!((&report["rules"][0]["name"], &report["found"]), (&json!("a"), &json!(3)));
    assert_eq!(sampled.server.get("/rules?sort=x").await.status, 400);
}

#[tokio::test]
async fn invalid_spans_and_unknown_rules_are_rejected() {
    let sampled = Sampled::start(RULES).await;
    assert_eq!(sampled.history("rule=each-account&seconds=3&step=3").await["allowed"], json!([0]));
    for query in ["seconds=0", "seconds=3601", "seconds=10&step=3", "step=0", "sums=1", "rules=a"] {
        assert_eq!(sampled.server.get(&format!("/history?{query}")).await.status, 400, "{query}");
    }
    let unknown = sampled.server.get("/history?rule=no").await;
    assert_eq!((unknown.status, &*unknown.detail()), (404, "unknown rule `no`"));
}
