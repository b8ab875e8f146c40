//! `rediss://`: over TLS, with the system's trusted certificates, or those in `SSL_CERT_FILE`.

use crate::support::*;
use diana_redis::Options;
use diana_testing::{Port, RedisServer, TlsFiles};
use std::process::Command;

/// The environment variables with the port and the expected result of the inner test.
const PORT: &str = "DIANA_TEST_TLS_PORT";
const EXPECTED: &str = "DIANA_TEST_TLS_EXPECTED";

/// Runs [`inside`] in a separate process, since its trusted certificates come from the environment.
fn run_inside(port: u16, expected: &str, trusted: Option<&std::path::Path>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tls::inside", "--include-ignored", "--nocapture"]);
    command.env(PORT, port.to_string()).env(EXPECTED, expected);
    if let Some(trusted) = trusted {
        command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
    eprintln!("{}", printed.lines().filter(|line| line.starts_with("measured")).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_private_ca_is_trusted_only_if_the_environment_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let tls = TlsFiles::create(folder.path()).unwrap();

    let port = Port::claim().unwrap();
    let _redis = RedisServer::builder().tls(&port, &tls).start().unwrap();
    run_inside(port.number(), "trusted", Some(&tls.authority));
    run_inside(port.number(), "foreign", None);
}

#[test]
fn a_server_without_tls_is_unreachable() {
    let redis = RedisServer::start().unwrap();
    run_inside(redis.port(), "foreign", None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the other tests in a separate process"]
async fn inside() {
    let Ok(port) = std::env::var(PORT) else { return };
    let url = format!("rediss://127.0.0.1:{port}");
    let limit = bucket("few", "10/h");
    let store = store(&url, Options::default().timeout(PATIENT)).await;
    if std::env::var(EXPECTED).unwrap() == "trusted" {
        until_healthy(&store).await;
        assert_eq!(granted(&store, &limit, "x", 30).await, 10);
        assert!(is_healthy(&store));
    } else {
        measured("TLS", reason(&store));
        assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    }
}
