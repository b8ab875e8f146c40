//! The words of other rate limiters are explained.

use diana_rules::{Document, Registry, RuleFile};

#[test]
fn words_of_other_limiters_are_explained() {
    let problems =
        |text: &str| RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap_err().to_string();
    for (rule, hint) in [
        ("limit: 1/s, whitelist: [a]", "in Diana that is `allow: [KEY]`"),
        ("rate: 5", "in Diana that is `limit: 100/s`, the number and the window in one"),
        ("limit: 1/s, requests_per_unit: 5", "in Diana that is `limit: 100/s`"),
        ("permitsPerSecond: 5", "in Diana that is `limit: 100/s`"),
        ("limit_req: 5", "in Diana that is `limit: 100/s`"),
        ("limit_conn: 5", "in Diana that is `concurrent: 10`"),
        ("limit: 1/s, dry_run: true", "in Diana that is `shadow: true`"),
        ("limit: 1/s, by: client_ip", "in Diana that is `ip`"),
        ("limit: 1/s, by: $binary_remote_addr", "in Diana that is `ip`"),
        ("limit: 1/s, by: $http_x_api_key", "in Diana that is `header(x-api-key)`"),
        ("limit: 1/s, by: $http_host", "in Diana that is `host`"),
        ("limit: 1/s, by: user_id", "in Diana that is `account`; `identity` says where it comes from"),
        ("limit: 1/s, by: uri", "in Diana that is `resource`"),
        ("limit: 1/s, match: {url: /a}", "in Diana that is `path: /api/**`"),
        ("limit: 10r/s", "did you mean `10/s`?"),
    ] {
        let problems = problems(&format!("rules:\n  - {{name: a, {rule}}}\n"));
        assert!(problems.contains(hint), "{rule}: {problems}");
    }
    assert!(problems("limits: []").contains("in Diana that is `rules:"));
    // A typo of a known field is nearer than a word of others.
    assert!(problems("rules:\n  - {name: a, limits: 1/s}\n").contains("did you mean `limit`?"));
}
