//! Bodies are throttled by the rules, evenly, and stay complete. Time is tokio's, paused: the values are exact.

use bytes::Bytes;
use diana::TokioClock;
use diana::rules::attributes::SyntheticRequest;
use diana::rules::{Document, Registry, RuleFile};
use diana::{Engine, EngineOptions, Verdict};
use diana_http::Throttle;
use futures_util::FutureExt;
use futures_util::future::poll_fn;
use http::HeaderMap;
use http_body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

fn file(rules: &str) -> RuleFile {
    let document = Document::new("diana.yaml", format!("rules: [{rules}]"));
    RuleFile::read_with(&document, &Registry::default(), |_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

fn engine(rules: &str) -> Engine {
    let file = file(rules);
    EngineOptions::of(&file).clock(TokioClock::new()).build(&file)
}

fn throttle(engine: &Engine, ip: u8) -> Throttle {
    let request = SyntheticRequest::new("GET", "/film").ip([203, 0, 113, ip]);
    Throttle::of(engine, Verdict::of(&engine.acquire(&request).now().unwrap()))
}

/// A body of these frames, with consecutive bytes.
#[derive(Default)]
struct Frames {
    frames: VecDeque<Frame<Bytes>>,
    bytes: u8,
}

impl Frames {
    fn of(sizes: &[usize]) -> Self {
        sizes.iter().fold(Self::default(), |frames, size| frames.and(*size))
    }

    fn and(mut self, size: usize) -> Self {
        let data = (0..size).map(|_| {
            self.bytes = self.bytes.wrapping_add(1);
            self.bytes
        });
        let data = data.collect::<Bytes>();
        self.frames.push_back(Frame::data(data));
        self
    }

    fn trailers(mut self) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        self.frames.push_back(Frame::trailers(trailers));
        self
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Returns when each chunk arrived, in milliseconds, and its size; checks that no byte is lost or changed.
async fn chunks(body: impl Body<Data = Bytes, Error = Infallible>) -> Vec<(u128, usize)> {
    let (mut body, start, mut next) = (pin!(body), Instant::now(), 0_u8);
    let mut chunks = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.unwrap().into_data() else { continue };
        for byte in &data {
            next = next.wrapping_add(1);
            assert_eq!(*byte, next, "a byte is lost or out of order");
        }
        chunks.push((start.elapsed().as_millis(), data.len()));
    }
    assert!(body.is_end_stream());
    chunks
}

#[tokio::test(start_paused = true)]
async fn the_burst_passes_at_once_and_the_rest_evenly() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 100B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[100, 90]));
    // 20 ms of the rate are 20 bytes.
    let even = [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)];
    assert_eq!(chunks(body).await, even);
}

#[tokio::test(start_paused = true)]
async fn a_slow_rate_passes_byte_by_byte() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 10B/s, burst: 1B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[4]));
    assert_eq!(chunks(body).await, [(0, 1), (100, 1), (200, 1), (300, 1)]);
}

#[tokio::test(start_paused = true)]
async fn small_frames_pass_whole() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[5, 5, 5, 5, 5, 5]));
    assert_eq!(chunks(body).await, [(0, 5), (0, 5), (0, 5), (0, 5), (5, 5), (10, 5)]);
}

#[tokio::test(start_paused = true)]
async fn the_rate_holds_over_a_long_body() {
    let engine = engine("{name: slow, by: ip, bandwidth: 512KiB/s}");
    let body = throttle(&engine, 7).response(Frames::of(&[64 << 10; 81]));
    let chunks = chunks(body).await;
    // 5,184 KiB, of which those of 20 ms go at once.
    assert_eq!(chunks.last().unwrap().0, 10_106);
    let gaps = chunks.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.max().unwrap() <= 21, "no gap is longer than a chunk");
}

