//! Outgoing calls under the rules of an engine.

use super::limit::{NoTurn, OutgoingLimit, Turn};
use crate::filter::Filter;
use crate::outcome::Checked;
use crate::pass::Pass;
use diana::Verdict;
use diana::core::{Retry, Store};
use http::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl<B, S: Store + 'static> OutgoingLimit<Request<B>> for Filter<S> {
    type Held = Pass<S>;

    fn turn(self: Arc<Self>, request: &Request<B>, patience: Duration) -> Turn<Pass<S>> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        Box::pin(async move {
            let end = Instant::now() + patience;
            loop {
                let checking = self.check_head(&head, None);
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
                    Retry::After(wait) if !wait.is_zero() && Instant::now() + wait <= end => {
                        tokio::time::sleep(wait).await;
                    }
                    _ => return Err(verdict),
                }
            }
        })
    }
}

fn no_turn(verdict: &Verdict) -> NoTurn {
    let limit = verdict.refused_by().map(|rule| rule.name.as_str().into());
    NoTurn { limit, retry: verdict.retry().unwrap_or(Retry::Never) }
}
