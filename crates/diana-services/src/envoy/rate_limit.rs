//! Envoy's rate limit service, version 3.
//!
//! Each descriptor is matched by itself; several are all or nothing. A descriptor with 0 hits only peeks, one with negative
//! hits refunds, and one with a `limit` is decided by that alone.

use super::call::CallBody;
use super::descriptor::{DescribedHeads, Descriptor, Rejected};
use super::field_count::{LEAF, NestedFields};
use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::ratelimit::rate_limit_response::{Code, DescriptorStatus};
use super::proto::ratelimit::{RateLimitRequest, RateLimitResponse};
use super::unary_call::{MessageError, UnaryCall};
use super::{Allowed, EnvoyState, MAX_MESSAGE, descriptor_status, overrides, within};
use diana::store::{Ask, Limit};
use diana::{Cost, DecideMode, Denial, LimitsGuard, LoggedRequest, Permit, Retry, Verdict};
use diana_http::HttpAttributes;
use diana_rules::Attributes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use std::ops::Deref;
use std::time::Duration;
use tonic::Status;

/// The maximum number of descriptors of a request, and of entries of a descriptor.
const MAX_DESCRIPTORS: usize = 64;
const MAX_ENTRIES: usize = 64;

/// The messages in a [`RateLimitRequest`]: descriptors, and of them the entries, the limit and the hits.
pub(super) const RATE_LIMIT_FIELDS: NestedFields =
    NestedFields(&[(2, NestedFields(&[(1, LEAF), (2, LEAF), (3, LEAF)]))]);
/// The fields of a message: those of [`MAX_DESCRIPTORS`], and of a thousand entries, each of which has a key and a value.
const MAX_FIELDS: usize = 2 + MAX_DESCRIPTORS * 8 + 1_000 * 3;

/// The path of the service's only call.
pub(super) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The treatment of a descriptor, with its index among those with the same treatment.
#[derive(Clone, Copy)]
enum Action {
    /// Charges the hits.
    Charge(usize),
    /// Checks whether a limit is exceeded.
    Look(usize),
    /// Refunds the hits.
    Refund,
    /// The limit that it brings along decides.
    Override(usize),
    /// The limit that it brings along allows nothing, or the gateway would reject a request with its path.
    Deny,
}

/// The descriptors of a request, by what is done for them.
#[derive(Default)]
struct Descriptors<'a> {
    actions: Vec<Action>,
    charged: Vec<Descriptor<'a>>,
    looking: Vec<Descriptor<'a>>,
    refunded: Vec<Descriptor<'a>>,
    overrides: Vec<(Limit, Vec<u8>, Cost)>,
}

/// The decisions about a request.
struct Decisions {
    /// About the descriptors that only look, if there are any.
    looked: Option<Result<Permit, Denial>>,
    /// About those that are charged.
    charged: Result<Permit, Denial>,
    /// About those that bring their limits along, if there are any.
    overridden: Option<LimitsGuard>,
    /// Whether a descriptor is denied whatever was counted.
    is_denied: bool,
}

impl Descriptors<'_> {
    fn is_denied(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Deny))
    }
}

