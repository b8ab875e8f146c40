//! `CL.THROTTLE`: a built-in limit of every engine, whose parameters come with each call.
//!
//! Its counts are in the shared store if the engine has one, else in this process, beside those of the rules: the same
//! memory bound applies to both.

use super::EngineState;
use super::local_counts::LocalCounts;
use super::shared_store::BoxFuture;
use diana_core::{Answer, Ask, ClThrottle, Cost, Limit, Query, TimeDebt, Timestamp};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The number of key spaces, as Redis has databases.
const KEY_SPACES: u8 = 16;

/// A key space of [`Engine::cl_throttle`](super::Engine::cl_throttle): keys of different spaces have separate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeySpace(u8);

impl KeySpace {
    /// Returns the key space with this number, from 0 to 15; `None` if it is higher.
    pub fn new(number: u8) -> Option<Self> {
        (number < KEY_SPACES).then_some(Self(number))
    }

    /// Returns the number of the key space.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// The built-in limits, one for each key space.
#[derive(Debug)]
pub(super) struct ClThrottleLimits([Limit; KEY_SPACES as usize]);

impl Default for ClThrottleLimits {
    fn default() -> Self {
        Self(std::array::from_fn(|number| Limit::new(format!("CL.THROTTLE.{number}"), TimeDebt)))
    }
}

impl ClThrottleLimits {
    /// Returns the limit of each key space, by its number.
    pub(super) fn as_slice(&self) -> &[Limit] {
        &self.0
    }
}

/// Decides `CL.THROTTLE` calls at one point in time: see [`Engine::cl_throttle_now`](super::Engine::cl_throttle_now).
#[derive(Clone, Copy, Debug)]
pub struct ClThrottleNow<'a> {
    counts: &'a LocalCounts,
    limit: &'a Limit,
    now: Timestamp,
}

impl<'a> ClThrottleNow<'a> {
    #[inline]
    pub(super) fn of(state: &'a EngineState, space: KeySpace) -> Option<Self> {
        if state.shared.is_some() {
            return None;
        }
        let (counts, limit) = (&state.counts, &state.cl_throttle_limits.0[usize::from(space.0)]);
        Some(Self { counts, limit, now: counts.now() })
    }

    /// Decides one call for `key`.
    #[inline]
    pub fn cl_throttle(&self, key: &[u8], call: &ClThrottle) -> Answer {
        self.counts.store.cl_throttle(self.limit, key, call, self.now)
    }
}

/// The future of [`Engine::cl_throttle`](super::Engine::cl_throttle); ready at once unless it needs the shared store.
#[must_use = "the answer is lost unless it is awaited"]
pub struct ClThrottleFuture(ClThrottleState);

enum ClThrottleState {
    /// The answer; `None` once it is returned.
    Ready(Option<Answer>),
    Waiting(BoxFuture<'static, Answer>),
}

impl ClThrottleFuture {
    #[inline]
    pub(super) fn start(state: &EngineState, space: KeySpace, key: &[u8], call: &ClThrottle) -> Self {
        let (counts, limit) = (&state.counts, &state.cl_throttle_limits.0[usize::from(space.0)]);
        let now = counts.now();
        let Some(shared) = &state.shared else {
            return Self(ClThrottleState::Ready(Some(counts.store.cl_throttle(limit, key, call, now))));
        };
        let (shared, counts) = (Arc::clone(shared), Arc::clone(counts));
        let (limit, key, call) = (limit.clone(), key.to_vec(), *call);
        Self(ClThrottleState::Waiting(Box::pin(async move {
            let asks = [Ask::new(&limit, &key, Cost::ZERO)];
            let decision = shared.query(&asks, now, Query::ClThrottle(&call)).await;
            let answer = decision.ok().and_then(|decision| decision.answers().first().copied());
            answer.unwrap_or_else(|| counts.store.cl_throttle(&limit, &key, &call, now))
        })))
    }

    /// Returns the answer if it is ready, else `self`.
    #[inline]
    pub fn now(self) -> Result<Answer, Self> {
        match self.0 {
            ClThrottleState::Ready(Some(answer)) => Ok(answer),
            state => Err(Self(state)),
        }
    }
}

impl Future for ClThrottleFuture {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        match &mut self.get_mut().0 {
            // Polled after completion, it is pending.
            ClThrottleState::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            ClThrottleState::Waiting(future) => future.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for ClThrottleFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClThrottleFuture").field("is_ready", &matches!(self.0, ClThrottleState::Ready(_))).finish()
    }
}
