//! The address of Redis: one server, a cluster, or a master that sentinels know.

use super::connection::Connection;
use super::redact::{split_scheme, without_password};
use redis::aio::PubSub;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError, TlsMode};
use std::time::Duration;

/// The address of Redis, parsed from its URL.
pub(crate) struct Target {
    address: Address,
    /// The URL without its password, for logs and errors.
    redacted: String,
}

enum Address {
    One(Client),
    Cluster(Vec<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, node: SentinelNodeConnectionInfo },
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.redacted)
    }
}

impl Target {
    /// Parses a URL. Returns the reason if it is invalid.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let redacted = without_password(url);
        let (scheme, rest) = split_scheme(url).ok_or("missing scheme")?;
        if scheme.starts_with("rediss") {
            // The client panics without a crypto provider. An error means that the program has installed its own, which works too.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let address = match scheme {
            "redis" | "rediss" | "redis+unix" | "unix" => {
                let info = url.into_connection_info().map_err(|error| reason(&error))?;
                Address::One(Client::open(info.set_tcp_settings(tcp())).map_err(|error| reason(&error))?)
            }
            "redis+cluster" | "rediss+cluster" => {
                let (nodes, _) = nodes(scheme, rest)?;
                // Reports now what the client considers invalid.
                cluster(&nodes, Duration::from_secs(1)).map_err(|error| reason(&error))?;
                Address::Cluster(nodes)
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let (nodes, path) = nodes(scheme, rest)?;
                let mut path = path.split('/');
                let master = path.next().filter(|name| !name.is_empty());
                let master = master.ok_or("missing master name, as in redis+sentinel://host:26379/mymaster")?;
                let database =
                    path.next().map_or(Ok(0), str::parse).map_err(|_| "invalid database: expected a number")?;
                Self::sentinel(nodes, master.to_owned(), database)
            }
            _ => return Err(format!("unknown scheme `{scheme}`")),
        };
        Ok(Self { address, redacted })
    }

    /// The URL's user and password are for the master; sentinels are queried without.
    fn sentinel(nodes: Vec<ConnectionInfo>, master: String, database: i64) -> Address {
        let mut node = SentinelNodeConnectionInfo::default().set_tcp_settings(tcp());
        if let Some(first) = nodes.first() {
            node = node.set_redis_connection_info(first.redis_settings().clone().set_db(database));
            if matches!(first.addr(), redis::ConnectionAddr::TcpTls { .. }) {
                node = node.set_tls_mode(TlsMode::Secure);
            }
        }
        let bare = |node: ConnectionInfo| node.set_redis_settings(redis::RedisConnectionInfo::default());
        Address::Sentinel { sentinels: nodes.into_iter().map(bare).collect(), master, node }
    }

    /// Returns the URL without its password.
    pub(crate) fn redacted(&self) -> &str {
        &self.redacted
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(_))
    }

    /// Opens a new connection, within this time.
    pub(crate) async fn connect(&self, within: Duration) -> Result<Connection, RedisError> {
        // The link's timeouts apply to whole requests; the client's would only shorten them.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(within)).set_response_timeout(None);
        let connecting = async {
            match &self.address {
                Address::One(client) => {
                    client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
                }
                Address::Cluster(nodes) => {
                    cluster(nodes, within)?.get_async_connection().await.map(Connection::Cluster)
                }
                Address::Sentinel { sentinels, master, node } => {
                    let mut client = known_master(sentinels, master, node)?;
                    client.get_async_connection_with_config(&config).await.map(Connection::One)
                }
            }
        };
        with_timeout(within, connecting).await
    }

    /// Opens a connection for a subscription, within this time: in a cluster to any node, since messages reach all of
    /// them; the time applies to each node.
    pub(crate) async fn listener(&self, within: Duration) -> Result<PubSub, RedisError> {
        let connecting = async {
            match &self.address {
                Address::One(client) => client.get_async_pubsub().await,
                Address::Sentinel { sentinels, master, node } => {
                    known_master(sentinels, master, node)?.async_get_client().await?.get_async_pubsub().await
                }
                Address::Cluster(nodes) => {
                    let mut last = None;
                    for node in nodes {
                        let client = Client::open(node.clone())?;
                        match with_timeout(within, client.get_async_pubsub()).await {
                            Ok(listener) => return Ok(listener),
                            Err(error) => last = Some(error),
                        }
                    }
                    Err(last.unwrap_or_else(|| std::io::Error::other("no nodes").into()))
                }
            }
        };
        let timeout = match &self.address {
            Address::Cluster(nodes) => within * u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            _ => within,
        };
        with_timeout(timeout, connecting).await
    }
}

