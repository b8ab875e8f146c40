//! The problems of a rule's fields other than its limits, for each field.

use crate::common::{problems_of, rule};

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(problems_of(&file(text)), *expected, "{text}");
    }
}

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
                    "[colour] unknown rule field `colour`: expected one of `name`, `by`, `match`, `bandwidth`, `load`, `cost`, `cost_default`, `cost_min`, `allow`, `deny`, `overrides`, `wait`, `queue`, `over`, `shadow`, `status`, `answer`, `missing`, `store`, `limit`, `every`, `total`, `concurrent`, `algorithm`, `buckets`, `burst`, `burst_seconds`, `cold_factor`, `delay`, `edge`, `nodelay`, `opens`, `precision`, `refill`, `starts`, `time_zone`, `warm_up`",
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
fn reports_fields_that_cannot_be_combined() {
    check(
        &[
            (
                "limit: 5/s\ncost: 2\ncost_default: 3",
                &[
                    "[cost_default] `cost_default` needs a `cost` that is an expression: a number cannot fail: remove it",
                ],
            ),
            ("limit: 5/s\ncost_min: 3", &["[cost_min] `cost_min` needs a `cost`: remove it, or add a `cost`"]),
            (
                "limit: 5/s\ncost: int(account)\ncost_default: 2\ncost_min: 3",
                &["[cost_default] `cost_default` is less than `cost_min`: expected at least `cost_min`"],
            ),
            (
                "limit: 5/s\ncost: int(account)\ncost_default: 0",
                &["[0] invalid value `0` for `cost_default`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "by: account\nmissing: {deny: 200}",
                &["[200] invalid status `200`: expected a status from 400 to 599, such as 429 or 503"],
            ),
            ("by: account\nmissing: {dney: 401}", &["[dney] unknown `missing` field `dney`: did you mean `deny`?"]),
            (
                "limit: 5/s\ncost: 0",
                &["[0] invalid value `0` for `cost`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: 5/s\ncost: -1",
                &["[-1] invalid value `-1` for `cost`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: 5/s\ncost: 1.5",
                &["[1.5] invalid value `1.5` for `cost`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: 5/s\ncost: [1]",
                &["[[] invalid `cost`: found a list: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: 5/s\nallow: [vip]",
                &[
                    "[vip] invalid address `vip`: a rule by `global` has no keys: expected an address or a network, or another `by`",
                ],
            ),
            (
                "limit: 5/s\nby: account\ndeny: [1.2.3.4/99, 10.0.0.1.5, '2001:db8::/200', '::g', 1.2.3, '12:30', '00:11:22:33:44:55', 7]",
                &[
                    "[1.2.3.4/99] invalid address or network `1.2.3.4/99`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                    "[10.0.0.1.5] invalid address or network `10.0.0.1.5`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                    "['2001:db8::/200'] invalid address or network `2001:db8::/200`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\nallow: [vip-7, 10.0.0]",
                &[
                    "[10.0.0] invalid address or network `10.0.0`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                ],
            ),
            (
                "limit: 5/s\nby: ip\nallow: [vip-7]",
                &[
                    "[vip-7] invalid address or network `vip-7`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                ],
            ),
            ("limit: 5/s\nallow: [[vip]]", &["[[] invalid `allow`: expected a string, found a list"]),
            (
                "limit: 5/s\nallow: ['0.0.0.0/0', '::/0']",
                &["[allow] `allow` contains every address, so this rule never applies: remove the rule"],
            ),
            ("limit: 5/s\ndeny: {a: b}", &["[{] invalid `deny`: expected a string, found a map"]),
            (
                "deny: []",
                &[
                    "[name] rule `a` has no limit: add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            (
                "limit: 5/s\nwait: 5",
                &[
                    "[5] invalid value `5` for `wait`: missing unit in `5`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("concurrent: {limit: 5, until: upstream_done}", &["nothing"]),
            ("concurrent: {limit: 5, until: client_left}", &["nothing"]),
            (
                "concurrent: {limit: 0}",
                &["[0] invalid value `0` for `limit`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "concurrent: {limit: 5, until: upstream}",
                &["[upstream] invalid value `upstream` for `until`: expected one of `client_left`, `upstream_done`"],
            ),
            (
                "concurrent: {limit: 5, untill: upstream_done}",
                &["[untill] unknown `concurrent` field `untill`: did you mean `until`?"],
            ),
            ("concurrent: {until: upstream_done}", &["[until] missing `limit` in `concurrent`"]),
            (
                "match: {call: true}\nconcurrent: {limit: 5, until: upstream_done}",
                &[
                    "[concurrent] `until: upstream_done` is not supported for calls: they have no upstream: remove `until`",
                ],
            ),
            ("limit: 5/s\nqueue: 5", &["[queue] `queue` needs `wait`: add `wait: 2s`"]),
            (
                "limit: 5/s\nalgorithm: leaky_bucket\nqueue: 5",
                &[
                    "[queue] `queue` needs `wait`: the queue of a leaky bucket is its `burst`: replace `queue` with `burst`",
                ],
            ),
            ("bandwidth: 5B/s\ncost: 5", &["[cost] `cost` needs a `limit`: remove `cost`, or add a `limit`"]),
            (
                "by: ip\nmissing: shared",
                &[
                    "[name] rule `a` has no limit: add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            ("by: account\nmissing: deny", &["nothing"]),
            ("limit: 5/s\nshadow: 'true'", &["nothing"]),
            (
                "limit: 5/s\nwait: 5s\nqueue: 0",
                &["[0] invalid value `0` for `queue`: expected a whole number from 1 to 9007199254740992"],
            ),
            ("deny: 10.0.0.1\nwait: 5s", &["[wait] `wait` needs a `limit`: remove `wait`, or add a `limit`"]),
            (
                "limit: 5/s\nover: refuse",
                &["[refuse] invalid value `refuse` for `over`: expected one of `deny`, `divert`"],
            ),
            (
                "limit: 5/s\nover: divert",
                &["[divert] missing upstream of `divert`: expected {divert: http://127.0.0.1:3001}"],
            ),
            (
                "limit: 5/s\nover: {divert: 'ftp://a'}",
                &["['ftp://a'] invalid value `ftp://a` for `divert`: expected a URL such as http://127.0.0.1:3000"],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://a/b'}",
                &[
                    "['http://a/b'] invalid value `http://a/b` for `divert`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://a:99999'}",
                &[
                    "['http://a:99999'] invalid value `http://a:99999` for `divert`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://::1'}",
                &[
                    "['http://::1'] invalid value `http://::1` for `divert`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {diver: 'http://a'}",
                &["[diver] unknown `over` field `diver`: did you mean `divert`?"],
            ),
            ("limit: 5/s\nover: {}", &["[{] missing `divert` in `over`"]),
            ("limit: 5/s\nshadow: 1", &["[1] invalid value `1` for `shadow`: expected true or false"]),
            (
                "limit: 5/s\nstatus: 200",
                &["[200] invalid status `200`: expected a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nstatus: '0429'",
                &["['0429'] invalid status `0429`: expected a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nstatus: teapot",
                &["[teapot] invalid status `teapot`: expected a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nmissing: allow",
                &["[allow] invalid value `allow` for `missing`: expected one of `skip`, `deny`, `shared`"],
            ),
            (
                "limit: 5/s\nmissing: deny",
                &["[missing] `missing` has no effect: a rule by `global` has no key: remove `missing`"],
            ),
            (
                "limit: 5/s\nby: ip\nmissing: denny",
                &["[denny] invalid value `denny` for `missing`: did you mean `deny`?"],
            ),
            (
                "limit: 5/s\nstore: shared",
                &[
                    "[shared] `store: shared` needs a shared store: add `store: {redis: redis://127.0.0.1:6379}` at the top of the file",
                ],
            ),
            (
                "limit: 5/s\nstore: redis",
                &["[redis] invalid value `redis` for `store`: expected one of `local`, `shared`"],
            ),
            (
                "limit: 5/s\nby: request",
                &[
                    "[by] `by: request` counts each request separately, so this limit never denies a request: use another `by`; `request` is for `bandwidth`",
                ],
            ),
            (
                "limit: 5/s\nby: [request, ip]",
                &[
                    "[by] `by: request` counts each request separately, so this limit never denies a request: use another `by`; `request` is for `bandwidth`",
                ],
            ),
            (
                "shadow: true",
                &[
                    "[name] rule `a` has no limit: add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
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
