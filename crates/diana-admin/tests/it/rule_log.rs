//! `/rule` and `/changes`: the texts of the rules, and what changed.

use crate::support::Server;
use diana::{ManualClock, Timestamp};
use diana_admin::RuleLog;
use diana_config::Origin;
use diana_rules::{Document, Registry, RuleFile};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = "rules:
  # everyone
  - name: each-account
    by: account
    limit: 5/s
  - {name: gone, limit: 9/s}
  - name: listed
    by: account
    deny: ['${BAD_KEY}']
";

struct Logged {
    server: Server,
    log: Arc<RuleLog>,
    clock: ManualClock,
}

impl Logged {
    async fn start() -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let log = Arc::new(RuleLog::new(Arc::new(clock.clone())));
        let rules = "rules: [{name: each-account, by: account, limit: 5/s}, {name: listed, by: account, deny: [x]}]";
        let server = Server::start_with(rules, |state| state.rule_log = Arc::clone(&log)).await;
        Self { server, log, clock }
    }

    fn load(&self, origin: Origin, text: &str, secret: &str) {
        let document = Document::new("diana.yaml", text);
        let file = RuleFile::read_with(&document, &Registry::default(), |_| Some(secret.to_owned())).unwrap();
        self.log.applied(Arc::new(file), document);
        self.log.loaded(origin, "diana.yaml");
        self.clock.advance(Duration::from_secs(60));
    }

    async fn changes(&self) -> Value {
        self.server.get("/changes").await.json()
    }
}

#[tokio::test]
async fn a_rule_is_shown_as_it_is_written_without_the_values_of_variables() {
    let logged = Logged::start().await;
    logged.load(Origin::Local, RULES, "s3cret-key");
    let rule = logged.server.get("/rule?name=each-account").await.json();
    assert_eq!(rule["yaml"], "- name: each-account\n  by: account\n  limit: 5/s");
    assert_eq!(
        (&rule["limit"], &rule["source"]),
        (&json!("5 a second, up to 5 at once: at most 10 in any second"), &json!("local file diana.yaml"))
    );
    assert_eq!((&rule["since"], &rule["counts"]["allowed"]), (&json!("2023-11-14T22:13:20Z"), &json!(0)));
    let rule = logged.server.get("/rule?name=listed").await;
    assert_eq!(rule.json()["yaml"], "- name: listed\n  by: account\n  deny: ['${BAD_KEY}']");
    assert!(!rule.body.contains("s3cret"));
    let unknown = logged.server.get("/rule?name=no").await;
    assert_eq!((unknown.status, &*unknown.detail()), (404, "unknown rule `no`"));
}

#[tokio::test]
async fn a_change_lists_what_differs_in_words() {
    let logged = Logged::start().await;
    logged.load(Origin::Local, RULES, "s3cret-key");
    let changed = RULES.replace("5/s", "10/s").replace("gone", "new").replace("[", "[other, ");
    logged.load(Origin::Remote, &format!("# a comment\n{changed}"), "s3cret-key");
    let changes = logged.changes().await;
    assert_eq!(
        changes[0],
        json!({
            "when": "2023-11-14T22:14:20Z", "source": "config server diana.yaml", "start": false, "rules": 3,
            "added": ["new"], "removed": ["gone"], "more": 0, "ok": true,
            "changed": [
                {
                    "rule": "each-account",
                    "before": "5 a second, up to 5 at once: at most 10 in any second",
                    "after": "10 a second, up to 10 at once: at most 20 in any second",
                },
                {"rule": "listed", "before": "deny: ['${BAD_KEY}']", "after": "deny: [other, '${BAD_KEY}']"},
            ],
        })
    );
    assert_eq!(
        (&changes[1]["start"], &changes[1]["added"]),
        (&json!(true), &json!(["each-account", "gone", "listed"]))
    );
    assert!(!logged.server.get("/changes").await.body.contains("s3cret"));
    // Only the changed rule is active since then.
    logged.load(Origin::Local, &changed.replace("new", "newer"), "s3cret-key");
    assert_eq!(logged.server.get("/rule?name=each-account").await.json()["since"], "2023-11-14T22:14:20Z");
}

#[tokio::test]
async fn the_log_is_bounded() {
    let logged = Logged::start().await;
    for number in 0..52 {
        let rules = (0..150)
            .map(|rule| format!("{{name: r{number}-{rule}, match: {{path: /{rule}}}, limit: 5/s}}"))
            .collect::<Vec<_>>()
            .join(", ");
        logged.load(Origin::Local, &format!("rules: [{rules}]"), "");
    }
    let changes = logged.changes().await;
    assert_eq!(changes.as_array().unwrap().len(), 50);
    assert_eq!(changes[0]["added"].as_array().unwrap().len(), 100);
    assert_eq!((&changes[0]["more"], &changes[0]["rules"]), (&json!(100), &json!(150)));
}

/// Through the real sources: a rejected document is listed with its problem.
#[tokio::test]
async fn a_rejected_document_is_listed_with_its_error() {
    use diana_config::{Apply, SourceError, Sources};
    use diana_rules::Problems;

    struct Recorder(Arc<RuleLog>);

    impl Apply for Recorder {
        fn apply(&self, local: Option<&Document>, _: Option<&Document>) -> Result<(), Problems> {
            let document = local.unwrap();
            let file = RuleFile::read(document, &Registry::default())?;
            self.0.applied(Arc::new(file), document.clone());
            Ok(())
        }

        fn loaded(&self, origin: Origin, name: &str) {
            self.0.loaded(origin, name);
        }

        fn rejected(&self, error: &SourceError) {
            self.0.rejected(error);
        }
    }

    let logged = Logged::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    std::fs::write(&path, "rules: [{name: a, limit: 5/s}]").unwrap();
    let handle = Sources::new().local(&path).start(Arc::new(Recorder(Arc::clone(&logged.log)))).await.unwrap();
    std::fs::write(&path, "rules: [{name: a, limt: 5/s}]").unwrap();
    handle.reload().await;
    let changes = logged.changes().await;
    assert_eq!(
        (&changes[0]["ok"], &changes[0]["source"], &changes[0]["rules"]),
        (&json!(false), &json!("local file"), &json!(1))
    );
    assert!(changes[0]["error"].as_str().unwrap().contains("limt"), "{changes}");
    assert_eq!((&changes[1]["ok"], changes.as_array().unwrap().len()), (&json!(true), 2));
}
