//! Bodies and fields of HTTP/1 messages: decoded from bytes, and written. With clients and with upstreams.

pub mod body_decoder;
pub mod body_writer;
pub mod chunked;

use crate::SHARED_READ;

/// The minimum number of bytes of a body that are read at once.
pub const MIN_READ: usize = SHARED_READ;
/// The maximum number of bytes of a body that are read at once.
pub const MAX_READ: usize = 64 << 10;

/// Invalid HTTP/1, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid HTTP: {0}")]
pub struct InvalidHttp(pub &'static str);
