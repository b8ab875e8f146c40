//! Streams: lines at an even rate, and bytes.

use axum::body::{Body, Bytes};
use diana::pace::StreamExt as _;
use diana::{Limiter, Quota};
use diana_http::LimitedResponse;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use std::convert::Infallible;

/// Sends five lines per second to each listener, none of them early: the burst is one.
pub(crate) async fn lines() -> Result<Body, StatusCode> {
    let quota = Quota::per_second(5).and_then(|quota| quota.with_burst(1));
    let limiter = Limiter::new(quota.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?);
    let lines =
        stream::iter(1..=20).rate_limited(limiter).map(|number| Ok::<_, Infallible>(format!("line {number}\n")));
    Ok(Body::from_stream(lines))
}

/// Sends 200 KiB at 50 KiB/s: each chunk costs its bytes. An address may start two per second.
#[diana::rate_limit(rate = 2, by = ip)]
pub(crate) async fn film() -> Result<Body, LimitedResponse> {
    let Ok(quota) = Quota::per_second(50 << 10).and_then(|quota| quota.with_burst(4 << 10)) else {
        return Ok(Body::empty());
    };
    let chunks = stream::iter((0..100).map(|_| Bytes::from_static(&[0; 2 << 10])));
    let chunks = chunks.rate_limited(Limiter::new(quota)).cost(|chunk| chunk.len() as u64);
    Ok(Body::from_stream(chunks.map(Ok::<_, Infallible>)))
}
