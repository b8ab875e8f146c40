//! Whose call it is: the address and the user that `by = ip` and `by = user` count by.
//!
//! A function seldom has them among its arguments; who took the request knows them. So they travel with the task, as a
//! security context does in other frameworks: set once around the handler, read wherever a limit asks.

use std::net::IpAddr;
use std::sync::Arc;

tokio::task_local! {
    static CALLER: Caller;
}

/// Whose call it is. Set around a task with [`scope`](Self::scope), around plain code with [`enter`](Self::enter).
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
}

impl Caller {
    /// Nobody in particular.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same caller at this address. An IPv4 address in IPv6's clothes (`::ffff:192.0.2.1`) is that IPv4 address.
    ///
    /// Who should count together must come with one address: give the first address of the network where a client has a
    /// whole one, as with IPv6.
    #[must_use]
    pub fn with_ip(self, ip: impl Into<IpAddr>) -> Self {
        Self { ip: Some(ip.into().to_canonical()), ..self }
    }

    /// The same caller as this user: a name or an id.
    #[must_use]
    pub fn with_user(self, user: impl Into<Arc<str>>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// The address, if it is known.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The user, if known.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Runs a future as this caller's.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CALLER.scope(self, future)
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
