//! An etcd server persists its data over a restart, and requires a password if configured.

use diana_testing::EtcdServer;

#[test]
fn keeps_its_data_and_its_port_over_a_restart() {
    let mut etcd = EtcdServer::start().unwrap();
    let port = etcd.port();
    let first = etcd.put("key", "value").unwrap();
    etcd.kill().unwrap();
    assert!(etcd.put("key", "other").is_err());
    etcd.restart().unwrap();
    assert_eq!(etcd.port(), port);
    let range = etcd.call("/v3/kv/range", "{\"key\":\"a2V5\"}").unwrap();
    assert!(range.contains("\"value\":\"dmFsdWU=\""), "{range}");
    assert_eq!(etcd.delete("key").unwrap(), first + 1);
    etcd.compact(first + 1).unwrap();
    assert!(etcd.compact(first).is_err());
}

#[test]
fn two_servers_share_no_data() {
    let (one, other) = (EtcdServer::start().unwrap(), EtcdServer::start().unwrap());
    one.put("key", "value").unwrap();
    let range = other.call("/v3/kv/range", "{\"key\":\"a2V5\"}").unwrap();
    assert!(!range.contains("value"), "{range}");
}

#[test]
fn requires_a_password() {
    let mut etcd = EtcdServer::start().unwrap();
    etcd.require_password("secret").unwrap();
    etcd.put("key", "value").unwrap();
    assert!(etcd.log_in("wrong").is_err());
    assert!(etcd.put("key", "value").is_err());
    etcd.log_in("secret").unwrap();
    etcd.put("key", "value").unwrap();
}
