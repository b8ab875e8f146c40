//! When the certificates of listeners expire.

use super::status;
use crate::support::program::{Diana, LONG};
use diana_testing::{Port, TlsFiles, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

#[test]
fn the_expiry_of_each_certificate_is_reported_also_after_a_reload() {
    let (folder, port) = (TempDir::new().unwrap(), Port::claim().unwrap());
    let (first, second) = (2_000_000_000, 2_100_000_000);
    TlsFiles::create_until(folder.path(), first).unwrap();
    let pair = "certificate: '$FOLDER/certificate.pem', key: '$FOLDER/key.pem'";
    let diana = Diana::serve_in(
        folder,
        &format!(
            "gateway: {{tls: {{listen: $TLS, certificates: [{{{pair}}}]}}}}\n\
             services: {{resp: {{listen: '127.0.0.1:{}', tls: {{{pair}}}}}}}\nrules: []\n",
            port.number()
        ),
    );
    let expires = |listener: &str| {
        diana.metric(&format!("diana_certificate_not_after_time_seconds{{listener=\"{listener}\",name=\"127.0.0.1\"}}"))
    };
    assert_eq!((expires("gateway"), expires("resp")), (2e9, 2e9));
    let expected = |listener: &str, not_after: &str| serde_json::json!({"listener": listener, "names": ["127.0.0.1", "localhost"], "not_after": not_after});
    let certificates = status(&diana)["certificates"].clone();
    let times = ["2033-05-18T03:33:20Z", "2036-07-18T13:20:00Z"];
    assert_eq!(certificates, serde_json::json!([expected("gateway", times[0]), expected("resp", times[0])]));

    TlsFiles::create_until(diana.folder(), second).unwrap();
    diana.signal(Signal::HUP);
    let is_reloaded = || (expires("gateway") == 2.1e9 && expires("resp") == 2.1e9).then_some(());
    wait_until("the certificates to be reloaded", LONG, is_reloaded).unwrap();
    assert_eq!(status(&diana)["certificates"][0], expected("gateway", times[1]));
}

#[test]
fn without_tls_there_are_no_certificates() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: []\n");
    assert!(!diana.admin("/metrics").text().contains("diana_certificate"));
    assert_eq!(status(&diana)["certificates"], serde_json::json!([]));
}
