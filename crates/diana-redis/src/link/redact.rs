//! A URL as people may see it: in the log, in errors, in debug output.
//!
//! It is shown also when it makes no sense, and then nobody knows which of it is the password. So all that could be is
//! hidden: what stands before the last `@`, but for a plain user's name, and what stands after a `?`.

/// The scheme and the rest, if there is a scheme.
pub(crate) fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let plain = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    url.split_once("://").filter(|(scheme, _)| plain(scheme))
}

/// The URL with `***` for the password.
pub(crate) fn without_password(url: &str) -> String {
    match split_scheme(url) {
        Some((scheme, rest)) => format!("{scheme}://{}", rest_without(rest)),
        None => rest_without(url),
    }
}

fn rest_without(rest: &str) -> String {
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

/// Where the socket of a Unix domain is, the password is in the query.
fn before_query(rest: &str) -> String {
    rest.split_once('?').map_or_else(|| rest.to_owned(), |(before, _)| format!("{before}?***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
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
            assert_eq!(without_password(url), shown);
        }
    }
}
