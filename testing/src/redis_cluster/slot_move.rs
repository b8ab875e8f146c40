//! Moves a slot from one master to another, in the steps that Redis prescribes (see `CLUSTER SETSLOT`).
//!
//! ```text
//! begin         IMPORTING at the target, then MIGRATING at the source: known keys stay, unknown ones get ASK
//! migrate_keys    MIGRATE, until the source has none: from here on everything gets ASK
//! finish        NODE at the target first, so that the slot always has an owner: everything gets MOVED
//! ```

use super::{Node, RedisCluster};
use crate::redis_server::RedisServer;
use std::io;

/// How many keys are migrated at once, and the timeout in milliseconds.
const BATCH: &str = "100";
const BATCH_MILLIS: &str = "5000";

/// A slot that is being moved. If dropped, the move stays incomplete.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    source: (&'a RedisServer, String),
    target: (&'a RedisServer, String),
}

impl<'a> SlotMove<'a> {
    pub(super) fn begin(cluster: &'a RedisCluster, key: &str) -> io::Result<Self> {
        let slot = cluster.slot_of(key)?.to_string();
        let source = cluster.node_of(key)?;
        let nodes = Node::parse_all(&source.cli(&["CLUSTER", "NODES"])?)?;
        let id_of = |server: &RedisServer| {
            nodes.iter().find(|node| node.port == server.port() && node.is_master()).map(|node| node.id.clone())
        };
        let mut others = cluster.running().filter(|server| server.port() != source.port());
        let target = others.find_map(|server| Some((server, id_of(server)?)));
        let target = target.ok_or_else(|| io::Error::other("no other master is running"))?;
        let source_id = id_of(source).ok_or_else(|| io::Error::other("the owner of the slot is no longer a master"))?;
        target.0.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])?;
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.1])?;
        Ok(Self { cluster, slot, source: (source, source_id), target })
    }

    /// Returns the port of the source master.
    pub fn source_port(&self) -> u16 {
        self.source.0.port()
    }

    /// Returns the port of the target master.
    pub fn target_port(&self) -> u16 {
        self.target.0.port()
    }

    /// Migrates the slot's keys. Includes keys that are written at the source in the meantime; only existing ones are.
    pub fn migrate_keys(&self) -> io::Result<()> {
        let port = self.target_port().to_string();
        loop {
            let keys = self.source.0.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, BATCH])?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", BATCH_MILLIS, "KEYS"];
            migrate.extend(keys.lines());
            self.source.0.cli(&migrate)?;
        }
    }

    /// Makes the target the slot's owner, notifies every running master, and returns the target's port.
    ///
    /// Returns an error if keys were not migrated; then the move stays incomplete.
    pub fn finish(self) -> io::Result<u16> {
        let id = &self.target.1;
        let assign = ["CLUSTER", "SETSLOT", &self.slot, "NODE", id];
        let remaining = self.source.0.cli(&["CLUSTER", "COUNTKEYSINSLOT", &self.slot])?;
        if remaining != "0" {
            return Err(io::Error::other(format!("slot {} still has {remaining} keys to migrate", self.slot)));
        }
        self.target.0.cli(&assign)?;
        self.source.0.cli(&assign)?;
        let notified = [self.target_port(), self.source_port()];
        for server in self.cluster.running().filter(|server| !notified.contains(&server.port())) {
            // Replicas don't accept it from a client; their masters notify them.
            if server.info("replication", "role")? == "master" {
                server.cli(&assign)?;
            }
        }
        Ok(self.target_port())
    }
}
