//! Whose call it is: the address and the user that `by = ip` and `by = user` count by, and what else rules ask for by name.
//!
//! A function seldom has them among its arguments; who took the request knows them. So they travel with the task, as a
//! security context does in other frameworks: set once around the handler, read wherever a limit asks.

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

/// What rules call the user.
const ACCOUNT: &str = "account";

/// Whose call it is. Set around a task with [`scope`](Self::scope), around plain code with [`enter`](Self::enter).
/// `diana_http::RateLimitLayer` does it for every request that it lets through, with its feature `macros`.
///
/// A limit that counts by something the caller does not say counts such calls together, under the key `(nobody)`: one limit
/// for all of whom it isn't known, never none.
///
/// It stays with its task: a task that is [spawned](tokio::spawn) inside has none, unless it is given
/// [`current`](Self::current). An inner scope hides the outer one as a whole.
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
/// assert!(export().await.is_ok()); // (nobody)
/// assert_eq!(export().await.unwrap_err().key(), Some("(nobody)"));
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    ip: Option<IpAddr>,
    user: Option<Arc<str>>,
    others: Vec<(Arc<str>, Arc<str>)>,
}

impl Caller {
    /// Nobody in particular.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same caller at this address. An IPv4 address in IPv6's clothes (`::ffff:192.0.2.1`) is that IPv4 address. Limits count
    /// an IPv6 address as its /64.
    #[must_use]
    pub fn with_ip(self, ip: impl Into<IpAddr>) -> Self {
        Self { ip: Some(ip.into().to_canonical()), ..self }
    }

    /// The same caller as this user: a name or an id. Rules know it as `account`.
    #[must_use]
    pub fn with_user(self, user: impl Into<Arc<str>>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// The same caller, of whom this is known too: `device`, `tenant`, whatever rules ask for by name.
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
        self.others.retain(|(known, _)| *known != name);
        self.others.push((name, value));
        self
    }

    /// The address, if it is known.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The user, if known.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The user, to be kept.
    pub(super) fn user_name(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// What is known by this name; `account` is the user.
    pub fn get(&self, name: &str) -> Option<&str> {
        if name == ACCOUNT {
            return self.user();
        }
        self.others.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Runs a future as this caller's.
    pub fn scope<F: Future>(self, future: F) -> Scoped<F> {
        Scoped { future: CALLER.scope(self, future) }
    }

    /// Runs plain code as this caller's.
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

    /// Whose call this is, to take it along to another task or thread; `None` outside of every scope.
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

    /// Looks at whose call this is, without a copy.
    pub(super) fn look<R>(mut look: impl FnMut(Option<&Self>) -> R) -> R {
        match CALLER.try_with(|caller| look(Some(caller))) {
            Ok(seen) => seen,
            Err(_) => look(None),
        }
    }
}

pin_project! {
    /// A future that runs as somebody's: what [`Caller::scope`] makes.
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
