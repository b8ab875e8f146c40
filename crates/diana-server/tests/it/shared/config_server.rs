//! `diana serve` with rules from a real etcd: a document in etcd is applied, stays active while etcd is unreachable,
//! and is still known after a restart in that time.

use super::fleet::ALLOWED;
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
fn until_active(diana: &Diana, status: u16) {
    let is_active = || (get(diana.port(), "/").status == status).then_some(());
    wait_until("a rule to be active", LONG, is_active)
        .unwrap_or_else(|error| panic!("{status}: {error}\n{}", diana.admin("/rules").text()));
}

fn has_origin(diana: &Diana, origin: &str) -> bool {
    diana.metric(&format!("diana_rules_source{{origin=\"{origin}\"}}")) == 1.0
}

/// Returns the statuses of a gateway's first two responses.
fn first_two_statuses(diana: &Diana) -> [u16; 2] {
    [(); 2].map(|()| get(diana.port(), "/").status)
}

#[test]
fn rules_from_etcd_stay_active_while_it_is_unreachable() {
    let mut etcd = EtcdServer::start().unwrap();
    let (cache, empty) = (TempDir::new().unwrap(), TempDir::new().unwrap());
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
    let (with_cache, without_cache) = (file(&cache), file(&empty));
    etcd.put(KEY, &document(430)).unwrap();
    let diana = Diana::serve(&with_cache);
    until_active(&diana, 430);
    assert!(has_origin(&diana, "remote"));
    for status in [431, 432] {
        etcd.put(KEY, &document(status)).unwrap();
        until_active(&diana, status);
    }

    etcd.kill().unwrap();
    let is_noticed = || (diana.metric("diana_rules_remote_up") == 0.0).then_some(());
    wait_until("the gateway to notice that etcd is unreachable", LONG, is_noticed).unwrap();
    assert_eq!(first_two_statuses(&diana), [432; 2]);

    drop(diana);
    let diana = Diana::serve(&with_cache);
    assert_eq!(first_two_statuses(&diana), [ALLOWED, 432]);
    assert!(has_origin(&diana, "last_good"));
    // Without a disk cache it has only its own file.
    let other = Diana::serve(&without_cache);
    assert_eq!(first_two_statuses(&other), [ALLOWED, 420]);
    assert!(has_origin(&other, "local"));

    etcd.restart().unwrap();
    etcd.put(KEY, &document(433)).unwrap();
    for diana in [&diana, &other] {
        until_active(diana, 433);
        assert!(has_origin(diana, "remote"));
    }
}
