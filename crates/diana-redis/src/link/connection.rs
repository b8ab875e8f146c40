//! One connection to a single server or to a cluster.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

/// How often a command follows a moving slot: to the old node, to the new one, and once more for clients that are
/// redirected during the move.
const REDIRECTIONS: usize = 4;

/// A connection to one server, or to a whole cluster. Clones share the connection, which is multiplexed.
#[derive(Clone)]
pub(crate) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Sends a command, and waits for the reply. An error reply is returned as an error.
    pub(crate) async fn send(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd).await.and_then(into_result),
            Self::Cluster(connection) => send_with_redirects(connection, cmd).await,
        }
    }
}

/// Converts an error reply to an error. Only the reply itself: an error within it belongs to one of several requests.
fn into_result(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Sends a command to the node that has its slot, also while the slot is being moved.
async fn send_with_redirects(connection: &mut ClusterConnection, cmd: &Cmd) -> Result<Value, RedisError> {
    let mut reply = connection.req_packed_command(cmd).await.and_then(into_result);
    for _ in 0..REDIRECTIONS {
        let Err(error) = &reply else { break };
        reply = match (error.kind(), address(error)) {
            (ErrorKind::Server(ServerErrorKind::Ask), Some(node)) => send_asking(connection, cmd, node).await,
            // The client has learned which node has the slot.
            (ErrorKind::Server(ServerErrorKind::Moved), _) => {
                connection.req_packed_command(cmd).await.and_then(into_result)
            }
            _ => break,
        };
    }
    reply
}

/// Sends a command to a node that does not have the slot yet. `ASKING` applies to the next command on the connection,
/// so both are sent at once: otherwise it could apply to another request's command.
async fn send_asking(
    connection: &mut ClusterConnection,
    cmd: &Cmd,
    node: SingleNodeRoutingInfo,
) -> Result<Value, RedisError> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(cmd.clone());
    let replies = connection.route_pipeline(both, 1, 1, node).await?;
    into_result(replies.into_iter().next().unwrap_or(Value::Nil))
}

/// Returns the node that an error redirects to.
fn address(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}
