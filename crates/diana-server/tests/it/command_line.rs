//! The program on the command line: its output streams and its exit status.

use crate::support::program::LONG;
use crate::support::{diana_in, err, folder, out};
use std::process::{Command, Output};

fn diana(args: &[&str], input: &str) -> Output {
    diana_in(&folder("nginx"), args, input, &[])
}

#[test]
fn help_lists_options_and_examples() {
    for (args, expected) in [
        (&["--help"][..], &["check", "explain", "schema", "import", "Examples:", "diana import nginx"][..]),
        (
            &["check", "--help"],
            &["Examples:", "--remote", "--quiet", "--no-env", "--no-files", "--json", "exit status"],
        ),
        (&["explain", "--help"], &["Examples:", "--method", "-H", "--ip", "--account", "--set", "--times", "--every"]),
        (&["explain", "--help"], &["--json", "exit status is 0", "3 if it is denied"]),
        (&["top", "--help"], &["Examples:", "--once", "--json", "--window", "--admin", "DIANA_ADMIN", "--token-file"]),
        (&["status", "--help"], &["Examples:", "--json", "DIANA_TOKEN", "[default: http://127.0.0.1:9090]"]),
        (&["peek", "--help"], &["Examples:", "diana peek each-account alice", "exit status"]),
        (&["reset", "--help"], &["Examples:", "exit status"]),
        (&["refund", "--help"], &["Examples:", "--cost", "exit status"]),
        (&["what-if", "--help"], &["Examples:", "--shadow-rule", "exit status"]),
        (&["completions", "--help"], &["Examples:", "bash", "zsh", "fish", "powershell"]),
        (&["man", "--help"], &["Examples:", "--dir"]),
        (&["schema", "--help"], &["Examples:", "# yaml-language-server: $schema=diana.schema.json"]),
        (&["import", "--help"], &["nginx", "envoy", "Examples:"]),
        (&["import", "nginx", "--help"], &["limit_req_zone", "--output", "--strict", "trusted_proxies"]),
        (&["import", "envoy", "--help"], &["rate_limit", "descriptor", "--output"]),
        (&["import", "limitador", "--help"], &["namespace", "variables", "--output"]),
    ] {
        let output = diana(args, "");
        assert!(output.status.success());
        for text in expected {
            assert!(out(&output).contains(text), "missing `{text}` in:\n{}", out(&output));
        }
    }
}

#[test]
fn standard_input_is_read() {
    let conf = "limit_conn_zone $remote_addr zone=c:1m;\nserver { limit_conn c 3; limit_rate $x; }\n";
    let output = diana(&["import", "nginx", "-"], conf);
    assert!(output.status.success());
    assert!(out(&output).ends_with("by: ip/128\n    concurrent: 3\n"), "{}", out(&output));
    let notes = err(&output);
    assert!(notes.starts_with("stdin:2: limit_rate: not converted: unsupported rate `$x`\nhint: "), "{notes}");
}

#[test]
fn strict_import_writes_no_rules_that_differ() {
    let path = std::env::temp_dir().join(format!("diana-import-strict-{}.yaml", std::process::id()));
    let conf = |more: &str| format!("limit_conn_zone $remote_addr zone=c:1m;\nserver {{ limit_conn c 3; {more} }}\n");
    let strict = |conf: &str, to: &[&str]| diana(&[&["import", "nginx", "-", "--strict"], to].concat(), conf);

    for to in [&[][..], &["--output", path.to_str().unwrap()]] {
        let output = strict(&conf("limit_rate $x;"), to);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(out(&output), "");
        assert!(!path.exists());
        assert_eq!(
            err(&output),
            "stdin:2: limit_rate: not converted: unsupported rate `$x`\n\
             no rules written: 1 difference, and `--strict` allows none\n"
        );
    }
    // A note without a difference is accepted.
    let output = strict(&format!("{}limit_conn_zone $uri zone=unused:1m;\n", conf("")), &[]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).starts_with("stdin:3: limit_conn_zone: not converted: no converted"), "{}", err(&output));
    assert!(out(&output).contains("concurrent: 3"));
    let output = diana(
        &["import", "envoy", "-", "--strict"],
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: b}]}}]\n",
    );
    assert_eq!(output.status.code(), Some(1), "what is not converted is a difference: {}", err(&output));
}

#[test]
fn imports_the_output_of_nginx_dump() {
    let files = ["several_servers.conf", "zones.conf", "sites/blog.conf", "snippets/search.conf", "sites/shop.conf"];
    let mut dump = String::new();
    for (index, file) in files.iter().enumerate() {
        let path = folder(if index == 0 { "nginx" } else { "nginx/several_servers" }).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        dump.push_str(&format!("# configuration file {}:\n{text}\n", path.display()));
    }
    // The same from the output of nginx; without root it may fail, as it opens its logs first.
    let scratch = std::env::temp_dir().join(format!("diana-nginx-dump-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin");
    nginx.args(["-T", "-q", "-e", "stderr", "-g", "pid nginx.pid;", "-p"]).arg(&scratch);
    let output = nginx.arg("-c").arg(folder("nginx").join("several_servers.conf")).output().unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    assert!(output.status.success() || err(&output).contains("Permission denied"), "{}", err(&output));
    if output.status.success() {
        assert_eq!(out(&output), dump);
    }

    let output = diana(&["import", "nginx", "-"], &dump);
    let folder_prefix = format!("{}/", folder("nginx").display());
    let expected = |name: &str| std::fs::read_to_string(folder("nginx").join(name)).unwrap();
    let rules =
        out(&output).replace(&folder_prefix, "").replace("Converted from stdin", "Converted from several_servers.conf");
    assert_eq!(rules, expected("several_servers.expected.yaml"));
    assert_eq!(err(&output).replace(&folder_prefix, ""), expected("several_servers.expected.notes"));
}

#[test]
fn writes_rules_to_the_output_file() {
    let path = std::env::temp_dir().join(format!("diana-import-{}.yaml", std::process::id()));
    let output = diana(&["import", "nginx", "downloads.conf", "--output", path.to_str().unwrap()], "");
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success());
    assert_eq!(out(&output), "");
    assert_eq!(written, std::fs::read_to_string(folder("nginx").join("downloads.expected.yaml")).unwrap());
}

