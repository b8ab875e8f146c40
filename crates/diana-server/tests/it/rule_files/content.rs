//! Whole rule files: their content in every format, and how problems are printed.

use super::valid::VALID;
use crate::common::{good, problems_of, read, read_as, rule};
use diana_gateway::section::GatewaySection;
use diana_rules::document::Span;
use diana_rules::{Document, RuleFile};

#[test]
fn the_design_file_is_valid() {
    let file = good(VALID[0]);
    assert_eq!(file.rules.len(), 8);
    assert_eq!(file.rules[1].limits.len(), 2);
    assert_eq!((file.rules[0].status, file.rules[1].status), (503, 429));
    assert_eq!(file.rules[6].bandwidth.as_ref().unwrap().rate.permits(), 512 << 10);
}

#[test]
fn valid_files_are_parsed() {
    for text in VALID {
        good(text);
    }
    let file = good(VALID[1]);
    let upstream = file
        .section::<GatewaySection>()
        .unwrap()
        .unwrap()
        .upstream
        .upstreams()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    assert_eq!(upstream, ["http://127.0.0.1:3000", "https://b.example.com"]);
    assert_eq!(file.store.redis.as_ref().unwrap().url.reveal(), "redis://127.0.0.1:6379");
    assert_eq!(file.rules[0].overrides[0].written, "vip-7, 192.0.2.7");
    assert!(!format!("{file:?}").contains("redis://"), "the address of Redis must be redacted");
    assert!(!format!("{file:?}").contains("hunter2"), "secrets must be redacted");
}

/// Without locations, which differ.
fn without_spans(mut file: RuleFile) -> RuleFile {
    for rule in &mut file.rules {
        rule.span = Span::default();
        let others = rule.overrides.iter_mut().flat_map(|other| &mut other.limits);
        rule.limits.iter_mut().chain(others).for_each(|limit| limit.span = Span::default());
    }
    file
}

