//! One connection, whatever it leads to.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, RedisError, Value};

/// A connection to one server, or to all of a cluster. Clones are the same connection; many requests can be under way.
#[derive(Clone)]
pub(crate) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Sends a command, and waits for what comes back. An error that Redis answers is an error.
    pub(crate) async fn send(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        let answer = match self {
            Self::One(connection) => connection.req_packed_command(cmd).await,
            Self::Cluster(connection) => connection.req_packed_command(cmd).await,
        };
        // Only the reply itself: an error within it belongs to one of several requests.
        match answer? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}
