//! One connection, whatever it leads to.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

/// How often a command is sent after a slot that moves: to where it was, to where it goes, and once more for those who
/// learn of it in the wrong moment.
const REDIRECTIONS: usize = 4;

/// A connection to one server, or to all of a cluster. Clones are the same connection; many requests can be under way.
#[derive(Clone)]
pub(crate) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Sends a command, and waits for what comes back. An error that Redis answers is an error.
    pub(crate) async fn send(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd).await.and_then(answered),
            Self::Cluster(connection) => send_after(connection, cmd).await,
        }
    }
}

/// An answer that is an error as one. Only the answer itself: an error within it belongs to one of several requests.
fn answered(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Sends a command to the node that has its slot, also while the slot moves.
async fn send_after(connection: &mut ClusterConnection, cmd: &Cmd) -> Result<Value, RedisError> {
    let mut answer = connection.req_packed_command(cmd).await.and_then(answered);
    for _ in 0..REDIRECTIONS {
        let Err(error) = &answer else { break };
        answer = match (error.kind(), address(error)) {
            (ErrorKind::Server(ServerErrorKind::Ask), Some(node)) => asking(connection, cmd, node).await,
            // By now the client knows who has the slot.
            (ErrorKind::Server(ServerErrorKind::Moved), _) => {
                connection.req_packed_command(cmd).await.and_then(answered)
            }
            _ => break,
        };
    }
    answer
}

/// Sends a command to a node that does not have the slot yet. `ASKING` is for the next command on the connection, so both
/// go at once: what others send in between would be let in instead.
async fn asking(
    connection: &mut ClusterConnection,
    cmd: &Cmd,
    node: SingleNodeRoutingInfo,
) -> Result<Value, RedisError> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(cmd.clone());
    let answers = connection.route_pipeline(both, 1, 1, node).await?;
    answered(answers.into_iter().next().unwrap_or(Value::Nil))
}

/// The node that an error points to.
fn address(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}
