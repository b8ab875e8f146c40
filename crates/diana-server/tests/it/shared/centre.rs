//! `diana serve` with rules from a real etcd: a document in etcd is applied, stays active while etcd is unreachable,
//! and is still known after a restart in that time.

use super::fleet::PASSED;
use crate::support::client::get;
use crate::support::program::{Diana, LONG};
use diana_testing::{EtcdServer, wait_until};
use tempfile::TempDir;

const KEY: &str = "/diana/rules";

/// Returns a document whose rule allows one request, and denies the others with this status, which identifies it.
fn document(status: u16) -> String {
    format!("rules: [{{name: rule-{status}, limit: 1/day, status: {status}}}]")
}

/// Waits until a rule denies with this status.
fn until_in_force(diana: &Diana, status: u16) {
    let is_in_force = || (get(diana.port(), "/").status == status).then_some(());
    wait_until("a rule to be in force", LONG, is_in_force)
        .unwrap_or_else(|error| panic!("{status}: {error}\n{}", diana.admin("/rules").text()));
}

fn comes_from(diana: &Diana, origin: &str) -> bool {
    diana.metric(&format!("diana_rules_source{{origin=\"{origin}\"}}")) == 1.0
}

/// Returns the statuses of a gateway's first two responses.
fn first_two(diana: &Diana) -> [u16; 2] {
    [(); 2].map(|()| get(diana.port(), "/").status)
}

#[test]
fn rules_come_from_etcd_and_outlast_it() {
    let mut etcd = EtcdServer::start().unwrap();
    let (kept, empty) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = |keep: &TempDir| {
        format!(
            "
gateway: {{listen: $LISTEN, workers: 1}}
remote: {{from: 'etcd://127.0.0.1:{}{KEY}', keep: '{}'}}
rules: [{{name: local, limit: 1/day, status: 420}}]
",
            etcd.port(),
            keep.path().display()
        )
    };
    let (keeping, forgetful) = (file(&kept), file(&empty));
    etcd.put(KEY, &document(430)).unwrap();
    let diana = Diana::serve(&keeping);
    until_in_force(&diana, 430);
    assert!(comes_from(&diana, "remote"));
    for status in [431, 432] {
        etcd.put(KEY, &document(status)).unwrap();
        until_in_force(&diana, status);
    }

    etcd.kill().unwrap();
    let is_seen = || (diana.metric("diana_rules_remote_up") == 0.0).then_some(());
    wait_until("the gateway to see that etcd is away", LONG, is_seen).unwrap();
    assert_eq!(first_two(&diana), [432; 2]);

    drop(diana);
    let diana = Diana::serve(&keeping);
    assert_eq!(first_two(&diana), [PASSED, 432]);
    assert!(comes_from(&diana, "last_good"));
    // Without a disk cache it has only its own file.
    let other = Diana::serve(&forgetful);
    assert_eq!(first_two(&other), [PASSED, 420]);
    assert!(comes_from(&other, "local"));

    etcd.restart().unwrap();
    etcd.put(KEY, &document(433)).unwrap();
    for diana in [&diana, &other] {
        until_in_force(diana, 433);
        assert!(comes_from(diana, "remote"));
    }
}
