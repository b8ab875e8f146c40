//! Bodies of HTTP/2 streams, with bounded memory: with clients and with upstreams.

mod compact_head;
mod interim;
mod memory;
mod received_body;
mod send_body;

pub(crate) use compact_head::{compact, head_size};
pub use interim::StreamHandle;
pub(crate) use memory::{HasBody, Memory, RECEIVE_WINDOW, RequestMemory, SEND_QUEUE};
pub use memory::{MIN_READ, SendChunk};
pub use received_body::Http2Body;
pub(crate) use received_body::{Http2RequestBody, ReadAhead};
pub use send_body::{Pipe, PipeError};
