//! The audit log of a running Diana: the admin API, the Redis protocol, signals and the rule file; `diana audit` and
//! `diana reload`, and the roles of tokens.

use crate::services::resp_client::RespClient;
use crate::support::client::get_with;
use crate::support::program::{Diana, LONG};
use crate::support::{diana_in, err, out};
use diana_testing::{Port, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

/// Alice may operate, grafana may only read; `$RESP` is the port of the Redis protocol.
fn rules(resp: &Port, limit: &str) -> String {
    format!(
        "\
gateway: {{listen: $LISTEN}}
services: {{resp: '127.0.0.1:{}'}}
admin:
  listen: $ADMIN
  tokens:
    - {{name: alice, token: alice-token, role: operate}}
    - {{name: grafana, token: grafana-token, role: read}}
  audit_log: $FOLDER/audit.jsonl
identity: {{account: header(x-account-id)}}
rules: [{{name: each-account, by: account, limit: {limit}}}]
",
        resp.number()
    )
}

fn run(diana: &Diana, name: &str, args: &[&str]) -> Output {
    let (admin, token) = (format!("http://127.0.0.1:{}", diana.admin_port()), format!("{name}-token"));
    diana_in(Path::new("."), args, "", &[("DIANA_ADMIN", &admin), ("DIANA_TOKEN", &token)])
}

fn printed(diana: &Diana, name: &str, args: &[&str]) -> String {
    let output = run(diana, name, args);
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(0)), "{args:?}");
    out(&output)
}

fn entries(diana: &Diana) -> Vec<Value> {
    let audit = printed(diana, "grafana", &["audit", "--json", "--limit", "100"]);
    serde_json::from_str::<Value>(&audit).unwrap()["entries"].as_array().unwrap().clone()
}

/// Returns the text of `diana audit` without its times and ports.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let line = match line.strip_prefix("20") {
            Some(rest) => rest.split_once(' ').unwrap().1,
            None => line,
        };
        let mut words = line.split("127.0.0.1:");
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |text, rest| {
            format!("{text}127.0.0.1{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        })
    };
    text.lines().map(|text| format!("{}\n", line(text))).collect()
}

#[test]
fn every_change_is_recorded_with_its_source() {
    let resp = Port::claim().unwrap();
    let diana = Diana::serve(&rules(&resp, "3/h"));
    for expected in [204, 204, 204, 503] {
        assert_eq!(get_with(diana.port(), "/", "x-account-id: bob\r\n").status, expected);
    }
    printed(&diana, "alice", &["refund", "each-account", "bob", "--cost", "2"]);
    let mut client = RespClient::connect(resp.number());
    assert!(client.ask("DIANA.RESET each-account bob").starts_with("[[0 3 3"));
    assert!(client.ask("DIANA.REFUND each-account 1 carol").starts_with("[[0 3 3"));
    assert!(client.ask("DIANA.PEEK each-account bob").starts_with("[[0 3 3"), "not a change");
    diana.rewrite(&rules(&resp, "5/h"));
    let reloaded = printed(&diana, "alice", &["reload"]);
    assert!(reloaded.starts_with("reloaded: 1 rule from ") && reloaded.ends_with("diana.yaml\n"), "{reloaded}");
    diana.signal(Signal::HUP);
    let has_signal = || entries(&diana).iter().any(|entry| entry["source"] == "signal").then_some(());
    wait_until("the signal", LONG, has_signal).unwrap();

    // The file may have been found to be changed before the reload was requested.
    let actions = entries(&diana).iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mut of_file = actions.clone();
    of_file.sort_unstable();
    assert_eq!(of_file, ["refund", "refund", "reload", "reload", "reset", "rules", "start"], "{actions:?}");
    let all = entries(&diana);
    let of = |action: &str, source: &str| {
        let is_same =
            |entry: &&Value| entry["action"] == action && entry["source"].as_str().unwrap().starts_with(source);
        all.iter().find(is_same).unwrap_or_else(|| panic!("no {action} of {source} in {all:#?}"))
    };
    let refund = of("refund", "admin");
    assert_eq!((&refund["who"], &refund["key"], &refund["cost"]), (&json!("alice"), &json!("bob"), &json!(2)));
    assert_eq!((&refund["before"][0]["remaining"], &refund["after"][0]["remaining"]), (&json!(0), &json!(2)));
    let reset = of("reset", "resp");
    assert!(reset["client"].as_str().unwrap().starts_with("127.0.0.1:") && reset.get("who").is_none(), "{reset}");
    assert_eq!((&reset["before"][0]["remaining"], &reset["after"][0]["remaining"]), (&json!(2), &json!(3)));
    assert_eq!(of("refund", "resp")["key"], "carol");
    assert_eq!((&of("reload", "admin")["who"], of("reload", "signal").get("who")), (&json!("alice"), None));
    let changed = &of("rules", "local file ")["changed"];
    assert_eq!(changed[0]["after"], "5 an hour, up to 5 at once: at most 10 in any hour");

    // The file and the program's log have the same changes.
    let path = diana.folder().join("audit.jsonl");
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
        lines.reverse();
        (lines == all).then_some(())
    };
    wait_until("all lines in the file", LONG, lines).unwrap();
    let logged = || (diana.output().matches("audit: ").count() == 6).then_some(());
    wait_until("all lines in the log", LONG, logged).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    let output = diana.output();
    let line = output.lines().find(|line| line.contains("audit: refund")).unwrap();
    for part in ["alice", "each-account", "bob", "0 of 3", "2 of 3"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!output.contains("alice-token") && !std::fs::read_to_string(&path).unwrap().contains("-token"));

    let shown = without_times(&printed(&diana, "grafana", &["audit"]));
    for line in [
        "alice (admin, 127.0.0.1): refund 2 for bob in each-account, 0 of 3 left -> 2 of 3 left\n",
        "resp, 127.0.0.1: reset for bob in each-account, 2 of 3 left -> 3 of 3 left\n",
        "alice (admin, 127.0.0.1): reload\n",
        "signal: reload\n",
        "diana.yaml: 1 rule loaded, changed 1\n  each-account: 3 an hour, up to 3 at once: at most 6 in any hour -> \
         5 an hour, up to 5 at once: at most 10 in any hour\n",
        "diana.yaml: started with 1 rule\n",
    ] {
        assert!(shown.contains(line), "no {line:?} in\n{shown}");
    }
}

