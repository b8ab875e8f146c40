//! Addresses of servers, as in `redis+sentinel://user:password@a:1,b:2/name?key=value`: URLs with one or more hosts.

/// An address split into its parts.
///
/// ```
/// use diana_rules::multi_host_url::Address;
///
/// let address = Address::of("etcd://me:pw@a:2379,b:2379/diana/rules");
/// assert_eq!((address.scheme, address.user, address.hosts), ("etcd", Some("me:pw"), "a:2379,b:2379"));
/// assert_eq!((address.path, address.query), ("diana/rules", None));
/// assert!(address.has_hosts() && !Address::of("etcd://a,,b/key").has_hosts());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address<'a> {
    /// The scheme, without `://`; empty if there is none.
    pub scheme: &'a str,
    /// User and password, as they are written.
    pub user: Option<&'a str>,
    /// One or more hosts, separated by commas.
    pub hosts: &'a str,
    /// The path, without the slash that begins it.
    pub path: &'a str,
    /// The query, without the `?`.
    pub query: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// Splits an address.
    pub fn of(text: &'a str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        Self { scheme, user, hosts, path, query }
    }

    /// Returns `true` if each host has a name.
    pub fn has_hosts(&self) -> bool {
        let name = |host: &'a str| match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => host,
        };
        self.hosts.split(',').all(|host| !matches!(name(host), "" | "[]"))
    }
}

impl std::fmt::Debug for Address<'_> {
    /// Omits user, password and query.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("scheme", &self.scheme).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_needs_a_name() {
        for text in ["http://h", "http://[::1]:80/x", "etcd://a:2379,b/k", "etcds://user:pw@[::1]/k", "redis://:pw@h/0"]
        {
            assert!(Address::of(text).has_hosts(), "{text}");
        }
        for text in ["http://:80/x", "http:///x", "http://me:pw@/x", "http://[]:80/x", "etcd://a,,b/key"] {
            assert!(!Address::of(text).has_hosts(), "{text}");
        }
        assert!(!format!("{:?}", Address::of("redis://u:pw@h?pass=pw")).contains("pw"));
    }
}
