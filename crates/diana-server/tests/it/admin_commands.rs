//! `diana status`, `peek`, `reset`, `refund`, `what-if` and `top --once`, against a running Diana and against recorded
//! answers.

use crate::support::client::get_with;
use crate::support::fake_admin::{FakeAdmin, recorded};
use crate::support::program::Diana;
use crate::support::{diana_in, err, out};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

const RULES: &str = "\
gateway: {listen: $LISTEN}
identity: {account: header(x-account-id)}
rules:
  - {name: each-account, by: account, limit: {rate: 1/h, burst: 3}}
  - {name: each-route, by: [account, method], limit: 100/h}
  - {name: everyone, limit: 1000/h}
";

/// Runs a command with the address of a server in a variable.
fn ask(admin: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let variables = [&[("DIANA_ADMIN", admin)][..], variables].concat();
    diana_in(Path::new("."), args, "", &variables)
}

fn asked(admin: &str, args: &[&str]) -> String {
    let output = ask(admin, args, &[]);
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(0)), "{args:?}");
    out(&output)
}

fn asked_json(admin: &str, args: &[&str]) -> Value {
    serde_json::from_str(&asked(admin, args)).unwrap()
}

/// Fails with this text on standard error, and nothing on standard output.
fn assert_fails(output: &Output, expected: &str) {
    assert_eq!((out(output).as_str(), output.status.code()), ("", Some(1)), "{}", err(output));
    assert_eq!(err(output), format!("error: {expected}\n"));
}

fn url(diana: &Diana) -> String {
    format!("http://127.0.0.1:{}", diana.admin_port())
}

#[test]
fn a_key_of_a_running_diana_is_peeked_reset_and_refunded() {
    let diana = Diana::serve(RULES);
    let admin = url(&diana);
    for expected in [204, 204, 204, 503] {
        assert_eq!(get_with(diana.port(), "/", "x-account-id: al ice&x=1\r\n").status, expected);
    }
    let key = "al ice&x=1";
    let text = asked(&admin, &["peek", "each-account", key]);
    assert!(
        text.starts_with("each-account for al ice&x=1\n  each-account: 0 of 3 left, denied, retry after "),
        "{text}"
    );
    let status = asked_json(&admin, &["peek", "each-account", key, "--json"]);
    assert_eq!(status["limits"][0]["remaining"], 0);
    assert_eq!(status["key"], json!([key]));

    let text = asked(&admin, &["refund", "each-account", key, "--cost", "2"]);
    assert!(
        text.starts_with("refunded 2: each-account for al ice&x=1\n  each-account: 2 of 3 left, allowed"),
        "{text}"
    );
    assert_eq!(asked_json(&admin, &["refund", "each-account", key, "--json"])["limits"][0]["remaining"], 3);
    let text = asked(&admin, &["reset", "each-account", key]);
    assert_eq!(text, "reset: each-account for al ice&x=1\n  each-account: 3 of 3 left, allowed\n");
    assert_eq!(get_with(diana.port(), "/", "x-account-id: al ice&x=1\r\n").status, 204);

    // A key of two parts, and a rule without keys.
    let text = asked(&admin, &["peek", "each-route", key, "GET"]);
    assert!(text.starts_with("each-route for al ice&x=1, GET\n  each-route: 96 of 100 left, allowed"), "{text}");
    let text = asked(&admin, &["reset", "everyone", "--admin", &admin]);
    assert_eq!(text, "reset: everyone for everyone\n  everyone: 1,000 of 1,000 left, allowed\n");
}

#[test]
fn who_is_limited_in_a_running_diana_is_printed() {
    let diana = Diana::serve(RULES);
    let admin = url(&diana);
    for (account, requests) in [("alice", 13), ("bob", 4)] {
        for _ in 0..requests {
            get_with(diana.port(), "/", &format!("x-account-id: {account}\r\n"));
        }
    }
    let text = asked(&admin, &["top", "--once"]);
    assert!(text.contains("each-account") && text.contains("alice"), "{text}");
    let top = asked_json(&admin, &["top", "--once", "--json"]);
    let rule = &top["rules"][0];
    assert_eq!((&rule["rule"], &rule["denied"]["total"]), (&json!("each-account"), &json!(11)), "{top}");
    let since = &rule["denied"]["keys"][0]["since"];
    assert!(since.as_str().is_some_and(|since| since.starts_with("20") && since.ends_with('Z')), "{since}");
    assert_eq!(rule["denied"]["keys"][0], json!({"key": ["alice"], "text": "alice", "count": 10, "since": since}));
    let text = asked(&admin, &["what-if", "each-account", "2/h"]);
    assert!(text.contains("each-account"), "{text}");
    let shadow = asked(&admin, &["what-if", "each-account", "1/2h", "--shadow-rule"]);
    assert_eq!(shadow, "  - {name: each-account-1-2h, by: account, limit: {rate: 1/2h, burst: 3}, shadow: true}\n");
    let output = ask(&admin, &["what-if", "each-account", "2/h", "--shadow-rule"], &[]);
    assert!(err(&output).contains("a shadow rule can't count this limit"), "{}", err(&output));
}

