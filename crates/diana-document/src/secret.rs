//! Values that must not be displayed: passwords, tokens, and addresses that contain them.

use std::fmt;

/// A text that is formatted as `…`, so that it is not logged by accident.
///
/// ```
/// use diana_document::Secret;
///
/// let token = Secret::new("hunter2");
/// assert_eq!(format!("{token:?}"), "…");
/// assert_eq!(token.reveal(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Removes user, password and query from a URL, since they may be secrets. If they can't be separated from the rest,
/// only the scheme is left. The URL may be invalid.
///
/// ```
/// use diana_document::secret::redact_url;
///
/// assert_eq!(redact_url("redis://:hunter2@10.0.0.7:6379/2"), "redis://10.0.0.7:6379/2");
/// assert_eq!(redact_url("redis://:hun/ter2@10.0.0.7"), "redis://…");
/// ```
pub fn redact_url(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        let is_variable = address.starts_with("${") && address.ends_with('}');
        return if is_variable { address.to_owned() } else { "…".to_owned() };
    };
    let rest = match rest.rsplit_once('@') {
        None => rest,
        Some((user, _)) if user.contains(['/', '?', '#']) => "…",
        Some((_, rest)) => rest,
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    format!("{scheme}://{rest}")
}

#[cfg(test)]
mod tests {
    use super::redact_url;

    #[test]
    fn no_part_of_a_password_is_shown() {
        for (address, shown) in [
            ("redis://:pw@h:1/2", "redis://h:1/2"),
            ("redis://u:p@ss@h", "redis://h"),
            ("redis://:p/w@h", "redis://…"),
            ("redis://:p?w@h", "redis://…"),
            ("https://h/x?token=a@b", "https://…"),
            ("https://h/x?token=a", "https://h/x"),
            ("unix:///run/redis.sock?pass=x", "unix:///run/redis.sock"),
            ("${REDIS_URL}", "${REDIS_URL}"),
            ("secret", "…"),
        ] {
            assert_eq!(redact_url(address), shown);
        }
    }
}