#[test]
fn all_formats_are_equivalent() {
    let yaml = "
status: 429
store: {redis: redis://a, timeout: 20ms}
rules:
  - name: a
    by: [account, ip/24]
    match: {path: [/a/**, /b], header: {x-plan: free}}
    limit: [{rate: 100/s, burst: 200}, 20000/h]
    overrides: [{key: [vip, 10.0.0.7], limit: 5/s}]
    shadow: true
  - {name: b, load: {cpu: 99.5%, connections: 20000}}
";
    let json = r#"{"status": 429, "store": {"redis": "redis://a", "timeout": "20ms"}, "rules": [
        {"name": "a", "by": ["account", "ip/24"], "match": {"path": ["/a/**", "/b"], "header": {"x-plan": "free"}},
         "limit": [{"rate": "100/s", "burst": 200}, "20000/h"], "overrides": [{"key": ["vip", "10.0.0.7"], "limit": "5/s"}],
         "shadow": true},
        {"name": "b", "load": {"cpu": "99.5%", "connections": 20000}}]}"#;
    let toml = "
status = 429
[store]
redis = 'redis://a'
timeout = '20ms'
[[rules]]
name = 'a'
by = ['account', 'ip/24']
match.path = ['/a/**', '/b']
match.header.x-plan = 'free'
limit = [{ rate = '100/s', burst = 200 }, '20000/h']
overrides = [{ key = ['vip', '10.0.0.7'], limit = '5/s' }]
shadow = true
[[rules]]
name = 'b'
load = { cpu = '99.5%', connections = 20000 }
";
    let read = |name: &str, text: &str| {
        let file = without_spans(read_as(name, text).unwrap_or_else(|problems| panic!("{problems}")));
        assert_eq!(file.store.redis.as_ref().unwrap().url.reveal(), "redis://a");
        format!("{file:?}")
    };
    let from_yaml = read("diana.yaml", yaml);
    assert_eq!(from_yaml, read("diana.json", json));
    assert_eq!(from_yaml, read("diana.toml", toml));
}

#[test]
fn reports_all_problems_at_once_in_order() {
    let text = "\
version: 2
gateway: {listen: 8080, upstream: http://a, trustd_proxies: []}
store: {timeout: 5}
status: 200
rules:
  - name: a
    by: acount
    limit: 0/s
  - name: b
    match: {path: search, method: get}
    limit: {rate: 5/s, burts: 7}
    wait: 5
  - name: b
    total: 5
";
    assert_eq!(
        read(text).unwrap_err(),
        "\
diana.yaml:1:10: unsupported rule file version `2`: this program supports version 1
  1 | version: 2
    |          ^ use a newer program, or version 1
diana.yaml:2:19: invalid value `8080` for `listen`
  2 | gateway: {listen: 8080, upstream: http://a, trustd_proxies: []}
    |                   ^^^^ expected an address and a port, such as 127.0.0.1:8080 or [::]:8080
diana.yaml:2:45: unknown `gateway` field `trustd_proxies`
  2 | gateway: {listen: 8080, upstream: http://a, trustd_proxies: []}
    |                                             ^^^^^^^^^^^^^^ did you mean `trusted_proxies`?
diana.yaml:3:9: `timeout` needs `redis`
  3 | store: {timeout: 5}
    |         ^^^^^^^ add `redis: redis://127.0.0.1:6379`
diana.yaml:4:9: invalid status `200`
  4 | status: 200
    |         ^^^ expected a status from 400 to 599, such as 429 or 503
diana.yaml:7:9: unknown key `acount`
  7 |     by: acount
    |         ^^^^^^ did you mean `account`?
diana.yaml:8:12: invalid limit `0/s`
  8 |     limit: 0/s
    |            ^^^ permits 0: must be a whole number from 1 to 9007199254740992
diana.yaml:10:19: invalid path `search`
 10 |     match: {path: search, method: get}
    |                   ^^^^^^ expected a leading `/`, as in `/search/**`
diana.yaml:10:35: method `get` never matches: methods are case-sensitive
 10 |     match: {path: search, method: get}
    |                                   ^^^ did you mean `GET`?
diana.yaml:11:24: unknown limit field `burts`
 11 |     limit: {rate: 5/s, burts: 7}
    |                        ^^^^^ did you mean `burst`?
diana.yaml:12:11: invalid value `5` for `wait`
 12 |     wait: 5
    |           ^ missing unit in `5`; expected one of ns, us, ms, s, min, h, day, week or month
diana.yaml:13:11: duplicate rule name `b`
 13 |   - name: b
    |           ^ use another name: counts are stored by name
"
    );
}

#[test]
fn suggests_the_field_for_a_typo() {
    let of_rule = "name by match bandwidth load cost cost_default cost_min allow deny overrides wait queue over shadow status answer missing store memory limit every total \
                   concurrent algorithm buckets burst burst_seconds cold_factor delay nodelay opens precision refill starts time_zone warm_up";
    for field in of_rule.split_whitespace().filter(|field| field.len() > 2) {
        // Two swapped letters.
        let typo = format!("{}{}{}", &field[1..2], &field[..1], &field[2..]);
        let problems = problems_of(&format!("rules: [{{name: a, total: 1, {typo}: 5}}]"));
        let expected = format!("[{typo}] unknown rule field `{typo}`: did you mean `{field}`?");
        assert!(problems.contains(&expected), "{problems:?}");
    }
    for field in ["version", "gateway", "admin", "identity", "store", "remote", "status", "answer", "rules"] {
        let problems = problems_of(&format!("rules: []\n{field}x: 5\n"));
        assert_eq!(problems, [format!("[{field}x] unknown rule file field `{field}x`: did you mean `{field}`?")]);
    }
}

#[test]
fn duplicate_names_are_reported() {
    assert_eq!(problems_of(&rule("limit: 5/s\nlimit: 7/s")), ["[limit] duplicate mapping key: limit"]);
    let toml = read_as("a.toml", "rules = []\nrules = []\n").unwrap_err();
    assert!(toml.starts_with("a.toml:2:1: duplicate key"), "{toml}");
    let problems = problems_of("rules: [{name: a, total: 1}, {name: b, total: 2}, {name: a, total: 3}]");
    assert_eq!(problems, ["[a] duplicate rule name `a`: use another name: counts are stored by name"]);
}

#[test]
fn rules_that_differ_in_one_field_are_not_duplicates() {
    use std::fmt::Write;
    let mut text = "rules:\n".to_owned();
    for cost in 1..=20_000 {
        let _ = writeln!(text, "  - {{name: r{cost}, by: ip, limit: 90000/s, cost: {cost}}}");
    }
    assert_eq!(good(&text).rules.len(), 20_000);
    text.push_str("  - {name: twin, by: ip, limit: 90000/s, cost: 19999}\n");
    let problems = problems_of(&text);
    assert_eq!(problems, ["[twin] rule `twin` has no effect: it is identical to `r19999`: remove one of the two"]);
}

#[test]
fn invalid_rules_are_not_duplicates() {
    let problems = problems_of("rules: [{name: a, limit: 5/s}, {name: b, limit: 5/s, buckets: 10}]");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("buckets"), "{problems:?}");
    let problems = problems_of("rules: [{name: a, limit: 5/s, wait: soon}, {name: b, limit: 5/s}]");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("[soon]"), "{problems:?}");
}

#[test]
fn shadowed_rules_are_reported() {
    let duplicates = "rules: [{name: a, by: ip, limit: 5/s}, {name: b, by: ip, limit: 5/s burst 5, status: 429}]";
    assert_eq!(problems_of(duplicates), ["[b] rule `b` has no effect: it is identical to `a`: remove one of the two"]);
    let with_overrides = "rules: [{name: a, by: ip, limit: 5/s, overrides: {10.0.0.7: 7/s}}, {name: b, by: ip, limit: 5/s, overrides: {10.0.0.7: 7/s}}]";
    assert_eq!(problems_of(with_overrides).len(), 1);
    for differs in
        ["limit: 6/s", "limit: 5/s, wait: 1s", "limit: 5/s, shadow: true", "limit: 5/s, match: {method: GET}"]
    {
        good(&format!("rules: [{{name: a, limit: 5/s}}, {{name: b, {differs}}}]"));
    }
    let closed = "rules: [{name: a, deny: ['0.0.0.0/0', '::/0']}, {name: b, total: 1}, {name: c, total: 2}]";
    assert_eq!(
        problems_of(closed),
        [
            "[b] rule `b` never applies: `a` denies every address: remove one of the two",
            "[c] rule `c` never applies: `a` denies every address: remove one of the two"
        ]
    );
}

#[test]
fn an_unset_variable_is_reported() {
    assert_eq!(
        read("store: {redis: '${REDIS}'}\nrules: []\n").unwrap_err(),
        "diana.yaml:1:16: environment variable `REDIS` is not set
  1 | store: {redis: '${REDIS}'}
    |                ^^^^^^^^^^
"
    );
}

#[test]
fn a_remote_document_has_only_rules() {
    let local = good("status: 429\nstore: {redis: redis://a}\nrules: [{name: a, total: 1}]\n");
    let remote = |text: &str| {
        local
            .with_remote(&Document::new("remote", text), &diana_server::registry())
            .map_err(|problems| problems.to_string())
    };
    let file =
        remote("rules: [{name: b, total: 1}, {name: c, by: account, limit: 5/s, overrides: {'${X}': 7/s}}]").unwrap();
    assert_eq!((file.rules.len(), file.rules[0].status, file.store.redis.is_some()), (2, 429, true));
    assert_eq!(file.rules[1].overrides[0].written, "${X}");
    assert_eq!(remote("status: 503\nrules: [{name: b, total: 1}]").unwrap().rules[0].status, 503);
    assert!(remote("status: 503").unwrap_err().starts_with("remote:1:1: missing `rules` in rules document\n"));
    assert!(remote("").unwrap_err().starts_with("remote:1:1: invalid rules document: expected a map, found null\n"));
    assert_eq!(
        remote("gateway: {listen: 1}\nrules: []").unwrap_err(),
        "\
remote:1:1: `gateway` is not supported in rules from a config server
  1 | gateway: {listen: 1}
    | ^^^^^^^ move it to the local file; expected only `version`, `revision`, `identity`, `status`, `answer`, `permissions` and `rules`
"
    );
}

#[test]
fn reports_ten_thousand_problems_quickly() {
    let text = std::iter::once("rules:\n".to_owned())
        .chain((0..10_000).map(|number| format!("  - name: r{number}\n    total: 1\n    colour: blue\n")))
        .collect::<String>();
    let printed = read(&text).unwrap_err();
    // One unknown field `colour` in each. A rule with its own problem is not checked for duplicates.
    assert!(printed.ends_with("... and 9900 more\n"), "{}", &printed[printed.len() - 200..]);
    assert_eq!(printed.matches("diana.yaml:").count(), 100);
}

#[test]
fn reports_have_no_control_characters() {
    let printed = read("rules: [{name: \"a\\e[2Jb\", total: 1}]").unwrap_err();
    assert!(printed.contains("invalid rule name `a\u{fffd}[2Jb`") && !printed.contains('\u{1b}'), "{printed:?}");
    let long = read(&format!("{}: 5\nrules: []\n", "x".repeat(1 << 20))).unwrap_err();
    assert!(long.len() < 4_000 && long.contains("xxx…"), "{}", long.len());
}

#[test]
fn rules_with_invalid_limits_are_not_duplicates() {
    let document = Document::new("diana.yaml", "rules:\n  - {name: a, limit: 5/x}\n  - {name: b, limit: 6/y}\n");
    let problems = RuleFile::read_with(&document, &diana_server::registry(), |_| None).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems}");
}

/// The value of a variable was part of the reported problem, and problems are logged.
#[test]
fn no_problem_shows_the_value_of_a_variable() {
    const SECRET: &str = "hunter2-Very_Secret/0123";
    let sections = [
        "gateway: {listen: '${X}'}",
        "gateway: {upstream: '${X}'}",
        "gateway: {upstream: 'http://me:${X}@/a b'}",
        "gateway: {upstream: 'http://${X}/path?q'}",
        "gateway: {trusted_proxies: ['${X}']}",
        "gateway: {access_log: '${X}'}",
        "gateway: {workers: '${X}'}",
        "gateway: {timeouts: {header: '${X}'}}",
        "gateway: {bounds: {body: '${X}'}}",
        "gateway: {signature: {secret: s, header: '${X}'}}",
        "gateway: {routes: [{match: {path: '${X}'}, upstream: '${X}'}]}",
        "admin: {listen: '${X}'}",
        "identity: {account: '${X}'}",
        "identity: {account: 'header(${X})'}",
        "identity: {account: 'cel(request.${X})'}",
        "identity: {jwt: {secret: '${X}', algorithm: '${X}'}}",
        "store: {redis: '${X}', when_down: '${X}'}",
        "store: {memory: '${X}'}",
        "remote: {from: '${X}'}",
        "remote: {from: 'http://a/b', poll: '${X}'}",
        "status: '${X}'",
        "answer: {type: '${X}', text: hello}",
        "version: '${X}'",
    ];
    let fields = [
        "name: '${X}', limit: 1/s",
        "name: a, limit: '${X}'",
        "name: a, limit: '5/${X}'",
        "name: a, limit: {rate: '${X}'}",
        "name: a, by: '${X}', limit: 1/s",
        "name: a, by: 'header(${X})', limit: 1/s",
        "name: a, limit: 1/s, algorithm: '${X}'",
        "name: a, limit: 1/s, when: '${X}'",
        "name: a, limit: 1/s, cost: 'size(${X})'",
        "name: a, limit: 1/s, match: {path: '${X}'}",
        "name: a, limit: 1/s, match: {method: '${X}'}",
        "name: a, limit: 1/s, wait: '${X}'",
        "name: a, limit: 1/s, over: {reroute: '${X}'}",
        "name: a, by: ip, limit: 1/s, deny: ['${X}']",
        "name: a, by: ip, limit: 1/s, overrides: {'a': '${X}'}",
        "name: a, bandwidth: '${X}'",
        "name: a, load: {cpu: '${X}'}",
    ];
    let with_rules = sections.iter().map(|section| format!("{section}\nrules: []\n"));
    let of_rules = fields.iter().map(|fields| format!("rules: [{{{fields}}}]\n"));
    let mut reported = 0;
    for text in with_rules.chain(of_rules) {
        for value in [SECRET.to_owned(), format!("redis://:{SECRET}@h/x"), format!("5/{SECRET}"), SECRET.to_uppercase()]
        {
            let document = Document::new("diana.yaml", text.clone());
            let read = RuleFile::read_with(&document, &diana_server::registry(), |_| Some(value.clone()));
            let Err(problems) = read else { continue };
            reported += 1;
            let shown = format!("{problems}{problems:?}").to_lowercase();
            for part in ["hunter", "secret/", "very_s", "0123"] {
                assert!(!shown.contains(part), "{value} in {text}:\n{problems}");
            }
        }
    }
    assert!(reported > 100, "{reported} of {}", (sections.len() + fields.len()) * 4);
}

#[test]
fn a_problem_with_a_variable_shows_its_name() {
    let document = Document::new("diana.yaml", "gateway: {workers: '${WORKERS}'}\nrules: [{name: a, limit: 0/s}]\n");
    let read = |value: &str| {
        RuleFile::read_with(&document, &diana_server::registry(), |_| Some(value.to_owned())).unwrap_err().to_string()
    };
    let problem = read("plenty of them");
    assert!(problem.contains("invalid value `${WORKERS}` for `workers`"), "{problem}");
    // Short values are not treated as secrets, and other problems stay unchanged.
    assert!(read("x").contains("invalid value `${WORKERS}` for `workers`"), "{}", read("x"));
    assert!(read("0/s").contains("0/s"), "{}", read("0/s"));
}
