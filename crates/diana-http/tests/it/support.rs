//! Shared helpers of the filter tests.

use bytes::Bytes;
use diana::rules::{Document, Registry, RuleFile};
use diana::{EngineOptions, ManualClock, Timestamp};
use diana_http::{Denial, Filter, FilterOptions, RequestPermit};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::net::IpAddr;

pub(crate) fn file(text: &str) -> RuleFile {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, &Registry::default(), |_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

pub(crate) fn filter(text: &str) -> (Filter, ManualClock) {
    with_options(text, FilterOptions::default())
}

pub(crate) fn with_options(text: &str, options: FilterOptions) -> (Filter, ManualClock) {
    let (file, clock) = (file(text), clock());
    let engine = EngineOptions::of(&file).clock(clock.clone()).build(&file);
    (Filter::with_options(engine, options), clock)
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

pub(crate) fn client() -> Option<IpAddr> {
    Some([203, 0, 113, 7].into())
}

/// Returns the immediate result.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap_or_else(|| panic!("the future is pending"))
}

pub(crate) fn granted(check: impl Future<Output = Result<RequestPermit, Denial>>) -> RequestPermit {
    now(check).expect("it is granted")
}

pub(crate) fn denied(check: impl Future<Output = Result<RequestPermit, Denial>>) -> Denial {
    now(check).expect_err("it is denied")
}

/// Formats the head of a response, line by line, in order; without dates and lengths, which the server adds.
pub(crate) fn head<B>(response: &Response<B>) -> String {
    let mut lines = response
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect::<Vec<_>>();
    lines.sort();
    format!("{}\n{}", response.status().as_u16(), lines.join("\n"))
}

pub(crate) fn body(response: Response<Full<Bytes>>) -> String {
    String::from_utf8(now(response.into_body().collect()).unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) fn empty() -> Response<Full<Bytes>> {
    Response::new(Full::default())
}
