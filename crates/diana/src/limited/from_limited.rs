//! Converts a denial to a function's return type.

use super::Limited;

/// Return types that can represent a [`Limited`] call: a `Result` whose error implements `From<Limited>`.
///
/// ```
/// use diana::limited::FromLimited;
///
/// #[diana::rate_limit(rate = 1)]
/// fn search() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     Ok(())
/// }
///
/// let error = search().unwrap_err(); // nothing is installed
/// assert!(error.is::<diana::Limited>());
/// let limited = Result::<(), diana::Limited>::limited(*error.downcast().unwrap());
/// assert!(limited.is_err());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't represent a limited call",
    label = "expected a `Result` whose error implements `From<diana::Limited>`, or an `on_limit`",
    note = "return `Result<_, E>` with an `E: From<diana::Limited>`",
    note = "or write `on_limit = path` in the attribute, for a `fn(diana::Limited) -> {Self}`"
)]
pub trait FromLimited {
    /// Returns the value for a denied call.
    fn limited(limited: Limited) -> Self;
}

// With this attribute the compiler shows the message above, and not only the missing impl.
#[diagnostic::do_not_recommend]
impl<T, E: From<Limited>> FromLimited for Result<T, E> {
    fn limited(limited: Limited) -> Self {
        Err(limited.into())
    }
}
