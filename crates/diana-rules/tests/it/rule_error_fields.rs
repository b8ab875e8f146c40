//! The problems of a rule's fields other than its limits, for each field.

use crate::common::{check, problems_of, rule};

#[test]
fn reports_unknown_fields() {
    check(
        &[
            ("limt: 5/s", &["[limt] unknown rule field `limt`: did you mean `limit`?"]),
            ("limit: 5/s\nbrust: 7", &["[brust] unknown rule field `brust`: did you mean `burst`?"]),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_overrides() {
    check(
        &[
            (
                "limit: 5/s\noverrides: {vip: 5/s}",
                &[
                    "[vip] override `vip` cannot apply: a rule by `global` has no keys: use another `by`, such as `account`",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: [vip]",
                &[
                    "[vip] invalid override: expected a map, found a string: expected fields such as `key`, `limit`, `every`",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: vip",
                &[
                    "[vip] invalid `overrides`: expected a map, found a string: expected limits by key, such as {vip-7: 1000/s}",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: 5}",
                &["[5] invalid limit `5`: expected a count per time, such as `100/s`, `5/10min` or `1 per 200ms`"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: }",
                &["[vip] missing value for `vip`: add a value, or remove it"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: []}",
                &["[[] the list of limits is empty: expected a limit such as 100/s, or remove it"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {limt: 5/s}}",
                &["[{] missing `rate` in limit: expected {rate: 100/s, burst: 200}"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: [{key: vip}]",
                &["[vip] this override has no limit: expected a limit, such as {key: vip-7, limit: 1000/s}"],
            ),
            ("limit: 5/s\nby: account\noverrides: [{limit: 5/s}]", &["[limit] missing `key` in override"]),
            (
                "limit: 5/s\nby: account\noverrides: [{key: vip, limit: 5/s}, {key: [vip], total: 7}]",
                &["[[] duplicate override for `vip`: expected one override per key"],
            ),
            (
                "limit: 5/s\nby: ip\noverrides: {'2001:db8::7': 5/s, '2001:db8::8': 7/s}",
                &[
                    "['2001:db8::8'] duplicate override: `2001:db8::8` is counted with all of 2001:db8::/64: expected one override per key",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: {vip: 5/s}",
                &[
                    "[vip] invalid key `vip`: expected 2 parts (account, ip), found 1: expected a list, such as overrides: [{key: [a, b], limit: 100/s}]",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: [{key: [vip, true], limit: 5/s}]",
                &["[true] invalid key part: expected a string, found a boolean"],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: [{key: [a, b, c], limit: 5/s}]",
                &[
                    "[[] invalid key `a, b, c`: expected 2 parts (account, ip), found 3: expected a list, such as overrides: [{key: [a, b], limit: 100/s}]",
                ],
            ),
            (
                "limit: 5/s\nby: ip\noverrides: {vip: 5/s, 10.0.0.7: 7/s, '2001:db8::/64': 9/s, 10.0.0.0/24: 5/s}",
                &[
                    "[vip] invalid address `vip`: a rule by `ip` counts addresses: expected an address such as 10.0.0.7",
                    "[10.0.0.0/24] `10.0.0.0/24` is a /24 network, but this rule counts each /32: expected `10.0.0.0/32`, or use another rule with `match: {ip: ...}`",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip/24]\noverrides: [{key: [a, 10.0.0.0/24], limit: 7/s}, {key: [a, 10.0.1.0/16], limit: 7/s}]",
                &[
                    "[10.0.1.0/16] `10.0.1.0/16` is a /16 network, but this rule counts each /24: expected `10.0.0.0/24`, or use another rule with `match: {ip: ...}`",
                ],
            ),
            (
                "load: {cpu: 5%}\noverrides: {vip: 5/s}",
                &[
                    "[overrides] `overrides` needs a `limit`: remove `overrides`, or add a `limit`",
                    "[vip] override `vip` cannot apply: a rule by `global` has no keys: use another `by`, such as `account`",
                ],
            ),
            (
                "limit: 5/s\ncolour: blue",
                &[
                    "[colour] unknown rule field `colour`: expected one of `name`, `by`, `match`, `bandwidth`, `load`, `charges`, `count`, `cost`, `cost_default`, `cost_min`, `allow`, `deny`, `overrides`, `wait`, `queue`, `over`, `shadow`, `log`, `status`, `answer`, `missing`, `store`, `memory`, `limit`, `every`, `total`, `concurrent`, `algorithm`, `buckets`, `burst`, `burst_seconds`, `cold_factor`, `delay`, `edge`, `nodelay`, `opens`, `precision`, `refill`, `starts`, `time_zone`, `warm_up`",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {rate: 5/s, buckets: 3}}",
                &[
                    "[buckets] `token_bucket` has no option `buckets`: expected one of `rate`, `algorithm`, `burst`, `refill`",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {limit: 5/s, every: 1}}",
                &[
                    "[1] invalid value `1` for `every`: missing unit in `1`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_bandwidth_and_load() {
    check(
        &[
            (
                "bandwidth: 512",
                &[
                    "[512] invalid value `512` for `bandwidth`: invalid rate `512`; expected an amount per time, such as 512KiB/s",
                ],
            ),
            (
                "bandwidth: 512KiB",
                &[
                    "[512KiB] invalid value `512KiB` for `bandwidth`: invalid rate `512KiB`; expected an amount per time, such as 512KiB/s",
                ],
            ),
            (
                "bandwidth: 5 furlongs/s",
                &[
                    "[5 furlongs/s] invalid value `5 furlongs/s` for `bandwidth`: unknown unit of data `furlongs`; expected one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            ("bandwidth: {burst: 1MiB}", &["[burst] missing `rate` in `bandwidth`"]),
            (
                "bandwidth: {rate: 5MiB/s, of: responses}",
                &["[responses] invalid value `responses` for `of`: did you mean `response`?"],
            ),
            (
                "bandwidth: {rate: 5MiB/s, after: 5, upto: 7}",
                &[
                    "[5] invalid value `5` for `after`: missing unit in `5`; expected one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                    "[upto] unknown `bandwidth` field `upto`: expected one of `rate`, `burst`, `after`, `of`",
                ],
            ),
            ("bandwidth: []", &["[[] invalid `bandwidth`: expected a string, found a list"]),
            (
                "load: 85%",
                &[
                    "[85%] invalid `load`: expected a map, found a string: expected fields such as `cpu`, `memory`, `connections`",
                ],
            ),
            ("load: {}", &["[{] `load` is empty: expected {cpu: 85%, memory: 90%}"]),
            ("load: {cpu: 85}", &["[85] invalid value `85` for `cpu`: expected a percentage such as 85% or 99.5%"]),
            (
                "load: {cpu: 101%}",
                &["[101%] invalid value `101%` for `cpu`: expected a percentage such as 85% or 99.5%"],
            ),
            (
                "load: {cpu: 6553.9%}",
                &["[6553.9%] invalid value `6553.9%` for `cpu`: expected a percentage such as 85% or 99.5%"],
            ),
            ("load: {cpu: 0%}", &["[0%] invalid value `0%` for `cpu`: expected a percentage such as 85% or 99.5%"]),
            ("load: {cpus: 5%}", &["[cpus] unknown `load` field `cpus`: did you mean `cpu`?"]),
            (
                "load: {connections: 0, traffic: 5}",
                &[
                    "[0] invalid value `0` for `connections`: expected a whole number from 1 to 9007199254740992",
                    "[5] invalid value `5` for `traffic`: invalid rate `5`; expected an amount per time, such as 512KiB/s",
                ],
            ),
            (
                "load: {cpu: 85%}\nby: ip",
                &[
                    "[by] `load` applies to the whole machine, and cannot be counted by key: use `by: global`, or remove `by`",
                ],
            ),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_names() {
    let named = |name: &str| format!("rules: [{{name: {name}, total: 1}}]");
    check(
        &[
            ("''", &["[''] invalid rule name ``: expected at most 128 letters, digits, `.`, `_` and `-`"]),
            ("a b", &["[a b] invalid rule name `a b`: expected at most 128 letters, digits, `.`, `_` and `-`"]),
            ("[a]", &["[[] invalid `name`: expected a string, found a list"]),
        ],
        named,
    );
    assert_eq!(problems_of(&named(&"a".repeat(128))), ["nothing"]);
    assert!(problems_of(&named(&"a".repeat(129)))[0].contains("invalid rule name"));
}

#[test]
fn reports_parameters_that_no_path_has() {
    check(
        &[
            (
                "by: param(id)\nlimit: 5/s",
                &["[param(id)] no path of this rule has the parameter `{id}`: add `match: {path: '/.../{id}'}`"],
            ),
            (
                "by: [ip, param(id)]\nmatch: {path: '/users/{user}'}\nlimit: 5/s",
                &["[param(id)] no path of this rule has the parameter `{id}`: add `match: {path: '/.../{id}'}`"],
            ),
            (
                "match: {path: /a, when: 'request.params[\"id\"] == \"\"'}\nlimit: 5/s",
                &[
                    "['request.params[\"id\"] == \"\"'] no path of this rule has the parameter `{id}`: add `match: {path: '/.../{id}'}`",
                ],
            ),
            (
                "cost: int(request.params.n)\nby: cel(\"request.params.id\")\nlimit: 5/s",
                &[
                    "[int(request.params.n)] no path of this rule has the parameter `{n}`: add `match: {path: '/.../{n}'}`",
                    "[cel(\"request.params.id\")] no path of this rule has the parameter `{id}`: add `match: {path: '/.../{id}'}`",
                ],
            ),
            // One of several paths is enough; the parameters of an invalid path are unknown.
            ("by: param(id)\nmatch: {path: ['/users/{id}', /b]}\nlimit: 5/s", &["nothing"]),
            (
                "by: param(id)\nmatch: {path: 'users/{id}'}\nlimit: 5/s",
                &["['users/{id}'] invalid path `users/{id}`: expected a leading `/`, as in `/search/**`"],
            ),
        ],
        rule,
    );
}

#[test]
fn reports_request_attributes_in_rules_for_calls() {
    check(
        &[
            ("match: {call: phone}\nby: phone\nlimit: 5/s", &["nothing"]),
            ("match: {call: true}\nby: account\nlimit: 5/s", &["nothing"]),
            (
                "match: {call: [phone, text], when: 'text != \"\"', ip: 10.0.0.0/8}\nby: [phone, ip]\nlimit: 5/s",
                &["nothing"],
            ),
            ("match: {call: phone}\nby: phon\nlimit: 5/s", &["[phon] unknown key `phon`: did you mean `phone`?"]),
            (
                "match: {call: phone, path: /sms}\nlimit: 5/s",
                &[
                    "[/sms] `path` is not supported for calls: remove it, or remove `call` to match requests with this `path`",
                ],
            ),
            ("match: {call: [ip]}\nlimit: 5/s", &["[ip] reserved name `ip`: use another name"]),
            (
                "match: {call: false}\nlimit: 5/s",
                &["[false] `call: false` is not supported: remove it, or use `call: true`"],
            ),
            ("match: {call: []}\nlimit: 5/s", &["[[] `call` is empty: use `call: true` for calls without arguments"]),
        ],
        rule,
    );
    let no = |attribute: &str| {
        format!(
            "`{attribute}` is not supported for calls: use an argument of the call, as in `call: [phone]` and `by: phone`, or `account`"
        )
    };
    assert_eq!(
        problems_of(&rule("match: {call: true}\nby: header(x)\nlimit: 5/s")),
        [format!("[header(x)] {}", no("header(x)"))]
    );
    assert_eq!(
        problems_of(&rule("match: {call: true}\nby: method\nlimit: 5/s")),
        [format!("[method] {}", no("method"))]
    );
    let when = "'request.host == \"a\"'";
    assert_eq!(
        problems_of(&rule(&format!("match: {{call: true, when: {when}}}\nlimit: 5/s"))),
        [format!("[{when}] {}", no("host"))]
    );
    check(
        &[
            ("match: {call: in}\nlimit: 5/s", &["[in] reserved name `in`: use another name"]),
            (
                "match: {call: true}\nconcurrent: adaptive",
                &[
                    "[concurrent] `concurrent: adaptive` is not supported for calls: it needs responses: expected a number",
                ],
            ),
            (
                "match: {call: true}\nbandwidth: 5KiB/s",
                &["[bandwidth] `bandwidth` is not supported for calls: they have no body: remove `bandwidth`"],
            ),
        ],
        rule,
    );
    // A call names its rule, so two may be identical; and none of them concerns a gateway.
    let twins = "rules: [{name: a, match: {call: true}, limit: 5/s}, {name: b, match: {call: true}, limit: 5/s}]";
    assert_eq!(problems_of(twins), ["nothing"]);
    let gateway = "gateway: {upstream: http://127.0.0.1:3000}\nrules: [{name: a, match: {call: phone}, by: [account, phone], limit: 5/s}]";
    assert_eq!(problems_of(gateway), ["nothing"]);
}

#[test]
fn marks_the_invalid_part_of_an_expression() {
    check(
        &[
            (
                "match: {when: 'request.method == \"GET\" && request.heders.x == \"1\"'}\nlimit: 5/s",
                &["[.heders] invalid `when`: unknown request field `heders`: did you mean `headers`?"],
            ),
            (
                "match:\n  when: >-\n    request.heders.x == '1'\nlimit: 5/s",
                &["[.heders] invalid `when`: unknown request field `heders`: did you mean `headers`?"],
            ),
            (
                "by: cel(\"e\")\nlimit: 5/s",
                &[
                    "[e] invalid `cel`: unknown name `e`: expected `request.…`, `account`, `device`, or a text in quotes",
                ],
            ),
            (
                "limit: 5/s\ncost: int(acount)",
                &["[acount] invalid `cost`: unknown name `acount`: did you mean `account`?"],
            ),
            // With escapes the text differs from the value, so all of it is marked.
            (
                "limit: 5/s\ncost: \"int(\\u0061count)\"",
                &["[\"int(\\u0061count)\"] invalid `cost`: unknown name `acount`: did you mean `account`?"],
            ),
        ],
        rule,
    );
}

#[test]
fn suggests_quotes_around_expressions() {
    check(
        &[
            (
                "by: cel(\"a ? b : c\")\nlimit: 5/s",
                &["[:] mapping values are not allowed in this context: put quotes around the expression"],
            ),
            (
                "match: {when: request.headers[\"x\"] == \"1\"}\nlimit: 5/s",
                &[
                    "[[] while parsing a flow mapping, did not find expected ',' or '}': put quotes around the expression",
                ],
            ),
            (
                "limit: 5/s\ncost: request.method == \"GET\" ? 1 : 5",
                &["[:] mapping values are not allowed in this context: put quotes around the expression"],
            ),
        ],
        rule,
    );
}
