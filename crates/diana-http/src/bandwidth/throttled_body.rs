//! A body that flows evenly.

use super::meter::{Asked, Counts, Meter};
use bytes::{Buf, Bytes};
use diana::core::{Answer, Cost, MaxWait, Timestamp};
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// What is later than this is lost: a body that stood still for a second must not make up for it in one gush. The same as for
/// what `diana::pace` paces.
const MOST_LATE: Duration = Duration::from_millis(50);

pin_project_lite::pin_project! {
    /// A body that flows no faster than rules allow; as it is, if none says anything about it.
    ///
    /// [`Throttle`](super::Pacing) makes it. It needs tokio's timer as soon as it has to wait.
    pub struct ThrottledBody<B> {
        #[pin]
        body: B,
        slowing: Option<Box<Slowing>>,
    }
}

/// What a body has passed on, and what it waits for.
struct Slowing {
    counts: Arc<dyn Counts>,
    metered: SmallVec<[Metered; 1]>,
    /// What of the last frame has not gone yet.
    rest: Bytes,
    /// So much of it is taken, and goes at its turn, when the timer says so.
    taken: Option<(usize, Timestamp)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// How late the last piece went: a timer has its grain, and a machine other work.
    late: Duration,
    /// Since when there is nothing to pass.
    idle: Option<Timestamp>,
    /// Whether others could go first since the last piece.
    gave_way: bool,
}

/// A bucket, and what this body has had of it.
struct Metered {
    meter: Meter,
    /// So many bytes still go at full speed.
    free: u64,
    /// The piece that is waited for.
    taken: Option<Answer>,
}

impl<B> ThrottledBody<B> {
    /// A body that nothing slows down.
    pub(crate) fn freely(body: B) -> Self {
        Self { body, slowing: None }
    }

    pub(super) fn by(body: B, counts: Arc<dyn Counts>, meters: impl Iterator<Item = Meter>) -> Self {
        let metered: SmallVec<_> = meters.map(Metered::new).collect();
        if metered.is_empty() {
            return Self::freely(body);
        }
        let slowing = Slowing {
            counts,
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

    /// Whether any rule says how fast it may flow.
    pub fn is_slowed(&self) -> bool {
        self.slowing.is_some()
    }
}

impl Metered {
    fn new(meter: Meter) -> Self {
        Self { free: meter.after, meter, taken: None }
    }
}

impl Slowing {
    /// Takes the next piece of what has not gone yet: now if that may be, and else a small one for later. Says how long to
    /// wait for it.
    fn take_piece(&mut self) -> Duration {
        let now = self.counts.now();
        // What was not there could not have passed earlier.
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
                // The rule has changed since, to one that lets less go at once.
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

    /// Takes `bytes` from every bucket that counts them, and says when it is their turn; or from none, and says what is the
    /// most that could be.
    fn take(&mut self, asked: Asked, bytes: u64, max_wait: MaxWait) -> Result<Timestamp, u64> {
        let Ok(cost) = Cost::new(bytes) else { return Ok(asked.now) };
        let mut turn = None;
        let mut refused = None;
        for metered in self.metered.iter_mut().filter(|metered| metered.free == 0) {
            let answer = metered.meter.take(&*self.counts, asked, cost, max_wait);
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
            // What no bucket counts goes now, and is not late.
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
                metered.meter.give_back(&*self.counts, &taken);
            }
        }
    }

    /// The piece that was waited for, which goes now.
    fn piece(&mut self, length: usize, turn: Timestamp) -> Bytes {
        self.late = self.counts.now().since(turn).min(MOST_LATE);
        self.taken = None;
        self.metered.iter_mut().for_each(|metered| metered.taken = None);
        self.rest.split_to(length)
    }

    /// Lets others go first, once. Those who share a bucket are late together, and whoever came first would take all of it.
    fn gives_way(&mut self) -> bool {
        let shares = || self.metered.iter().any(|metered| metered.free == 0 && metered.meter.is_shared());
        self.gave_way = !self.gave_way && !self.late.is_zero() && shares();
        self.gave_way
    }

    /// There is nothing to pass.
    fn idles(&mut self) {
        if !self.late.is_zero() {
            let now = self.counts.now();
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
        // A piece that has not gone is nobody's.
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

/// The bytes of a frame; those that are [`Bytes`] already are not copied.
fn whole(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

impl<B: fmt::Debug> fmt::Debug for ThrottledBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("body", &self.body).field("is_slowed", &self.is_slowed()).finish()
    }
}
