//! What every server of Diana needs below its protocol: sockets and accepting, TLS, the PROXY protocol, bounds of memory and file
//! descriptors, and log files. The gateway, the services and the admin server are built on it.
//!
//! | module | subject |
//! |---|---|
//! | [`listen`] | sockets that several workers share, and accepting from them |
//! | [`tls`] | certificates, chosen by SNI, reloaded when their files change, and checked before anything listens |
//! | [`proxy_protocol`] | a load balancer's header about the client |
//! | [`descriptors`] | how many file descriptors there are, and who may use the last ones |

pub mod descriptors;
pub mod listen;
pub mod proxy_protocol;
pub mod tls;

mod client_socket;
mod log_file;
mod log_time;
mod rewind;
mod total_memory;

pub use client_socket::ClientSocket;
pub use log_file::LogFile;
pub use log_time::LogTime;
pub use rewind::{Rewind, SHARED_READ, read_shared};
pub use total_memory::{ReservedMemory, TotalMemory};
