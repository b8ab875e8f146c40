//! The problems of one run: none is reported twice or only by a second run; and warnings about likely mistakes.

use crate::common::{good, problems_of};

#[test]
fn an_invalid_identity_does_not_hide_other_names() {
    let problems = problems_of(
        "gateway: {upstream: 'http://127.0.0.1:3000'}\nidentity:\n  account: headr(x-account)\n  tenant: header(x-tenant)\n  \
         user: jwt(sub)\n  jwt: {secret: a, algorithm: HS255}\nrules:\n  - {name: a, by: tenant, limit: 5/s}\n  \
         - {name: b, by: account, limit: 6/s}\n  - {name: c, by: user, limit: 7/s}\n  - {name: d, by: jwt(sub), limit: 8/s}\n  \
         - {name: e, by: tennant, limit: 9/s}\n",
    );
    let [first, second, third] = &*problems else { panic!("{problems:#?}") };
    assert!(first.ends_with("did you mean `header(NAME)`?"), "{first}");
    assert!(second.starts_with("[HS255]"), "{second}");
    assert!(third.ends_with("did you mean `tenant`?"), "{third}");
}

#[test]
fn duplicate_names_are_reported_with_all_other_problems() {
    let problems = problems_of(
        "rules:\n  - {name: a, by: acount, limit: 5/s}\n  - {name: b, limit: 6/s}\n  - {name: a, limit: 7/s}\n  \
         - {name: b, match: {path: x}, limit: 8/s}\n",
    );
    assert_eq!(
        problems,
        [
            "[acount] unknown key `acount`: did you mean `account`?",
            "[a] duplicate rule name `a`: use another name: counts are stored by name",
            "[b] duplicate rule name `b`: use another name: counts are stored by name",
            "[x] invalid path `x`: expected a leading `/`, as in `/search/**`",
        ]
    );
}

#[test]
fn paths_of_other_systems_are_reported() {
    for (path, expected) in [
        ("/users/:id", "did you mean `/users/{id}`?"),
        ("'^/users/[0-9]+$'", "regular expression `^/users/[0-9]+$` never matches"),
        ("'/users/\\d+'", "request.path.matches"),
    ] {
        let rule = problems_of(&format!("rules: [{{name: a, match: {{path: {path}}}, limit: 5/s}}]"));
        assert!(rule.len() == 1 && rule[0].contains(expected), "{rule:#?}");
        let gateway = format!("{{routes: [{{match: {{path: {path}}}, upstream: 'http://127.0.0.1:3000'}}]}}");
        let route = problems_of(&format!("gateway: {gateway}\nrules: [{{name: a, limit: 5/s}}]"));
        assert!(route.len() == 1 && route[0].contains(expected), "{route:#?}");
    }
}

/// The first line of each warning.
fn warnings(rules: &str) -> Vec<String> {
    let file = good(&format!("rules:\n{rules}"));
    let printed = file.warnings.map(|all| all.to_string()).unwrap_or_default();
    printed.lines().filter(|line| line.starts_with("diana.yaml:")).map(str::to_owned).collect()
}

#[test]
fn warns_about_requests_that_no_rule_limits() {
    const WARNING: &str = "diana.yaml:2:12: warning: requests without account are not limited by `each` (`missing: skip`), nor \
                           by any other rule";
    let each = "  - {name: each, by: account, limit: 5/s";
    let when = |condition: &str| format!(", match: {{when: \"{condition}\"}}");
    for alone in [
        format!("{each}}}"),
        format!("{each}, missing: skip}}"),
        // None of these limits all requests that the first one skips.
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s, match: {{path: /a}}}}"),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s, shadow: true}}"),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s, match: {{call: true}}}}"),
        format!("{each}}}\n  - {{name: other, by: ip, bandwidth: 5kB/s}}"),
        format!("{each}}}\n  - {{name: other, deny: 192.0.2.1}}"),
        format!("{each}, match: {{path: /a/**}}}}\n  - {{name: other, by: ip, limit: 5/s, match: {{path: /a/b/**}}}}"),
        format!("{each}, match: {{path: /a}}}}\n  - {{name: other, limit: 5/s, match: {{path: /a, method: GET}}}}"),
        // Requests to /a without an account have no limit, nor have those without an account that are not for /b.
        format!(
            "{each}{}}}\n  - {{name: other, by: ip, limit: 5/s{}}}",
            when("request.path == '/a'"),
            when("request.path != '/a'")
        ),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s{}}}", when("account == '' && request.path == '/b'")),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s{}}}", when("account != ''")),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 5/s{}}}", when("device == ''")),
    ] {
        assert_eq!(warnings(&alone), [WARNING], "{alone}");
    }
    for covered in [
        format!("{each}, missing: shared}}"),
        format!("{each}, missing: deny}}"),
        format!("{each}, shadow: true}}"),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 9/s}}"),
        format!("{each}}}\n  - {{name: other, concurrent: 9}}"),
        format!("{each}}}\n  - {{name: other, by: account, missing: {{deny: 401}}}}"),
        format!("{each}, match: {{path: /a}}}}\n  - {{name: other, by: ip, limit: 9/s, match: {{path: /a}}}}"),
        format!("{each}, match: {{path: '/a/{{id}}/b'}}}}\n  - {{name: other, limit: 9/s, match: {{path: /a/**}}}}"),
        format!("{each}, match: {{method: GET}}}}\n  - {{name: other, limit: 9/s, match: {{method: [GET, POST]}}}}"),
        "  - {name: each, by: 'param(id)', match: {path: '/a/{id}'}, limit: 5/s}".to_owned(),
        "  - {name: each, by: ip, limit: 5/s}".to_owned(),
        // A sibling with the opposite condition, or two of them.
        format!(
            "{each}{}}}\n  - {{name: other, by: ip, limit: 9/s{}}}",
            when("account != ''"),
            when("!(account != '')")
        ),
        format!("{each}{}}}\n  - {{name: other, by: ip, limit: 9/s{}}}", when("account != ''"), when("account == ''")),
        format!("{each}}}\n  - {{name: other, by: ip, limit: 9/s{}}}", when("account.size() == 0")),
        format!(
            "{each}}}\n  - {{name: gets, by: ip, limit: 9/s{}}}\n  - {{name: rest, by: ip, limit: 1/s{}}}",
            when("request.method == 'GET'"),
            when("request.method != 'GET'"),
        ),
        format!(
            "{each}}}\n  - {{name: beta, by: ip, limit: 9/s{}}}\n  - {{name: rest, by: ip, limit: 1/s{}}}",
            when("request.path.startsWith('/beta')"),
            when("!request.path.startsWith('/beta')"),
        ),
    ] {
        assert_eq!(warnings(&covered), [""; 0], "{covered}");
    }
    let two = "  - {name: each, by: account, limit: 5/s}\n  - {name: keys, by: header(x-key), limit: 5/s}";
    assert_eq!(warnings(two).len(), 2, "neither rule limits the requests that the other one skips");
}

