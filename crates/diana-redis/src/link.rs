//! The connection to Redis.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::Duration;

/// The connection to Redis, with a time-out.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    timeout: Duration,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Away(String),
    #[error("the script is not loaded")]
    NoScript,
    #[error("Redis ran the script after its deadline, and charged nothing")]
    Late,
    #[error("{0}")]
    Foreign(String),
}

impl CallError {
    pub(crate) fn nonsense() -> Self {
        Self::Foreign("Redis gave a reply that no script of Diana's gives".to_owned())
    }

    pub(crate) fn disagreement() -> Self {
        Self::Foreign("the script and the algorithm disagree; please report this".to_owned())
    }

    pub(crate) fn busy() -> Self {
        Self::Foreign("the key changes its parameters all the time; do two configurations compete?".to_owned())
    }
}

impl Link {
    pub(crate) async fn open(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, timeout })
    }

    pub(crate) async fn call(&self, cmd: &Cmd) -> Result<Value, CallError> {
        let mut connection = self.connection.clone();
        let answer = async { connection.req_packed_command(cmd).await.and_then(Value::extract_error) };
        match tokio::time::timeout(self.timeout, answer).await {
            Err(_) => Err(CallError::TimedOut(self.timeout)),
            Ok(Err(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => Err(CallError::NoScript),
            Ok(Err(error)) => Err(CallError::Away(error.to_string())),
            Ok(Ok(value)) => Ok(value),
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        None
    }
}
