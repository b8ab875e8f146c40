//! Bodies that flow no faster than the rules allow: `bandwidth`.
//!
//! # How it works
//! A rule's bandwidth is a token bucket of bytes, one for each key. A body takes from it what it wants to pass on: a whole frame
//! if so much may go at once, and else a piece of it, as much as the rate gives in 20 ms, which it reserves and waits for.
//! So what is above the burst flows evenly, and bodies that share a bucket take turns, piece by piece.
//!
//! # What always holds (tests/it/bandwidth.rs)
//! - Every byte passes, in order, and so do trailers and errors.
//! - In every span `t`, at most `burst + rate × t` bytes of a key are granted, beyond the burst in pieces of 20 ms; and at most
//!   `burst + rate × (t + 50 ms)` pass, since a body that is woken late makes up for it.
//! - A body that is woken late loses nothing of the rate, however small the burst: turns of the last 50 ms are used at once.
//! - Where several rules slow a body down, the slowest governs.
//! - A body that is dropped gives back the piece that it was waiting for.

mod meter;
mod throttled_body;

use diana::core::Store;
use diana::rules::{Bodies, Mode};
use diana::{Engine, Verdict};
use meter::{Counts, Meter};
use smallvec::SmallVec;
use std::sync::Arc;
pub use throttled_body::ThrottledBody;

/// What slows the bodies of one request down.
///
/// ```
/// use bytes::Bytes;
/// use diana::rules::{SyntheticRequest, Document, Registry, RuleFile};
/// use diana::Engine;
/// use diana_http::Throttle;
/// use http_body_util::Full;
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), diana::rules::Problems> {
/// let rules = "rules: [{name: downloads, by: ip, bandwidth: 512KiB/s}]";
/// let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default())?;
/// let engine = Arc::new(Engine::new(&file));
///
/// let verdict = engine.decide(&SyntheticRequest::new("GET", "/film").ip([203, 0, 113, 7])).await;
/// let pacing = Throttle::of(&engine, &verdict);
/// let body = pacing.response(Full::new(Bytes::from_static(b"the film")));
/// assert!(body.is_slowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Throttle(Option<Box<Paced>>);

/// The buckets that bodies take from, and where they are.
#[derive(Clone, Debug)]
struct Paced {
    counts: Arc<dyn Counts>,
    meters: SmallVec<[Meter; 1]>,
}

impl Throttle {
    /// What the rules that a request was granted by say about its bodies. Costs nothing where they say nothing.
    pub fn of<S: Store + 'static>(engine: &Arc<Engine<S>>, verdict: &Verdict) -> Self {
        let mut meters = SmallVec::new();
        for applied in verdict.found().applied() {
            let Some(rule) = verdict.rules().rule(applied.rule) else { continue };
            // A shadow refuses nobody, and slows nobody down either.
            let (Some(limit), Mode::Enforced) = (rule.bandwidth(), applied.mode) else { continue };
            meters.extend(Meter::new(rule.rule(), limit, verdict.found().key(applied)));
        }
        if meters.is_empty() {
            return Self::default();
        }
        let counts = Arc::<Engine<S>>::clone(engine);
        Self(Some(Box::new(Paced { counts, meters })))
    }

    /// Whether anything is slowed down.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The request's body, as fast as the rules allow.
    pub fn request<B>(&self, body: B) -> ThrottledBody<B> {
        self.slow(body, Bodies::Request)
    }

    /// The response's body, as fast as the rules allow.
    pub fn response<B>(&self, body: B) -> ThrottledBody<B> {
        self.slow(body, Bodies::Response)
    }

    fn slow<B>(&self, body: B, which: Bodies) -> ThrottledBody<B> {
        let Some(paced) = &self.0 else { return ThrottledBody::freely(body) };
        let meters = paced.meters.iter().filter(|meter| meter.of == which || meter.of == Bodies::Both);
        ThrottledBody::by(body, Arc::clone(&paced.counts), meters.cloned())
    }
}
