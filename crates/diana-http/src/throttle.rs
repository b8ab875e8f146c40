//! Throttled bodies: `bandwidth`.
//!
//! # How it works
//! A rule's bandwidth is a token bucket of bytes, one for each key. A body acquires permits for the bytes to pass on: a
//! whole frame if it can pass now, otherwise a chunk of it, as much as the rate grants in 20 ms, which it reserves and
//! waits for. So bytes over the burst flow evenly, and bodies that share a bucket take turns, chunk by chunk.
//!
//! # What always holds (tests/it/throttle.rs)
//! - Every byte passes, in order, and so do trailers and errors.
//! - In every span `t`, at most `burst + rate × t` bytes of a key are granted, over the burst in chunks of 20 ms; and
//!   at most `burst + rate × (t + 50 ms)` pass, since a body that is woken late catches up.
//! - A late wake-up does not reduce the rate, however small the burst: grants of the last 50 ms are used immediately.
//! - If several rules throttle a body, the slowest determines the rate.
//! - Dropping a body refunds the chunk that it was waiting for.

mod byte_bucket;
mod throttled_body;

use byte_bucket::Meter;
use diana::rules::rule::{Bodies, Mode};
use diana::{Engine, Verdict};
use smallvec::SmallVec;
pub use throttled_body::ThrottledBody;

/// Throttles the bodies of one request.
///
/// ```
/// use bytes::Bytes;
/// use diana::rules::attributes::SyntheticRequest;
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana::Engine;
/// use diana_http::Throttle;
/// use http_body_util::Full;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = "rules: [{name: downloads, by: ip, bandwidth: 512KiB/s}]";
/// let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default())?;
/// let engine = Engine::new(&file);
///
/// let permit = engine.acquire(&SyntheticRequest::new("GET", "/film").ip([203, 0, 113, 7])).await?;
/// let throttle = Throttle::of(&engine, &permit);
/// let body = throttle.response(Full::new(Bytes::from_static(b"the film")));
/// assert!(body.is_throttled());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Throttle(Option<Box<Meters>>);

/// The buckets of the bodies, and the engine that counts them.
#[derive(Clone, Debug)]
struct Meters {
    engine: Engine,
    meters: SmallVec<[Meter; 1]>,
}

impl Throttle {
    /// Returns the throttle of the rules that granted a request. Without `bandwidth` it costs nothing.
    pub fn of(engine: &Engine, verdict: &Verdict) -> Self {
        let mut meters = SmallVec::new();
        for applied in verdict.matches().matched() {
            let Some(rule) = verdict.rules().rule(applied.rule) else { continue };
            // A shadow rule does not throttle.
            let (Some(limit), Mode::Enforced) = (rule.bandwidth(), applied.mode) else { continue };
            meters.extend(Meter::new(rule.rule(), limit, verdict.matches().key(applied)));
        }
        if meters.is_empty() {
            return Self::default();
        }
        Self(Some(Box::new(Meters { engine: engine.clone(), meters })))
    }

    /// Returns `true` if nothing is throttled.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Throttles the request's body according to the rules.
    pub fn request<B>(&self, body: B) -> ThrottledBody<B> {
        self.throttle(body, Bodies::Request)
    }

    /// Throttles the response's body according to the rules.
    pub fn response<B>(&self, body: B) -> ThrottledBody<B> {
        self.throttle(body, Bodies::Response)
    }

    fn throttle<B>(&self, body: B, bodies: Bodies) -> ThrottledBody<B> {
        let Some(Meters { engine, meters }) = self.0.as_deref() else { return ThrottledBody::unthrottled(body) };
        let meters = meters.iter().filter(|meter| meter.bodies == bodies || meter.bodies == Bodies::Both);
        ThrottledBody::throttled(body, engine.clone(), meters.cloned())
    }
}
