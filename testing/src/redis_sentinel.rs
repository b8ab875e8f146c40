//! A master and its replica, and three sentinels that watch them and fail over.
//!
//! ```no_run
//! use diana_testing::RedisSentinel;
//!
//! let mut redis = RedisSentinel::start()?;
//! let old = redis.kill_master()?;
//! let new = redis.wait_for_failover()?;
//! assert_ne!(old, new);
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::wait::{LONG, wait_until};
use std::io;

/// What the sentinels call the master.
const NAME: &str = "diana";

/// How many of the three sentinels must miss the master before one may act.
const QUORUM: usize = 2;
const SENTINELS: usize = 3;

/// After so long without a word the master counts as down; an attempt to fail over is given up after so long. A machine that is
/// busy with other tests must not hold up a master that lives for as long, or it is deposed.
const DOWN_AFTER_MILLIS: &str = "3000";
const FAILOVER_TIMEOUT_MILLIS: &str = "2000";

/// Sentinels greet each other every 2 s and look at the servers every 10 s, which no configuration changes but this does.
///
/// The time between two pings has two bounds. It must be far below the time after which a master counts as down: the first ping
/// comes one period after a sentinel got to know a server, but its silence counts from the start, so that every new master would
/// be taken for dead, and at times deposed for one that has just come back empty. And five times the period must be far above a
/// second: so old may the last look at a replica be when it is promoted, and while the master is down there is one look a second.
/// With less than that no replica is good enough at most times (`-failover-abort-no-good-slave`), and the next attempt comes only
/// after twice the failover timeout, again and again.
///
/// A sentinel that was held up for two seconds does nothing for the tilt period, which is half a minute by default.
const HURRY: [&str; 10] =
    ["SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200", "ping-period", "500", "tilt-period", "1000"];

/// Servers under the eyes of sentinels; all are killed on drop.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// Starts them all, and waits until every sentinel knows the replica and the other sentinels. Takes some seconds.
    pub fn start() -> io::Result<Self> {
        let master = RedisServer::start()?;
        let replica = RedisServer::builder().replica_of(&master).start()?;
        replica.wait_until_in_sync()?;
        let builder = RedisServerBuilder::sentinel()
            .arg("sentinel monitor", &format!("{NAME} 127.0.0.1 {} {QUORUM}", master.port()))
            .arg("sentinel down-after-milliseconds", &format!("{NAME} {DOWN_AFTER_MILLIS}"))
            .arg("sentinel failover-timeout", &format!("{NAME} {FAILOVER_TIMEOUT_MILLIS}"));
        let sentinels = (0..SENTINELS).map(|_| builder.clone().start()).collect::<io::Result<Vec<_>>>()?;
        for sentinel in &sentinels {
            sentinel.cli(&HURRY)?;
        }
        let group = Self { servers: vec![master, replica], sentinels };
        wait_until("sentinels to find each other", LONG, || group.all_know_all().ok()?.then_some(()))?;
        Ok(group)
    }

    /// The URLs of the three sentinels.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The name that clients ask the sentinels for.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// The port of the master, by what the first running sentinel says: a dead one's until the failover is done.
    pub fn master_port(&self) -> io::Result<u16> {
        let mut running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        let sentinel = running.next().ok_or_else(|| io::Error::other("no sentinel is running"))?;
        master_named_by(sentinel)
    }

    /// Master and replica, in the order in which they were started; a failover changes their parts, not their places.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The same, for killing and restarting one.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// The three sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Kills the master, and gives its port.
    pub fn kill_master(&mut self) -> io::Result<u16> {
        let port = self.master_port()?;
        for server in self.servers.iter_mut().filter(|server| server.port() == port) {
            server.kill()?;
        }
        Ok(port)
    }

    /// Waits until all running sentinels name a master that runs and knows that it is one, and gives its port.
    ///
    /// For after a master was killed or frozen; with one that is well it returns at once.
    pub fn wait_for_failover(&self) -> io::Result<u16> {
        // Sentinels that vote for each other try again only after a while, and may do so more than once.
        wait_until("sentinels to fail over", LONG * 4, || self.agreed_master().ok()?)
    }

    fn agreed_master(&self) -> io::Result<Option<u16>> {
        let port = self.master_port()?;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
            if master_named_by(sentinel)? != port {
                return Ok(None);
            }
        }
        let master = self.servers.iter().find(|server| server.port() == port && server.is_running());
        let Some(master) = master else { return Ok(None) };
        Ok((master.info("replication", "role")? == "master").then_some(port))
    }

    fn all_know_all(&self) -> io::Result<bool> {
        let others = (SENTINELS - 1).to_string();
        for sentinel in &self.sentinels {
            let text = sentinel.cli(&["SENTINEL", "MASTER", NAME])?;
            let lines: Vec<&str> = text.lines().collect();
            // Names and values in turn.
            let is = |name: &str, value: &str| lines.chunks_exact(2).any(|pair| pair == [name, value]);
            if !(is("flags", "master") && is("num-slaves", "1") && is("num-other-sentinels", &others)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn master_named_by(sentinel: &RedisServer) -> io::Result<u16> {
    let address = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
    let port = address.lines().nth(1).and_then(|port| port.parse().ok());
    port.ok_or_else(|| io::Error::other(format!("not an address: {address}")))
}
