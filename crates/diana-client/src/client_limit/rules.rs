//! Outgoing calls under the rules of an engine.

use super::limit_trait::{ClientLimit, ClientLimitError, PermitFuture};
use diana::Retry;
use diana::Verdict;
use diana_http::{Filter, HttpAttributes, RequestPermit};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The cap of the maximum wait, so that adding it to an `Instant` does not overflow.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl<B> ClientLimit<Request<B>> for Filter {
    type Permit = RequestPermit;

    fn acquire(self: Arc<Self>, request: &Request<B>, max_wait: Duration) -> PermitFuture<RequestPermit> {
        let head = head(request.method(), request.uri().clone(), request.headers());
        Box::pin(acquire(self, head, max_wait))
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
pub(crate) async fn acquire(
    filter: Arc<Filter>,
    head: Parts,
    max_wait: Duration,
) -> Result<RequestPermit, ClientLimitError> {
    let deadline = Instant::now() + max_wait.min(FOREVER);
    loop {
        let check = filter.check_attributes(&HttpAttributes::of_head(&head, None));
        // A rule's own `wait` may be longer than the maximum wait; a timeout refunds the charges.
        let result = tokio::time::timeout_at(deadline, check).await;
        let error = match result {
            Ok(Ok(mut permit)) => {
                permit.begin();
                return Ok(permit);
            }
            Ok(Err(denial)) => limit_error(denial.verdict()),
            Err(_) => return Err(Retry::WhenReleased.into()),
        };
        match error.retry {
            Retry::After(wait) if !wait.is_zero() && wait <= deadline - Instant::now() => {
                tokio::time::sleep(wait).await;
            }
            _ => return Err(error),
        }
    }
}

fn limit_error(verdict: &Verdict) -> ClientLimitError {
    let limit = verdict.denied_by().map(|rule| rule.name.as_str().into());
    ClientLimitError { limit, retry: verdict.retry().unwrap_or(Retry::Never) }
}
