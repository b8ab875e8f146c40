//! Sentinels agree on a master, and on another one after a failure.

use diana_testing::{RedisSentinel, wait_until};
use std::time::Duration;

const MAX_WAIT: Duration = Duration::from_secs(30);

#[test]
fn the_replica_of_a_killed_master_takes_over_with_its_data() {
    let mut redis = RedisSentinel::start().unwrap();
    assert_eq!(redis.sentinel_urls().len(), 3);
    assert_eq!(redis.sentinels().len(), 3);
    let [master, replica] = redis.servers() else { panic!("expected two servers") };
    assert_eq!(redis.master_port().unwrap(), master.port());
    assert_eq!(redis.wait_for_failover().unwrap(), master.port());
    master.cli(&["SET", "key", "value"]).unwrap();
    let copied = || (replica.cli(&["GET", "key"]).ok()? == "value").then_some(());
    wait_until("the replica to have the key", MAX_WAIT, copied).unwrap();
    let successor = replica.port();

    let dead = redis.kill_master().unwrap();
    assert_eq!(redis.wait_for_failover().unwrap(), successor);
    assert_eq!(redis.master_port().unwrap(), successor);
    assert_eq!(redis.servers()[1].cli(&["GET", "key"]).unwrap(), "value");

    // The killed master restarts as a replica: the sentinels configure it.
    let [old, _] = redis.servers_mut() else { panic!("expected two servers") };
    assert_eq!(old.port(), dead);
    old.restart().unwrap();
    let demoted = || (old.info("replication", "role").ok()? == "slave").then_some(());
    wait_until("the old master to follow the new", MAX_WAIT, demoted).unwrap();
}

#[test]
fn a_frozen_master_is_failed_over() {
    let redis = RedisSentinel::start().unwrap();
    let name = redis.master_name();
    let [master, replica] = redis.servers() else { panic!("expected two servers") };
    master.freeze().unwrap();
    assert_eq!(redis.wait_for_failover().unwrap(), replica.port());
    for sentinel in redis.sentinels() {
        let address = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).unwrap();
        assert_eq!(address, format!("127.0.0.1\n{}", replica.port()));
    }
}