#[test]
fn warns_once_about_all_counts_that_a_restart_loses() {
    let warning = |names: &str| {
        let what = format!("a restart resets the counts of {names}: they are only in this process");
        format!("diana.yaml:2:12: warning: {what}")
    };
    for limit in [
        "limit: 20/h",
        "limit: [5/s, 20/day]",
        "limit: 20/month, algorithm: fixed_window",
        "limit: 20/day, algorithm: fixed_window, time_zone: UTC",
        "limit: 20/day, algorithm: sliding_window",
        "limit: 20/h, algorithm: sliding_log",
        "limit: 20/h, algorithm: leaky_bucket, burst: 5",
        "limit: 20/h, refill: {every: 1h}",
        "every: 2h",
        "total: 5",
    ] {
        let rule = format!("  - {{name: long, {limit}}}\n");
        assert_eq!(warnings(&rule), [warning("`long`")], "{limit}");
        let with_store = |store: &str| good(&format!("store: {{{store}}}\nrules:\n{rule}")).warnings;
        assert_eq!(with_store("snapshot: counts"), None, "{limit}");
        assert_eq!(with_store("redis: 'redis://a'").map(|all| all.to_string()), None, "{limit}");
    }
    for limit in ["limit: 5/min", "concurrent: 5", "bandwidth: 5MB/s", "limit: 5/h, shadow: true", "every: 59min"] {
        assert_eq!(warnings(&format!("  - {{name: short, {limit}}}\n")), [""; 0], "{limit}");
    }
    let many = |count: usize| {
        let rules = (1..=count).map(|number| format!("  - {{name: r{number}, limit: {number}/h}}\n"));
        warnings(&rules.collect::<String>())
    };
    assert_eq!(many(2), [warning("`r1` and `r2`")]);
    assert_eq!(many(7), [warning("`r1`, `r2`, `r3`, `r4`, `r5` and 2 more")]);
}

/// The essay's example of what a log is unsuited for: 1,000,000 in 60 s.
#[test]
fn warns_about_long_logs() {
    let long = "  - {name: long, by: ip, limit: {rate: 1000000/60s, algorithm: sliding_log}}";
    let what = "the log of `long` may have 1000000 entries (16 MB) for each key";
    assert_eq!(warnings(long), [format!("diana.yaml:2:12: warning: {what}")]);
    let several = "[{rate: 1/s, algorithm: sliding_log}, {rate: 20000/min, algorithm: sliding_log}]";
    let what = "the log of `long` may have 20000 entries (312.5 KiB) for each key";
    assert_eq!(
        warnings(&format!("  - {{name: long, by: ip, limit: {several}}}")),
        [format!("diana.yaml:2:12: warning: {what}")]
    );
    assert_eq!(warnings("  - {name: short, by: ip, limit: {rate: 10000/min, algorithm: sliding_log}}"), [""; 0]);
}

#[test]
fn warns_about_dot_star_in_paths() {
    let all = "  - {name: all, match: {path: /api/.*}, limit: 5/s}";
    assert_eq!(
        warnings(all),
        ["diana.yaml:2:12: warning: `.*` in `/api/.*` only matches a segment that starts with a dot"]
    );
    assert_eq!(warnings("  - {name: all, match: {path: [/report.*, /.well-known/**]}, limit: 5/s}"), [""; 0]);
}
