//! A throttled body.

use super::meter::{Asked, Meter};
use bytes::{Buf, Bytes};
use diana::Engine;
use diana::{Answer, Cost, MaxWait, Timestamp};
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A longer lag is not made up for: a body that stalled for a second must not continue with a spike. The same value as
/// in `diana::pace`.
const MOST_LATE: Duration = Duration::from_millis(50);

pin_project_lite::pin_project! {
    /// A body that is throttled by rules; unchanged if no rule applies.
    ///
    /// Created by [`Throttle`](super::Throttle). It needs tokio's timer if it has to wait.
    pub struct ThrottledBody<B> {
        #[pin]
        body: B,
        slowing: Option<Box<Slowing>>,
    }
}

/// The progress of a body, and its current wait.
struct Slowing {
    engine: Arc<Engine>,
    metered: SmallVec<[Metered; 1]>,
    /// The part of the last frame that has not passed yet.
    rest: Bytes,
    /// The part of it that is granted, and when it passes.
    taken: Option<(usize, Timestamp)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// How late the last chunk passed: timers have a limited resolution, and the machine has other work.
    late: Duration,
    /// Since when there is nothing to pass.
    idle: Option<Timestamp>,
    /// Whether this body has yielded since the last chunk.
    gave_way: bool,
}

/// A bucket, and this body's use of it.
struct Metered {
    meter: Meter,
    /// How many bytes still pass at full speed.
    free: u64,
    /// The chunk that is waited for.
    taken: Option<Answer>,
}

impl<B> ThrottledBody<B> {
    /// Creates a body without throttling.
    pub(crate) fn freely(body: B) -> Self {
        Self { body, slowing: None }
    }

    pub(super) fn by(body: B, engine: Arc<Engine>, meters: impl Iterator<Item = Meter>) -> Self {
        let metered: SmallVec<_> = meters.map(Metered::new).collect();
        if metered.is_empty() {
            return Self::freely(body);
        }
        let slowing = Slowing {
            engine,
            metered,
            rest: Bytes::new(),
            taken: None,
            timer: None,
            late: Duration::ZERO,
            idle: None,
            gave_way: false,
        };
        Self { body, slowing: Some(Box::new(slowing)) }
    }

    /// Returns `true` if any rule throttles it.
    pub fn is_throttled(&self) -> bool {
        self.slowing.is_some()
    }
}

impl Metered {
    fn new(meter: Meter) -> Self {
        Self { free: meter.after, meter, taken: None }
    }
}

impl Slowing {
    /// Acquires permits for the next chunk: all of the rest if it can pass now, otherwise a small chunk for later.
    /// Returns how long to wait for it.
    fn take_piece(&mut self) -> Duration {
        let now = self.engine.now();
        // Bytes that had not arrived could not have passed earlier.
        if self.idle.take().is_some_and(|from| now.since(from) > MOST_LATE) {
            self.late = Duration::ZERO;
        }
        let late = u64::try_from(self.late.as_nanos()).unwrap_or(u64::MAX);
        let asked = Asked { since: Timestamp::from_nanos(now.as_nanos().saturating_sub(late)), now };
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let free = self.metered.iter().map(|metered| metered.free).filter(|free| *free > 0).min();
        let most = rest.min(free.unwrap_or(u64::MAX));
        let charged = || self.metered.iter().filter(|metered| metered.free == 0).map(|metered| &metered.meter);
        let at_once = charged().map(Meter::burst).fold(most, u64::min);
        let piece = charged().map(Meter::piece).fold(most, u64::min);
        let slowest = charged().map(|meter| meter.time_of(piece)).max().unwrap_or_default();
        let (bytes, turn) = match self.take(asked, at_once, MaxWait::NONE) {
            Ok(turn) => (at_once, turn),
            Err(_) => match self.take(asked, piece, MaxWait::FOREVER) {
                Ok(turn) => (piece, turn),
                // The rule has changed since, to one with a smaller burst.
                Err(capacity) => match self.take(asked, piece.min(capacity), MaxWait::FOREVER) {
                    Ok(turn) => (piece.min(capacity), turn),
                    // There is no memory for another key: then this body keeps the rate on its own.
                    Err(_) => (piece, asked.since + slowest),
                },
            },
        };
        for metered in &mut self.metered {
            metered.free = metered.free.saturating_sub(bytes);
        }
        self.taken = Some((usize::try_from(bytes).unwrap_or(usize::MAX).min(self.rest.len()), turn));
        turn.since(now)
    }

