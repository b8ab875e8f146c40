//! `diana check` opens the certificates, keys and CA files that a file names.

use crate::support::{diana_in, err};
use diana_testing::TlsFiles;

/// Each file is opened as `diana serve` will; a problem is at its path.
#[test]
fn certificates_keys_and_authorities_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str, until: Option<i64>| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        match until {
            Some(seconds) => TlsFiles::create_until(&folder, seconds).unwrap(),
            None => TlsFiles::create(&folder).unwrap(),
        }
    };
    let (_, _) = (create("one", None), create("other", None));
    // 2001-09-09 01:46:40 UTC.
    create("old", Some(1_000_000_000));
    let file = |tls: &str, ca: &str, resp: &str| {
        format!(
            "gateway:\n  upstream: https://127.0.0.1:1\n  upstream_ca: {ca}\n  tls:\n    listen: 127.0.0.1:2\n    \
             certificates: {tls}\nservices: {{resp: {{listen: 127.0.0.1:3, tls: {resp}}}}}\n\
             rules: [{{name: a, limit: 1/s}}]\n"
        )
    };
    let pair = |certificate: &str, key: &str| format!("{{certificate: {certificate}, key: {key}}}");
    let checked = |text: &str, options: &[&str], variables: &[(&str, &str)]| {
        let output = diana_in(folder.path(), &[&["check", "-q", "-"], options].concat(), text, variables);
        let text = err(&output);
        let lines = text.lines().filter(|line| line.starts_with("stdin:")).map(str::to_owned);
        (output.status.code(), lines.collect::<Vec<_>>())
    };
    let good = pair("one/certificate.pem", "one/key.pem");
    let valid = file(&format!("[{good}]"), "other/authority.pem", &good);
    assert_eq!(checked(&valid, &[], &[]), (Some(0), Vec::new()));

    let other = pair("one/certificate.pem", "other/key.pem");
    let old = pair("old/certificate.pem", "old/key.pem");
    let invalid = file(&format!("[{good}, {other}, {old}]"), "one/key.pem", &pair("nowhere.pem", "nowhere.key"));
    let expected = [
        "stdin:3:16: `upstream_ca` is invalid: no certificate found",
        "stdin:6:114: `key` is not the key of the certificate",
        "stdin:6:144: `certificate` has expired: 2001-09-09T01:46:40Z",
        "stdin:7:59: `certificate` can't be read: No such file or directory (os error 2)",
        "stdin:7:77: `key` can't be read: No such file or directory (os error 2)",
    ];
    let (status, lines) = checked(&invalid, &[], &[]);
    assert_eq!((status, &*lines), (Some(1), &expected.map(str::to_owned)[..]));
    assert_eq!(checked(&invalid, &["--no-files"], &[]), (Some(0), Vec::new()));
    // Other problems are reported at once, and a path may have a variable.
    let (_, lines) = checked(&invalid.replace("1/s", "1/x"), &[], &[]);
    assert_eq!(lines.len(), 6, "{lines:?}");
    let variable = valid.replace("one/key.pem", "'${FOLDER}/key.pem'");
    assert_eq!(checked(&variable, &[], &[("FOLDER", "one")]).0, Some(0));
    let (status, lines) = checked(&variable, &[], &[("FOLDER", "s3cret")]);
    assert!(status == Some(1) && lines.len() == 2 && !lines.concat().contains("s3cret"), "{lines:?}");
    assert_eq!(checked(&variable, &["--no-env"], &[]).0, Some(0));
    assert_eq!(checked(&valid.replace("other/authority.pem", "nowhere.pem"), &["--no-env"], &[]).0, Some(1));

    for service in ["envoy", "http", "resp"] {
        let file = |pair: &str| {
            format!("rules: [{{name: a, limit: 1/s}}]\nservices: {{{service}: {{listen: 127.0.0.1:3, tls: {pair}}}}}\n")
        };
        assert_eq!(checked(&file(&good), &[], &[]), (Some(0), Vec::new()), "{service}");
        let (status, lines) = checked(&file(&pair("old/certificate.pem", "other/key.pem")), &[], &[]);
        let column = format!("services: {{{service}: {{listen: 127.0.0.1:3, tls: {{certificate: ").len() + 1;
        let expired = format!("stdin:2:{column}: `certificate` has expired: 2001-09-09T01:46:40Z");
        let other =
            format!("stdin:2:{}: `key` is not the key of the certificate", column + "old/certificate.pem, key: ".len());
        assert_eq!((status, lines), (Some(1), vec![expired, other]), "{service}");
    }
}
