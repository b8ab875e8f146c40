//! Denials of gRPC calls: a trailers-only response with the status of the call.

use super::page::when;
use crate::header_values::{number as digits, whole_seconds};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use diana::Retry;
use diana::ruleset::DenyReason;
use diana::{Reason, Verdict};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use std::time::Duration;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const PERMISSION_DENIED: u8 = 7;
const INVALID_ARGUMENT: u8 = 3;

/// Adds the status of the call, and the retry time for clients with automatic retries.
pub(super) fn add(headers: &mut HeaderMap, verdict: &Verdict) {
    let (code, message) = match (verdict.reason(), verdict.retry()) {
        (Some(Reason::Rule { why: DenyReason::Listed | DenyReason::Missing, .. }), _) => {
            (PERMISSION_DENIED, "denied".to_owned())
        }
        (Some(Reason::Rule { why: DenyReason::Cost, .. }), _) => {
            (INVALID_ARGUMENT, "the cost of the call cannot be computed".to_owned())
        }
        (_, Some(Retry::After(time))) => {
            (RESOURCE_EXHAUSTED, format!("too many requests, retry {}", when(whole_seconds(time))))
        }
        (_, Some(Retry::WhenReleased)) => (RESOURCE_EXHAUSTED, "too many concurrent requests".to_owned()),
        _ => (RESOURCE_EXHAUSTED, "too many requests".to_owned()),
    };
    headers.insert(STATUS, HeaderValue::from(u16::from(code)));
    if let Some(Retry::After(time)) = verdict.retry() {
        let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        headers.insert(PUSHBACK, digits(millis));
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details(code, &message, time))) {
            headers.insert(DETAILS, details);
        }
    }
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(MESSAGE, message);
    }
}

/// Encodes a `google.rpc.Status` with a `google.rpc.RetryInfo`.
fn details(code: u8, message: &str, time: Duration) -> Vec<u8> {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.RetryInfo";
    let mut delay = Vec::new();
    number(&mut delay, 1, time.as_secs());
    number(&mut delay, 2, u64::from(time.subsec_nanos()));
    let mut info = Vec::new();
    bytes(&mut info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, TYPE_URL.as_bytes());
    bytes(&mut any, 2, &info);
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(code));
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// Encodes a protobuf number; 0 is omitted.
fn number(buffer: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        buffer.push(field << 3);
        varint(buffer, value);
    }
}

fn bytes(buffer: &mut Vec<u8>, field: u8, value: &[u8]) {
    buffer.push(field << 3 | 2);
    varint(buffer, u64::try_from(value.len()).unwrap_or(u64::MAX));
    buffer.extend_from_slice(value);
}

#[allow(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}
