//! A throttled body.

use super::byte_bucket::{AcquireTime, Meter};
use bytes::{Buf, Bytes};
use diana::Engine;
use diana::{Answer, Cost, MaxWait, Timestamp};
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A longer lag is not made up for: a body that stalled for a second must not continue with a spike. The same value as
/// in `diana::pace`.
const MAX_LAG: Duration = Duration::from_millis(50);

pin_project_lite::pin_project! {
    /// A body that is throttled by rules; unchanged if no rule applies.
    ///
    /// Created by [`Throttle`](super::Throttle). It needs tokio's timer if it has to wait.
    pub struct ThrottledBody<B> {
        #[pin]
        body: B,
        throttle: Option<Box<ThrottleState>>,
    }
}

/// The progress of a body, and its current wait.
struct ThrottleState {
    engine: Engine,
    meters: SmallVec<[MeterUse; 1]>,
    /// The part of the last frame that has not passed yet.
    rest: Bytes,
    /// The part of it that is granted, and when it passes.
    granted: Option<(usize, Timestamp)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The delay of the last chunk: timers have a limited resolution, and the machine has other work.
    lag: Duration,
    /// The time since which there is nothing to pass.
    idle_since: Option<Timestamp>,
    /// Whether this body has yielded since the last chunk.
    has_yielded: bool,
}

/// A bucket, and this body's use of it.
struct MeterUse {
    meter: Meter,
    /// The number of bytes that still pass at full speed.
    free: u64,
    /// The chunk that waits for permits.
    charged: Option<Answer>,
}

impl<B> ThrottledBody<B> {
    /// Creates a body without throttling.
    pub(crate) fn unthrottled(body: B) -> Self {
        Self { body, throttle: None }
    }

    pub(super) fn throttled(body: B, engine: Engine, meters: impl Iterator<Item = Meter>) -> Self {
        let meters: SmallVec<_> = meters.map(MeterUse::new).collect();
        if meters.is_empty() {
            return Self::unthrottled(body);
        }
        let state = ThrottleState {
            engine,
            meters,
            rest: Bytes::new(),
            granted: None,
            timer: None,
            lag: Duration::ZERO,
            idle_since: None,
            has_yielded: false,
        };
        Self { body, throttle: Some(Box::new(state)) }
    }

    /// Returns `true` if any rule throttles it.
    pub fn is_throttled(&self) -> bool {
        self.throttle.is_some()
    }
}

impl MeterUse {
    fn new(meter: Meter) -> Self {
        Self { free: meter.after, meter, charged: None }
    }
}

impl ThrottleState {
    /// Acquires permits for the next chunk: all of the rest if it can pass now, otherwise a small chunk for later.
    /// Returns how long to wait for it.
    fn acquire_chunk(&mut self) -> Duration {
        let now = self.engine.now();
        // Bytes that had not arrived could not have passed earlier.
        if self.idle_since.take().is_some_and(|from| now.since(from) > MAX_LAG) {
            self.lag = Duration::ZERO;
        }
        let lag = u64::try_from(self.lag.as_nanos()).unwrap_or(u64::MAX);
        let time = AcquireTime { since: Timestamp::from_nanos(now.as_nanos().saturating_sub(lag)), now };
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let free = self.meters.iter().map(|meter| meter.free).filter(|free| *free > 0).min();
        let max = rest.min(free.unwrap_or(u64::MAX));
        let counting = || self.meters.iter().filter(|meter| meter.free == 0).map(|meter| &meter.meter);
        let burst = counting().map(Meter::burst).fold(max, u64::min);
        let chunk = counting().map(Meter::chunk).fold(max, u64::min);
        let slowest = counting().map(|meter| meter.duration_of(chunk)).max().unwrap_or_default();
        let (bytes, due) = match self.acquire(time, burst, MaxWait::NONE) {
            Ok(due) => (burst, due),
            Err(_) => match self.acquire(time, chunk, MaxWait::FOREVER) {
                Ok(due) => (chunk, due),
                // The rule has changed since, to one with a smaller burst.
                Err(capacity) => match self.acquire(time, chunk.min(capacity), MaxWait::FOREVER) {
                    Ok(due) => (chunk.min(capacity), due),
                    // There is no memory for another key: then this body keeps the rate on its own.
                    Err(_) => (chunk, time.since + slowest),
                },
            },
        };
        for meter in &mut self.meters {
            meter.free = meter.free.saturating_sub(bytes);
        }
        self.granted = Some((usize::try_from(bytes).unwrap_or(usize::MAX).min(self.rest.len()), due));
        due.since(now)
    }