    /// Acquires `bytes` from every bucket that counts them, and returns when they pass; or from none, and returns the
    /// most that would be possible.
    fn take(&mut self, asked: Asked, bytes: u64, max_wait: MaxWait) -> Result<Timestamp, u64> {
        let Ok(cost) = Cost::new(bytes) else { return Ok(asked.now) };
        let mut turn = None;
        let mut refused = None;
        for metered in self.metered.iter_mut().filter(|metered| metered.free == 0) {
            let answer = metered.meter.take(&self.engine, asked, cost, max_wait);
            match answer.wait() {
                Some(wait) => {
                    turn = turn.max(Some(asked.since + wait));
                    metered.taken = Some(answer);
                }
                None => {
                    refused = Some(answer.status.limit.max(1));
                    break;
                }
            }
        }
        match refused {
            // Bytes that no bucket counts pass now, and are not late.
            None => Ok(turn.unwrap_or(asked.now)),
            Some(capacity) => {
                self.give_back();
                Err(capacity)
            }
        }
    }

    fn give_back(&mut self) {
        for metered in &mut self.metered {
            if let Some(taken) = metered.taken.take() {
                metered.meter.give_back(&self.engine, &taken);
            }
        }
    }

    /// Returns the chunk that was waited for, which passes now.
    fn piece(&mut self, length: usize, turn: Timestamp) -> Bytes {
        self.late = self.engine.now().since(turn).min(MOST_LATE);
        self.taken = None;
        self.metered.iter_mut().for_each(|metered| metered.taken = None);
        self.rest.split_to(length)
    }

    /// Yields to other bodies, once. Bodies that share a bucket are late together, and the first one would take
    /// everything.
    fn gives_way(&mut self) -> bool {
        let shares = || self.metered.iter().any(|metered| metered.free == 0 && metered.meter.is_shared());
        self.gave_way = !self.gave_way && !self.late.is_zero() && shares();
        self.gave_way
    }

    /// Records that there is nothing to pass.
    fn idles(&mut self) {
        if !self.late.is_zero() {
            let now = self.engine.now();
            self.idle.get_or_insert(now);
        }
    }

    fn wait(&mut self, wait: Duration) {
        let then = Instant::now() + wait;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(then),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(then))),
        }
    }
}

impl Drop for Slowing {
    fn drop(&mut self) {
        // A chunk that has not passed is refunded.
        if self.taken.is_some() {
            self.give_back();
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
        let Some(slowing) = this.slowing else {
            let frame = ready!(this.body.poll_frame(context));
            return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(whole))));
        };
        loop {
            if let Some((length, turn)) = slowing.taken {
                if let Some(timer) = &mut slowing.timer
                    && !timer.is_elapsed()
                {
                    ready!(timer.as_mut().poll(context));
                }
                return Poll::Ready(Some(Ok(Frame::data(slowing.piece(length, turn)))));
            }
            if slowing.rest.is_empty() {
                let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) else {
                    slowing.idles();
                    return Poll::Pending;
                };
                match frame {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => slowing.rest = whole(data),
                        Err(other) => return Poll::Ready(Some(Ok(other.map_data(whole)))),
                    },
                    other => return Poll::Ready(other.map(|frame| frame.map(|frame| frame.map_data(whole)))),
                }
                if slowing.rest.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::new()))));
                }
            }
            if slowing.gives_way() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let wait = slowing.take_piece();
            if wait > Duration::ZERO {
                slowing.wait(wait);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.slowing.as_ref().is_none_or(|slowing| slowing.rest.is_empty()) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.slowing.as_ref().map_or(0, |slowing| u64::try_from(slowing.rest.len()).unwrap_or(u64::MAX));
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// Returns the bytes of a frame; [`Bytes`] are not copied.
fn whole(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

impl<B: fmt::Debug> fmt::Debug for ThrottledBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("body", &self.body).field("is_throttled", &self.is_throttled()).finish()
    }
}
