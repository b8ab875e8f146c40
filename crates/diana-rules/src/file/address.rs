//! Checks the addresses of a config server and of Redis without connecting: whether there is a host, and what else the
//! scheme requires. The client that connects parses them again, more strictly.

/// An address split into its parts. User and password are left out.
struct Address<'a> {
    scheme: &'a str,
    /// One or more hosts, separated by commas.
    hosts: &'a str,
    /// Without leading and trailing slashes.
    path: &'a str,
    query: &'a str,
}

impl<'a> Address<'a> {
    fn of(text: &'a str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        Self { scheme, hosts, path: path.trim_matches('/'), query }
    }

    /// Returns `true` if each host has a name.
    fn has_hosts(&self) -> bool {
        let name = |host: &'a str| match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => host,
        };
        self.hosts.split(',').all(|host| !matches!(name(host), "" | "[]"))
    }
}

/// Returns an error if the address of a config server is incomplete.
pub(super) fn check_centre(text: &str) -> Result<(), &'static str> {
    let address = Address::of(text);
    if !address.has_hosts() {
        return Err("this address names no host");
    }
    match address.scheme {
        "etcd" | "etcds" if address.path.is_empty() && address.query.strip_prefix("key=").is_none_or(str::is_empty) => {
            Err("this address names no key of the etcd")
        }
        "redis" | "rediss" if !address.path.is_empty() && address.path.parse::<u32>().is_err() => {
            Err("what stands behind the host of a Redis is the number of a database; the key is given as ?key=NAME")
        }
        _ => Ok(()),
    }
}

/// Returns an error if the address of a Redis is incomplete.
pub(super) fn check_redis(text: &str) -> Result<(), &'static str> {
    let address = Address::of(text);
    match address.scheme {
        // The path of a local socket.
        "unix" | "redis+unix" => Ok(()),
        _ if !address.has_hosts() => Err("this address names no host"),
        "redis+sentinel" | "rediss+sentinel" if address.path.is_empty() => {
            Err("this address does not name the master that the sentinels know")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_pass() {
        for text in [
            "http://h",
            "https://user:pa%3Ass@h:8443/rules.yaml?env=a@b",
            "http://[::1]:80/x",
            "etcd://a:2379,b:2379/diana/rules",
            "etcds://user:pw@[::1]/k",
            "etcd://h?key=diana",
            "redis://h:6379",
            "redis://:pw@h/0?key=diana:rules",
        ] {
            assert_eq!(check_centre(text), Ok(()), "{text}");
        }
        for text in [
            "redis://127.0.0.1:6379",
            "rediss://u:p@[::1]:6380/3",
            "unix:///run/redis.sock",
            "redis+unix:///run/redis.sock?pass=x",
            "redis+cluster://:s3%2Fcret@h:1,i:2",
            "redis+sentinel://:s3cret@h:1,i:2/master/1",
        ] {
            assert_eq!(check_redis(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        for (text, told) in [
            ("http://:80/x", "no host"),
            ("http:///x", "no host"),
            ("http://me:pw@/x", "no host"),
            ("http://[]:80/x", "no host"),
            ("etcd://a,,b/key", "no host"),
            ("etcd://h", "no key"),
            ("etcd://h/", "no key"),
            ("etcd://h?key=", "no key"),
            ("redis://h:6379/rules", "number of a database"),
        ] {
            let said = check_centre(text).err().unwrap_or_default();
            assert!(said.contains(told), "{text}: {said}");
        }
        for (text, told) in [
            ("redis://:pw@/", "no host"),
            ("redis://:6379", "no host"),
            ("redis+cluster://,,", "no host"),
            ("redis+cluster://:pw@a:1,:2", "no host"),
            ("redis+sentinel://a:1", "master"),
        ] {
            let said = check_redis(text).err().unwrap_or_default();
            assert!(said.contains(told), "{text}: {said}");
        }
    }
}
