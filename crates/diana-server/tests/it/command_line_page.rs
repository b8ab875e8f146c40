//! The page `docs/reference/command-line.md` is correct and complete: its examples give what it shows, and it has every command,
//! option and JSON field.

use crate::support::fake_admin::FakeAdmin;
use crate::support::{block, diana_in, err, folder, out};
use diana_rules::{Document, RuleFile};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/reference/command-line.md");

/// Runs the commands of a session in a shell and returns it as it really is. `cat FILE` creates the file.
fn replay(session: &str, admin: &str) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_diana")).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", program.display());
    let (mut replayed, mut status) = (Vec::new(), 0);
    for step in session.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap();
        if let Some(file) = command.strip_prefix("cat ") {
            std::fs::write(folder.path().join(file), shown.trim_end()).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("(exit {status}); {{ {command}; }} 2>&1")]);
        let output =
            shell.current_dir(folder.path()).env_clear().env("PATH", &path).env("DIANA_ADMIN", admin).output().unwrap();
        status = output.status.code().unwrap();
        replayed.push(format!("$ {command}\n{}\n", out(&output).trim_end()));
    }
    replayed.join("\n")
}

#[test]
fn the_sessions_about_files_are_as_they_really_are() {
    for mark in ["\n## check\n", "\n## explain\n"] {
        let session = block(PAGE, mark, "console");
        assert_eq!(replay(session, ""), session, "after {mark}");
    }
}

#[test]
fn the_error_without_a_server_is_as_it_really_is() {
    let port = diana_testing::Port::claim().unwrap();
    let session = block(PAGE, "\n## Asking a running Diana\n", "console").replace("9091", &port.number().to_string());
    assert_eq!(replay(&session, ""), session);
}

/// The answers are those of a Diana with the sample rules; times differ with each request, so they are recorded.
#[test]
fn the_session_about_alice_is_as_it_really_is() {
    let server = FakeAdmin::on(0, |request| {
        let key = |remaining: u32, more: &str| {
            format!(
                r#"{{"rule": "each-account", "key": ["alice"], "counted": "here",
                    "limits": [{{"name": "each-account", "limit": 10, "remaining": {remaining}, {more}}}]}}"#
            )
        };
        let body = match request {
            "GET /top?window=minute&limit=10" => r#"{"window": "minute", "rules": [{"rule": "each-account", "by": "account", "shadow": false,
                "denied": {"total": 21, "max_error": 0, "keys": [{"key": ["alice"], "text": "alice", "count": 21, "since": "2026-11-18T08:59:10Z"}]},
                "delayed": {"total": 0, "max_error": 0, "keys": []},
                "allowed": {"total": 10, "max_error": 0, "keys": [{"key": ["alice"], "text": "alice", "count": 10, "since": "2026-11-18T08:59:10Z"}]}}]}"#
                .to_owned(),
            "GET /peek?rule=each-account&key=alice" => {
                key(0, r#""reset": 1.99, "grants": false, "retry_after": 0.19"#)
            }
            "GET /what-if?rule=each-account&limit=20%2Fs&window=minute" => r#"{"rule": "each-account", "limit": "20/s", "now": "5/s", "window": "minute",
                "denied": 21, "would_deny": 0, "keys": [{"text": "alice", "denied": 21, "would_deny": 0}],
                "note": "an estimate from the heaviest keys; a shadow rule can't count it, since it only sees requests that the current limit allows"}"#
                .to_owned(),
            "POST /reset?rule=each-account&key=alice" => key(10, r#""reset": 0.0, "grants": true"#),
            _ => return (404, String::new()),
        };
        (200, body)
    });
    let session = block(PAGE, "\n## Who is limited?\n", "console");
    assert_eq!(replay(session, &server.url()), session);
}

#[test]
fn the_session_about_the_audit_log_is_as_it_really_is() {
    let recorded = std::fs::read_to_string(folder("top").join("audit.json")).unwrap();
    let server = FakeAdmin::on(0, move |request| match request {
        "GET /audit?limit=20" => (200, recorded.clone()),
        _ => (404, String::new()),
    });
    let session = block(PAGE, "\n### audit\n", "console");
    assert_eq!(replay(session, &server.url()), session);
}

