//! `diana check`: its output for valid and invalid files, and its exit status.

use crate::support::{SECRETS, diana_in, err, folder, names_in, out, samples};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

/// Checks a text on standard input.
fn check(text: &str, options: &[&str]) -> Output {
    diana_in(Path::new("."), &[&["check", "-"], options].concat(), text, &[])
}

const VALID: &str = "\
rules:
  - {name: everyone, limit: 10000/s}
  - name: each-account
    by: account
    limit: {rate: 100/s, burst: 200}
    status: 429
";

const INVALID: &str = "\
status: 200
rules:
  - name: each-account
    by: acount
    limit: 100/s
    brust: 200
";

const PROBLEMS: &str = "\
stdin:1:9: invalid status `200`
  1 | status: 200
    |         ^^^ expected a status from 400 to 599, such as 429 or 503
stdin:4:9: unknown key `acount`
  4 |     by: acount
    |         ^^^^^^ did you mean `account`?
stdin:6:5: unknown rule field `brust`
  6 |     brust: 200
    |     ^^^^^ did you mean `burst`?
3 problems
";

#[test]
fn describes_a_valid_file() {
    let output = check(VALID, &[]);
    assert_eq!(
        out(&output),
        "\
rule          key                match         limit                                 over limit
------------  -----------------  ------------  ------------------------------------  ---------------
everyone      everyone together  all requests  10000 a second, up to 10000 at once:  denied with 503
                                               at most 20000 in any second
each-account  each account       all requests  100 a second, up to 200 at once: at   denied with 429
                                               most 300 in any second
              - requests without account are not limited by this rule

stdin: 2 rules, valid
"
    );
    assert_eq!(err(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn quiet_prints_only_the_summary() {
    let output = check(VALID, &["--quiet"]);
    assert_eq!(out(&output), "stdin: 2 rules, valid\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(out(&check("rules: [{name: a, limit: 1/s}]", &["-q"])), "stdin: 1 rule, valid\n");
}

#[test]
fn reports_all_problems_at_once() {
    for options in [&[][..], &["--quiet"]] {
        let output = check(INVALID, options);
        assert_eq!(err(&output), PROBLEMS);
        assert_eq!(out(&output), "");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Everyone who reaches a service can use up the limits of any key.
#[test]
fn warns_about_services_that_other_machines_reach() {
    let warnings = |services: &str| {
        let output = check(&format!("services: {{{services}}}\nrules: [{{name: a, limit: 1/s}}]"), &["--no-files"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        err(&output).lines().filter_map(|line| Some(line.split_once("warning: ")?.1.to_owned())).collect::<Vec<_>>()
    };
    let warning = |name: &str| vec![format!("every machine that reaches 0.0.0.0:81 can use the service `{name}`")];
    for name in ["envoy", "http", "resp"] {
        assert_eq!(warnings(&format!("{name}: ['127.0.0.1:80', '0.0.0.0:81']")), warning(name));
        assert_eq!(warnings(&format!("{name}: {{listen: '0.0.0.0:81'}}")), warning(name));
        let tls = "tls: {certificate: a.pem, key: a.key}";
        assert_eq!(warnings(&format!("{name}: {{listen: '0.0.0.0:81', {tls}}}")), Vec::<String>::new());
        assert_eq!(warnings(&format!("{name}: ['127.0.0.1:80', '[::1]:80']")), Vec::<String>::new());
    }
    assert_eq!(warnings("resp: {listen: '0.0.0.0:81', password: p}"), Vec::<String>::new());
}

#[test]
fn one_invalid_file_of_several_fails() {
    let (folder, _) = samples();
    let output = diana_in(
        &folder,
        &["check", "-q", "scraping.yaml", "-", "nowhere.yaml", "login-brute-force.yaml"],
        INVALID,
        &[],
    );
    assert_eq!(out(&output), "scraping.yaml: 6 rules, valid\nlogin-brute-force.yaml: 5 rules, valid\n");
    let errors = err(&output);
    let (problems, rest) = errors.split_once("nowhere.yaml: can't be read: ").unwrap();
    assert_eq!(format!("{problems}3 problems\n"), PROBLEMS);
    assert!(rest.ends_with("\n4 problems\n"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn invalid_utf8_cannot_be_read() {
    let path = std::env::temp_dir().join(format!("diana-check-{}.yaml", std::process::id()));
    std::fs::write(&path, [b'r', 0xff]).unwrap();
    let output = diana_in(Path::new("."), &["check", path.to_str().unwrap()], "", &[]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains(": can't be read: invalid utf-8"), "{}", err(&output));
    assert!(err(&output).ends_with("\n1 problem\n"));
}

#[test]
fn variables_come_from_the_environment() {
    let text = "rules: [{name: a, limit: '${RATE}/s'}]";
    let output = check(text, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("environment variable `RATE` is not set"), "{}", err(&output));
    let output = diana_in(Path::new("."), &["check", "-"], text, &[("RATE", "7")]);
    assert!(out(&output).contains("7 a second, up to 7 at once"), "{}{}", out(&output), err(&output));
}

#[test]
fn without_an_environment_values_with_variables_are_not_checked() {
    let text = "\
store: {redis: 'redis://:${REDIS_PASSWORD}@10.0.0.7:6379'}
rules: [{name: a, limit: '${RATE}/s', store: shared}, {name: b, limit: 7/s}]
";
    // The environment is not used either, so that the output is the same on every machine.
    let output = diana_in(Path::new("."), &["check", "-", "--no-env"], text, &[("RATE", "nonsense")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "stdin:1:16: not checked: ${REDIS_PASSWORD}\nstdin:2:26: not checked: ${RATE}\n");
    let printed = out(&output);
    assert!(
        printed.starts_with(
            "shared counts are on redis://10.0.0.7:6379; while it is unreachable, each instance counts for itself, up to its share of each limit\n\n"
        ),
        "{printed}"
    );
    assert!(
        printed.contains("7 a second, up to 7 at once")
            && printed.ends_with("\nstdin: 2 rules, valid, 2 values not checked\n"),
        "{printed}"
    );

    let output = check(&text.replace("7/s", "7/fortnight"), &["--no-env"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("7/fortnight") && err(&output).ends_with("\n1 problem\n"), "{}", err(&output));
    for name in samples().1 {
        let output = diana_in(&samples().0, &["check", "--no-env", "--no-files", &name], "", &[]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }
}

#[test]
fn describes_the_store_and_the_config_server() {
    let text = "\
store: {redis: 'redis://:hunter2@10.0.0.7', when_down: allow, memory: 8MiB}
remote: {from: 'https://config.example.com/diana.yaml', token: hunter2}
";
    let output = check(text, &[]);
    assert_eq!(
        out(&output),
        "\
shared counts are on redis://10.0.0.7; while it is unreachable, requests are allowed
counts in this process: take at most 8 MiB
rules are loaded from the config server https://config.example.com/diana.yaml, with a token; they replace the rules of this file; while it is unreachable, the last good ones apply, also after a restart

stdin: 0 rules, valid
"
    );
}

#[test]
fn an_invalid_store_is_one_problem() {
    let text = "store: {redis: localhost}\nrules: [{name: a, limit: 5/s, store: shared}]\n";
    let problems = err(&check(text, &[]));
    assert!(problems.contains("invalid Redis address") && problems.ends_with("\n1 problem\n"), "{problems}");
}

#[test]
fn wraps_between_words() {
    let (folder, names) = samples();
    for name in names {
        let output = diana_in(&folder, &["check", "--no-files", &name], "", &SECRETS);
        for line in out(&output).lines().filter(|line| !line.starts_with(|first: char| first.is_alphabetic())) {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
        // Words that were once broken.
        let table = out(&output);
        for word in ["/accounts/{name}/login", "/accounts/{name}/password-reset", "http://10.0.2.1:8000"] {
            let is_in_file = std::fs::read_to_string(folder.join(&name)).unwrap().contains(word);
            assert!(!is_in_file || table.contains(word), "{word} in {name}:\n{table}");
        }
    }
}

#[test]
fn a_shared_limit_that_redis_does_not_support_is_a_problem() {
    let text =
        "store: {redis: redis://127.0.0.1}\nrules: [{name: a, limit: 5/s, algorithm: smooth_bursty, starts: empty}]\n";
    let output = check(text, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("the shared store does not support this limit"), "{}", err(&output));
}

#[test]
fn a_remote_document_is_checked_with_the_local_file() {
    let (samples, _) = samples();
    let check_remote = |document: &str| diana_in(&samples, &["check", "scraping.yaml", "--remote", "-"], document, &[]);
    let output = check_remote("rules: [{name: everyone, limit: 5/s}]");
    assert!(out(&output).contains("5 a second, up to 5 at once"), "{}", out(&output));
    assert!(out(&output).ends_with("\n\nstdin over scraping.yaml: 1 rule, valid\n"), "{}", out(&output));

    let output = check_remote("admin: {listen: 0.0.0.0:1}\nrules: [{name: everyone, limit: 5/s}]");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).starts_with("stdin:1:1: `admin` is not supported in rules from a config server\n"),
        "{}",
        err(&output)
    );
}

#[test]
fn the_samples_are_valid() {
    let (folder, names) = samples();
    for name in &names {
        let output = diana_in(&folder, &["check", "--no-files", name], "", &SECRETS);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).lines().last().unwrap().ends_with(" rules, valid"), "{}", out(&output));
    }
    let names = names.iter().map(String::as_str);
    let output = diana_in(&folder, &["check", "--no-files"].into_iter().chain(names).collect::<Vec<_>>(), "", &SECRETS);
    assert_eq!(out(&output).matches(" rules, valid\n").count(), 12);
}

#[test]
fn imported_files_are_valid() {
    for (from, end, min) in [("nginx", ".conf", 5), ("envoy", ".yaml", 2), ("limitador", ".yaml", 1)] {
        let folder = folder(from);
        let names = names_in(&folder, end).into_iter().filter(|name| !name.contains(".expected."));
        let names = names.collect::<Vec<_>>();
        assert!(names.len() >= min, "{names:?}");
        for name in names {
            let rules = out(&diana_in(&folder, &["import", from, &name], "", &[]));
            let output = check(&rules, &[]);
            assert_eq!(output.status.code(), Some(0), "{name}: {}\n{rules}", err(&output));
            assert!(out(&output).ends_with(", valid\n"), "{name}: {}", out(&output));
        }
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let output = diana_in(Path::new("."), &["check", "-", "-"], VALID, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: `-` given more than once; standard input can be read only once\n");
    assert_eq!(check(VALID, &["--remote", "-"]).status.code(), Some(2));
    assert_eq!(diana_in(Path::new("."), &["check"], "", &[]).status.code(), Some(2));
    assert_eq!(check(VALID, &["--loud"]).status.code(), Some(2));
}

#[test]
fn only_terminals_get_colours() {
    // A pipe gets no colours unless they are forced.
    assert!(!err(&check(INVALID, &[])).contains('\u{1b}'));
    let forced = |variables: &[(&str, &str)]| err(&diana_in(Path::new("."), &["check", "-"], INVALID, variables));
    assert!(forced(&[("CLICOLOR_FORCE", "1")]).contains("\u{1b}[31m^^^\u{1b}[0m"));
    assert_eq!(forced(&[("NO_COLOR", "1")]), PROBLEMS);
}

#[test]
fn describes_the_gateway() {
    let text = "gateway: {listen: 0.0.0.0:80, upstream: http://a}\nrules: []\n";
    let output = check(text, &[]);
    assert_eq!(
        out(&output),
        "listens on 0.0.0.0:80\nall requests go to http://a\nadmin on 127.0.0.1:9090\n\nstdin: 0 rules, valid\n"
    );
}

fn checked_json(text: &str, options: &[&str]) -> (Option<i32>, Value) {
    let output = check(text, &[options, &["--json"]].concat());
    assert_eq!(err(&output), "");
    (output.status.code(), serde_json::from_str(&out(&output)).unwrap())
}

#[test]
fn the_json_has_each_problem_with_its_location_and_a_fix() {
    let problem = |line: u32, column: u32, message: &str, help: &str| json!({"file": "stdin", "line": line, "column": column, "message": message, "help": help});
    let (status, checked) = checked_json(INVALID, &[]);
    assert_eq!(status, Some(1));
    assert_eq!(
        checked,
        json!({"valid": false, "files": [{
            "file": "stdin", "valid": false,
            "errors": [
                problem(1, 9, "invalid status `200`", "expected a status from 400 to 599, such as 429 or 503"),
                problem(4, 9, "unknown key `acount`", "did you mean `account`?"),
                problem(6, 5, "unknown rule field `brust`", "did you mean `burst`?"),
            ],
            "warnings": [], "not_checked": [], "rules": [],
        }]})
    );
}

#[test]
fn the_json_describes_the_rules_of_a_valid_file() {
    let (status, checked) = checked_json(VALID, &[]);
    assert_eq!((status, &checked["valid"]), (Some(0), &json!(true)));
    assert_eq!(
        checked["files"][0]["rules"][1],
        json!({
            "name": "each-account", "by": "account", "key": "each account", "matches": "all requests",
            "limit": "100 a second, up to 200 at once: at most 300 in any second", "over_limit": "denied with 429",
            "notes": ["requests without account are not limited by this rule"], "shadow": false,
        })
    );
    let open = "services: {resp: '0.0.0.0:81'}\nrules: [{name: a, limit: 1/s}]\n";
    let (_, checked) = checked_json(open, &[]);
    let warning = &checked["files"][0]["warnings"][0];
    assert_eq!(warning["message"], "every machine that reaches 0.0.0.0:81 can use the service `resp`");
    assert_eq!((&warning["file"], &warning["line"]), (&json!("stdin"), &json!(1)));
    let variable = "store: {redis: 'redis://:${REDIS_PASSWORD}@10.0.0.7'}\nrules: [{name: a, limit: 1/s}]\n";
    let (status, checked) = checked_json(variable, &["--no-env"]);
    let not_checked = json!([{"line": 1, "column": 16, "variables": ["REDIS_PASSWORD"]}]);
    assert_eq!((status, &checked["files"][0]["not_checked"]), (Some(0), &not_checked));
}

#[test]
fn the_json_has_every_file_also_those_that_cannot_be_read() {
    let (folder, names) = samples();
    let output = diana_in(&folder, &["check", "--json", "--no-files", &names[0], "nowhere.yaml"], "", &SECRETS);
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(1)));
    let checked = serde_json::from_str::<Value>(&out(&output)).unwrap();
    assert_eq!((&checked["files"][0]["valid"], &checked["valid"]), (&json!(true), &json!(false)));
    let error = &checked["files"][1]["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&json!("nowhere.yaml"), &Value::Null));
    assert!(error["message"].as_str().unwrap().starts_with("can't be read: "), "{error}");
}
