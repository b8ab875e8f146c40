//! Real servers for tests and benches: Redis alone, as a cluster, under sentinels; etcd; the proxies nginx, Envoy,
//! HAProxy, Traefik and Caddy; Prometheus; an HTTP server and a proxy that misbehave on demand; wrk and h2load, load
//! generators; Chromium; and scripts with Redis clients of other languages.
//!
//! A mock answers what its author expects of Redis. The tests are about what Redis does when it is frozen, killed,
//! full, moved or failed over, so these are the programs themselves (Redis 7 or later, on Linux): `redis-server`,
//! `redis-sentinel`, `redis-cli`, `etcd`, `nginx`, `prometheus`, `wrk`, `h2load`, `chromium` and `chromedriver` from the `PATH`;
//! Envoy, Traefik, Caddy and the clients from the folder that the environment variable `DIANA_TEST_TOOLS` names,
//! `target/test-tools` by default. `cargo xtask test` installs missing ones. Only benches start HAProxy, and `cargo xtask
//! bench` installs it.
//!
//! # What always holds
//! - Every server listens on loopback only, on ports that no other value of this crate has, in this process or another.
//! - A dropped value has killed its processes (those it started, by their ids), waited for them, and removed its data.
//!   A value in a `static` is never dropped: don't put one there.
//! - No process or file outlives its value; a restarted Redis is empty, a restarted etcd has its previous data.
//! - Every wait is for a condition, and bounded; a timeout is an error that names the condition.

mod browser;
mod caddy_server;
mod checkers;
mod envoy_server;
mod etcd_server;
mod h2load;
mod haproxy_server;
mod http_server;
mod nginx_server;
mod ports;
mod process;
mod prometheus_server;
mod proxy;
mod redis_cli;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod script;
mod tls_files;
mod tools;
mod traefik_server;
mod wait;
mod wrk;

pub use browser::Browser;
pub use caddy_server::CaddyServer;
pub use checkers::{kubernetes_validate, promtool, start_error, systemd_analyze};
pub use envoy_server::EnvoyServer;
pub use etcd_server::EtcdServer;
pub use h2load::{H2load, H2loadRun};
pub use haproxy_server::HaproxyServer;
pub use http_server::{HttpServer, Misbehave};
pub use nginx_server::NginxServer;
pub use ports::Port;
pub use process::{Process, resident};
pub use prometheus_server::PrometheusServer;
pub use proxy::Proxy;
pub use redis_cluster::{RedisCluster, SlotMove};
pub use redis_sentinel::RedisSentinel;
pub use redis_server::{RedisServer, RedisServerBuilder};
pub use script::{RunningScript, Script};
pub use tls_files::TlsFiles;
pub use traefik_server::TraefikServer;
pub use wait::wait_until;
pub use wrk::{Wrk, WrkRun};
