//! Drains the body of a request that was answered without it.
//!
//! Many clients read the response only after they have sent the whole body. If the gateway closed the connection before
//! that, they would see the connection end instead of the response, and a client that reuses the connection would find
//! it closed. So the connection reads and discards the rest of the body, up to [`MAX_BYTES`], within the timeouts of an
//! idle connection. For a longer body the same amount is read, and the response has `Connection: close`.

use super::body::RequestBody;
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderValue};
use http::request::Parts;
use http_body::Body;

/// How many bytes of a body are discarded.
const MAX_BYTES: u64 = 256 << 10;

/// Whether the connection can be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnReuse {
    KeepAlive,
    Close,
}

impl ConnReuse {
    /// Adds to the head of a response that the connection will be closed, if so.
    pub(crate) fn announce(self, response: &mut HeaderMap) {
        if self == Self::Close {
            response.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Discards a body, and returns whether the connection can be reused.
pub(crate) fn drain(head: &Parts, body: RequestBody) -> ConnReuse {
    let body = match body {
        RequestBody::Http1(body) if !body.is_end_stream() => body,
        // HTTP/2 can stop a body with a frame.
        RequestBody::Http1(_) | RequestBody::Http2(_) | RequestBody::Empty => return ConnReuse::KeepAlive,
    };
    // A client that waits for `100 Continue` has sent nothing, and may never do so.
    if head.headers.contains_key(EXPECT) {
        return ConnReuse::Close;
    }
    let is_long = body.size_hint().upper().is_some_and(|length| length > MAX_BYTES);
    body.discard(MAX_BYTES);
    if is_long { ConnReuse::Close } else { ConnReuse::KeepAlive }
}
