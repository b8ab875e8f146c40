//! The shared store, as the rule file configures it.

use diana_redis::{Batching, ConnectError, Leases, Options, RedisStore, WhenDown};
use diana_rules::file::{Lease, RedisSection, WhenRedisIsDown};

/// Connects to the Redis that a file configures.
///
/// An unreachable Redis is not an error: until it is reachable, requests are decided according to `when_down`.
pub async fn connect(section: &RedisSection) -> Result<RedisStore, ConnectError> {
    RedisStore::connect(section.url.reveal(), options(section)).await
}

fn options(section: &RedisSection) -> Options {
    let mut options = Options::default();
    if let Some(prefix) = &section.prefix {
        options = options.prefix(prefix);
    }
    if let Some(timeout) = section.timeout {
        options = options.timeout(timeout);
    }
    if let Some(when_down) = section.when_down {
        options = options.when_down(match when_down {
            WhenRedisIsDown::Local => WhenDown::Local,
            WhenRedisIsDown::LocalFull => WhenDown::LocalFull,
            WhenRedisIsDown::Allow => WhenDown::Allow,
            WhenRedisIsDown::Deny => WhenDown::Deny,
            _ => WhenDown::default(),
        });
    }
    if let Some(lease) = section.lease {
        options = options.leases(match lease {
            Lease::Off => Leases::Off,
            Lease::Auto => Leases::Auto,
            Lease::Of(permits) => Leases::Of(permits),
            _ => Leases::default(),
        });
    }
    if let Some(batching) = section.batching {
        options = options.batching(if batching { Batching::On } else { Batching::Off });
    }
    if let Some(permits_for) = section.permits_for {
        options = options.permits_for(permits_for);
    }
    options
}
