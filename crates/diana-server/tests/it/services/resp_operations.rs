//! `services.resp` in operation: TLS, reload, shadow rules, bounds and shutdown, and what is reported.

use super::resp_client::RespClient;
use crate::support::program::{Diana, LONG};
use diana_testing::{Script, TlsFiles, wait_until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::process::Command;
use tempfile::TempDir;

fn connect(diana: &Diana) -> RespClient {
    RespClient::connect(diana.port())
}

/// A program whose service `resp` has TLS, and the certificates.
fn serve_tls() -> (Diana, TlsFiles) {
    let folder = TempDir::new().unwrap();
    let files = TlsFiles::create(folder.path()).unwrap();
    let rules = "
services:
  resp:
    listen: $LISTEN
    password: hunter2
    tls: {certificate: $FOLDER/certificate.pem, key: $FOLDER/key.pem}
rules: [{name: each, by: account, limit: 3/h}]
";
    (Diana::serve_in(folder, rules), files)
}

#[test]
fn redis_cli_connects_with_tls() {
    let (diana, files) = serve_tls();
    let port = diana.port().to_string();
    let cli = |trust: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["30", "redis-cli", "-p", &port, "-a", "hunter2", "--no-auth-warning"]).args(trust);
        let output = command.args(["DIANA.CHECK", "account", "alice"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let authority = files.authority.to_str().unwrap();
    assert_eq!(cli(&["--tls", "--cacert", authority]), "0\n3\n2\n-1\n1200\neach\n");
    assert_eq!(cli(&["--tls", "--cacert", files.key.to_str().unwrap()]), "");
    // Without TLS, nothing is answered, and nothing is charged.
    assert_eq!(cli(&[]), "");
    assert_eq!(cli(&["--tls", "--cacert", authority]).lines().nth(2), Some("1"));
    assert!(diana.metric("diana_service_connections_rejected_total{service=\"resp\"}") >= 1.0);
}

#[test]
fn redis_py_connects_with_tls() {
    let (diana, files) = serve_tls();
    let script = "
import redis, sys
client = redis.Redis(port=int(sys.argv[1]), password='hunter2', ssl=True, ssl_ca_certs=sys.argv[2])
with client.pipeline() as pipeline:
    for _ in range(1000):
        pipeline.execute_command('CL.THROTTLE', 'many', 10000, 1, 60)
    print(pipeline.execute()[-1])
";
    let script = Script::python(script).unwrap().arg(&diana.port().to_string());
    let output = script.arg(files.authority.to_str().unwrap()).run().unwrap();
    assert_eq!(output, "[0, 10001, 9001, -1, 60000]");
}

const ONE: &str = "services: {resp: $LISTEN}\nrules: [{name: each, by: account, limit: 1/h, algorithm: fixed_window, opens: first_request}]\n";

#[test]
fn a_reload_applies_to_open_connections() {
    let diana = Diana::serve(ONE);
    let mut client = connect(&diana);
    assert_eq!([client.allows("account alice"), client.allows("account alice")], [true, false]);
    diana.rewrite(&ONE.replace("rules: [", "rules: [{name: other, by: ip, limit: 2/h}, "));
    let is_loaded = || client.ask("DIANA.RULES").contains("other").then_some(());
    wait_until("the new rules", LONG, is_loaded).unwrap();
    // What stays keeps its counts, what is new counts.
    assert!(!client.allows("account alice") && client.allows("account bob"));
    let address = "ip 203.0.113.7 account";
    assert!(client.allows(&format!("{address} a")) && client.allows(&format!("{address} b")));
    assert!(!client.allows(&format!("{address} c")));
    // An invalid file changes nothing.
    diana.rewrite(&ONE.replace("by: account", "by: unknown-attribute"));
    wait_until("the log line", LONG, || diana.output().contains("unknown-attribute").then_some(())).unwrap();
    assert!(client.ask("DIANA.RULES").contains("other") && !client.allows("account alice"));
}

#[test]
fn shadow_rules_are_counted_and_never_deny() {
    let rules = ONE.replace("limit: 1/h", "shadow: true, limit: 1/h");
    let diana = Diana::serve(&rules);
    let mut client = connect(&diana);
    assert_eq!([(); 3].map(|()| client.allows("account alice")), [true; 3]);
    assert_eq!(diana.metric("diana_decisions_total{rule=\"each\",outcome=\"shadow_denied\"}"), 2.0);
    assert_eq!(diana.metric("diana_service_requests_total{service=\"resp\",outcome=\"allowed\"}"), 3.0);
}

#[test]
fn connections_are_bounded() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, bounds: {connections: 100}}\nservices: {resp: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h}]\n",
    );
    let mut clients = (0..100).map(|_| connect(&diana)).collect::<Vec<_>>();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "PONG");
    }
    let mut rejected = connect(&diana);
    let _ = rejected.try_send("PING\r\n");
    assert_eq!(rejected.reply(), None);
    let is_counted =
        || (diana.metric("diana_service_connections_rejected_total{service=\"resp\"}") == 1.0).then_some(());
    wait_until("the count", LONG, is_counted).unwrap();
    // There is room for another one once a client leaves.
    clients.pop();
    let is_served = || {
        let mut client = connect(&diana);
        client.try_send("PING\r\n").ok()?;
        client.reply()
    };
    assert_eq!(wait_until("a free connection", LONG, is_served).unwrap(), "PONG");
    assert!(clients.iter_mut().all(|client| client.ask("PING") == "PONG"));
}

