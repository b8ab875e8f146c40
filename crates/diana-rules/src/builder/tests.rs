use super::*;
use crate::describe;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// What is built equals what is read from a file, in every part that decides, and in its description.
#[test]
fn a_built_rule_equals_a_written_one() {
    let rule = || RuleBuilder::new("a");
    let bucket = || rule().limit(quota("5/s"));
    for (built, written) in [
        (rule().limit(quota("100/s burst 200")), "limit: 100/s burst 200"),
        (bucket().limit(quota("20/min")), "limit: [5/s, 20/min]"),
        (bucket().by("account"), "limit: 5/s, by: account"),
        (bucket().by("ip/24").by("resource"), "limit: 5/s, by: [ip/24, resource]"),
        (bucket().path("/a/**").path("/b").method("GET"), "limit: 5/s, match: {path: [/a/**, /b], method: GET}"),
        (
            bucket().host("*.example.com").when("true == true"),
            "limit: 5/s, match: {host: '*.example.com', when: 'true == true'}",
        ),
        (rule().limit(LimitBuilder::leaky_bucket(quota("5/s"), 7)), "limit: 5/s, algorithm: leaky_bucket, burst: 7"),
        (
            rule().limit(LimitBuilder::leaky_bucket(quota("5/s"), 7).option("nodelay", true)),
            "limit: 5/s, algorithm: leaky_bucket, burst: 7, nodelay: true",
        ),
        (rule().limit(LimitBuilder::fixed_window(quota("5/s"))), "limit: 5/s, algorithm: fixed_window"),
        (
            rule().limit(LimitBuilder::sliding_window(quota("5/s"), 20).option("edge", "strict")),
            "limit: 5/s, algorithm: sliding_window, buckets: 20, edge: strict",
        ),
        (rule().limit(LimitBuilder::sliding_log(quota("5/s"))), "limit: 5/s, algorithm: sliding_log"),
        (rule().every(Duration::from_millis(1_500)), "every: 1500ms"),
        (rule().total(7), "total: 7"),
        (rule().concurrent(3), "concurrent: 3"),
        (bucket().cost(3), "limit: 5/s, cost: 3"),
        (bucket().cost("size(request.path)"), "limit: 5/s, cost: size(request.path)"),
        (bucket().by("account").limit_of_key("vip", quota("9/s")), "limit: 5/s, by: account, overrides: {vip: 9/s}"),
        (bucket().allow("10.0.0.0/8").deny("10.0.0.7"), "limit: 5/s, allow: 10.0.0.0/8, deny: 10.0.0.7"),
        (bucket().wait(Duration::from_secs(2)).queue(9), "limit: 5/s, wait: 2s, queue: 9"),
        (
            bucket().when("request.path == '/a'").when("true == true"),
            "limit: 5/s, match: {when: \"(request.path == '/a') && (true == true)\"}",
        ),
        // A value that was set as an option stays beside those that are added.
        (bucket().option("by", "account").by("ip"), "limit: 5/s, by: [account, ip]"),
        (
            bucket().by("account").limit_of_key("a", quota("9/s")).limit_of_key("b", quota("8/s")),
            "limit: 5/s, by: account, overrides: {a: 9/s, b: 8/s}",
        ),
        (bucket().status(429).shadow(), "limit: 5/s, status: 429, shadow: true"),
        (rule().option("bandwidth", "512KiB/s"), "bandwidth: 512KiB/s"),
    ] {
        let built = RuleFile::builder().rule(built).build(&Registry::default()).unwrap();
        let document = Document::new("diana.yaml", format!("rules: [{{name: a, {written}}}]"));
        let read = RuleFile::read(&document, &Registry::default()).unwrap();
        assert_eq!(built.rules[0].decision(), read.rules[0].decision(), "{written}");
        let describe = |file: &RuleFile| describe::rule(&file.rules[0]).to_string();
        assert_eq!(describe(&built), describe(&read));
        assert_eq!((built.rules[0].status, built.rules[0].mode), (read.rules[0].status, read.rules[0].mode));
    }
}

#[test]
fn problems_have_the_line_of_the_rule_and_a_fix() {
    let file = RuleFile::builder()
        .field("store", json!({"redis": "redis://127.0.0.1"}))
        .rule(RuleBuilder::new("a").limit(quota("5/s")))
        .rule(RuleBuilder::new("b").limit(quota("5/s")).queue(3))
        .rule(RuleBuilder::new("c").option("limt", "5/s"));
    assert_eq!(
        file.document().text(),
        "\"store\": {\"redis\":\"redis://127.0.0.1\"}\nrules:\n  - {\"limit\":[{\"rate\":\"5/s\"}],\"name\":\"a\"}\n  \
         - {\"limit\":[{\"rate\":\"5/s\"}],\"name\":\"b\",\"queue\":3}\n  - {\"limt\":\"5/s\",\"name\":\"c\"}\n"
    );
    let problems = file.build(&Registry::default()).unwrap_err().to_string();
    assert!(problems.contains("rules in code:4:"), "{problems}");
    assert!(problems.contains("`queue` needs `wait`") && problems.contains("add `wait: 2s`"), "{problems}");
    assert!(problems.contains("did you mean `limit`?"), "{problems}");
}

#[test]
fn variables_are_not_replaced() {
    let file = RuleFile::builder().rule(RuleBuilder::new("a").by("account").allow("${HOME}").limit(quota("5/s")));
    let file = file.build(&Registry::default()).unwrap();
    assert_eq!(file.rules[0].allow.written(), ["${HOME}"]);
}

#[test]
fn two_limits_of_the_same_key_are_a_problem() {
    let rule = RuleBuilder::new("a").by("account").limit(quota("5/s"));
    let rule = rule.limit_of_key("vip", quota("9/s")).limit_of_key("vip", quota("8/s"));
    let problems = RuleFile::builder().rule(rule).build(&Registry::default()).unwrap_err().to_string();
    assert!(problems.contains("duplicate override for `vip`"), "{problems}");
}
