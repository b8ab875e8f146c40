//! A config server on Redis: the string value of a key.
//!
//! It uses two connections, since a subscribed connection can't send queries. Messages only trigger a read of the key.
//! A lost message, or an update without one, is noticed at the next [poll](super::Remote::poll).

use super::client::clean;
use super::coordinator::SourceDocument;
use super::file::{text, too_large};
use super::remote_url::{POLL, Remote};
use super::remote_watcher::{Label, RemoteEvent, RemoteFailure};
use diana_rules::Document;
use futures_util::{FutureExt, StreamExt};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// The minimum time between two reads, regardless of the number of messages.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// See the [module](self).
pub(super) struct Redis {
    client: Result<Client, String>,
    key: String,
    database: i64,
    poll: Duration,
    timeout: Duration,
    label: Label,
    connections: Option<Connections>,
}

/// The two connections.
struct Connections {
    queries: MultiplexedConnection,
    subscription: PubSub,
    /// The time of the last read.
    last_read: Instant,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Redis {
    pub(super) fn new(url: Url, key: String, remote: Remote, label: Label) -> Self {
        if url.scheme() == "rediss" {
            // The client panics without a default provider. An error means that the program has set its own, which
            // works as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let Remote { credentials, poll, timeout, .. } = remote;
        let info = url.as_str().into_connection_info().map(|info| {
            let mut settings = info.redis_settings().clone();
            if let Some((user, password)) = credentials {
                if !user.is_empty() {
                    settings = settings.set_username(user);
                }
                settings = settings.set_password(password.reveal());
            }
            info.set_redis_settings(settings)
        });
        let database = info.as_ref().map_or(0, |info| info.redis_settings().db());
        let client = info.and_then(Client::open).map_err(|error| message_of(&error));
        Self { client, key, database, poll: poll.unwrap_or(POLL), timeout, label, connections: None }
    }

    pub(super) async fn read(&mut self) -> Result<SourceDocument, RemoteFailure> {
        match self.query().await? {
            RemoteEvent::Document(document) => Ok(document),
            RemoteEvent::Absent(what) => Err(RemoteFailure::no_document(what)),
            RemoteEvent::Same => Err(RemoteFailure::no_document("no document")),
        }
    }

    pub(super) async fn next(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        if let Some(connections) = &mut self.connections {
            let mut messages = connections.subscription.on_message();
            let mut ended = false;
            tokio::select! {
                message = messages.next() => ended = message.is_none(),
                () = tokio::time::sleep(self.poll) => {}
            }
            // Many messages trigger one read.
            tokio::time::sleep_until(connections.last_read + MIN_INTERVAL).await;
            while let Some(message) = messages.next().now_or_never() {
                if message.is_none() {
                    ended = true;
                    break;
                }
            }
            drop(messages);
            if ended {
                self.connections = None;
            }
        }
        self.query().await
    }

    /// Reads the key, over a connection that subscribed before.
    async fn query(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        let mut connections = match self.connections.take() {
            Some(connections) => connections,
            None => self.connect().await?,
        };
        // GET would read all of a string, which may be 512 MB long.
        let range = redis::cmd("GETRANGE").arg(&self.key).arg(0).arg(Document::MAX_SIZE).to_owned();
        let value: Result<Vec<u8>, RedisError> = self.with_timeout(range.query_async(&mut connections.queries)).await?;
        connections.last_read = Instant::now();
        let bytes = match value {
            Ok(bytes) => bytes,
            Err(error) if error.code() == Some("WRONGTYPE") => {
                self.connections = Some(connections);
                return Ok(RemoteEvent::Absent(format!("key `{}` is not a string", self.key)));
            }
            Err(error) => return Err(RemoteFailure::unreachable(message_of(&error))),
        };
        self.connections = Some(connections);
        if bytes.is_empty() {
            return Ok(RemoteEvent::Absent(format!("key `{}` is missing or empty", self.key)));
        }
        if bytes.len() > Document::MAX_SIZE {
            return Ok(RemoteEvent::Absent(too_large()));
        }
        match text(bytes) {
            Ok(text) => Ok(RemoteEvent::Document(self.label.document(text, None))),
            Err(what) => Ok(RemoteEvent::Absent(what)),
        }
    }

    async fn connect(&self) -> Result<Connections, RemoteFailure> {
        let client = self.client.as_ref().map_err(RemoteFailure::unreachable)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let connecting = async {
            let mut subscription = client.get_async_pubsub().await?;
            subscription.subscribe(&self.key).await?;
            // Without permission for keyspace events, the messages still work.
            let _ = subscription.subscribe(format!("__keyspace@{}__:{}", self.database, self.key)).await;
            let queries = client.get_multiplexed_async_connection_with_config(&config).await?;
            Ok(Connections { queries, subscription, last_read: Instant::now() })
        };
        self.with_timeout(connecting).await?.map_err(|error: RedisError| RemoteFailure::unreachable(message_of(&error)))
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = T>) -> Result<T, RemoteFailure> {
        let limit = self.timeout;
        tokio::time::timeout(limit, work)
            .await
            .map_err(|_| RemoteFailure::unreachable(format!("no response within {limit:?}")))
    }
}

fn message_of(error: &RedisError) -> String {
    clean(&error.to_string())
}
