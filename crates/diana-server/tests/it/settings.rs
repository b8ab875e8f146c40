//! Changed settings of a running Diana: what applies at once, what waits for a restart, and where that is reported; and
//! the pages that list it.

use crate::support::client::{get_with, send_request};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use crate::support::{diana_in, err, out};
use diana_server::serve::LIVE_FIELDS;
use diana_testing::{Port, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

fn run(diana: &Diana, token: &str, args: &[&str]) -> Output {
    let admin = format!("http://127.0.0.1:{}", diana.admin_port());
    diana_in(Path::new("."), args, "", &[("DIANA_ADMIN", &admin), ("DIANA_TOKEN", token)])
}

/// Returns what a command prints on standard output, and its exit status.
fn ran(diana: &Diana, args: &[&str]) -> (String, Option<i32>) {
    let output = run(diana, "", args);
    assert_eq!(err(&output), "");
    (out(&output), output.status.code())
}

fn ran_json(diana: &Diana, args: &[&str]) -> Value {
    serde_json::from_str(&ran(diana, args).0).unwrap()
}

fn logged(diana: &Diana, text: &str) {
    let is_logged = || diana.output().contains(text).then_some(());
    wait_until(text, LONG, is_logged).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
}

#[test]
fn a_reload_says_what_applies_and_what_waits_for_a_restart() {
    let (resp, upstream) = (Port::claim().unwrap(), Upstream::echo());
    let file = |gateway: &str, password: &str| {
        format!(
            "gateway: {{listen: $LISTEN{gateway}}}\n\
             services: {{resp: {{listen: '127.0.0.1:{}', password: {password}}}}}\n\
             rules: [{{name: a, limit: 5/s}}]\n",
            resp.number()
        )
    };
    let diana = Diana::serve(&file("", "opensesame"));
    let (text, code) = ran(&diana, &["reload"]);
    assert_eq!((text.lines().count(), code), (1, Some(0)), "{text}");
    assert_eq!(diana.metric("diana_settings_waiting"), 0.0);
    assert!(!ran(&diana, &["status"]).0.contains("RESTART"));

    let gateway = format!(", timeouts: {{body: 5s}}, upstream: '{}'", upstream.url());
    diana.rewrite(&file(&gateway, "hunter2"));
    let (text, code) = ran(&diana, &["reload"]);
    let waiting = "gateway.timeouts.body, services.resp.password";
    let expected = format!("applied since the start: gateway.upstream\nwaits for a restart: {waiting}\n");
    assert!(text.starts_with("reloaded: 1 rule from ") && text.ends_with(&expected), "{text}");
    assert_eq!(code, Some(4));
    let settings = json!({"applied": ["gateway.upstream"], "waiting": waiting.split(", ").collect::<Vec<_>>()});
    let answer = ran_json(&diana, &["reload", "--json"]);
    assert_eq!((&answer["ok"], &answer["settings"]), (&json!(true), &settings));
    assert_eq!(ran_json(&diana, &["status", "--json"])["settings"], settings);
    let (text, code) = ran(&diana, &["status"]);
    let line = format!("RESTART      needed for changes of {waiting}\n");
    assert!(
        text.ends_with(&line) && text.contains("settings     applied since the start: gateway.upstream\n"),
        "{text}"
    );
    assert_eq!((code, diana.metric("diana_settings_waiting")), (Some(0), 2.0));
    logged(&diana, &format!("changed settings need a restart: {waiting}"));

    // Changed back, nothing waits.
    diana.rewrite(&file("", "opensesame"));
    let (text, code) = ran(&diana, &["reload"]);
    assert_eq!((text.lines().count(), code), (1, Some(0)), "{text}");
    assert_eq!(diana.metric("diana_settings_waiting"), 0.0);
    logged(&diana, "no changed setting waits for a restart");
    assert!(!diana.output().contains("hunter2") && !diana.output().contains("opensesame"));
}

#[test]
fn a_signal_logs_what_waits_also_if_the_file_was_found_before() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: []\n");
    diana.rewrite("gateway: {listen: $LISTEN, workers: 1}\nrules: []\n");
    let line = "changed settings need a restart: gateway.workers";
    logged(&diana, line);
    diana.signal(Signal::HUP);
    let twice = || (diana.output().matches(line).count() == 2).then_some(());
    wait_until("the line of the signal", LONG, twice).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
}

