//! The transfer coding of a request body (RFC 9112, sections 6.1 and 7).

use super::Rejected;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, TRANSFER_ENCODING};

/// Rejects transfer codings other than `chunked`.
///
/// `Transfer-Encoding` is hop-by-hop, so it is not forwarded. The gateway removes `chunked` while it reads the body. It
/// can't remove `gzip`, and without the field the upstream would take compressed bytes for the content. hyper responds
/// with 400 itself if the last coding is not `chunked`, since then the end of the body is unknown.
pub(in crate::gateway) fn check_coding(headers: &HeaderMap) -> Result<(), Rejected> {
    // Comparing the names costs less than a lookup, and the field is usually missing.
    if !headers.keys().any(|name| *name == TRANSFER_ENCODING) {
        return Ok(());
    }
    let values = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let mut chunked = 0;
    for coding in values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked += 1;
        } else if !coding.is_empty() {
            let why = "no transfer coding other than `chunked` is supported";
            return Err(Rejected { status: StatusCode::NOT_IMPLEMENTED, why });
        }
    }
    if chunked > 1 {
        return Err(Rejected { status: StatusCode::BAD_REQUEST, why: "`chunked` is applied more than once" });
    }
    Ok(())
}
