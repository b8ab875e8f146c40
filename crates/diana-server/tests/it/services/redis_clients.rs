//! The page `docs/tasks/redis-clients.md`: its file is served, and its commands and programs are run as they are
//! written.

use crate::support::program::{Diana, serve};
use diana_testing::Script;
use std::process::Command;

const PAGE: &str = include_str!("../../../../../docs/tasks/redis-clients.md");
const PASSWORD: &str = "hunter2";

/// Returns the only block of the section in this language.
fn block(language: &str) -> &'static str {
    let start = format!("```{language} resp\n");
    let mut blocks = PAGE.split(&*start).skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let block = blocks.next().unwrap();
    assert!(blocks.next().is_none());
    block
}

fn diana() -> Diana {
    let file = block("yaml").replace("127.0.0.1:6380", "$LISTEN").replace("${RESP_PASSWORD}", PASSWORD);
    Diana::serve_by(&file, crate::support::program::Stderr::Read, serve)
}

/// Returns a program of the page with the port of the server.
fn with_port(text: &str, diana: &Diana) -> String {
    assert!(text.contains("6380"));
    let password = |text: String, code: &str| text.replace(code, &format!("\"{PASSWORD}\""));
    let text = password(text.replace("6380", &diana.port().to_string()), "os.environ[\"RESP_PASSWORD\"]");
    let text = password(text, "getenv(\"RESP_PASSWORD\")");
    text.replace("${process.env.RESP_PASSWORD}", PASSWORD)
}

#[test]
fn redis_cli_does_what_the_page_says() {
    let diana = diana();
    let (command, expected) = block("sh").strip_prefix("$ ").unwrap().split_once('\n').unwrap();
    let output = Command::new("sh").arg("-c").arg(with_port(command, &diana)).env("RESP_PASSWORD", PASSWORD).output();
    let output = output.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
}

#[test]
fn redis_py_does_what_the_page_says() {
    let diana = diana();
    let output = Script::python(&with_port(block("python"), &diana)).unwrap().run().unwrap();
    let expected =
        "denied by none left: 2\ndenied by none left: 1\ndenied by none left: 0\ndenied by each-account left: 0";
    assert_eq!(output.trim(), expected);
}

#[test]
fn node_redis_does_what_the_page_says() {
    let diana = diana();
    let output = Script::node(&with_port(block("js"), &diana)).unwrap().run().unwrap();
    assert_eq!(output.trim(), "allowed 15");
}

#[test]
fn php_does_what_the_page_says() {
    let diana = diana();
    let script = Script::php(&with_port(block("php"), &diana));
    assert_eq!([(); 3].map(|()| script.run().unwrap()), ["allowed, 2 left", "allowed, 1 left", "allowed, 0 left"]);
    let denied = script.run().unwrap();
    assert!(denied.starts_with("denied by each-account, retry after "), "{denied}");
}

/// The same limit and key, asked by a Redis client, counts with the requests of the gateway.
#[test]
fn clients_of_redis_and_of_the_gateway_share_a_limit() {
    let port = diana_testing::Port::claim().unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN}}\nservices: {{resp: '127.0.0.1:{}'}}\nidentity: {{account: header(x-account)}}\n\
         rules: [{{name: each, by: account, limit: 3/h, status: 429}}]\n",
        port.number()
    ));
    let status = || crate::support::client::get_with(diana.port(), "/", "x-account: alice\r\n").status;
    assert_eq!(status(), 204);
    let number = port.number().to_string();
    let cli = || {
        let output =
            Command::new("redis-cli").args(["-p", &number, "DIANA.CHECK", "account", "alice"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let allowed = cli();
    assert!(allowed.starts_with("0\n3\n1\n"), "{allowed}");
    assert_eq!(status(), 204);
    assert_eq!(status(), 429);
    let denied = cli();
    assert!(denied.starts_with("1\n3\n0\n"), "{denied}");
    assert_eq!(diana.metric("diana_service_requests_total{service=\"resp\",outcome=\"denied\"}"), 1.0);
}