#[test]
fn the_log_names_the_fields_that_are_applied_without_a_restart() {
    let file = |gateway: &str, token: &str| {
        format!("gateway: {{listen: $LISTEN{gateway}}}\nadmin: {{listen: $ADMIN, token: {token}}}\nrules: []\n")
    };
    let (one, other) = (Upstream::echo(), Upstream::echo());
    let of = |upstream: &Upstream, token: &str| file(&format!(", upstream: '{}'", upstream.url()), token);
    let diana = Diana::serve(&of(&one, "hunter1"));
    let line = |fields: &str| format!("settings applied without a restart: {fields}\n");
    assert!(!diana.output().contains("settings applied"), "{}", diana.output());
    diana.rewrite(&of(&other, "hunter1"));
    diana.signal(Signal::HUP);
    logged(&diana, &line("gateway.upstream"));
    diana.rewrite(&of(&other, "hunter2"));
    diana.signal(Signal::HUP);
    logged(&diana, &line("gateway.upstream, admin.token"));
    assert!(!diana.output().contains("hunter"), "{}", diana.output());
}

#[test]
fn an_invalid_file_is_an_error_and_not_a_setting_that_waits() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: []\n");
    diana.rewrite("gateway: {listen: $LISTEN, workers: 1}\nrules: [{name: a, limit: 5/huor}]\n");
    assert_eq!(run(&diana, "", &["reload"]).status.code(), Some(1));
    diana.rewrite("store: {redis: 'redis://127.0.0.1:1'}\ngateway: {listen: $LISTEN}\nrules: []\n");
    let output = run(&diana, "", &["reload"]);
    let text = err(&output);
    assert!(output.status.code() == Some(1) && text.contains("`store.redis` can't be added or removed"), "{text}");
    assert_eq!(diana.metric("diana_settings_waiting"), 0.0);
}

#[test]
fn revoked_and_new_tokens_apply_at_once() {
    let file = |tokens: &str| {
        format!("gateway: {{listen: $LISTEN}}\nadmin: {{listen: $ADMIN{tokens}}}\nrules: [{{name: a, limit: 5/s}}]\n")
    };
    let alice = "{name: alice, token: alice-token, role: operate}";
    let grafana = |role: &str| format!("{{name: grafana, token: grafana-token, role: {role}}}");
    let diana = Diana::serve(&file(&format!(", token: root-token, tokens: [{alice}, {}]", grafana("read"))));
    let status = |token: &str| {
        let head = format!("GET /status HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n");
        send_request(diana.admin_port(), &head).unwrap().status
    };
    let of_all = || ["root-token", "alice-token", "grafana-token", "bob-token"].map(status);
    assert_eq!(of_all(), [200, 200, 200, 401]);
    let bob = "{name: bob, token: bob-token, role: operate}";
    diana.rewrite(&file(&format!(", tokens: [{bob}, {alice}, {}]", grafana("operate"))));
    let output = run(&diana, "alice-token", &["reload"]);
    assert!(out(&output).ends_with("applied since the start: admin.token, admin.tokens\n"), "{}", out(&output));
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(0)));
    assert_eq!(of_all(), [401, 200, 200, 200]);
    assert_eq!(run(&diana, "grafana-token", &["reload"]).status.code(), Some(0), "it may operate now");

    diana.rewrite(&file(&format!(", tokens: [{}]", bob.replace("bob-token", "new-token"))));
    wait_until("the revocation", LONG, || (status("alice-token") == 401).then_some(())).unwrap();
    assert_eq!((of_all(), status("new-token")), ([401; 4], 200));

    // Who has a token now is in the audit log, without the tokens.
    let audit = || out(&run(&diana, "new-token", &["audit"]));
    let lines = [
        "diana.yaml: admin tokens: added bob (operate); removed admin (operate); changed grafana (operate)\n",
        "diana.yaml: admin tokens: removed alice (operate), grafana (operate); changed bob (operate)\n",
    ];
    assert!(lines.iter().all(|line| audit().contains(line)), "{}", audit());
    let json = serde_json::from_str::<Value>(&out(&run(&diana, "new-token", &["audit", "--json"]))).unwrap();
    let entry = json["entries"].as_array().unwrap().iter().find(|entry| entry["action"] == "tokens").unwrap();
    let expected =
        json!({"added": [], "removed": ["alice (operate)", "grafana (operate)"], "changed": ["bob (operate)"]});
    assert_eq!(entry["tokens"], expected);
    logged(&diana, "audit: tokens");
    assert!(!diana.output().contains("-token") && !json.to_string().contains("-token"), "{}", diana.output());
}

