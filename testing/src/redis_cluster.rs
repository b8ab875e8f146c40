//! Six Redis processes as one cluster: three masters that share the slots, and a replica of each.
//!
//! ```no_run
//! use diana_testing::RedisCluster;
//!
//! let mut cluster = RedisCluster::start()?;
//! cluster.move_slot_of("alice")?; // clients get MOVED
//! cluster.kill_master_of("alice")?; // clients get no answer, then CLUSTERDOWN
//! cluster.wait_until_whole()?; // the replica has taken over
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::redis_cli::{FORMING, redis_cli};
use crate::redis_server::{RedisServer, find_field};
use crate::wait::{LONG, wait_until};
use std::io;

mod cluster_nodes;
mod slot_move;

use cluster_nodes::Node;
pub use slot_move::SlotMove;

/// The time without a heartbeat after which a node counts as failed, and its replica takes over. Short, to keep tests
/// short.
const NODE_TIMEOUT_MILLIS: &str = "1000";

const NODES: usize = 6;

/// A running cluster; its processes are killed on drop.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts six nodes, forms the cluster, and waits until it is complete. Takes some seconds.
    pub fn start() -> io::Result<Self> {
        let builder =
            RedisServer::builder().arg("cluster-enabled", "yes").arg("cluster-node-timeout", NODE_TIMEOUT_MILLIS);
        let nodes = (0..NODES).map(|_| builder.clone().start()).collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut args = vec!["--cluster", "create"];
        args.extend(addresses.iter().map(String::as_str));
        args.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        redis_cli(FORMING, None, &args)?;
        let cluster = Self { nodes };
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    /// Returns the URLs of all nodes, including killed ones: a client's list is seldom up to date.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Returns all nodes, masters and replicas, in the order in which they were started.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The same, to kill and restart one.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// Returns the master that serves `key`, as the running nodes report.
    pub fn node_of(&self, key: &str) -> io::Result<&RedisServer> {
        let slot = self.slot_of(key)?;
        let mut owner: Option<(u64, &RedisServer)> = None;
        for server in self.running() {
            let own_entry =
                Node::parse_all(&server.cli(&["CLUSTER", "NODES"])?)?.into_iter().find(|node| node.is_myself);
            // A master that was frozen during its failover still claims its slots, but in an older epoch.
            if let Some(node) = own_entry.filter(|node| node.serves(slot))
                && owner.is_none_or(|(epoch, _)| epoch < node.epoch)
            {
                owner = Some((node.epoch, server));
            }
        }
        let (_, server) = owner.ok_or_else(|| io::Error::other(format!("no running node serves slot {slot}")))?;
        Ok(server)
    }

    /// Returns the slot of `key`.
    pub fn slot_of(&self, key: &str) -> io::Result<u16> {
        let slot = self.any()?.cli(&["CLUSTER", "KEYSLOT", key])?;
        slot.parse().map_err(|_| io::Error::other(format!("invalid slot: {slot}")))
    }

    /// Kills the master that serves `key`, and returns its port. Until its replica takes over (about two seconds; see
    /// [`wait_until_whole`](Self::wait_until_whole)) its slots are not served.
    pub fn kill_master_of(&mut self, key: &str) -> io::Result<u16> {
        let port = self.node_of(key)?.port();
        for node in self.nodes.iter_mut().filter(|node| node.port() == port) {
            node.kill()?;
        }
        Ok(port)
    }

    /// Moves the slot of `key`, with all its keys, to another master. Returns that master's port.
    pub fn move_slot_of(&self, key: &str) -> io::Result<u16> {
        let slot_move = self.begin_move_of(key)?;
        slot_move.migrate_keys()?;
        slot_move.finish()
    }

    /// Begins to move the slot of `key` to another master, and leaves the move incomplete: keys that are no longer, or
    /// not yet, on a node are answered with ASK.
    pub fn begin_move_of(&self, key: &str) -> io::Result<SlotMove<'_>> {
        SlotMove::begin(self, key)
    }

    /// Waits until every slot has a running master, every other running node is a replica in sync, and all running
    /// nodes report the same.
    pub fn wait_until_whole(&self) -> io::Result<()> {
        wait_until("a cluster to be complete", LONG, || self.is_whole().ok()?.then_some(()))
    }

    fn is_whole(&self) -> io::Result<bool> {
        let running: Vec<u16> = self.running().map(RedisServer::port).collect();
        let mut first: Option<Vec<Node>> = None;
        for server in self.running() {
            let state = find_field(&server.cli(&["CLUSTER", "INFO"])?, "cluster_state");
            if state.as_deref() != Some("ok") {
                return Ok(false);
            }
            let mut nodes = Node::parse_all(&server.cli(&["CLUSTER", "NODES"])?)?;
            for myself in nodes.iter().filter(|node| node.is_myself && !node.is_master()) {
                if myself.slots.is_empty() && server.info("replication", "master_link_status")? != "up" {
                    return Ok(false);
                }
            }
            nodes.retain(|node| running.contains(&node.port));
            nodes.iter_mut().for_each(Node::clear_reporter);
            nodes.sort_by_key(|node| node.port);
            match &first {
                None => first = Some(nodes),
                Some(first) if *first != nodes => return Ok(false),
                Some(_) => {}
            }
        }
        let nodes = first.unwrap_or_default();
        // A node that reports itself as a master without a slot does not know yet that it is a replica.
        let roles_are_known = nodes.iter().all(|node| node.is_master() != node.slots.is_empty());
        let served: usize = nodes.iter().map(Node::slot_count).sum();
        Ok(roles_are_known && served == 16_384 && nodes.len() == running.len())
    }

    fn any(&self) -> io::Result<&RedisServer> {
        self.running().next().ok_or_else(|| io::Error::other("no node of the cluster is running"))
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }
}
