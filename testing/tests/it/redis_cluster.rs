//! A cluster redirects, moves slots with their keys, and recovers.

use diana_testing::{RedisCluster, RedisServer};

fn with_port(cluster: &RedisCluster, port: u16) -> Option<&RedisServer> {
    cluster.nodes().iter().find(|node| node.port() == port)
}

/// Returns the server's error; empty if it answers.
fn error_of(server: &RedisServer, args: &[&str]) -> String {
    server.cli(args).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn three_masters_each_with_a_replica_in_sync() {
    let cluster = RedisCluster::start().unwrap();
    assert_eq!(cluster.urls().len(), 6);
    let roles = cluster.nodes().iter().map(|node| node.info("replication", "role").unwrap());
    assert_eq!(roles.filter(|role| role == "master").count(), 3);
    for node in cluster.nodes() {
        let field = if node.info("replication", "role").unwrap() == "master" {
            ("connected_slaves", "1")
        } else {
            ("master_link_status", "up")
        };
        assert_eq!(node.info("replication", field.0).unwrap(), field.1);
    }
    // CRC16 of "123456789" is 0x31c3: the specification's own example.
    assert_eq!(cluster.slot_of("123456789").unwrap(), 0x31c3);
    let owner = cluster.node_of("alice").unwrap();
    assert_eq!(owner.cli(&["SET", "alice", "1"]).unwrap(), "OK");
    let others = cluster.nodes().iter().filter(|node| node.port() != owner.port());
    let moved = format!("MOVED {} 127.0.0.1:{}", cluster.slot_of("alice").unwrap(), owner.port());
    for other in others {
        let error = error_of(other, &["GET", "alice"]);
        assert!(error.contains(&moved), "{error}");
    }
}

#[test]
fn a_slot_moves_with_its_keys_and_survives_a_failover() {
    let mut cluster = RedisCluster::start().unwrap();
    let old = cluster.node_of("{alice}").unwrap();
    for number in 0..250 {
        old.cli(&["SET", &format!("{{alice}}{number}"), "1"]).unwrap();
    }
    let slot = cluster.slot_of("{alice}").unwrap().to_string();

    let slot_move = cluster.begin_move_of("{alice}").unwrap();
    let (source, target) = (slot_move.source_port(), slot_move.target_port());
    assert_eq!(source, old.port());
    assert_eq!(old.cli(&["GET", "{alice}0"]).unwrap(), "1");
    let error = error_of(old, &["GET", "{alice}new"]);
    assert!(error.contains(&format!("ASK {slot} 127.0.0.1:{target}")), "{error}");
    slot_move.migrate_keys().unwrap();
    assert_eq!(slot_move.finish().unwrap(), target);

    assert_eq!(cluster.node_of("{alice}").unwrap().port(), target);
    let new = with_port(&cluster, target).unwrap();
    assert_eq!(new.cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).unwrap(), "250");
    assert_eq!(old.cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).unwrap(), "0");
    let error = error_of(old, &["GET", "{alice}0"]);
    assert!(error.contains(&format!("MOVED {slot} 127.0.0.1:{target}")), "{error}");
    cluster.wait_until_whole().unwrap();

    // In one call, back or to a third master: with its keys again.
    let third = cluster.move_slot_of("{alice}").unwrap();
    assert_eq!(with_port(&cluster, third).unwrap().cli(&["GET", "{alice}249"]).unwrap(), "1");
    cluster.wait_until_whole().unwrap();

    let dead = cluster.kill_master_of("{alice}").unwrap();
    assert_eq!(dead, third);
    cluster.wait_until_whole().unwrap();
    let successor = cluster.node_of("{alice}").unwrap();
    assert_ne!(successor.port(), dead);
    assert_eq!(successor.cli(&["GET", "{alice}249"]).unwrap(), "1");

    // The killed master restarts as a replica of its successor.
    let dead = cluster.nodes_mut().iter_mut().find(|node| node.port() == dead).unwrap();
    dead.restart().unwrap();
    cluster.wait_until_whole().unwrap();
}

#[test]
fn a_slot_with_unmigrated_keys_cannot_be_moved() {
    let cluster = RedisCluster::start().unwrap();
    cluster.node_of("bob").unwrap().cli(&["SET", "bob", "1"]).unwrap();
    let error = cluster.begin_move_of("bob").unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("still has 1 keys to migrate"), "{error}");
}