#[test]
fn a_stop_answers_what_waits_and_exits() {
    let mut diana = Diana::serve("services: {resp: $LISTEN}\nrules: [{name: paced, limit: 1/2s, wait: 20s}]\n");
    let (mut idle, mut client) = (connect(&diana), connect(&diana));
    assert_eq!(idle.ask("PING"), "PONG");
    assert!(client.allows("path /"));
    // Replies to earlier commands are sent before a command waits.
    client.try_send("PING\r\nDIANA.CHECK path /\r\n").unwrap();
    assert_eq!(client.reply().unwrap(), "PONG");
    diana.request_stop();
    assert_eq!(idle.reply(), None);
    assert!(client.reply().unwrap().starts_with("[0 1 0 "));
    assert_eq!(client.reply(), None);
    assert!(diana.wait_for_exit().success());
}

#[test]
fn clients_that_send_without_pause_do_not_delay_a_stop() {
    // A stop that waits for them would take longer than the test.
    let mut diana = Diana::serve(
        "gateway: {listen: $TLS, timeouts: {stop: 10min}}\nservices: {resp: $LISTEN}\nrules: [{name: each, by: ip, limit: 1/h}]\n",
    );
    let call = "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$7\r\n1000000\r\n$7\r\n1000000\r\n$1\r\n1\r\n".repeat(1_000);
    let threads = (0..4).map(|_| {
        let mut reader = TcpStream::connect((Ipv4Addr::LOCALHOST, diana.port())).unwrap();
        let (mut sender, call) = (reader.try_clone().unwrap(), call.clone());
        let sending = std::thread::spawn(move || while sender.write_all(call.as_bytes()).is_ok() {});
        let mut first = [0];
        reader.read_exact(&mut first).unwrap();
        let reading = std::thread::spawn(move || {
            let mut replies = first.to_vec();
            reader.read_to_end(&mut replies).unwrap();
            reader.shutdown(Shutdown::Both).unwrap();
            replies
        });
        (sending, reading)
    });
    let threads = threads.collect::<Vec<_>>();
    diana.request_stop();
    for (sending, reading) in threads {
        // Each reply has six lines, and the last one is whole.
        let replies = reading.join().unwrap();
        let lines = replies.iter().filter(|byte| **byte == b'\n').count();
        assert!(lines >= 6_000 && lines % 6 == 0 && replies.ends_with(b"\r\n"), "{lines}");
        sending.join().unwrap();
    }
    assert!(diana.wait_for_exit().success());
    assert!(!diana.output().contains("did not end in time"));
}
