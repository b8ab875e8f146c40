//! A master and its replica, and three sentinels that monitor them and fail over.
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

/// The sentinels' name of the master.
const NAME: &str = "diana";

/// How many of the three sentinels must miss the master before a failover.
const QUORUM: usize = 2;
const SENTINELS: usize = 3;

/// The time without a reply after which the master counts as down, and the timeout of a failover. A machine that is
/// busy with other tests must not delay a running master for as long, or it is failed over.
const DOWN_AFTER_MILLIS: &str = "3000";
const FAILOVER_TIMEOUT_MILLIS: &str = "2000";

/// By default sentinels send hello messages every 2 s and query the servers every 10 s; only these debug settings
/// change that.
///
/// The time between two pings has two bounds. It must be far below the time after which a master counts as down: the
/// first ping is sent one period after a sentinel discovered a server, but its silence counts from the start, so that
/// every new master would count as down, and sometimes be failed over to one that has just restarted empty. And five
/// times the period must be far above a second: that is the maximum age of the last INFO from a replica when it is
/// promoted, and while the master is down there is one INFO per second. With a shorter period usually no replica
/// qualifies (`-failover-abort-no-good-slave`), and the next attempt follows only after twice the failover timeout,
/// again and again.
///
/// A sentinel that was delayed for two seconds does nothing for the tilt period, which is half a minute by default.
const FAST_TIMERS: [&str; 10] =
    ["SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200", "ping-period", "500", "tilt-period", "1000"];

/// Servers monitored by sentinels; all are killed on drop.
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
            sentinel.cli(&FAST_TIMERS)?;
        }
        let group = Self { servers: vec![master, replica], sentinels };
        wait_until("sentinels to find each other", LONG, || group.have_found_each_other().ok()?.then_some(()))?;
        Ok(group)
    }

    /// Returns the URLs of the three sentinels.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Returns the master's name for queries to the sentinels.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// Returns the port of the master, as the first running sentinel reports: that of a killed master until the
    /// failover is done.
    pub fn master_port(&self) -> io::Result<u16> {
        let mut running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        let sentinel = running.next().ok_or_else(|| io::Error::other("no sentinel is running"))?;
        master_reported_by(sentinel)
    }

    /// Returns master and replica, in the order in which they were started; a failover changes their roles, not their
    /// order.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The same, to kill and restart one.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Returns the three sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Kills the master, and returns its port.
    pub fn kill_master(&mut self) -> io::Result<u16> {
        let port = self.master_port()?;
        for server in self.servers.iter_mut().filter(|server| server.port() == port) {
            server.kill()?;
        }
        Ok(port)
    }

    /// Waits until all running sentinels report a running master that knows its role, and returns its port.
    ///
    /// For use after a master was killed or frozen; with a healthy one it returns at once.
    pub fn wait_for_failover(&self) -> io::Result<u16> {
        // Sentinels whose vote was split retry only after a while, possibly more than once.
        wait_until("sentinels to fail over", LONG * 4, || self.agreed_master().ok()?)
    }

    fn agreed_master(&self) -> io::Result<Option<u16>> {
        let port = self.master_port()?;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
            if master_reported_by(sentinel)? != port {
                return Ok(None);
            }
        }
        let master = self.servers.iter().find(|server| server.port() == port && server.is_running());
        let Some(master) = master else { return Ok(None) };
        Ok((master.info("replication", "role")? == "master").then_some(port))
    }

    fn have_found_each_other(&self) -> io::Result<bool> {
        let others = (SENTINELS - 1).to_string();
        for sentinel in &self.sentinels {
            let text = sentinel.cli(&["SENTINEL", "MASTER", NAME])?;
            let lines: Vec<&str> = text.lines().collect();
            // Names and values alternate.
            let is = |name: &str, value: &str| lines.chunks_exact(2).any(|pair| pair == [name, value]);
            if !(is("flags", "master") && is("num-slaves", "1") && is("num-other-sentinels", &others)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn master_reported_by(sentinel: &RedisServer) -> io::Result<u16> {
    let address = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
    let port = address.lines().nth(1).and_then(|port| port.parse().ok());
    port.ok_or_else(|| io::Error::other(format!("invalid address: {address}")))
}