/// nginx's `limit_rate 50k`: as a client measures it, 150 KiB take three seconds.
#[tokio::test(start_paused = true)]
async fn by_default_a_body_takes_the_time_that_its_rate_says() {
    for by in ["ip", "request"] {
        let engine = engine(&format!("{{name: slow, by: {by}, bandwidth: 50KiB/s}}"));
        let body = throttle(&engine, 7).response(Frames::of(&[150 << 10]));
        let chunks = chunks(body).await;
        assert_eq!((chunks[0], chunks.last().copied()), ((0, 1 << 10), Some((2_980, 1 << 10))), "{by}");
        assert!(chunks.windows(2).all(|pair| pair[1].0 - pair[0].0 == 20), "{by}");
    }
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 50KiB/s, burst: 50KiB}}");
    let body = throttle(&engine, 7).response(Frames::of(&[150 << 10]));
    assert_eq!(chunks(body).await.last().unwrap().0, 2_000);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_one_key_share_a_bucket_and_alternate() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let (one, other) = (throttle(&engine, 7), throttle(&engine, 7));
    let (one, other, separate) = tokio::join!(
        chunks(one.response(Frames::of(&[60]))),
        chunks(other.response(Frames::of(&[60]))),
        chunks(throttle(&engine, 8).response(Frames::of(&[60]))),
    );
    // The first body had the burst, and its next chunk reserved, before the other started.
    assert_eq!(one, [(0, 20), (20, 20), (60, 20)]);
    assert_eq!(other, [(40, 20), (80, 20), (100, 20)]);
    assert_eq!(separate, [(0, 20), (20, 20), (40, 20)]);
}

#[tokio::test(start_paused = true)]
async fn with_by_request_each_request_has_its_own_bucket() {
    let engine = engine("{name: slow, by: request, bandwidth: {rate: 1000B/s, burst: 20B, of: both}}");
    let (one, other) = (throttle(&engine, 7), throttle(&engine, 7));
    let (one, other) = tokio::join!(
        chunks(one.response(Frames::of(&[40]))),
        // Both bodies of a request are counted together.
        async { (chunks(other.request(Frames::of(&[40]))).await, chunks(other.response(Frames::of(&[20]))).await) },
    );
    assert_eq!(one, [(0, 20), (20, 20)]);
    assert_eq!(other, (vec![(0, 20), (20, 20)], vec![(20, 20)]));
}

#[tokio::test(start_paused = true)]
async fn the_first_bytes_pass_at_full_speed() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B, after: 1000B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[700, 340]));
    assert_eq!(chunks(body).await, [(0, 700), (0, 300), (0, 20), (20, 20)]);
}

#[tokio::test(start_paused = true)]
async fn throttles_only_the_configured_bodies() {
    for (of, request, response) in [("request", true, false), ("response", false, true), ("both", true, true)] {
        let engine = engine(&format!("{{name: slow, by: ip, bandwidth: {{rate: 1B/s, of: {of}}}}}"));
        let throttle = throttle(&engine, 7);
        let throttled = (throttle.request(()).is_throttled(), throttle.response(()).is_throttled());
        assert_eq!(throttled, (request, response), "{of}");
    }
    let shadow = engine("{name: slow, by: ip, bandwidth: 1B/s, shadow: true}, {name: other, by: ip, limit: 5/s}");
    assert!(throttle(&shadow, 7).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_slowest_of_several_rules_applies() {
    let rules = "{name: all, bandwidth: {rate: 1000B/s, burst: 100B}}, {name: each, by: ip, bandwidth: {rate: 100B/s, burst: 2B}}";
    let engine = engine(rules);
    let body = throttle(&engine, 7).response(Frames::of(&[8]));
    assert_eq!(chunks(body).await, [(0, 2), (20, 2), (40, 2), (60, 2)]);
}

#[tokio::test(start_paused = true)]
async fn every_rule_counts_the_bytes() {
    let engine = engine(
        "{name: all, bandwidth: {rate: 10B/s, burst: 10B}}, {name: each, by: ip, bandwidth: {rate: 1000B/s, burst: 8B}}",
    );
    assert_eq!(chunks(throttle(&engine, 7).response(Frames::of(&[8]))).await, [(0, 8)]);
    assert_eq!(chunks(throttle(&engine, 8).response(Frames::of(&[3]))).await, [(0, 1), (0, 1), (100, 1)]);
}

#[tokio::test(start_paused = true)]
async fn trailers_and_empty_frames_pass() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[40, 0]).trailers());
    let (mut body, start) = (pin!(body), Instant::now());
    let mut frames = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame.unwrap();
        frames.push((start.elapsed().as_millis(), frame.data_ref().map(Bytes::len)));
    }
    assert_eq!(frames, [(0, Some(20)), (20, Some(20)), (20, Some(0)), (20, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_refunds_its_pending_chunk() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let body = throttle(&engine, 7).response(Frames::of(&[40]));
    let cancelled = tokio::time::timeout(Duration::from_millis(5), chunks(body)).await;
    assert!(cancelled.is_err());
    // Without the refund of its 20 bytes, the next body would wait for 40 ms.
    let body = throttle(&engine, 7).response(Frames::of(&[20]));
    assert_eq!(chunks(body).await, [(15, 20)]);
}

#[tokio::test(start_paused = true)]
async fn the_size_hint_is_exact() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let mut body = pin!(throttle(&engine, 7).response(http_body_util::Full::new(Bytes::from(vec![0; 50]))));
    assert_eq!(body.size_hint().exact(), Some(50));
    poll_fn(|context| body.as_mut().poll_frame(context)).await.unwrap().unwrap();
    assert_eq!(body.size_hint().exact(), Some(30));
    assert!(!body.is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_rule_change_applies_to_active_bodies_and_keeps_the_counts() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let mut body = pin!(throttle(&engine, 7).response(Frames::of(&[44])));
    poll_fn(|context| body.as_mut().poll_frame(context)).await.unwrap().unwrap();
    engine.set_rules(&file("{name: slow, by: ip, bandwidth: {rate: 100B/s, burst: 2B}}"));
    // The change takes effect with the next acquisition.
    assert_eq!(chunks(throttle(&engine, 7).response(Frames::of(&[2]))).await, [(20, 2)]);
    let start = Instant::now();
    let mut sizes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        sizes.push(frame.unwrap().into_data().unwrap().len());
    }
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (12, 24), "{sizes:?}");
    assert_eq!(start.elapsed().as_millis(), 240);
}

