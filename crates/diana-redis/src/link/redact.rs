//! Redacts a URL for logs, errors and debug output.
//!
//! An invalid URL is shown too, and the position of its password is unknown. So every possible position is hidden: the
//! text before the last `@`, except for a plain user name, and the text after a `?`.

/// Splits off the scheme, if there is one.
pub(crate) fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let plain = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    url.split_once("://").filter(|(scheme, _)| plain(scheme))
}

/// Returns the URL with `***` for the password.
pub(crate) fn without_password(url: &str) -> String {
    match split_scheme(url) {
        Some((scheme, rest)) => format!("{scheme}://{}", redact_rest(rest)),
        None => redact_rest(url),
    }
}

fn redact_rest(rest: &str) -> String {
    let Some((user, hosts)) = rest.rsplit_once('@') else { return before_query(rest) };
    if user.contains('?') {
        // A password with a `?`, or one with an `@` in the query.
        return "***".to_owned();
    }
    let hosts = before_query(hosts);
    match user.split_once(':') {
        Some((name, _)) if !name.contains('/') => format!("{name}:***@{hosts}"),
        None if !user.contains('/') => format!("{user}@{hosts}"),
        _ => format!("***@{hosts}"),
    }
}

/// Redacts the URL of a Unix domain socket, whose password is in the query.
fn before_query(rest: &str) -> String {
    rest.split_once('?').map_or_else(|| rest.to_owned(), |(before, _)| format!("{before}?***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, redacted) in [
            ("redis://h:1", "redis://h:1"),
            ("redis://user:s3cret@h:1/2", "redis://user:***@h:1/2"),
            ("redis://user@h:1/2", "redis://user@h:1/2"),
            ("redis+cluster://:s3:@cret@h:1,i:2", "redis+cluster://:***@h:1,i:2"),
            ("redis+cluster://:s3/cret@h:1,i:2", "redis+cluster://:***@h:1,i:2"),
            ("redis+sentinel://s3/cr:et@h:1/m", "redis+sentinel://***@h:1/m"),
            ("redis://:s3?cret@h:1", "redis://***"),
            ("redis://:s3#cret@h:1", "redis://:***@h:1"),
            ("redis+unix:///run/redis.sock?user=u&pass=s3cret", "redis+unix:///run/redis.sock?***"),
            ("unix:///run/redis.sock?pass=s3@cret", "unix://***"),
            ("user:s3cret@h:1", "user:***@h:1"),
            ("user:s3cret@h://1", "user:***@h://1"),
            ("h:1", "h:1"),
        ] {
            assert_eq!(without_password(url), redacted);
        }
    }
}
