//! Outgoing calls under the rules of an engine.

use super::limit::{NoTurn, OutgoingLimit, Turn};
use crate::filter::Filter;
use crate::outcome::Checked;
use crate::pass::Pass;
use diana::Verdict;
use diana::core::{Retry, Store};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Who has more patience than this has as much as anybody can tell the time of.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl<B, S: Store + 'static> OutgoingLimit<Request<B>> for Filter<S> {
    type Held = Pass<S>;

    fn turn(self: Arc<Self>, request: &Request<B>, patience: Duration) -> Turn<Pass<S>> {
        let head = head(request.method(), request.uri().clone(), request.headers());
        Box::pin(turn(self, head, patience))
    }
}

/// What the rules look at.
pub(crate) fn head(method: &Method, uri: Uri, headers: &HeaderMap) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method.clone_from(method);
    head.uri = uri;
    head.headers.clone_from(headers);
    head
}

/// Waits until the rules let a call pass.
pub(crate) async fn turn<S: Store + 'static>(
    filter: Arc<Filter<S>>,
    head: Parts,
    patience: Duration,
) -> Result<Pass<S>, NoTurn> {
    let end = Instant::now() + patience.min(FOREVER);
    loop {
        let checking = filter.check_head(&head, None);
        // A rule's own `wait` may be longer than the patience; whoever gives up gives back.
        let checked = tokio::time::timeout_at(end, checking).await;
        let verdict = match checked {
            Ok(Checked::Pass(mut pass)) => {
                pass.begin();
                return Ok(pass);
            }
            Ok(Checked::Divert(diverted)) => no_turn(diverted.verdict()),
            Ok(Checked::Refuse(refused)) => no_turn(refused.verdict()),
            Err(_) => return Err(Retry::WhenReturned.into()),
        };
        match verdict.retry {
            Retry::After(wait) if !wait.is_zero() && wait <= end - Instant::now() => tokio::time::sleep(wait).await,
            _ => return Err(verdict),
        }
    }
}

fn no_turn(verdict: &Verdict) -> NoTurn {
    let limit = verdict.refused_by().map(|rule| rule.name.as_str().into());
    NoTurn { limit, retry: verdict.retry().unwrap_or(Retry::Never) }
}