impl EnvoyState {
    /// Decides about the descriptors of a request.
    pub(super) async fn should_rate_limit(
        &self,
        call: &mut UnaryCall<CallBody>,
    ) -> Result<(RateLimitResponse, Allowed), Status> {
        let request = match call.message::<RateLimitRequest>(MAX_MESSAGE, &RATE_LIMIT_FIELDS, MAX_FIELDS).await {
            Ok(request) => request,
            // A client of Envoy may have sent a very long header. An error would let its request pass.
            Err(MessageError::TooLong) => {
                let overall_code = Code::OverLimit.into();
                return Ok((RateLimitResponse { overall_code, ..RateLimitResponse::default() }, Allowed::No));
            }
            Err(MessageError::TooManyFields) => {
                return Err(Status::invalid_argument(format!("the message has more than {MAX_FIELDS} fields")));
            }
            Err(MessageError::Failed(code, message)) => return Err(Status::new(code, message)),
        };
        let deadline = call.deadline;
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        check(&domain, &descriptors)?;
        let hits = u64::from(hits_addend.max(1));
        let heads = DescribedHeads::read(&descriptors, &self.options.settings.heads());
        let attributes_of = heads.attributes();
        let mut sorted = Descriptors::default();
        for (descriptor, head) in descriptors.into_iter().zip(heads.by_descriptor(&attributes_of)) {
            self.sort(&domain, descriptor, head, hits, &mut sorted);
        }
        let decisions = self.decisions(&sorted, deadline).await?;
        let is_over = decisions.is_over();
        if self.is_undecidable(&decisions) {
            return Err(Status::unavailable("the shared store is unreachable, and `when_down` is `deny`"));
        }
        let (code, allowed) = if is_over { (Code::OverLimit, Allowed::No) } else { (Code::Ok, Allowed::Yes) };
        let response = RateLimitResponse {
            overall_code: code.into(),
            statuses: sorted.actions.iter().map(|action| decisions.status(*action, &sorted)).collect(),
            response_headers_to_add: descriptor_status::headers(
                self.headers(&decisions).iter().map(|(name, value)| (name, value)),
            ),
        };
        // Unless all of it succeeds, dropping the permit and the guard refunds what was charged.
        if !is_over {
            if !sorted.refunded.is_empty() {
                let refund = self.engine.refund_all(&attributes(&sorted.refunded));
                let refund = Box::pin(within(deadline, refund)).await?;
                refund.map_err(|error| Status::unavailable(error.to_string()))?;
            }
            if let Ok(mut permit) = decisions.charged {
                permit.begin();
            }
            decisions.overridden.into_iter().for_each(LimitsGuard::keep);
        }
        Ok((response, allowed))
    }

    /// Decides first about the descriptors that only look, then about the others. Once one is over its limit, nothing more
    /// is charged, but each still has a status.
    ///
    /// Futures that wait are boxed: most calls have none, and would copy tens of kilobytes with room for them.
    async fn decisions(&self, sorted: &Descriptors<'_>, deadline: Option<Duration>) -> Result<Decisions, Status> {
        let mut looked = None;
        if !sorted.looking.is_empty() {
            let peek = self.engine.decide(&attributes(&sorted.looking), DecideMode::Peek);
            looked = Some(Box::pin(within(deadline, peek)).await?);
        }
        let is_denied = sorted.is_denied();
        let is_over = is_denied || looked.as_ref().is_some_and(Result::is_err);
        let charged = if is_over {
            let peek = self.engine.decide(&attributes(&sorted.charged), DecideMode::Peek);
            Box::pin(within(deadline, peek)).await?
        } else {
            let acquire = self.engine.acquire_all(&attributes(&sorted.charged));
            let acquired = match acquire.now() {
                Ok(acquired) => acquired,
                Err(waiting) => Box::pin(within(deadline, waiting)).await?,
            };
            acquired.map(Permit::provisional)
        };
        let verdict = Verdict::of(&charged);
        if verdict.has_log_entries() {
            verdict.log(&LoggedRequest { service: "envoy", ..LoggedRequest::default() });
        }
        let is_over = is_over || charged.is_err();
        let asks = sorted.overrides.iter();
        let asks = asks.map(|(limit, key, cost)| Ask::new(limit, key, if is_over { Cost::ZERO } else { *cost }));
        let asks = asks.collect::<Vec<_>>();
        let overridden = match asks.is_empty() {
            true => None,
            false => Some(Box::pin(within(deadline, self.engine.acquire_limits(&asks))).await?),
        };
        Ok(Decisions { looked, charged, overridden, is_denied })
    }

    /// Returns `true` if the request was denied only because the shared store is unreachable. Envoy then decides, by its
    /// `failure_mode_deny`.
    fn is_undecidable(&self, decisions: &Decisions) -> bool {
        let main = decisions.main();
        let is_undecided = |guard: &LimitsGuard| !guard.decision().is_granted() && guard.is_fallback();
        self.options.denies_when_down
            && (!main.is_granted() && self.engine.is_fallback(main)
                || decisions.overridden.as_ref().is_some_and(is_undecided))
    }

