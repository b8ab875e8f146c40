//! Gateways with shared state: their counts on a real Redis, also one that is killed or frozen under load, and their
//! rules in a real etcd.
//!
//! No test depends on timing: windows last an hour or a day and open with their first request, so that none ends during
//! a test; and tests wait for the effects of other processes.

mod config_server;
mod fleet;
mod library;
mod load;
mod permits;
mod redis_outage;
mod shared_limits;
