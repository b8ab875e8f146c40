//! The body of a request that was answered without it.
//!
//! Many clients read the answer when they have sent all. If the connection were closed before that, they would see its end and not
//! the answer; and who asks again on the same connection would find it closed. So what still comes of a body is read and thrown
//! away, up to [`MOST`] bytes. Of a longer one so much is read, too, and the client is told that the connection ends.

use super::request_body::RequestBody;
use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;
use std::time::Duration;

/// How much of a body is thrown away.
const MOST: u64 = 256 << 10;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnReuse {
    KeepAlive,
    Close,
}

/// Throws away a body. Tells whether the connection can be kept.
pub(super) fn throw_away(head: &Parts, body: RequestBody, timeout: Duration) -> ConnReuse {
    // HTTP/2 has a frame that says that no more is wanted.
    if body.is_end_stream() || head.version == Version::HTTP_2 {
        return ConnReuse::KeepAlive;
    }
    // Who waits to be told to go on has sent nothing, and reading would tell it to.
    if head.headers.contains_key(EXPECT) {
        return ConnReuse::Close;
    }
    let is_long = body.size_hint().upper().is_some_and(|length| length > MOST);
    tokio::spawn(async move {
        let _ = tokio::time::timeout(timeout, read(body)).await;
    });
    if is_long { ConnReuse::Close } else { ConnReuse::KeepAlive }
}

async fn read(mut body: RequestBody) {
    let mut left = MOST;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(less) = left.checked_sub(length) else { return };
        left = less;
    }
}
