//! Outgoing calls under the rules of an engine.

use super::limit::{ClientLimit, ClientLimitError, Turn};
use crate::check_result::CheckResult;
use crate::filter::Filter;
use crate::permit::RequestPermit;
use diana::Retry;
use diana::Verdict;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The cap of the maximum wait, so that adding it to an `Instant` does not overflow.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl<B> ClientLimit<Request<B>> for Filter {
    type Held = RequestPermit;

    fn turn(self: Arc<Self>, request: &Request<B>, max_wait: Duration) -> Turn<RequestPermit> {
        let head = head(request.method(), request.uri().clone(), request.headers());
        Box::pin(turn(self, head, max_wait))
    }
}

/// Returns the head that the rules read.
pub(crate) fn head(method: &Method, uri: Uri, headers: &HeaderMap) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method.clone_from(method);
    head.uri = uri;
    head.headers.clone_from(headers);
    head
}

/// Waits until the rules grant a call.
pub(crate) async fn turn(
    filter: Arc<Filter>,
    head: Parts,
    max_wait: Duration,
) -> Result<RequestPermit, ClientLimitError> {
    let end = Instant::now() + max_wait.min(FOREVER);
    loop {
        let checking = filter.check_head(&head, None);
        // A rule's own `wait` may be longer than the maximum wait; a timeout refunds the charges.
        let checked = tokio::time::timeout_at(end, checking).await;
        let verdict = match checked {
            Ok(CheckResult::Allow(mut permit)) => {
                permit.begin();
                return Ok(permit);
            }
            Ok(CheckResult::Reroute(permit)) => no_turn(permit.verdict()),
            Ok(CheckResult::Deny(denial)) => no_turn(denial.verdict()),
            Err(_) => return Err(Retry::WhenReturned.into()),
        };
        match verdict.retry {
            Retry::After(wait) if !wait.is_zero() && wait <= end - Instant::now() => tokio::time::sleep(wait).await,
            _ => return Err(verdict),
        }
    }
}

fn no_turn(verdict: &Verdict) -> ClientLimitError {
    let limit = verdict.refused_by().map(|rule| rule.name.as_str().into());
    ClientLimitError { limit, retry: verdict.retry().unwrap_or(Retry::Never) }
}