/// The answer is that of a Diana with three rules, whose file was replaced by the invalid one of `check`.
#[test]
fn the_session_about_an_invalid_file_is_as_it_really_is() {
    let broken = block(PAGE, "\n## check\n", "console").split("\n$ ").next().unwrap();
    let broken = Document::new("diana.yaml", broken.strip_prefix("$ cat broken.yaml\n").unwrap());
    let problems = RuleFile::read_with(&broken, &diana_server::registry(), |_| None).unwrap_err().to_string();
    let server = FakeAdmin::on(0, move |request| match request {
        "POST /reload" => {
            let error = json!({"origin": "local", "what": problems, "when": "2026-11-18T10:05:00Z"});
            let source = json!({"active": "local", "name": "diana.yaml", "failing": [error]});
            (200, json!({"ok": false, "rules": 3, "source": source}).to_string())
        }
        _ => (404, String::new()),
    });
    let session = block(PAGE, "\n### reload\n", "console");
    assert_eq!(replay(session, &server.url()), session);
}

/// The view's own tests compare it with this file.
#[test]
fn the_view_on_the_page_is_the_recorded_one() {
    let recorded = std::fs::read_to_string(folder("top").join("80x24.txt")).unwrap();
    assert_eq!(block(PAGE, "\n### top\n", "text view"), recorded);
}

/// `$ cat FILE` has the file's text, which the other commands use.
#[test]
fn the_session_about_missing_certificates_is_as_it_really_is() {
    let session = &PAGE[PAGE.find("$ cat tls.yaml").unwrap()..];
    let session = session.split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let steps = session.split("$ ").filter(|step| !step.is_empty()).map(|step| step.split_once('\n').unwrap());
    let mut count = 0;
    for (command, output) in steps {
        let words = command.split(' ').collect::<Vec<_>>();
        match &*words {
            ["cat", name] => std::fs::write(folder.path().join(name), output).unwrap(),
            [_, args @ ..] => {
                let printed = diana_in(folder.path(), args, "", &[]);
                assert_eq!(
                    format!("{}{}", err(&printed), out(&printed)),
                    format!("{}\n", output.trim_end()),
                    "{command}"
                );
                count += 1;
            }
            [] => {}
        }
    }
    assert_eq!(count, 2);
}

fn help(args: &[&str]) -> String {
    let output = diana_in(Path::new("."), &[args, &["--help"]].concat(), "", &[]);
    assert_eq!(err(&output), "");
    out(&output)
}

#[test]
fn the_page_lists_every_command_and_option() {
    let help_text = help(&[]);
    let commands = help_text.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let commands = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = commands.filter(|name| !["", "help"].contains(name)).collect::<Vec<_>>();
    assert!(commands.len() >= 13, "{commands:?}");
    for command in commands {
        assert!(PAGE.contains(&format!("`diana {command}")), "{command}");
        // These have their own pages.
        if ["serve", "import", "schema"].contains(&command) {
            continue;
        }
        let help = help(&[command]);
        let options = help.lines().filter(|line| line.trim_start().starts_with('-'));
        let options = options.flat_map(|line| line.split([' ', ',', '='])).filter(|word| word.starts_with("--"));
        for option in options.filter(|option| !["--help", "--"].contains(option)).collect::<BTreeSet<_>>() {
            assert!(PAGE.contains(&format!("`{option}")) || PAGE.contains(&format!("{option} ")), "{command} {option}");
        }
    }
}

fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                into.insert(name.clone());
                fields(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[test]
fn the_page_lists_every_json_field() {
    let rules = "rules: [{name: a, by: ip, limit: {rate: 1/s, burst: 1}}]";
    let mut names = BTreeSet::new();
    for args in [&["check", "-", "--json"][..], &["explain", "-", "--json", "--times", "2", "--ip", "10.0.0.1"]] {
        let output = diana_in(Path::new("."), args, rules, &[]);
        fields(&serde_json::from_str(&out(&output)).unwrap(), &mut names);
    }
    for recorded in ["top.json", "what_if.json", "peek.json", "audit.json"] {
        let text = std::fs::read_to_string(folder("top").join(recorded)).unwrap();
        fields(&serde_json::from_str(&text).unwrap(), &mut names);
    }
    assert!(names.len() > 40, "{names:?}");
    let is_listed = |name: &&String| {
        ["`NAME`", "`NAME[]", "[].NAME`", "[].NAME[]`"].iter().any(|form| PAGE.contains(&form.replace("NAME", name)))
    };
    assert_eq!(names.iter().filter(|name| !is_listed(name)).collect::<Vec<_>>(), Vec::<&String>::new());
}
