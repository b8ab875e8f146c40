//! The services for other gateways: the program itself on real sockets, asked directly and by real gateways.

mod ambiguous_headers;
mod bounds;
mod client;
mod described_targets;
mod envoy;
mod ext_authz;
mod forward_auth;
mod forward_auth_operations;
mod forward_auth_proxies;
mod memory;
mod messages;
mod one_state;
mod operations;
mod ordinary_rules;
mod page;
mod queue_consumers;
mod rate_limit;
mod redis_clients;
mod request_cost;
pub(crate) mod resp_client;
mod resp_operations;
mod robustness;
mod several_envoys;