#[test]
fn the_status_of_a_running_diana_is_shown() {
    let diana = Diana::serve(RULES);
    let admin = url(&diana);
    assert_eq!(get_with(diana.port(), "/", "").status, 204);
    let text = asked(&admin, &["status"]);
    for line in [&*format!("diana        0.1.0 at {admin}, ready, started 20"), "rules        3 rules from ", "keys "] {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("DEGRADED"), "{text}");
    let status = asked_json(&admin, &["status", "--json"]);
    assert_eq!((&status["phase"], &status["rules"]), (&json!("ready"), &json!(3)));
}

#[test]
fn errors_of_a_running_diana_are_reported() {
    let diana = Diana::serve(RULES);
    let output = ask(&url(&diana), &["peek", "each-acount", "alice"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("error: unknown rule `each-acount`"), "{}", err(&output));
    let output = ask(&url(&diana), &["peek", "each-account"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("error: "), "{}", err(&output));
}

#[test]
fn a_token_comes_from_a_variable_an_option_or_a_file_and_is_never_shown() {
    let listen = diana_testing::Port::claim().unwrap();
    let admin = format!("127.0.0.1:{}", listen.number());
    let rules =
        format!("rules: [{{name: a, limit: 5/s}}]\nadmin: {{listen: '{admin}', token: opensesame-opensesame}}\n");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_diana"));
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), format!("gateway: {{listen: 127.0.0.1:0}}\n{rules}")).unwrap();
    let child = command.args(["serve", "-c"]).arg(file.path()).stdout(std::process::Stdio::null());
    let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
    let url = format!("http://{admin}");
    let answers = || {
        let output = ask(&url, &["status"], &[]);
        err(&output).contains("needs a token").then_some(output)
    };
    let output = diana_testing::wait_until("a server", crate::support::program::LONG, answers).unwrap();
    assert_fails(
        &output,
        &format!("Diana's admin server at {url} needs a token: set DIANA_TOKEN, or use `--token-file`"),
    );

    let wrong = ask(&url, &["status"], &[("DIANA_TOKEN", "hunter2-hunter2")]);
    let rejects = "rejects the token: compare it with `admin.token` and `admin.tokens` of the rule file";
    assert_fails(&wrong, &format!("Diana's admin server at {url} {rejects}"));
    let invalid = ask(&url, &["status"], &[("DIANA_TOKEN", "hunter2\nhunter2")]);
    assert_eq!((err(&invalid).contains("hunter2"), invalid.status.code()), (false, Some(2)), "{}", err(&invalid));
    let help = ask(&url, &["status", "--help"], &[("DIANA_TOKEN", "hunter2-hunter2")]);
    assert!(!out(&help).contains("hunter2"), "{}", out(&help));

    let right = [("DIANA_TOKEN", "opensesame-opensesame")];
    assert!(ask(&url, &["status"], &right).status.success());
    assert!(ask(&url, &["status", "--token", "opensesame-opensesame"], &[]).status.success());
    let mut token = tempfile::NamedTempFile::new().unwrap();
    writeln!(token, "opensesame-opensesame").unwrap();
    let from_file = ["status", "--token-file", token.path().to_str().unwrap()];
    assert!(ask(&url, &from_file, &[("DIANA_TOKEN", "hunter2-hunter2")]).status.success(), "the file wins");
    let missing = ask(&url, &["status", "--token-file", "/nowhere"], &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(err(&missing).starts_with("error: can't read the token from /nowhere: "), "{}", err(&missing));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_unreachable_server_is_reported_with_what_to_do() {
    let port = diana_testing::Port::claim().unwrap();
    let url = format!("http://127.0.0.1:{}", port.number());
    for args in [
        &["status"][..],
        &["peek", "a"],
        &["reset", "a"],
        &["refund", "a"],
        &["what-if", "a", "1/s"],
        &["reload"],
        &["audit"],
        &["top", "--once"],
    ] {
        assert_fails(
            &ask(&url, args, &[]),
            &format!(
                "can't reach Diana's admin server at {url}: connection refused; is `diana serve` running? \
                 (`--admin URL` or DIANA_ADMIN sets another address)"
            ),
        );
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up_after_five_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    assert_fails(
        &ask(&url, &["status"], &[]),
        &format!("Diana's admin server at {url} has not answered within 5 seconds"),
    );
}

#[test]
fn other_servers_and_older_dianas_are_recognised() {
    let old = FakeAdmin::on(0, |request| match request {
        "GET /status" => recorded(request),
        _ => (404, r#"{"detail": "unknown path, expected one of GET /healthz"}"#.to_owned()),
    });
    let url = old.url();
    for (args, path) in [
        (&["top", "--once"][..], "/top"),
        (&["what-if", "a", "1/s"], "/what-if"),
        (&["audit"], "/audit"),
        (&["reload"], "/reload"),
    ] {
        let expected =
            format!("Diana at {url} has no `{path}`: it is an older version than this program, or not Diana");
        assert_fails(&ask(&url, args, &[]), &expected);
    }
    let other = FakeAdmin::on(0, |_| (200, "<html>".to_owned()));
    let output = ask(&other.url(), &["status"], &[]);
    assert!(err(&output).contains("is it Diana's admin server?"), "{}", err(&output));
    let redirect = FakeAdmin::on(0, |_| (302, String::new()));
    let output = ask(&redirect.url(), &["status"], &[("DIANA_TOKEN", "secret")]);
    assert_fails(&output, &format!("{} answered with status 302; is it Diana's admin server?", redirect.url()));
    let large = FakeAdmin::on(0, |_| (200, "x".repeat(33 << 20)));
    let output = ask(&large.url(), &["status"], &[]);
    assert!(err(&output).contains("more than 32 MiB"), "{}", err(&output));
    let hostile = FakeAdmin::on(0, |_| (400, r#"{"detail": "no\u001b[2J\nsuch"}"#.to_owned()));
    assert_fails(&ask(&hostile.url(), &["peek", "a"], &[]), "no\u{fffd}[2J such");
}

#[test]
fn the_heaviest_keys_are_printed_once() {
    let server = FakeAdmin::recorded();
    let text = asked(&server.url(), &["top", "--once", "--window", "hour", "--find", "a b", "--limit", "3"]);
    assert_eq!(
        text,
        "\
each-account, by account, last minute: 1,203 denied, 0 delayed, about 5,120 allowed
  denied            1,003  alice  since 08:59:10Z
                      180  bob
                       20  a-very-long-account-name-that-was-truncated…
  allowed           3,200  carol
                      100  alice
"
    );
    assert_eq!(server.requests(), ["GET /top?window=hour&limit=3&find=a%20b"]);
    let shown = asked_json(&server.url(), &["top", "--once", "--json", "--rule", "each-account"]);
    assert_eq!(shown, serde_json::from_str::<Value>(&recorded("GET /top").1).unwrap());
    let empty = FakeAdmin::on(0, |_| (200, r#"{"window": "minute", "rules": []}"#.to_owned()));
    assert_eq!(
        asked(&empty.url(), &["top", "--once"]),
        "no rule has counted a request in the last minute; for the last hour use `--window hour`\n"
    );
    let off = FakeAdmin::on(0, |_| (200, r#"{"window": "minute", "off": true, "rules": []}"#.to_owned()));
    assert_eq!(asked(&off.url(), &["top", "--once"]), "no keys are recorded: the rule file has `top_keys: off`\n");
}

#[test]
fn the_effect_of_another_limit_is_estimated() {
    let server = FakeAdmin::recorded();
    assert_eq!(
        asked(&server.url(), &["what-if", "each-account", "200/min"]),
        "\
each-account with 200/min instead of 100/min, over the last minute:
  denied 1,203, would deny 903
  alice: denied 1,003, would deny 903
  bob: denied 180, would deny 0
note: an estimate from the heaviest keys; a shadow rule counts exactly
"
    );
    assert_eq!(server.requests(), ["GET /what-if?rule=each-account&limit=200%2Fmin&window=minute"]);
    asked(&server.url(), &["what-if", "each-account", "200/min", "--index", "2"]);
    assert_eq!(
        server.requests().last().unwrap(),
        "GET /what-if?rule=each-account&limit=200%2Fmin&window=minute&index=2"
    );
    let rule = asked(&server.url(), &["what-if", "each-account", "200/min", "--shadow-rule"]);
    assert_eq!(rule, "- name: each-account-200-min\n  by: account\n  limit: 200/min\n  shadow: true\n");
    assert_eq!(asked_json(&server.url(), &["what-if", "each-account", "200/min", "--json"])["would_deny"], 903);
}

#[test]
fn the_view_needs_a_terminal() {
    let output = ask("http://127.0.0.1:1", &["top"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("`diana top --once` prints to a file or a pipe"), "{}", err(&output));
    let output = ask("http://127.0.0.1:1", &["top", "--json"], &[]);
    assert_eq!(output.status.code(), Some(2), "--json needs --once");
}

#[test]
fn an_invalid_url_is_a_usage_error() {
    for (url, hint) in [("ftp://a", "http://127.0.0.1:9090"), ("http://user:hunter2@a", "DIANA_TOKEN")] {
        let output = ask(url, &["status"], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(hint), "{}", err(&output));
    }
}
