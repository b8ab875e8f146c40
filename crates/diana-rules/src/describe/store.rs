//! Descriptions of the store. Defaults are not described.

use super::duration;
use crate::file::{Lease, OnFullKeys, RedisSection, StoreSection, StoreTime, WhenRedisIsDown};
use crate::words;
use diana_document::secret::redact_url;

impl StoreSection {
    /// Describes the store, line by line; defaults are left out. Passwords are not shown.
    ///
    /// ```
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "{store: {redis: 'redis://:pw@10.0.0.7:6379', when_down: deny}, rules: []}");
    /// let file = RuleFile::read(&document, &Registry::default())?;
    /// assert_eq!(file.store.describe(), [
    ///     "shared counts are on redis://10.0.0.7:6379; while it is unreachable, requests are denied",
    /// ]);
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.redis.as_ref().map(shared));
        let memory = &self.memory;
        if memory.ceiling.is_some() || memory.on_full.is_some() {
            let size = memory.ceiling.and_then(|bytes| u64::try_from(bytes).ok());
            let size = size.map(|bytes| format!("take at most {}", words::bytes(bytes)));
            let full = memory.on_full.map(|on_full| match on_full {
                OnFullKeys::Share => "when they are full, new keys share a few counts",
                OnFullKeys::Deny => "when they are full, new keys are denied",
                OnFullKeys::Allow => "when they are full, new keys are allowed",
            });
            let both = size.into_iter().chain(full.map(str::to_owned)).collect::<Vec<_>>();
            lines.push(format!("counts in this process: {}", both.join("; ")));
        }
        if let Some(snapshot) = &memory.snapshot {
            let every = snapshot.interval.map(|interval| format!(", every {}", duration(interval)));
            let (path, every) = (snapshot.path.display(), every.unwrap_or_default());
            lines.push(format!("counts in this process survive a restart: they are saved to {path}{every}"));
        }
        lines
    }
}

fn shared(redis: &RedisSection) -> String {
    let mut text = format!("shared counts are on {}", redact_url(redis.url.reveal()));
    if let Some(prefix) = &redis.prefix {
        text.push_str(&format!(", with the key prefix `{prefix}`"));
    }
    if let Some(timeout) = redis.timeout {
        text.push_str(&format!(", with a timeout of {}", duration(timeout)));
    }
    if redis.time == Some(StoreTime::Local) {
        text.push_str(", by this process's clock");
    }
    match redis.lease {
        None | Some(Lease::Off) => {}
        Some(Lease::Auto) => text.push_str(", with leases for busy keys"),
        Some(Lease::Of(count)) => text.push_str(&format!(", with leases of {count} for busy keys")),
    }
    text.push_str(match redis.when_down {
        None | Some(WhenRedisIsDown::Local) => {
            "; while it is unreachable, each instance counts for itself, up to its share of each limit"
        }
        Some(WhenRedisIsDown::LocalFull) => {
            "; while it is unreachable, each instance counts for itself, up to the whole limit"
        }
        Some(WhenRedisIsDown::Allow) => "; while it is unreachable, requests are allowed",
        Some(WhenRedisIsDown::Deny) => "; while it is unreachable, requests are denied",
    });
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use crate::{Document, Registry, RuleFile};

    fn lines(text: &str) -> Vec<String> {
        RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap().store.describe()
    }

    #[test]
    fn describes_the_store() {
        assert!(lines("rules: []").is_empty());
        let text = "
store:
  memory: 64MiB
  on_full: deny
  redis: rediss+cluster://:secret@a:1,b:2
  prefix: shop
  timeout: 50ms
  lease: 100
rules: []
";
        assert_eq!(
            lines(text),
            [
                "shared counts are on rediss+cluster://a:1,b:2, with the key prefix `shop`, with a timeout of 50ms, with leases of 100 for busy keys; while it is unreachable, each instance counts for itself, up to its share of each limit",
                "counts in this process: take at most 64 MiB; when they are full, new keys are denied",
            ]
        );
        assert_eq!(
            lines("{store: {on_full: share}, rules: []}"),
            ["counts in this process: when they are full, new keys share a few counts"]
        );
        assert_eq!(
            lines("{store: {snapshot: /var/lib/diana/counts}, rules: []}"),
            ["counts in this process survive a restart: they are saved to /var/lib/diana/counts"]
        );
        assert_eq!(
            lines("{store: {snapshot: counts, snapshot_interval: 30s}, rules: []}"),
            ["counts in this process survive a restart: they are saved to counts, every 30 seconds"]
        );
    }
}
