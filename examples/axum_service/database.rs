//! A connection pool of a database with a fixed maximum of connections.

use diana::{ConcurrencyLimiter, ConcurrencyPermit, InvalidQuota, PermitError};
use std::time::Duration;

/// A database with slow responses.
#[derive(Clone)]
pub(crate) struct Database {
    connections: ConcurrencyLimiter,
}

/// A connection, returned to the pool when dropped.
pub(crate) struct Connection {
    _permit: ConcurrencyPermit,
}

impl Database {
    pub(crate) fn new() -> Result<Self, InvalidQuota> {
        Ok(Self { connections: ConcurrencyLimiter::new("orders database", 2)?.with_max_waiting(20) })
    }

    /// Returns a connection, first come, first served. After two seconds without one, the error names the resource.
    pub(crate) async fn connection(&self) -> Result<Connection, PermitError> {
        let permit = self.connections.acquire_timeout(1, Duration::from_secs(2)).await?;
        Ok(Connection { _permit: permit })
    }
}

impl Connection {
    pub(crate) async fn query(&self, query: &str) -> String {
        tokio::time::sleep(Duration::from_millis(200)).await;
        format!("{query}: 3 rows\n")
    }
}
