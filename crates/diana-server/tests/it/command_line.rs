//! The program on the command line: its output streams and its exit status.

use crate::support::program::LONG;
use crate::support::{diana_in, err, folder, out};
use std::process::{Command, Output};

fn diana(args: &[&str], input: &str) -> Output {
    diana_in(&folder("nginx"), args, input, &[])
}

#[test]
fn help_teaches() {
    for (args, words) in [
        (&["--help"][..], &["check", "explain", "schema", "import", "Examples:", "diana import nginx"][..]),
        (&["check", "--help"], &["Examples:", "--remote", "--quiet", "--no-env", "exit status"]),
        (&["explain", "--help"], &["Examples:", "--method", "-H", "--ip", "--account", "--set", "--times", "--every"]),
        (&["schema", "--help"], &["Examples:", "# yaml-language-server: $schema=diana.schema.json"]),
        (&["import", "--help"], &["nginx", "envoy", "Examples:"]),
        (&["import", "nginx", "--help"], &["limit_req_zone", "--output", "--strict", "trusted_proxies"]),
        (&["import", "envoy", "--help"], &["rate_limit", "identity", "--output"]),
    ] {
        let output = diana(args, "");
        assert!(output.status.success());
        for word in words {
            assert!(out(&output).contains(word), "{word} is missing in:\n{}", out(&output));
        }
    }
}

#[test]
fn standard_input_is_read() {
    let conf = "limit_conn_zone $remote_addr zone=c:1m;\nserver { limit_conn c 3; limit_rate $x; }\n";
    let output = diana(&["import", "nginx", "-"], conf);
    assert!(output.status.success());
    assert!(out(&output).ends_with("by: ip/128\n    concurrent: 3\n"), "{}", out(&output));
    let told = err(&output);
    assert!(told.starts_with("stdin:2: limit_rate: not carried over: `$x` is no plain rate\nhint: "), "{told}");
}

#[test]
fn strictly_nothing_is_written_that_differs() {
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
            "stdin:2: limit_rate: not carried over: `$x` is no plain rate\n\
             no rules were written: 1 note says what would differ, and `--strict` accepts none\n"
        );
    }
    // A note without a difference is accepted.
    let output = strict(&conf("limit_conn_log_level warn;"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).starts_with("stdin:2: limit_conn_log_level: not needed"), "{}", err(&output));
    assert!(out(&output).contains("concurrent: 3"));
    let output = diana(
        &["import", "envoy", "-", "--strict"],
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    assert_eq!(output.status.code(), Some(1), "a guess is a difference: {}", err(&output));
}

#[test]
fn what_nginx_prints_of_itself_is_read() {
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
    let here = format!("{}/", folder("nginx").display());
    let expected = |name: &str| std::fs::read_to_string(folder("nginx").join(name)).unwrap();
    let rules = out(&output).replace(&here, "").replace("Made from stdin", "Made from several_servers.conf");
    assert_eq!(rules, expected("several_servers.expected.yaml"));
    assert_eq!(err(&output).replace(&here, ""), expected("several_servers.expected.notes"));
}

#[test]
fn rules_go_to_a_file_where_one_is_named() {
    let path = std::env::temp_dir().join(format!("diana-import-{}.yaml", std::process::id()));
    let output = diana(&["import", "nginx", "downloads.conf", "--output", path.to_str().unwrap()], "");
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success());
    assert_eq!(out(&output), "");
    assert_eq!(written, std::fs::read_to_string(folder("nginx").join("downloads.expected.yaml")).unwrap());
}

#[test]
fn what_cannot_be_read_or_parsed_ends_with_1() {
    let output = diana(&["import", "nginx", "nowhere.conf"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("nowhere.conf: can't be read: "), "{}", err(&output));

    let output = diana(&["import", "nginx", "-"], "http {\n  server {\n}\n");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output), "");
    assert_eq!(err(&output), "stdin:1:1: the block of `http` is not closed\n  1 | http {\n    | ^^^^ `}` at its end\n");

    let output = diana(&["import", "envoy", "-"], "domain: d\nbogus: 1\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("stdin:2:1: `bogus` is no field of the configuration\n"), "{}", err(&output));
}

#[test]
fn what_is_typed_wrong_ends_with_2() {
    assert_eq!(diana(&["import", "apache", "x"], "").status.code(), Some(2));
    assert_eq!(diana(&[], "").status.code(), Some(2));
}

#[test]
fn the_schema_is_the_librarys() {
    let output = diana(&["schema"], "");
    assert!(output.status.success());
    assert!(out(&output).starts_with("{\n  \""), "one can read it:\n{}", out(&output));
    let printed = serde_json::from_str::<serde_json::Value>(&out(&output)).unwrap();
    assert_eq!(printed, diana_rules::schema::rule_file(&diana_server::registry()));
}

#[test]
fn what_is_served_without_a_file_is_what_is_printed() {
    let printed = diana(&["serve", "--print-default"], "");
    assert_eq!(out(&printed), diana_server::serve::DEFAULT);
    let echoed = |mut running: Running| {
        let port = running.listen.number();
        let is_there = || crate::support::client::ask(port, "GET /hello HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = diana_testing::wait_until("it to serve", LONG, is_there).unwrap();
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        (answer.status, answer.header("ratelimit-policy").map(str::to_owned), answer.text().contains("/hello"))
    };
    let expected = (200, Some("\"everyone\";q=1000;w=1".to_owned()), true);
    // Without a file, from standard input, and from a file.
    assert_eq!(echoed(Running::start(&[], "")), expected);
    assert_eq!(echoed(Running::start(&["-c", "-"], &out(&printed))), expected);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), out(&printed)).unwrap();
    assert_eq!(echoed(Running::start(&["--config", file.path().to_str().unwrap()], "")), expected);
}

#[test]
fn what_is_wrong_in_standard_input_is_told() {
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