#[test]
fn unreadable_or_invalid_input_exits_with_1() {
    let output = diana(&["import", "nginx", "nowhere.conf"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("nowhere.conf: can't be read: "), "{}", err(&output));

    let output = diana(&["import", "nginx", "-"], "http {\n  server {\n}\n");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output), "");
    assert_eq!(err(&output), "stdin:1:1: unclosed block `http`\n  1 | http {\n    | ^^^^ expected `}` at its end\n");

    let output = diana(&["import", "envoy", "-"], "domain: d\nbogus: 1\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("stdin:2:1: unknown configuration field `bogus`\n"), "{}", err(&output));
}

#[test]
fn usage_errors_exit_with_2() {
    assert_eq!(diana(&["import", "apache", "x"], "").status.code(), Some(2));
    assert_eq!(diana(&[], "").status.code(), Some(2));
}

#[test]
fn prints_the_schema_of_the_library() {
    let output = diana(&["schema"], "");
    assert!(output.status.success());
    assert!(out(&output).starts_with("{\n  \""), "it must be indented:\n{}", out(&output));
    let printed = serde_json::from_str::<serde_json::Value>(&out(&output)).unwrap();
    assert_eq!(printed, diana_rules::schema::rule_file(&diana_server::registry()));
}

/// The commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = out(&diana(&["--help"], ""));
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0.to_owned();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

#[test]
fn completions_have_every_command() {
    let commands = commands();
    assert!(commands.len() >= 13 && commands.contains(&"what-if".to_owned()), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = diana(&["completions", shell], "");
        assert!(output.status.success());
        for command in &commands {
            assert!(out(&output).contains(command), "no {command} for {shell}");
        }
    }
    let script = out(&diana(&["completions", "bash"], ""));
    let mut bash = Command::new("bash");
    let words = "COMP_WORDS=(diana st); COMP_CWORD=1; _diana diana st diana; echo \"${COMPREPLY[@]}\"";
    let output = bash.args(["-c", &format!("{script}\n{words}")]).output().unwrap();
    assert_eq!(out(&output), "status\n", "{}", err(&output));
    assert_eq!(diana(&["completions", "csh"], "").status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let page = out(&diana(&["man"], ""));
    assert!(page.contains(".TH diana 1") && page.contains("Diana, a rate limiter"), "{page}");
    let folder = tempfile::TempDir::new().unwrap();
    let output = diana(&["man", "--dir", folder.path().join("man1").to_str().unwrap()], "");
    assert!(output.status.success(), "{}", err(&output));
    for command in commands() {
        let page = std::fs::read_to_string(folder.path().join(format!("man1/diana-{command}.1")));
        let page = page.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains("Examples:"), "{page}");
    }
    assert!(folder.path().join("man1/diana.1").exists());
    let output = diana(&["man", "--dir", "/dev/null/man"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("error: can't write manual pages to /dev/null/man: "), "{}", err(&output));
}

#[test]
fn serves_the_default_file_that_it_prints() {
    let printed = diana(&["serve", "--print-default"], "");
    assert_eq!(out(&printed), diana_server::serve::DEFAULT);
    let response_of = |mut running: Running| {
        let port = running.listen.number();
        let responds = || crate::support::client::send_request(port, "GET /hello HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = diana_testing::wait_until("a response", LONG, responds).unwrap();
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        (response.status, response.header("ratelimit-policy").map(str::to_owned), response.text().contains("/hello"))
    };
    let expected = (200, Some("\"everyone\";q=1000;w=1".to_owned()), true);
    // Without a file, from standard input, and from a file.
    assert_eq!(response_of(Running::start(&[], "")), expected);
    assert_eq!(response_of(Running::start(&["-c", "-"], &out(&printed))), expected);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), out(&printed)).unwrap();
    assert_eq!(response_of(Running::start(&["--config", file.path().to_str().unwrap()], "")), expected);
}

#[test]
fn reports_problems_in_standard_input() {
    let output = diana(&["serve", "-c", "-"], "rules: [{name: a, limit: many}]\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("stdin:1:"), "{}", err(&output));
}

/// `diana serve` on its own ports.
struct Running {
    child: std::process::Child,
    listen: diana_testing::Port,
    _admin: diana_testing::Port,
}

impl Running {
    fn start(args: &[&str], input: &str) -> Self {
        let [listen, admin] = [(); 2].map(|()| diana_testing::Port::claim().unwrap());
        let address = |port: &diana_testing::Port| format!("127.0.0.1:{}", port.number());
        let mut child = Command::new(env!("CARGO_BIN_EXE_diana"))
            .arg("serve")
            .args(args)
            .args(["--listen", &address(&listen), "--admin", &address(&admin)])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        Self { child, listen, _admin: admin }
    }
}
