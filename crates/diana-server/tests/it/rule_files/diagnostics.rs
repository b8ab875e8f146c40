//! The problems of one run: none is reported twice or only by a second run; and warnings about likely mistakes.

use crate::common::{good, told};

#[test]
fn one_bad_line_of_identity_leaves_its_other_names_known() {
    let said = told(
        "gateway: {upstream: 'http://127.0.0.1:3000'}\nidentity:\n  account: headr(x-account)\n  tenant: header(x-tenant)\n  \
         user: jwt(sub)\n  jwt: {secret: a, algorithm: HS255}\nrules:\n  - {name: a, by: tenant, limit: 5/s}\n  \
         - {name: b, by: account, limit: 6/s}\n  - {name: c, by: user, limit: 7/s}\n  - {name: d, by: jwt(sub), limit: 8/s}\n  \
         - {name: e, by: tennant, limit: 9/s}\n",
    );
    let [first, second, third] = &*said else { panic!("{said:#?}") };
    assert!(first.ends_with("did you mean `header(NAME)`?"), "{first}");
    assert!(second.starts_with("[HS255]"), "{second}");
    assert!(third.ends_with("did you mean `tenant`?"), "{third}");
}

#[test]
fn a_name_that_is_there_twice_is_told_together_with_all_else() {
    let said = told(
        "rules:\n  - {name: a, by: acount, limit: 5/s}\n  - {name: b, limit: 6/s}\n  - {name: a, limit: 7/s}\n  \
         - {name: b, match: {path: x}, limit: 8/s}\n",
    );
    assert_eq!(
        said,
        [
            "[acount] `acount` is nothing that requests are told apart by: did you mean `account`?",
            "[a] there is a rule `a` already: another name: counts are kept by it",
            "[b] there is a rule `b` already: another name: counts are kept by it",
            "[x] `x` is no path: a path begins with `/`, as in `/search/**`",
        ]
    );
}

#[test]
fn paths_of_other_systems_are_told() {
    for (path, said) in [
        ("/users/:id", "did you mean `/users/{id}`?"),
        ("'^/users/[0-9]+$'", "is a regular expression, so it would never match"),
        ("'/users/\\d+'", "request.path.matches"),
    ] {
        let rule = told(&format!("rules: [{{name: a, match: {{path: {path}}}, limit: 5/s}}]"));
        assert!(rule.len() == 1 && rule[0].contains(said), "{rule:#?}");
        let gateway = format!("{{routes: [{{match: {{path: {path}}}, upstream: 'http://127.0.0.1:3000'}}]}}");
        let route = told(&format!("gateway: {gateway}\nrules: [{{name: a, limit: 5/s}}]"));
        assert!(route.len() == 1 && route[0].contains(said), "{route:#?}");
    }
}

/// The first line of each warning.
fn warned(rules: &str) -> Vec<String> {
    let file = good(&format!("rules:\n{rules}"));
    let printed = file.warnings.map(|warnings| warnings.to_string()).unwrap_or_default();
    printed.lines().filter(|line| line.starts_with("diana.yaml:")).map(str::to_owned).collect()
}

#[test]
fn requests_that_no_rule_limits_are_warned_of() {
    const WARNING: &str = "diana.yaml:2:12: warning: requests without account are not limited by `each` (`missing: skip`), nor \
                           by any other rule";
    let each = "  - {name: each, by: account, limit: 5/s";
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
    ] {
        assert_eq!(warned(&alone), [WARNING], "{alone}");
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
    ] {
        assert_eq!(warned(&covered), [""; 0], "{covered}");
    }
    let two = "  - {name: each, by: account, limit: 5/s}\n  - {name: keys, by: header(x-key), limit: 5/s}";
    assert_eq!(warned(two).len(), 2, "neither limits what the other one skips");
}

#[test]
fn a_dot_and_a_star_are_warned_of() {
    let all = "  - {name: all, match: {path: /api/.*}, limit: 5/s}";
    assert_eq!(warned(all), ["diana.yaml:2:12: warning: `.*` in `/api/.*` is only a segment that begins with a dot"]);
    assert_eq!(warned("  - {name: all, match: {path: [/report.*, /.well-known/**]}, limit: 5/s}"), [""; 0]);
}
