//! Sets the caller of a request for limits on the functions that handle it (feature `macros`).

#[cfg(feature = "macros")]
pub(super) use scoped::{CallFuture, RequestCaller};
#[cfg(not(feature = "macros"))]
pub(super) use unscoped::{CallFuture, RequestCaller};

#[cfg(feature = "macros")]
mod scoped {
    use crate::attributes::HttpAttributes;
    use diana::RuleSet;
    use diana::limited::{Caller, Scoped};
    use http::Request;
    use http::request::Parts;
    use std::net::IpAddr;
    use tower_service::Service;

    /// A call of the inner service, with the caller of the request.
    pub(in super::super) type CallFuture<F> = Scoped<F>;

    /// The caller of a request.
    pub(in super::super) struct RequestCaller(Caller);

    impl RequestCaller {
        /// Returns its address, and the attributes of the file's `identity`. Rules compute the same, but do not keep
        /// it.
        pub(in super::super) fn of(rules: &RuleSet, head: &Parts, client: Option<IpAddr>) -> Self {
            let caller = client.map_or_else(Caller::new, |client| Caller::new().with_ip(client));
            let request = HttpAttributes::of_head(head, client);
            Self(rules.identify(&request, caller, |caller, name, value| caller.with(name, value)))
        }

        /// Calls the inner service.
        pub(in super::super) fn call<B, C: Service<Request<B>>>(
            self,
            inner: &mut C,
            request: Request<B>,
        ) -> CallFuture<C::Future> {
            let Self(caller) = self;
            let call = caller.clone().enter(|| inner.call(request));
            caller.scope(call)
        }
    }
}

#[cfg(not(feature = "macros"))]
mod unscoped {
    use diana::RuleSet;
    use http::Request;
    use http::request::Parts;
    use std::net::IpAddr;
    use tower_service::Service;

    /// A call of the inner service.
    pub(in super::super) type CallFuture<F> = F;

    /// The caller is not used without the feature.
    pub(in super::super) struct RequestCaller;

    impl RequestCaller {
        pub(in super::super) fn of(_: &RuleSet, _: &Parts, _: Option<IpAddr>) -> Self {
            Self
        }

        /// Calls the inner service.
        pub(in super::super) fn call<B, C: Service<Request<B>>>(
            self,
            inner: &mut C,
            request: Request<B>,
        ) -> CallFuture<C::Future> {
            inner.call(request)
        }
    }
}
