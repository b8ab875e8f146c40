//! Real servers for tests and benches: Redis alone, as a cluster, under sentinels; etcd; nginx; an HTTP server and a
//! proxy that misbehave on demand; and wrk, a load generator.
//!
//! A mock answers what its author expects of Redis. The tests are about what Redis does when it is frozen, killed,
//! full, moved or failed over, so these are the programs themselves (Redis 7 or later, on Linux): `redis-server`,
//! `redis-sentinel`, `redis-cli`, `etcd`, `nginx` and `wrk` from the `PATH`. `cargo xtask test` installs missing ones.
//!
//! # What always holds
//! - Every server listens on loopback only, on ports that no other value of this crate has, in this process or another.
//! - A dropped value has killed its processes (those it started, by their ids), waited for them, and removed its data.
//!   A value in a `static` is never dropped: don't put one there.
//! - No process or file outlives its value; a restarted Redis is empty, a restarted etcd has its previous data.
//! - Every wait is for a condition, and bounded; a timeout is an error that names the condition.

mod cli;
mod etcd_server;
mod http_server;
mod nginx_server;
mod ports;
mod process;
mod proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod wait;
mod wrk;

pub use etcd_server::EtcdServer;
pub use http_server::{HttpServer, Misbehave};
pub use nginx_server::NginxServer;
pub use ports::Port;
pub use process::{Process, resident};
pub use proxy::Proxy;
pub use redis_cluster::{RedisCluster, SlotMove};
pub use redis_sentinel::RedisSentinel;
pub use redis_server::{RedisServer, RedisServerBuilder};
pub use wait::wait_until;
pub use wrk::{Wrk, WrkRun};
