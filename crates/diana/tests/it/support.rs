//! Shared helpers of the engine tests.

use diana::rules::Attributes;
use diana::rules::attributes::SyntheticRequest;
use diana::rules::{Document, Registry, RuleFile};
use diana::{AcquireFuture, ActualCost, DecideMode, Denial, Engine, EngineOptions, Permit, ResponseClass, Verdict};
use diana::{ManualClock, Timestamp};
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

pub(crate) fn file(text: &str) -> RuleFile {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, &Registry::default(), |_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

pub(crate) fn engine(text: &str) -> (Engine, ManualClock) {
    let (file, clock) = (file(text), clock());
    (EngineOptions::of(&file).clock(clock.clone()).build(&file), clock)
}

pub(crate) fn request() -> SyntheticRequest {
    SyntheticRequest::new("GET", "/").ip([203, 0, 113, 7])
}

pub(crate) fn account(name: &str) -> SyntheticRequest {
    request().named("account", name)
}

/// Returns the immediate decision.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap_or_else(|| panic!("the future is pending"))
}

pub(crate) fn decide(engine: &Engine, request: &SyntheticRequest) -> Decided {
    now(engine.check(request))
}

/// Returns the decision as text.
pub(crate) fn decision_text(engine: &Engine, request: &SyntheticRequest) -> String {
    decide(engine, request).to_string()
}

/// A decision, whether it is a permit or a denial.
#[derive(Debug)]
pub(crate) struct Decided(pub(crate) Result<Permit, Denial>);

impl Deref for Decided {
    type Target = Verdict;

    fn deref(&self) -> &Verdict {
        Verdict::of(&self.0)
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Decided {
    pub(crate) async fn finish(self) {
        if let Ok(permit) = self.0 {
            permit.finish().await;
        }
    }

    pub(crate) async fn refund(self) {
        if let Ok(permit) = self.0 {
            permit.refund().await;
        }
    }

    pub(crate) fn settle(&mut self, cost: &ActualCost) {
        if let Ok(permit) = &mut self.0 {
            permit.settle(cost.clone());
        }
    }

    pub(crate) fn permit(&mut self) -> &mut Permit {
        self.0.as_mut().unwrap_or_else(|denial| panic!("{denial}"))
    }

    pub(crate) fn begin(&mut self) {
        self.permit().begin();
    }

    pub(crate) fn answered(&mut self, class: ResponseClass) {
        self.permit().answered(class);
    }

    pub(crate) fn waited_for_client(&mut self, time: Duration) {
        self.permit().waited_for_client(time);
    }
}

/// Short names for the ways to decide.
pub(crate) trait Decides {
    /// Decides without a queue.
    fn check(&self, request: &dyn Attributes) -> impl Future<Output = Decided> + Send + use<Self>;

    /// Decides, and waits in a queue.
    fn queue(&self, request: &dyn Attributes) -> impl Future<Output = Decided> + Send + use<Self>;

    /// Reads what would be decided.
    fn peek(&self, requests: &[&dyn Attributes]) -> impl Future<Output = Decided> + Send + use<Self>;
}

impl Decides for Engine {
    fn check(&self, request: &dyn Attributes) -> impl Future<Output = Decided> + Send + use<> {
        decided(self.decide(&[request], DecideMode::Deny))
    }

    fn queue(&self, request: &dyn Attributes) -> impl Future<Output = Decided> + Send + use<> {
        decided(self.acquire(request))
    }

    fn peek(&self, requests: &[&dyn Attributes]) -> impl Future<Output = Decided> + Send + use<> {
        decided(self.decide(requests, DecideMode::Peek))
    }
}

async fn decided(future: AcquireFuture) -> Decided {
    Decided(future.await)
}
