//! The caller of a function: the address and the user for `by = ip` and `by = user`, and other attributes for rules.
//!
//! A function seldom has them among its arguments; the request handler knows them. So they are task-local, like the
//! security context of other frameworks: set once around the handler, read by every limit inside.

use pin_project_lite::pin_project;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CALLER: Caller;
}

/// The name of the user in rules.
const ACCOUNT: &str = "account";

/// The caller of limited functions. Set it for a future with [`scope`](Self::scope), for synchronous code with
/// [`enter`](Self::enter). With its feature `macros`, `diana_http::RateLimitLayer` does so for every granted request.
///
/// A limit by an attribute that the caller does not have counts such calls together, under the key `(unknown)`: they
/// share one limit, and are never unlimited. If it is the address, a warning is logged once a minute.
///
/// It is local to its task: a [spawned](tokio::spawn) task has none, unless it is passed [`current`](Self::current). An
/// inner scope replaces the outer one completely.
///
/// ```
/// use diana::limited::{Caller, Limits};
///
/// #[diana::count_limit(limit = 1, period = "1h", by = user)]
/// async fn export() -> Result<(), diana::Limited> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// Limits::new().install();
/// let alice = Caller::new().with_ip([192, 0, 2, 1]).with_user("alice");
/// assert!(alice.clone().scope(export()).await.is_ok());
/// assert!(alice.scope(export()).await.is_err());
///
/// let bob = Caller::new().with_user("bob");
/// assert!(bob.scope(export()).await.is_ok());
/// assert!(export().await.is_ok()); // (unknown)
/// assert_eq!(export().await.unwrap_err().key(), Some("(unknown)"));
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    ip: Option<IpAddr>,
    user: Option<Arc<str>>,
    attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Caller {
    /// Creates a caller without any attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) counts as its IPv4 address. Limits count an
    /// IPv6 address as its /64.
    #[must_use]
    pub fn with_ip(self, ip: impl Into<IpAddr>) -> Self {
        Self { ip: Some(ip.into().to_canonical()), ..self }
    }

    /// Sets the user: a name or an id. Rules call it `account`.
    #[must_use]
    pub fn with_user(self, user: impl Into<Arc<str>>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// Sets another attribute for rules, such as `device` or `tenant`.
    ///
    /// ```
    /// use diana::limited::Caller;
    ///
    /// let caller = Caller::new().with_user("alice").with("tenant", "acme");
    /// assert_eq!((caller.get("tenant"), caller.get("account")), (Some("acme"), Some("alice")));
    /// ```
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        let (name, value) = (name.into(), value.into());
        if *name == *ACCOUNT {
            return self.with_user(value);
        }
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value));
        self
    }

    /// Returns the address, if it is known.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Returns the user, if known.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the user as an `Arc`, for cloning.
    pub(super) fn user_name(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// Returns the attribute of this name; `account` is the user.
    pub fn get(&self, name: &str) -> Option<&str> {
        if name == ACCOUNT {
            return self.user();
        }
        self.attributes.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Runs a future with this caller.
    pub fn scope<F: Future>(self, future: F) -> Scoped<F> {
        Scoped { future: CALLER.scope(self, future) }
    }

    /// Runs synchronous code with this caller.
    ///
    /// ```
    /// use diana::limited::Caller;
    ///
    /// let alice = Caller::new().with_user("alice");
    /// alice.enter(|| assert_eq!(Caller::current().unwrap().user(), Some("alice")));
    /// assert_eq!(Caller::current(), None);
    /// ```
    pub fn enter<R>(self, run: impl FnOnce() -> R) -> R {
        CALLER.sync_scope(self, run)
    }

    /// Returns the current caller, to pass it to another task or thread; `None` outside of every scope.
    ///
    /// ```
    /// use diana::limited::Caller;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let task = Caller::new().with_user("alice").scope(async {
    ///     let caller = Caller::current().unwrap_or_default();
    ///     tokio::spawn(caller.scope(async { Caller::current() }))
    /// });
    /// assert_eq!(task.await.await.unwrap().unwrap().user(), Some("alice"));
    /// # }
    /// ```
    pub fn current() -> Option<Self> {
        CALLER.try_with(Clone::clone).ok()
    }

    /// Accesses the current caller without a copy.
    pub(super) fn with_current<R>(mut read: impl FnMut(Option<&Self>) -> R) -> R {
        match CALLER.try_with(|caller| read(Some(caller))) {
            Ok(result) => result,
            Err(_) => read(None),
        }
    }
}

pin_project! {
    /// A future that runs with a caller; created by [`Caller::scope`].
    pub struct Scoped<F> {
        #[pin]
        future: TaskLocalFuture<Caller, F>,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(context)
    }
}

impl<F> fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}
