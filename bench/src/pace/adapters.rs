//! Everything that can be paced, as fast as its limit allows, for a given time.
//!
//! Sources never run dry and sinks accept everything, so that only the pace is measured.

use crate::flow_meter::FlowMeter;
use diana::pace::{IteratorExt, SinkExt as _, StreamExt as _, Throttled};
use diana::{Limiter, Quota};
use futures_util::{SinkExt as _, StreamExt as _, sink, stream};
use governor::prelude::StreamRateLimitExt as _;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The size of a reader's buffer, and of a single write.
const BUFFER: usize = 64 * 1024;

/// Creates a limiter with this rate per second and burst.
pub(crate) fn limiter(rate: u64, burst: u64) -> Arc<Limiter> {
    Arc::new(Limiter::new(Quota::per_second(rate).unwrap().with_burst(burst).unwrap()))
}

/// Creates a limiter with this rate in bytes per second, and a burst of 20 ms.
pub(crate) fn bytes(rate: u64) -> Arc<Limiter> {
    limiter(rate, rate / 50)
}

pub(crate) async fn stream(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let mut flow = FlowMeter::default();
    let mut items = stream::repeat(()).rate_limited(limiter);
    while items.next().await.is_some() && !flow.passed(1, length) {}
    flow
}

/// The same with governor, with the same burst of 1.
pub(crate) async fn governor_stream(rate: u32, length: Duration) -> FlowMeter {
    let one = NonZeroU32::MIN;
    let quota = governor::Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(one);
    let limiter = governor::RateLimiter::direct(quota);
    let mut flow = FlowMeter::default();
    let mut items = stream::repeat(()).ratelimit_stream(&limiter);
    while items.next().await.is_some() && !flow.passed(1, length) {}
    flow
}

pub(crate) async fn sink(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let mut flow = FlowMeter::default();
    let mut outbox = sink::drain().rate_limited(limiter);
    loop {
        outbox.send(()).await.unwrap();
        if flow.passed(1, length) {
            return flow;
        }
    }
}

pub(crate) async fn read(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let (mut flow, mut buffer) = (FlowMeter::default(), vec![0; BUFFER]);
    let mut reader = Throttled::new(tokio::io::repeat(7)).reads(limiter);
    loop {
        let read = reader.read(&mut buffer).await.unwrap();
        if flow.passed(read as u64, length) {
            return flow;
        }
    }
}

pub(crate) async fn write(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let (mut flow, buffer) = (FlowMeter::default(), vec![7; BUFFER]);
    let mut writer = Throttled::new(tokio::io::sink()).writes(limiter);
    loop {
        let written = writer.write(&buffer).await.unwrap();
        if flow.passed(written as u64, length) {
            return flow;
        }
    }
}

pub(crate) fn iterate(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let mut flow = FlowMeter::default();
    let _ = std::iter::repeat(()).rate_limited(limiter).find(|()| flow.passed(1, length));
    flow
}

pub(crate) fn blocking_read(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let (mut flow, mut buffer) = (FlowMeter::default(), vec![0; BUFFER]);
    let mut reader = Throttled::new(std::io::repeat(7)).reads(limiter);
    loop {
        let read = std::io::Read::by_ref(&mut reader).take(BUFFER as u64).read(&mut buffer).unwrap();
        if flow.passed(read as u64, length) {
            return flow;
        }
    }
}

pub(crate) fn blocking_write(limiter: Arc<Limiter>, length: Duration) -> FlowMeter {
    let (mut flow, buffer) = (FlowMeter::default(), vec![7; BUFFER]);
    let mut writer = Throttled::new(std::io::sink()).writes(limiter);
    loop {
        let written = std::io::Write::by_ref(&mut writer).write(&buffer).unwrap();
        if flow.passed(written as u64, length) {
            return flow;
        }
    }
}
