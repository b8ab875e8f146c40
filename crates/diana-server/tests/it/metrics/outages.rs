//! Parts that fail and recover: Redis, the config server, and the rule file. Each outage has one warning when it begins
//! and one when it ends, a gauge, and its time.

use super::{log_lines, status};
use crate::support::client::get;
use crate::support::program::{Diana, LONG};
use diana::{Clock, SystemClock};
use diana_testing::{EtcdServer, RedisServer, wait_until};
use tempfile::TempDir;

fn degraded(diana: &Diana, part: &str) -> f64 {
    diana.metric(&format!("diana_degraded{{part=\"{part}\"}}"))
}

fn since(diana: &Diana, part: &str) -> f64 {
    diana.metric(&format!("diana_degraded_since_seconds{{part=\"{part}\"}}"))
}

fn until_degraded(diana: &Diana, part: &str, is: f64) {
    wait_until("a part to fail or recover", LONG, || (degraded(diana, part) == is).then_some(()))
        .unwrap_or_else(|error| panic!("{part} {is}: {error}\n{}", diana.output()));
}

/// Checks that a part works.
fn works(diana: &Diana, part: &str) {
    assert_eq!((degraded(diana, part), since(diana, part)), (0.0, 0.0), "{part}");
    assert_eq!(status(diana)["degraded"], serde_json::json!([]));
}

/// Checks that a part is reported since a time between `began` and now.
fn is_reported(diana: &Diana, part: &str, began: f64) {
    let (since, now) = (since(diana, part), now());
    assert!(since >= began && since <= now, "{began} {since} {now}");
    let status = status(diana);
    let [reported] = &status["degraded"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!(reported["part"], part);
    assert!(reported["since"].as_str().unwrap().ends_with('Z') && reported["reason"].is_string(), "{reported}");
}

fn now() -> f64 {
    SystemClock.now().as_micros() as f64 / 1e6
}

/// Waits until the log has a line with this text.
fn until_logged(diana: &Diana, text: &str) {
    let is_logged = || (!log_lines(diana, "WARN", text).is_empty()).then_some(());
    wait_until("a line of the log", LONG, is_logged).unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[test]
fn an_outage_of_redis_has_two_warnings_and_a_gauge() {
    let mut redis = RedisServer::start().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nstore: {{redis: '{}', timeout: 5s}}\nrules: [{{name: a, limit: 100/h}}]\n",
        redis.url()
    ));
    works(&diana, "redis");
    let metrics = diana.admin("/metrics").text();
    assert!(
        metrics.contains("diana_degraded{part=\"rule_file\"} 0\n") && !metrics.contains("config_server"),
        "{metrics}"
    );
    for outage in 1..=2 {
        let began = now();
        redis.kill().unwrap();
        until_degraded(&diana, "redis", 1.0);
        is_reported(&diana, "redis", began);
        assert_eq!(diana.metric("diana_store_up"), 0.0);
        for _ in 0..20 {
            assert_eq!(get(diana.port(), "/").status, 204, "requests are decided without Redis");
        }
        redis.restart().unwrap();
        until_degraded(&diana, "redis", 0.0);
        let ended = || (log_lines(&diana, "WARN", "Redis is reachable again").len() == outage).then_some(());
        wait_until("the end of the outage to be logged", LONG, ended).unwrap();
        assert_eq!(log_lines(&diana, "WARN", "Redis").len(), 2 * outage, "{}", diana.output());
        works(&diana, "redis");
    }
    assert!(log_lines(&diana, "WARN", "Redis is reachable again").iter().all(|line| line.contains("lasted")));
}

#[test]
fn a_redis_that_is_unreachable_at_the_start_has_one_warning() {
    let mut redis = RedisServer::start().unwrap();
    redis.kill().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nstore: {{redis: '{}'}}\nrules: [{{name: a, limit: 100/h}}]\n",
        redis.url()
    ));
    assert_eq!(degraded(&diana, "redis"), 1.0);
    assert_eq!(log_lines(&diana, "WARN", "Redis is unreachable").len(), 1);
    redis.restart().unwrap();
    until_logged(&diana, "Redis is reachable again");
    assert_eq!(log_lines(&diana, "WARN", "Redis").len(), 2, "{}", diana.output());
}

#[test]
fn an_outage_of_the_config_server_has_two_warnings_and_a_gauge() {
    let mut etcd = EtcdServer::start().unwrap();
    let cache = TempDir::new().unwrap();
    etcd.put("/rules", "rules: [{name: remote, limit: 1/h}]").unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nremote: {{from: 'etcd://127.0.0.1:{}/rules', keep: '{}'}}\nrules: []\n",
        etcd.port(),
        cache.path().display()
    ));
    works(&diana, "config_server");
    assert_eq!(diana.metric("diana_rules_remote_up"), 1.0);
    assert!(!diana.output().contains("reachable again"), "it was never unreachable");
    let began = now();
    etcd.kill().unwrap();
    until_degraded(&diana, "config_server", 1.0);
    is_reported(&diana, "config_server", began);
    // Several attempts fail, with different errors.
    let errors = diana.metric("diana_rules_errors_total");
    let more = || (diana.metric("diana_rules_errors_total") >= errors + 2.0).then_some(());
    wait_until("more attempts", LONG, more).unwrap();
    is_reported(&diana, "config_server", began);
    assert_eq!(diana.metric("diana_rules_failing"), 1.0);
    etcd.restart().unwrap();
    until_degraded(&diana, "config_server", 0.0);
    until_logged(&diana, "config server reachable again");
    works(&diana, "config_server");
    assert_eq!(diana.metric("diana_rules_failing"), 0.0);
    assert_eq!(log_lines(&diana, "WARN", "origin=remote").len(), 2, "{}", diana.output());
}

#[test]
fn an_invalid_rule_file_has_two_warnings_and_a_gauge() {
    let (good, better) =
        ("gateway: {listen: $LISTEN}\nrules: []\n", "gateway: {listen: $LISTEN}\nrules: [{name: a, limit: 1/s}]\n");
    let diana = Diana::serve(good);
    works(&diana, "rule_file");
    // Back to the active file, and on to another one.
    for (count, fixed) in [good, better].into_iter().enumerate() {
        let began = now();
        diana.rewrite("gateway: {listen: $LISTEN}\nrules: [{name: a, limit: often}]\n");
        until_degraded(&diana, "rule_file", 1.0);
        is_reported(&diana, "rule_file", began);
        diana.rewrite(fixed);
        until_degraded(&diana, "rule_file", 0.0);
        works(&diana, "rule_file");
        let ended = || (log_lines(&diana, "WARN", "rule file valid again").len() == count + 1).then_some(());
        wait_until("the end to be logged", LONG, ended).unwrap();
        assert_eq!(log_lines(&diana, "WARN", "origin=local").len(), 2 * (count + 1), "{}", diana.output());
    }
}