/// Creates a client of a cluster with this connection timeout.
fn cluster(nodes: &[ConnectionInfo], within: Duration) -> Result<ClusterClient, RedisError> {
    // The link decides what to retry and when: the client would sometimes wait for a second.
    let builder = ClusterClientBuilder::new(nodes.to_vec()).retries(0).tcp_settings(tcp());
    // The client first waits for all nodes of the URL, then for all nodes that those know. With a third of the time for
    // each, a node that hangs delays the others twice, and there is still time for them.
    builder.connection_timeout(within / 3).response_timeout(within).build()
}

/// Disables Nagle's algorithm: requests are small, and the second would wait until the first is acknowledged.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn known_master(
    sentinels: &[ConnectionInfo],
    master: &str,
    node: &SentinelNodeConnectionInfo,
) -> Result<SentinelClient, RedisError> {
    SentinelClient::build(sentinels.to_vec(), master, Some(node.clone()), SentinelServerType::Master)
}

async fn with_timeout<T>(
    within: Duration,
    connecting: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match tokio::time::timeout(within, connecting).await {
        Ok(connection) => connection,
        Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "connection timed out").into()),
    }
}

/// Splits a URL like `user:password@host:port,host:port/rest` into its nodes and the rest.
fn nodes<'a>(scheme: &str, rest: &'a str) -> Result<(Vec<ConnectionInfo>, &'a str), String> {
    let plain = scheme.split('+').next().unwrap_or("redis");
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        // The apparent host is the beginning of the password, which must not be shown.
        return Err("unexpected `@` after `/`; write a `/` in the password as `%2F`".to_owned());
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let each = hosts.split(',').map(|host| {
        if host.is_empty() {
            return Err("missing host".to_owned());
        }
        format!("{plain}://{user}{host}")
            .into_connection_info()
            .map(|info| info.set_tcp_settings(tcp()))
            .map_err(|error| format!("host `{host}`: {}", reason(&error)))
    });
    Ok((each.collect::<Result<_, _>>()?, path))
}

fn reason(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_kind_of_address() {
        for url in [
            "redis://127.0.0.1:6379",
            "redis://:secret@127.0.0.1/2",
            "rediss://redis.example:6380",
            "redis+cluster://10.0.0.1:7000,10.0.0.2:7000",
            "rediss+cluster://user:secret@10.0.0.1:7000",
            "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster",
            "redis+sentinel://:secret@10.0.0.1:26379/mymaster/1",
        ] {
            assert!(Target::parse(url).is_ok(), "{url}: {:?}", Target::parse(url));
        }
    }

    #[test]
    fn nagles_algorithm_is_disabled() {
        let has_nodelay = |info: &ConnectionInfo| info.tcp_settings().nodelay();
        let address = |url| Target::parse(url).unwrap().address;
        for url in ["redis://h:1", "rediss://h:1", "redis+cluster://h:1,i:2", "redis+sentinel://h:1,i:2/m"] {
            let (hosts, others) = match address(url) {
                Address::One(client) => (vec![client.get_connection_info().clone()], String::new()),
                // Nodes that the client discovers use the builder's settings.
                Address::Cluster(nodes) => {
                    let client = cluster(&nodes, Duration::from_secs(1)).unwrap();
                    (nodes, format!("{client:?}"))
                }
                Address::Sentinel { sentinels, node, .. } => (sentinels, format!("{node:?}")),
            };
            assert!(hosts.iter().all(has_nodelay), "{url}");
            assert!(others.is_empty() || others.contains("nodelay: true"), "{url}: {others}");
        }
    }

    #[test]
    fn an_invalid_url_is_reported_with_its_reason() {
        let reason = |url: &str| Target::parse(url).unwrap_err();
        assert_eq!(reason("127.0.0.1:6379"), "missing scheme");
        assert_eq!(reason("http://127.0.0.1"), "unknown scheme `http`");
        assert_eq!(reason("redis+cluster://a:1,,b:2"), "missing host");
        assert!(reason("redis+sentinel://a:1").starts_with("missing master name"));
        assert_eq!(reason("redis+sentinel://a:1/m/x"), "invalid database: expected a number");
        assert!(reason("redis+cluster://a:port").starts_with("host `a:port`: "));
    }
}
