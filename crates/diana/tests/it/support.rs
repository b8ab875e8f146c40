//! Shared helpers of the engine tests.

use diana::rules::attributes::SyntheticRequest;
use diana::rules::{Document, Registry, RuleFile};
use diana::{Engine, EngineOptions, Verdict};
use diana::{ManualClock, Timestamp};

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

pub(crate) fn decide(engine: &Engine, request: &SyntheticRequest) -> Verdict {
    now(engine.decide(request))
}

/// Returns the decision as text.
pub(crate) fn decision_text(engine: &Engine, request: &SyntheticRequest) -> String {
    decide(engine, request).to_string()
}
