//! `/audit` and the file of the audit log: who changed what, when, before and after.

use crate::support::{LIMIT, Server, tokens};
use diana::{Cost, KeyOperation, ManualClock, Timestamp};
use diana_admin::{Actor, AdminToken, AuditLog, Role, RuleLog};
use diana_config::Origin;
use diana_net::LogFile;
use diana_rules::{Document, Registry, RuleFile, Secret};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const RULES: &str = "rules: [{name: each-account, by: account, limit: 3/h}, {name: all, limit: [5/h, 9/day]}]";

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

/// A server whose tokens are those of alice and of grafana, which may only read.
async fn start(rules: &str, audit: AuditLog) -> Server {
    Server::start_with(rules, |state| {
        let token = |name: &str, role| AdminToken::new(name, Secret::new(format!("{name}-token")), role);
        state.tokens = tokens([token("alice", Role::Operate), token("grafana", Role::Read)]);
        state.audit = Arc::new(audit);
        state.reload = Some(Arc::new(|| Box::pin(std::future::ready(()))));
    })
    .await
}

async fn post(server: &Server, name: &str, path: &str) -> u16 {
    server.send("POST", path, &[("authorization", &format!("Bearer {name}-token"))], "").await.status
}

/// Returns the entries, without the clients' ports.
async fn audit(server: &Server, query: &str) -> Value {
    let answer = server.send("GET", &format!("/audit{query}"), &[("authorization", "Bearer grafana-token")], "").await;
    let mut answer = answer.json();
    for entry in answer["entries"].as_array_mut().unwrap() {
        if let Some((address, _)) = entry["client"].as_str().and_then(|client| client.rsplit_once(':')) {
            entry["client"] = json!(address);
        }
    }
    answer["entries"].take()
}