    /// Acquires `bytes` from every bucket that counts them, and returns when they pass; or from none, and returns the
    /// most that would be possible.
    fn acquire(&mut self, time: AcquireTime, bytes: u64, max_wait: MaxWait) -> Result<Timestamp, u64> {
        let Ok(cost) = Cost::new(bytes) else { return Ok(time.now) };
        let mut due = None;
        let mut denied = None;
        for meter in self.meters.iter_mut().filter(|meter| meter.free == 0) {
            let answer = meter.meter.acquire(&self.engine, time, cost, max_wait);
            match answer.wait() {
                Some(wait) => {
                    due = due.max(Some(time.since + wait));
                    meter.charged = Some(answer);
                }
                None => {
                    denied = Some(answer.status().limit.max(1));
                    break;
                }
            }
        }
        match denied {
            // Bytes that no bucket counts pass now, and are not late.
            None => Ok(due.unwrap_or(time.now)),
            Some(capacity) => {
                self.refund();
                Err(capacity)
            }
        }
    }

    fn refund(&mut self) {
        for meter in &mut self.meters {
            if let Some(answer) = meter.charged.take() {
                meter.meter.refund(&self.engine, &answer);
            }
        }
    }

    /// Returns the chunk that was waited for, which passes now.
    fn take_chunk(&mut self, length: usize, due: Timestamp) -> Bytes {
        self.lag = self.engine.now().since(due).min(MAX_LAG);
        self.granted = None;
        self.meters.iter_mut().for_each(|meter| meter.charged = None);
        self.rest.split_to(length)
    }

    /// Yields to other bodies, once. Bodies that share a bucket are late together, and the first one would take
    /// everything.
    fn should_yield(&mut self) -> bool {
        let shares = || self.meters.iter().any(|meter| meter.free == 0 && meter.meter.is_shared());
        self.has_yielded = !self.has_yielded && !self.lag.is_zero() && shares();
        self.has_yielded
    }

    /// Records that there is nothing to pass.
    fn mark_idle(&mut self) {
        if !self.lag.is_zero() {
            let now = self.engine.now();
            self.idle_since.get_or_insert(now);
        }
    }

    fn wait(&mut self, wait: Duration) {
        let due = Instant::now() + wait;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(due),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(due))),
        }
    }
}

impl Drop for ThrottleState {
    fn drop(&mut self) {
        // A chunk that has not passed is refunded.
        if self.granted.is_some() {
            self.refund();
        }
    }
}

impl<B> Body for ThrottledBody<B>
where
    B: Body,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let Some(throttle) = this.throttle else {
            let frame = ready!(this.body.poll_frame(context));
            return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(into_bytes))));
        };
        loop {
            if let Some((length, due)) = throttle.granted {
                if let Some(timer) = &mut throttle.timer
                    && !timer.is_elapsed()
                {
                    ready!(timer.as_mut().poll(context));
                }
                return Poll::Ready(Some(Ok(Frame::data(throttle.take_chunk(length, due)))));
            }
            if throttle.rest.is_empty() {
                let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) else {
                    throttle.mark_idle();
                    return Poll::Pending;
                };
                match frame {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => throttle.rest = into_bytes(data),
                        Err(other) => return Poll::Ready(Some(Ok(other.map_data(into_bytes)))),
                    },
                    other => return Poll::Ready(other.map(|frame| frame.map(|frame| frame.map_data(into_bytes)))),
                }
                if throttle.rest.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::new()))));
                }
            }
            if throttle.should_yield() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let wait = throttle.acquire_chunk();
            if wait > Duration::ZERO {
                throttle.wait(wait);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.throttle.as_ref().is_none_or(|throttle| throttle.rest.is_empty()) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.throttle.as_ref().map_or(0, |throttle| u64::try_from(throttle.rest.len()).unwrap_or(u64::MAX));
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// Returns the bytes of a frame; [`Bytes`] are not copied.
fn into_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

impl<B: fmt::Debug> fmt::Debug for ThrottledBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("body", &self.body).field("is_throttled", &self.is_throttled()).finish()
    }
}
