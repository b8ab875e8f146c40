//! Descriptions of the store and of the config server. Defaults are not described.

use super::units;
use crate::file::{Lease, OnFullKeys, RedisSection, RemoteSection, RuleFile, WhenRedisIsDown};

/// Describes `store` and `remote` of a file, line by line; defaults are left out. Passwords are not shown.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile, describe_store};
///
/// let document = Document::new("diana.yaml", "{store: {redis: 'redis://:pw@10.0.0.7:6379', when_down: deny}, rules: []}");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(describe_store(&file), [
///     "shared counts are on redis://10.0.0.7:6379; while it is unreachable, requests are denied",
/// ]);
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn describe_store(file: &RuleFile) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(file.store.redis.as_ref().map(shared));
    let memory = &file.store.memory;
    if memory.ceiling.is_some() || memory.on_full.is_some() {
        let size = memory.ceiling.and_then(|bytes| u64::try_from(bytes).ok());
        let size = size.map(|bytes| format!("take at most {}", units::bytes(bytes)));
        let full = memory.on_full.map(|on_full| match on_full {
            OnFullKeys::Share => "when they are full, new keys share a few counts",
            OnFullKeys::Deny => "when they are full, new keys are denied",
            OnFullKeys::Allow => "when they are full, new keys are allowed",
        });
        let both = size.into_iter().chain(full.map(str::to_owned)).collect::<Vec<_>>();
        said.push(format!("counts in this process: {}", both.join("; ")));
    }
    said.extend(file.remote.as_ref().map(remote));
    said
}

fn shared(redis: &RedisSection) -> String {
    let mut text = format!("shared counts are on {}", without_secrets(redis.url.reveal()));
    if let Some(prefix) = &redis.prefix {
        text.push_str(&format!(", under names that begin with `{prefix}`"));
    }
    if let Some(timeout) = redis.timeout {
        text.push_str(&format!(", asked for at most {}", units::time(timeout)));
    }
    match redis.lease {
        None | Some(Lease::Off) => {}
        Some(Lease::Auto) => text.push_str(", with leases for busy keys"),
        Some(Lease::Of(count)) => text.push_str(&format!(", with leases of {count} for busy keys")),
    }
    text.push_str(match redis.when_down {
        None | Some(WhenRedisIsDown::Local) => "; while it is unreachable, each instance counts for itself",
        Some(WhenRedisIsDown::Allow) => "; while it is unreachable, requests are allowed",
        Some(WhenRedisIsDown::Deny) => "; while it is unreachable, requests are denied",
    });
    text
}

fn remote(remote: &RemoteSection) -> String {
    let mut text = format!("rules come from the config server {}", without_secrets(remote.from.reveal()));
    if remote.token.is_some() {
        text.push_str(", with a token");
    }
    if let Some(poll) = remote.poll {
        text.push_str(&format!(", asked every {}", units::each(poll)));
    }
    text.push_str("; they take the place of those in this file");
    text
}

/// Removes user, password and query from an address, since they may be secrets. If they can't be told apart from the
/// rest, only the scheme is left.
fn without_secrets(address: &str) -> String {
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
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;
    use crate::{Document, Registry};

    fn said(text: &str) -> Vec<String> {
        describe_store(&RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap())
    }

    #[test]
    fn store_and_config_server_are_said() {
        assert!(said("rules: []").is_empty());
        let text = "
store:
  memory: 64MiB
  on_full: deny
  redis: rediss+cluster://:secret@a:1,b:2
  prefix: shop
  timeout: 50ms
  lease: 100
remote: {from: 'https://config.example.com/diana.yaml?key=secret', token: secret, poll: 10s}
";
        assert_eq!(
            said(text),
            [
                "shared counts are on rediss+cluster://a:1,b:2, under names that begin with `shop`, asked for at most 50ms, with leases of 100 for busy keys; while it is unreachable, each instance counts for itself",
                "counts in this process: take at most 64 MiB; when they are full, new keys are denied",
                "rules come from the config server https://config.example.com/diana.yaml, with a token, asked every 10 seconds; they take the place of those in this file",
            ]
        );
        assert_eq!(
            said("{store: {on_full: share}, rules: []}"),
            ["counts in this process: when they are full, new keys share a few counts"]
        );
    }

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
            assert_eq!(without_secrets(address), shown);
        }
    }
}