#[tokio::test]
async fn a_change_is_recorded_with_who_what_when_before_and_after() {
    let server = start(RULES, AuditLog::new(clock())).await;
    assert_eq!(audit(&server, "").await, json!([]));
    while server.decide("alice").await {}
    assert_eq!(post(&server, "alice", "/refund?rule=each-account&key=alice&cost=2").await, 200);
    assert_eq!(post(&server, "alice", "/reset?rule=all").await, 200);
    assert_eq!(post(&server, "alice", "/reload").await, 200);
    let by =
        json!({"when": "2023-11-14T22:13:20Z", "source": "admin", "who": "alice", "client": "127.0.0.1", "ok": true});
    let with = |more: Value| {
        let mut entry = by.clone();
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let left = |name: &str, limit: u64, remaining: u64| json!({"name": name, "limit": limit, "remaining": remaining});
    let entries = audit(&server, "").await;
    assert_eq!(
        entries,
        json!([
            with(json!({"action": "reload"})),
            with(json!({
                "action": "reset", "rule": "all", "key": null,
                "before": [left("all", 5, 2), left("all#2", 9, 6)], "after": [left("all", 5, 5), left("all#2", 9, 9)],
            })),
            with(json!({
                "action": "refund", "rule": "each-account", "key": "alice", "cost": 2,
                "before": [left("each-account", 3, 0)], "after": [left("each-account", 3, 2)],
            })),
        ])
    );
    assert_eq!(audit(&server, "?limit=1").await, json!([with(json!({"action": "reload"}))]));
}

/// Neither an invalid request nor one that the role does not permit changes anything.
#[tokio::test]
async fn what_changes_nothing_is_not_recorded() {
    let server = start(RULES, AuditLog::new(clock())).await;
    for (name, path, status) in [
        ("alice", "/reset?rule=unknown", 404),
        ("alice", "/reset?rule=each-account", 400),
        ("alice", "/charge?rule=each-account&key=a&cost=0", 400),
        ("alice", "/peek?rule=each-account&key=a", 200),
        ("grafana", "/reset?rule=all", 403),
        ("grafana", "/reload", 403),
        ("mallory", "/reset?rule=all", 401),
    ] {
        assert_eq!(post(&server, name, path).await, status, "{name} {path}");
    }
    assert_eq!(audit(&server, "").await, json!([]));
}

#[tokio::test]
async fn keys_are_written_as_log_keys_says() {
    for (log_keys, shown) in [("hashed", 16), ("off", 0)] {
        let server = start(&format!("log_keys: {log_keys}\n{RULES}"), AuditLog::new(clock())).await;
        assert_eq!(post(&server, "alice", "/charge?rule=each-account&key=bob-the-key").await, 200);
        let entries = audit(&server, "").await;
        assert_eq!(entries[0]["key"].as_str().map_or(0, str::len), shown, "{entries}");
        assert!(!entries.to_string().contains("bob-the-key"), "{entries}");
    }
    let server = start(RULES, AuditLog::new(clock())).await;
    let long = "k".repeat(10_000);
    assert_eq!(post(&server, "alice", &format!("/charge?rule=each-account&key={long}")).await, 200);
    assert!(audit(&server, "").await[0]["key"].as_str().unwrap().len() < 2_100);
}

#[tokio::test]
async fn only_the_last_hundred_changes_are_kept_in_memory() {
    let log = AuditLog::new(clock());
    let server = Server::start(RULES).await;
    let operation = KeyOperation::Charge(Cost::new(1).unwrap());
    for number in 0..150_u16 {
        let change = server.engine.change_key("each-account", &[&number.to_string()], operation).await.unwrap();
        let client = Some(([10, 0, 0, 7], number).into());
        log.key_changed(Actor { source: "resp", name: None, client }, &change);
    }
    let server = start(RULES, log).await;
    let entries = audit(&server, "").await;
    assert_eq!(entries.as_array().unwrap().len(), 100);
    assert_eq!((&entries[0]["key"], &entries[99]["key"]), (&json!("149"), &json!("50")));
    assert_eq!((&entries[0]["source"], &entries[0]["client"]), (&json!("resp"), &json!("10.0.0.7")));
    assert!(entries[0].get("who").is_none());
}

fn load(log: &RuleLog, text: &str) {
    let document = Document::new("diana.yaml", text);
    let file = RuleFile::read_with(&document, &Registry::default(), |_| Some("s3cret".to_owned())).unwrap();
    log.applied(Arc::new(file), document);
    log.loaded(Origin::Local, "diana.yaml");
}

#[tokio::test]
async fn changed_rules_are_recorded_with_their_source() {
    let audit_log = Arc::new(AuditLog::new(clock()));
    let rules = RuleLog::new(clock()).audited(Arc::clone(&audit_log));
    load(&rules, "rules: [{name: a, limit: 1/s}, {name: b, by: account, deny: ['${KEY}']}]");
    load(&rules, "rules: [{name: a, limit: 2/s}, {name: c, by: account, deny: ['${KEY}']}]");
    let many = (0..60).map(|rule| format!("{{name: r{rule}, match: {{path: /{rule}}}, limit: 1/s}}"));
    load(&rules, &format!("rules: [{}]", many.collect::<Vec<_>>().join(", ")));
    let server = Server::start_with(RULES, |state| state.audit = audit_log).await;
    let answer = server.get("/audit").await;
    assert!(!answer.body.contains("s3cret"), "{}", answer.body);
    let entries = answer.json()["entries"].take();
    let once = |count: &str| {
        let most = if count == "1" { "2" } else { "4" };
        format!("{count} a second, up to {count} at once: at most {most} in any second")
    };
    assert_eq!((entries[0]["added"].as_array().unwrap().len(), &entries[0]["more"]), (20, &json!(40)));
    assert_eq!(
        entries[1],
        json!({
            "when": "2023-11-14T22:13:20Z", "action": "rules", "source": "local file diana.yaml", "ok": true,
            "rules": 2, "added": ["c"], "removed": ["b"], "more": 0,
            "changed": [{"rule": "a", "before": once("1"), "after": once("2")}],
        })
    );
    assert_eq!((&entries[2]["action"], &entries[2]["rules"]), (&json!("start"), &json!(2)));
}

/// The level may be that of the rule or of the whole file, whose rules are written as before then.
#[tokio::test]
async fn a_changed_log_level_is_recorded_with_what_it_was() {
    let audit_log = Arc::new(AuditLog::new(clock()));
    let rules = RuleLog::new(clock()).audited(Arc::clone(&audit_log));
    let rule = |log: &str| format!("rules:\n- name: a\n  total: 5\n{log}");
    for text in [
        rule(""),
        format!("log: warn\n{}", rule("")),
        rule("  log: off\n"),
        rule("  log: info\n  status: 429\n"),
        rule("  deny: ['${KEY}']\n  by: account\n"),
        format!("log: warn\n{}", rule("  deny: ['${KEY}']\n  by: account\n")),
    ] {
        load(&rules, &text);
    }
    let server = Server::start_with(RULES, |state| state.audit = audit_log).await;
    let answer = server.get("/audit").await.json();
    let entries = answer["entries"].as_array().unwrap().iter().rev().skip(1);
    let changed = entries.map(|entry| {
        let change = &entry["changed"][0];
        (change["before"].as_str().unwrap(), change["after"].as_str().unwrap())
    });
    let changed = changed.collect::<Vec<_>>();
    assert_eq!(changed[0], ("log: info", "log: warn"));
    assert_eq!(changed[1], ("log: warn", "log: off"));
    assert_eq!(changed[2], ("denied with 503; log: off", "denied with 429; log: info"));
    assert_eq!(changed[4], ("log: info", "log: warn"));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_file_has_a_line_for_each_change_and_can_be_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let (path, renamed) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
    let file = LogFile::open_private(&path).unwrap();
    let log = AuditLog::new(clock()).write_to(file.clone()).unwrap();
    let server = Server::start(RULES).await;
    let change = server.engine.change_key("each-account", &["new\nline"], KeyOperation::Reset).await.unwrap();
    log.key_changed(Actor { source: "resp", name: None, client: None }, &change);
    log.flush(LIMIT);
    std::fs::rename(&path, &renamed).unwrap();
    file.reopen().unwrap();
    log.reload_requested(Actor { source: "signal", name: None, client: None });
    log.flush(LIMIT);
    let first = lines(&renamed);
    assert_eq!((first.len(), &first[0]["action"], &first[0]["key"]), (1, &json!("reset"), &json!("new\nline")));
    assert_eq!(
        lines(&path),
        [json!({"when": "2023-11-14T22:13:20Z", "action": "reload", "source": "signal", "ok": true})]
    );
    #[cfg(unix)]
    for path in [&path, &renamed] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    let server = start(RULES, log).await;
    let answer = server.send("GET", "/audit", &[("authorization", "Bearer alice-token")], "").await.json();
    assert_eq!((&answer["file"], &answer["dropped"]), (&json!(path.to_str().unwrap()), &json!(0)));
}
