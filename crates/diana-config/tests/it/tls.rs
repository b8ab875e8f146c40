//! `https://`, `etcds://` and `rediss://`: over TLS, with the system's trusted certificates, or those in
//! `SSL_CERT_FILE`.

use crate::support::*;
use diana_config::{Remote, Sources};
use diana_testing::{EtcdServer, Port, RedisServer, TlsFiles};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The ports for the inner test, and the expected result.
const PORTS: &str = "DIANA_TEST_TLS_PORTS";
const EXPECTED: &str = "DIANA_TEST_TLS_EXPECTED";

/// Runs [`inside`] in its own process, since the trusted certificates come from the environment.
fn run_in_process(ports: &str, expected: &str, trusted: Option<&Path>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tls::inside", "--include-ignored", "--nocapture"]);
    command.env(PORTS, ports).env(EXPECTED, expected);
    if let Some(trusted) = trusted {
        command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
    }
    let output = command.output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    assert!(output_text.contains("1 passed"), "{output_text}");
}

#[test]
fn a_private_authority_is_trusted_only_if_the_environment_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let tls = TlsFiles::create(folder.path()).unwrap();

    let etcd = EtcdServer::start_with_tls(&tls.certificate, &tls.key).unwrap();
    etcd.put("/rules", &rules("secret")).unwrap();
    let redis_tls = Port::claim().unwrap();
    let redis = RedisServer::builder().tls(&redis_tls, &tls).start().unwrap();
    redis.cli(&["SET", "diana:rules", &rules("secret")]).unwrap();
    let ports = format!("{} {}", etcd.tls_port().unwrap(), redis_tls.number());
    run_in_process(&ports, "trusted", Some(&tls.authority));
    run_in_process(&ports, "untrusted", None);
}

#[tokio::test]
#[ignore = "run by the test above, in its own process"]
async fn inside() {
    let ports = std::env::var(PORTS).unwrap();
    let (etcd, redis) = ports.split_once(' ').unwrap();
    let expected = std::env::var(EXPECTED).unwrap();
    for url in [format!("etcds://127.0.0.1:{etcd}/rules"), format!("rediss://127.0.0.1:{redis}")] {
        let engine = Recorder::new();
        let remote = Remote::parse(&url).unwrap().timeout(LONG);
        let started = Sources::new().wait(LONG).remote(remote).start(Arc::clone(&engine) as _).await;
        match expected.as_str() {
            "trusted" => {
                started.unwrap();
                assert_eq!(engine.active(), rules("secret"), "{url}");
            }
            _ => {
                let error = started.unwrap_err().to_string().to_lowercase();
                assert!(error.contains("certificate") || error.contains("unknownissuer"), "{url}: {error}");
            }
        }
    }
    // An etcd is an HTTP server too; this page is not a rule file, which is reported only if it was read.
    let remote = Remote::parse(&format!("https://127.0.0.1:{etcd}/version")).unwrap().timeout(LONG);
    let error = Sources::new().wait(LONG).remote(remote).start(Recorder::new() as _).await.unwrap_err().to_string();
    assert_eq!(error.contains("missing `rules`"), expected == "trusted", "{error}");
}
