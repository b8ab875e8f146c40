//! A pool of connections to a database that takes so many at a time, and not one more.

use diana::core::{ConcurrencyLimiter, InvalidQuota, NoPermit, Permit};
use std::time::Duration;

/// A database of which each answer takes a while.
#[derive(Clone)]
pub(crate) struct Database {
    connections: ConcurrencyLimiter,
}

/// A connection, which goes back when it is dropped.
pub(crate) struct Connection {
    _permit: Permit,
}

impl Database {
    pub(crate) fn new() -> Result<Self, InvalidQuota> {
        Ok(Self { connections: ConcurrencyLimiter::new("orders database", 2)?.max_waiting(20) })
    }

    /// A connection, first come, first served. Who has none after two seconds hears which resource it was.
    pub(crate) async fn connection(&self) -> Result<Connection, NoPermit> {
        let permit = self.connections.try_acquire_async(1, Duration::from_secs(2)).await?;
        Ok(Connection { _permit: permit })
    }
}

impl Connection {
    pub(crate) async fn query(&self, query: &str) -> String {
        tokio::time::sleep(Duration::from_millis(200)).await;
        format!("{query}: 3 rows\n")
    }
}