/// Tokio's timer has a resolution of a millisecond: each wait for a tenth of one ends late.
#[tokio::test(start_paused = true)]
async fn a_late_wake_up_does_not_reduce_the_rate() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000000B/s, burst: 100B}}");
    let chunks = chunks(throttle(&engine, 7).response(Frames::of(&[10_100]))).await;
    assert_eq!(chunks.iter().map(|(_, bytes)| bytes).sum::<usize>(), 10_100);
    // The burst at once, and the rest in 10 ms; acquired as of the wake-up, each 100 bytes would take a millisecond.
    assert_eq!(chunks.last().unwrap().0, 10);
    for millis in 0..=10 {
        let passed: usize = chunks.iter().filter(|(at, _)| *at <= millis).map(|(_, bytes)| bytes).sum();
        assert!(passed <= 100 + 1_000 * usize::try_from(millis).unwrap(), "{passed} bytes in {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn late_bodies_of_one_key_alternate() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000000B/s, burst: 100B}}");
    let each = || tokio::spawn(chunks(throttle(&engine, 7).response(Frames::of(&[5_000]))));
    let (one, other) = (each(), each());
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    let at = |chunks: &[(u128, usize)], bytes: usize| {
        let mut passed = 0;
        chunks.iter().find(|chunk| (passed += chunk.1, passed >= bytes).1).unwrap().0
    };
    assert_eq!(at(&one, 5_000).max(at(&other, 5_000)), 10);
    for bytes in [1_000, 2_500, 4_000] {
        assert!(at(&one, bytes).abs_diff(at(&other, bytes)) <= 1, "{one:?} {other:?}");
    }
}

/// A body that was not polled for a second does not catch up with a spike.
#[tokio::test(start_paused = true)]
async fn a_lag_over_50_ms_is_not_made_up_for() {
    let engine = engine("{name: slow, by: ip, bandwidth: {rate: 1000B/s, burst: 20B}}");
    let mut body = pin!(throttle(&engine, 7).response(Frames::of(&[400])));
    let mut next = async || poll_fn(|context| body.as_mut().poll_frame(context)).await.unwrap().unwrap();
    next().await;
    assert!(next().now_or_never().is_none(), "it waits for the next 20 bytes");
    tokio::time::advance(Duration::from_secs(1)).await;
    let start = Instant::now();
    let mut immediate = 0;
    loop {
        let bytes = next().await.data_ref().map_or(0, Bytes::len);
        if start.elapsed() > Duration::ZERO {
            break;
        }
        immediate += bytes;
    }
    // The chunk that it had waited for, the burst, and 50 ms of the rate in chunks of 20.
    assert_eq!(immediate, 20 + 20 + 40);
}