#[test]
fn the_settings_of_denials_and_keys_apply_without_a_restart() {
    let rules = "rules: [{name: each-account, by: account, limit: 1/h}]\n";
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN}}\nidentity: {{account: header(x-old)}}\n{rules}"));
    let twice = |header: &str| [(); 2].map(|()| get_with(diana.port(), "/", header));
    assert_eq!(twice("x-old: a\r\n").map(|response| response.status), [204, 503]);
    diana.rewrite(&format!(
        "version: 1\nrevision: 2\nstatus: 429\nanswer: {{type: text/plain, text: slow down}}\nlog: warn\nlog_keys: off\n\
         top_keys: off\nidentity: {{account: header(x-new)}}\ngateway: {{listen: $LISTEN}}\n{rules}"
    ));
    let (text, code) = ran(&diana, &["reload"]);
    let applied = "applied since the start: status, answer, log, log_keys, top_keys, identity\n";
    let sorted = |line: &str| {
        let mut words = line.trim().split([' ', ',']).map(str::to_owned).collect::<Vec<_>>();
        words.sort_unstable();
        words
    };
    assert_eq!((sorted(text.lines().last().unwrap()), code), (sorted(applied), Some(0)), "{text}");
    let [first, second] = twice("x-new: secretive\r\n");
    assert_eq!((first.status, second.status, second.text().as_str()), (204, 429, "slow down"));
    assert_eq!(ran_json(&diana, &["top", "--once", "--json"])["off"], true);
    let warned =
        || diana.output().lines().any(|line| line.contains("WARN") && line.contains("each-account")).then_some(());
    wait_until("the denial in the log", LONG, warned).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    assert!(!diana.output().contains("secretive"));
}

/// The names between backticks in a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The sections of which fields wait for a restart.
fn sections_that_wait() -> BTreeSet<&'static str> {
    BTreeSet::from(["gateway", "services", "admin", "store", "remote"])
}

#[test]
fn the_help_and_the_pages_list_the_fields_that_apply_without_a_restart() {
    let live = BTreeSet::from(LIVE_FIELDS);
    let schema = diana_rules::schema::rule_file(&diana_server::registry());
    let top = schema["properties"].as_object().unwrap().keys().map(String::as_str);
    assert_eq!(top.filter(|name| !live.contains(name)).collect::<BTreeSet<_>>(), sections_that_wait());

    let help =
        out(&diana_in(Path::new("."), &["serve", "--help"], "", &[])).split_whitespace().collect::<Vec<_>>().join(" ");
    let page = include_str!("../../../../docs/tasks/config-server.md");
    for (text, start) in [(&*help, "applied as soon as you save it:"), (page, "Changes of these fields apply at once:")]
    {
        let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{start}"));
        let (applied, rest) = rest.split_once("Other changes of").unwrap();
        let (waiting, _) = rest.split_once("need a restart").unwrap();
        assert_eq!((names(applied), names(waiting)), (live.clone(), sections_that_wait()), "{start}");
    }

    let page = include_str!("../../../../docs/tasks/operate.md");
    let (_, table) = page.split_once("| changed in the file | applied |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().map(|row| row.trim_start_matches("| ").split_once(" | ").unwrap()).collect::<Vec<_>>();
    let of = |when: &str| {
        let rows = rows.iter().filter(|(_, applied)| applied.starts_with(when));
        rows.flat_map(|(fields, _)| names(fields)).collect::<BTreeSet<_>>()
    };
    assert_eq!((of("at once"), of("after a restart")), (live, sections_that_wait()));
}
