//! The words that other rate limiters use, and their counterparts in a rule file: people who come from there try them first.

/// Words for a field of a rule or of `match`, each with the field and how it is written.
const FIELDS: &[(&[&str], &str, &str)] = &[
    (&["key", "keyby", "groupby", "per", "variables", "identifier"], "by", "`by: ip`"),
    (
        &[
            "rate",
            "ratelimit",
            "limitreq",
            "qps",
            "tps",
            "rps",
            "requestspersecond",
            "requestsperminute",
            "permitspersecond",
            "requests",
            "maxrequests",
            "requestsperunit",
            "maxvalue",
            "count",
            "average",
            "quota",
            "unit",
            "window",
            "windowsize",
            "period",
            "interval",
            "seconds",
            "duration",
            "timewindow",
        ],
        "limit",
        "`limit: 100/s`, the number and the window in one",
    ),
    (&["whitelist", "allowlist", "exempt", "exclude", "skip"], "allow", "`allow: [KEY]`"),
    (&["blacklist", "denylist", "blocklist", "block"], "deny", "`deny: [KEY]`"),
    (&["maxburst", "capacity", "bucketsize", "burstsize", "maxtokens"], "burst", "`burst: 200`"),
    (
        &["limitconn", "concurrency", "maxconcurrency", "maxconcurrent", "maxconnections", "connections", "inflight"],
        "concurrent",
        "`concurrent: 10`",
    ),
    (&["dryrun", "shadowmode", "reportonly", "monitor", "limitreqdryrun"], "shadow", "`shadow: true`"),
    (&["statuscode", "errorcode", "rejectedcode", "limitreqstatus", "httpstatus"], "status", "`status: 429`"),
    (&["maxwait", "maxwaittime", "waittimeout", "maxqueueingtime", "timeout"], "wait", "`wait: 500ms`"),
    (&["queuesize", "maxqueue", "maxqueuesize", "backlog"], "queue", "`queue: 100`"),
    (&["weight", "hitsaddend", "quantity", "tokens", "permits"], "cost", "`cost: 5`"),
    (&["policy", "shared", "distributed", "cluster", "global"], "store", "`store: shared`"),
    (&["message", "errormessage", "body", "response"], "answer", "`answer: {...}`"),
    (
        &["action", "fallback", "controlbehavior", "onexceeded"],
        "over",
        "`over: {reroute: URL}`, or `wait: 500ms` to delay",
    ),
    (&["strategy", "limiter", "type", "kind"], "algorithm", "`algorithm: sliding_window`"),
    (&["url", "uri", "route", "location", "prefix", "endpoint"], "path", "`path: /api/**`"),
    (&["verb", "httpmethod"], "method", "`method: POST`"),
    (&["clientip", "remoteaddr", "sourceip", "cidr"], "ip", "`ip: 10.0.0.0/8`"),
    (&["if", "condition", "conditions", "expression", "expr", "cel"], "when", "`when: EXPRESSION`"),
    (&["limits", "ratelimits", "policies", "zones", "zone"], "rules", "`rules: [{name: everyone, limit: 100/s}]`"),
    (&["backend", "target", "proxypass", "proxy", "servers", "server"], "upstream", "`upstream: URL`"),
    (&["port", "address", "bind", "addr"], "listen", "`listen: 0.0.0.0:8080`"),
];

/// Words for a key, and the key.
const KEYS: &[(&[&str], &str)] = &[
    (
        &[
            "clientip",
            "binaryremoteaddr",
            "remoteaddr",
            "remoteaddress",
            "sourceip",
            "ipaddress",
            "addr",
            "address",
            "client",
            "peerip",
            "remoteip",
            "requestip",
        ],
        "ip",
    ),
    (
        &["user", "userid", "username", "consumer", "customer", "tenant", "apikey", "remoteuser", "credential"],
        "account",
    ),
    (&["path", "uri", "url", "requesturi", "route", "endpoint", "genericresource"], "resource"),
    (&["all", "everyone", "none", "total", "service", "server", "any"], "global"),
    (&["httphost", "servername", "vhost", "authority"], "host"),
];

/// Returns what to write in place of a field that other rate limiters have; `None` unless one of the `known` fields is meant.
pub(crate) fn field(word: &str, known: &[&str]) -> Option<String> {
    let plain = plain(word);
    let (_, _, example) = FIELDS.iter().find(|(words, field, _)| words.contains(&&*plain) && known.contains(field))?;
    Some(format!("in Diana that is {example}"))
}

/// Returns what to write in place of a key that other rate limiters have.
pub fn key(word: &str) -> Option<String> {
    let plain = plain(word);
    // Variables of nginx.
    for (prefix, key) in [("$http_", "header"), ("$cookie_", "cookie"), ("$arg_", "query")] {
        if let Some(name) = word.strip_prefix(prefix).filter(|name| !name.is_empty() && plain != "httphost") {
            return Some(format!("in Diana that is `{key}({})`", name.replace('_', "-")));
        }
    }
    let (_, key) = KEYS.iter().find(|(words, _)| words.contains(&&*plain))?;
    Some(match *key {
        "account" => "in Diana that is `account`; `identity` says where it comes from".to_owned(),
        key => format!("in Diana that is `{key}`"),
    })
}

/// Returns a word without case, separators and `$`.
fn plain(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_written_as_it_is_compared_and_stands_once() {
        let fields = FIELDS.iter().flat_map(|(words, ..)| *words).collect::<Vec<_>>();
        let keys = KEYS.iter().flat_map(|(words, _)| *words).collect::<Vec<_>>();
        assert!(FIELDS.iter().all(|(_, field, example)| example.starts_with(&format!("`{field}: "))));
        for words in [fields, keys] {
            for word in &words {
                assert_eq!(plain(word), **word);
                assert_eq!(words.iter().filter(|other| *other == word).count(), 1, "{word}");
            }
        }
    }
}