#[test]
fn the_file_is_reopened_by_a_signal() {
    let resp = Port::claim().unwrap();
    let diana = Diana::serve(&rules(&resp, "3/h"));
    let (path, renamed) = (diana.folder().join("audit.jsonl"), diana.folder().join("audit.jsonl.1"));
    std::fs::rename(&path, &renamed).unwrap();
    diana.signal(Signal::USR1);
    wait_until("the new file", LONG, || path.exists().then_some(())).unwrap();
    wait_until("the line", LONG, || diana.output().contains("audit log reopened: ").then_some(())).unwrap();
    printed(&diana, "alice", &["reset", "each-account", "bob"]);
    let has_line = || std::fs::read_to_string(&path).unwrap().contains("\"reset\"").then_some(());
    wait_until("the change", LONG, has_line).unwrap();
    assert!(!std::fs::read_to_string(renamed).unwrap().contains("\"reset\""));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_token_that_may_only_read_changes_nothing() {
    let resp = Port::claim().unwrap();
    let diana = Diana::serve(&rules(&resp, "3/h"));
    for args in [&["reset", "each-account", "bob"][..], &["refund", "each-account", "bob"], &["reload"]] {
        let output = run(&diana, "grafana", args);
        let expected = "error: this needs the role `operate`; the token of `grafana` has the role `read`\n";
        assert_eq!((err(&output).as_str(), output.status.code()), (expected, Some(1)), "{args:?}");
    }
    for args in [&["peek", "each-account", "bob"][..], &["status"], &["top", "--once"], &["audit"]] {
        printed(&diana, "grafana", args);
    }
    assert_eq!(entries(&diana).len(), 1, "only the start");
    let denied = || diana.output().contains("admin: denied, the role `operate` is needed").then_some(());
    wait_until("a warning", LONG, denied).unwrap();
}

#[test]
fn a_reload_reports_a_file_that_is_rejected() {
    let resp = Port::claim().unwrap();
    let diana = Diana::serve(&rules(&resp, "3/h"));
    diana.rewrite(&rules(&resp, "3/huor"));
    let output = run(&diana, "alice", &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let (text, errors) = (out(&output), err(&output));
    assert!(text.starts_with("not reloaded: the active rules stay (1 rule from "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(errors.starts_with("error: rule file: ") && errors.contains("3/huor"), "{errors}");
    let shown = without_times(&printed(&diana, "grafana", &["audit"]));
    assert!(shown.contains("local file: rules rejected\n  "), "{shown}");
    diana.rewrite(&rules(&resp, "4/h"));
    let report: Value = serde_json::from_str(&printed(&diana, "alice", &["reload", "--json"])).unwrap();
    assert_eq!((&report["ok"], &report["rules"]), (&json!(true), &json!(1)));
}

/// Asserts that this file is an error at the start, and that it contains `expected`.
fn assert_start_fails(rules: &str, expected: &str) {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), rules).unwrap();
    let output = diana_in(Path::new("."), &["serve", "-c", file.path().to_str().unwrap()], "", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains(expected), "{}", err(&output));
}

/// Returns a file whose audit log is `path`.
fn with_audit_log(path: &str) -> String {
    format!("admin: {{listen: '127.0.0.1:0', audit_log: {path}}}\ngateway: {{listen: 127.0.0.1:0}}\nrules: []\n")
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let expected = "can't open the audit log /nowhere/audit.jsonl: No such file or directory (os error 2); set another file with `admin: {audit_log: ...}`";
    assert_start_fails(&with_audit_log("/nowhere/audit.jsonl"), expected);
}

#[test]
fn a_fifo_without_a_reader_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("log").display().to_string();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let expected = "it is a FIFO that no program reads; expected a regular file, a device or a pipe with a reader";
    assert_start_fails(&with_audit_log(&fifo), &format!("can't open the audit log {fifo}: {expected}"));
    let rules = format!(
        "gateway: {{listen: 127.0.0.1:0, access_log: {{format: text, file: {fifo}}}}}\nadmin: {{listen: '127.0.0.1:0'}}\nrules: []\n"
    );
    assert_start_fails(&rules, &format!("can't open the access log {fifo}: {expected}"));
}