    /// Returns the headers for the client.
    fn headers(&self, decisions: &Decisions) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = diana_http::response_headers(decisions.main(), self.options.settings.http.rate_limit_headers);
        let overridden = decisions.overridden.as_ref().and_then(|guard| guard.decision().retry());
        if let Some(Retry::After(wait)) = overridden {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.retain(|(name, _)| *name != RETRY_AFTER);
            headers.push((RETRY_AFTER, seconds.into()));
        }
        headers
    }

    fn sort<'a>(
        &self,
        domain: &'a str,
        descriptor: RateLimitDescriptor,
        head: Result<Option<&'a HttpAttributes<'a>>, Rejected>,
        hits: u64,
        sorted: &mut Descriptors<'a>,
    ) {
        let hits = descriptor.hits_addend.unwrap_or(hits);
        let (is_refund, limit) = (descriptor.is_negative_hits, descriptor.limit);
        let Ok(http) = head else {
            // Nothing was charged for it, so there is nothing to refund.
            sorted.actions.push(if is_refund { Action::Refund } else { Action::Deny });
            return;
        };
        let descriptor = Descriptor::new(domain, descriptor, hits, http);
        // Envoy's own service also requires that the domain has rules.
        let limit = limit.filter(|_| !is_refund && self.engine.rules().knows_domain(domain));
        let action = if is_refund {
            sorted.refunded.push(descriptor);
            Action::Refund
        } else if hits > 0 && limit.as_ref().is_some_and(overrides::allows_nothing) {
            Action::Deny
        } else if let Some(limit) = limit.and_then(|limit| self.options.overrides.limit(&limit, &self.engine)) {
            let cost = if hits == 0 { Cost::ZERO } else { Cost::new(hits).unwrap_or(Cost::MAX) };
            sorted.overrides.push((limit, overrides::key(domain, &descriptor.entries), cost));
            Action::Override(sorted.overrides.len() - 1)
        } else if hits == 0 {
            sorted.looking.push(descriptor);
            Action::Look(sorted.looking.len() - 1)
        } else {
            sorted.charged.push(descriptor);
            Action::Charge(sorted.charged.len() - 1)
        };
        sorted.actions.push(action);
    }
}

impl Decisions {
    /// Returns the verdict about the descriptors that are charged.
    fn verdict(&self) -> &Verdict {
        Verdict::of(&self.charged)
    }

    /// Returns the verdict that matters to the client: one that denies, if there is one.
    fn main(&self) -> &Verdict {
        let looked = self.looked.as_ref().and_then(|looked| looked.as_ref().err());
        looked.map_or_else(|| self.verdict(), Deref::deref)
    }

    fn is_over(&self) -> bool {
        let is_over = |guard: &LimitsGuard| !guard.decision().is_granted();
        self.is_denied || !self.main().is_granted() || self.overridden.as_ref().is_some_and(is_over)
    }

    fn status(&self, action: Action, sorted: &Descriptors<'_>) -> DescriptorStatus {
        match action {
            Action::Charge(index) => descriptor_status::of_verdict(self.verdict(), index),
            Action::Look(index) => self
                .looked
                .as_ref()
                .map_or_else(descriptor_status::ok, |looked| descriptor_status::of_verdict(Verdict::of(looked), index)),
            Action::Override(index) => {
                let answers = self.overridden.as_ref().map(|guard| guard.decision().answers());
                let both = sorted.overrides.get(index).zip(answers.and_then(|answers| answers.get(index)));
                both.map_or_else(descriptor_status::ok, |((limit, ..), answer)| {
                    descriptor_status::of_answer(limit, answer)
                })
            }
            Action::Refund => descriptor_status::ok(),
            Action::Deny => descriptor_status::over(),
        }
    }
}

fn attributes<'a>(descriptors: &'a [Descriptor<'_>]) -> Vec<&'a dyn Attributes> {
    descriptors.iter().map(|descriptor| descriptor as &dyn Attributes).collect()
}

/// Rejects requests that are invalid or too large. Clients of Envoy choose neither the number of descriptors nor that of their
/// entries; they choose the length of values, which only the size of the message bounds: after an error, Envoy would let
/// the request pass, if `failure_mode_deny` is not set.
fn check(domain: &str, descriptors: &[RateLimitDescriptor]) -> Result<(), Status> {
    let invalid = |what: String| Err(Status::invalid_argument(what));
    if domain.is_empty() {
        return invalid("the domain is empty".to_owned());
    }
    if descriptors.is_empty() {
        return invalid("the request has no descriptors".to_owned());
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return invalid(format!("{} descriptors: at most {MAX_DESCRIPTORS} are accepted", descriptors.len()));
    }
    for descriptor in descriptors {
        if descriptor.entries.len() > MAX_ENTRIES {
            let entries = descriptor.entries.len();
            return invalid(format!("a descriptor has {entries} entries: at most {MAX_ENTRIES} are accepted"));
        }
    }
    Ok(())
}
