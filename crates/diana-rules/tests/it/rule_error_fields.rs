//! The problems of a rule's fields other than its limits, for each field.

use crate::common::{rule, told};

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(told(&file(text)), *expected, "{text}");
    }
}

#[test]
fn unknown_fields_are_told() {
    check(
        &[
            ("limt: 5/s", &["[limt] `limt` is no field of a rule: did you mean `limit`?"]),
            ("limit: 5/s\nbrust: 7", &["[brust] `brust` is no field of a rule: did you mean `burst`?"]),
        ],
        rule,
    );
}

#[test]
fn overrides_are_for_keys() {
    check(
        &[
            (
                "limit: 5/s\noverrides: {vip: 5/s}",
                &["[vip] a rule by `global` has no keys, so `vip` is nobody: another `by`, such as `account`"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: [vip]",
                &["[vip] an override is a map, but this is a text: fields such as `key`, `limit`, `every`"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: vip",
                &["[vip] `overrides` is a map, but this is a text: limits by key, as in {vip-7: 1000/s}"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: 5}",
                &["[5] a limit can't be `5`: write a count and a time, as `100/s`, `5/10min` or `1 per 200ms`"],
            ),
            ("limit: 5/s\nby: account\noverrides: {vip: }", &["[vip] `vip` has no value: a value, or leave it out"]),
            (
                "limit: 5/s\nby: account\noverrides: {vip: []}",
                &["[[] this list of limits is empty: 100/s, or leave it out"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {limt: 5/s}}",
                &["[{] a limit has no `rate`: as in {rate: 100/s, burst: 200}"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: [{key: vip}]",
                &["[vip] this override has no limit: {key: vip-7, limit: 1000/s}"],
            ),
            ("limit: 5/s\nby: account\noverrides: [{limit: 5/s}]", &["[limit] an override has no `key`"]),
            (
                "limit: 5/s\nby: account\noverrides: [{key: vip, limit: 5/s}, {key: [vip], total: 7}]",
                &["[[] `vip` has an override already: one for each key"],
            ),
            (
                "limit: 5/s\nby: ip\noverrides: {'2001:db8::7': 5/s, '2001:db8::8': 7/s}",
                &[
                    "['2001:db8::8'] `2001:db8::8` is counted with all of 2001:db8::/64, which has an override already: one for each key",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: {vip: 5/s}",
                &[
                    "[vip] a key of this rule has 2 parts (account, ip), but `vip` has 1: overrides: [{key: [a, b], limit: 100/s}]",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: [{key: [vip, true], limit: 5/s}]",
                &["[true] a part of a key is a text, but this is true or false"],
            ),
            (
                "limit: 5/s\nby: [account, ip]\noverrides: [{key: [a, b, c], limit: 5/s}]",
                &[
                    "[[] a key of this rule has 2 parts (account, ip), but `a, b, c` has 3: overrides: [{key: [a, b], limit: 100/s}]",
                ],
            ),
            (
                "limit: 5/s\nby: ip\noverrides: {vip: 5/s, 10.0.0.7: 7/s, '2001:db8::/64': 9/s, 10.0.0.0/24: 5/s}",
                &[
                    "[vip] `vip` is no address, but a rule by `ip` counts addresses: an address such as 10.0.0.7",
                    "[10.0.0.0/24] `10.0.0.0/24` is a /24, but this rule counts each /32: `10.0.0.0/32`, or another rule with `match: {ip: ...}`",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip/24]\noverrides: [{key: [a, 10.0.0.0/24], limit: 7/s}, {key: [a, 10.0.1.0/16], limit: 7/s}]",
                &[
                    "[10.0.1.0/16] `10.0.1.0/16` is a /16, but this rule counts each /24: `10.0.0.0/24`, or another rule with `match: {ip: ...}`",
                ],
            ),
            (
                "load: {cpu: 5%}\noverrides: {vip: 5/s}",
                &[
                    "[overrides] `overrides` take the place of a limit, and there is none: leave them out",
                    "[vip] a rule by `global` has no keys, so `vip` is nobody: another `by`, such as `account`",
                ],
            ),
            (
                "limit: 5/s\ncolour: blue",
                &[
                    "[colour] `colour` is no field of a rule: expected one of `name`, `by`, `match`, `bandwidth`, `load`, `cost`, `cost_default`, `cost_min`, `allow`, `deny`, `overrides`, `wait`, `queue`, `over`, `shadow`, `status`, `answer`, `missing`, `store`, `limit`, `every`, `total`, `concurrent`, `algorithm`, `buckets`, `burst`, `burst_seconds`, `cold_factor`, `delay`, `edge`, `nodelay`, `opens`, `precision`, `refill`, `starts`, `time_zone`, `warm_up`",
                ],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {rate: 5/s, buckets: 3}}",
                &["[buckets] `token_bucket` has no `buckets`: expected one of `rate`, `algorithm`, `burst`, `refill`"],
            ),
            (
                "limit: 5/s\nby: account\noverrides: {vip: {limit: 5/s, every: 1}}",
                &["[1] `every` can't be `1`: `1` has no unit; write one of ns, us, ms, s, min, h, day, week or month"],
            ),
        ],
        rule,
    );
}

#[test]
fn bandwidth_and_load_are_amounts() {
    check(
        &[
            (
                "bandwidth: 512",
                &["[512] `bandwidth` can't be `512`: `512` is no rate; write an amount and a time, as 512KiB/s"],
            ),
            (
                "bandwidth: 512KiB",
                &[
                    "[512KiB] `bandwidth` can't be `512KiB`: `512KiB` is no rate; write an amount and a time, as 512KiB/s",
                ],
            ),
            (
                "bandwidth: 5 furlongs/s",
                &[
                    "[5 furlongs/s] `bandwidth` can't be `5 furlongs/s`: `furlongs` is no unit of data; write one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            ("bandwidth: {burst: 1MiB}", &["[burst] `bandwidth` has no `rate`"]),
            (
                "bandwidth: {rate: 5MiB/s, of: responses}",
                &["[responses] `of` can't be `responses`: did you mean `response`?"],
            ),
            (
                "bandwidth: {rate: 5MiB/s, after: 5, upto: 7}",
                &[
                    "[5] `after` can't be `5`: `5` has no unit; write one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                    "[upto] `upto` is no field of `bandwidth`: expected one of `rate`, `burst`, `after`, `of`",
                ],
            ),
            ("bandwidth: []", &["[[] `bandwidth` is a text, but this is a list"]),
            (
                "load: 85%",
                &["[85%] `load` is a map, but this is a text: fields such as `cpu`, `memory`, `connections`"],
            ),
            ("load: {}", &["[{] `load` says nothing: as in {cpu: 85%, memory: 90%}"]),
            ("load: {cpu: 85}", &["[85] `cpu` can't be `85`: a share such as 85% or 99.5%"]),
            ("load: {cpu: 101%}", &["[101%] `cpu` can't be `101%`: a share such as 85% or 99.5%"]),
            ("load: {cpu: 6553.9%}", &["[6553.9%] `cpu` can't be `6553.9%`: a share such as 85% or 99.5%"]),
            ("load: {cpu: 0%}", &["[0%] `cpu` can't be `0%`: a share such as 85% or 99.5%"]),
            ("load: {cpus: 5%}", &["[cpus] `cpus` is no field of `load`: did you mean `cpu`?"]),
            (
                "load: {connections: 0, traffic: 5}",
                &[
                    "[0] `connections` can't be `0`: a whole number from 1 to 9007199254740992",
                    "[5] `traffic` can't be `5`: `5` is no rate; write an amount and a time, as 512KiB/s",
                ],
            ),
            ("load: {cpu: 85%}\nby: ip", &["[by] `load` is the whole machine's: `by: global`, or leave it out"]),
        ],
        rule,
    );
}

#[test]
fn what_makes_no_sense_together_is_told() {
    check(
        &[
            (
                "limit: 5/s\ncost: 2\ncost_default: 3",
                &[
                    "[cost_default] `cost_default` is for a `cost` that is an expression: a number never fails: leave it out",
                ],
            ),
            ("limit: 5/s\ncost_min: 3", &["[cost_min] `cost_min` bounds a `cost`, and there is none: leave it out"]),
            (
                "limit: 5/s\ncost: int(account)\ncost_default: 2\ncost_min: 3",
                &["[cost_default] `cost_default` is below `cost_min`: at least as much"],
            ),
            (
                "limit: 5/s\ncost: int(account)\ncost_default: 0",
                &["[0] `cost_default` can't be `0`: a whole number from 1 to 9007199254740992"],
            ),
            (
                "by: account\nmissing: {deny: 200}",
                &["[200] a refusal can't answer `200`: a status from 400 to 599, such as 429 or 503"],
            ),
            ("by: account\nmissing: {dney: 401}", &["[dney] `dney` is no field of `missing`: did you mean `deny`?"]),
            ("limit: 5/s\ncost: 0", &["[0] `cost` can't be `0`: a whole number from 1 to 9007199254740992"]),
            ("limit: 5/s\ncost: -1", &["[-1] `cost` can't be `-1`: a whole number from 1 to 9007199254740992"]),
            ("limit: 5/s\ncost: 1.5", &["[1.5] `cost` can't be `1.5`: a whole number from 1 to 9007199254740992"]),
            ("limit: 5/s\ncost: [1]", &["[[] `cost` can't be a list: a whole number from 1 to 9007199254740992"]),
            (
                "limit: 5/s\nallow: [vip]",
                &[
                    "[vip] `vip` is no address, and a rule by `global` has no keys: an address or a network, or another `by`",
                ],
            ),
            (
                "limit: 5/s\nby: account\ndeny: [1.2.3.4/99, 10.0.0.1.5, '2001:db8::/200', '::g', 1.2.3, '12:30', '00:11:22:33:44:55', 7]",
                &[
                    "[1.2.3.4/99] `1.2.3.4/99` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                    "[10.0.0.1.5] `10.0.0.1.5` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                    "['2001:db8::/200'] `2001:db8::/200` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                ],
            ),
            (
                "limit: 5/s\nby: [account, ip]\nallow: [vip-7, 10.0.0]",
                &["[10.0.0] `10.0.0` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32"],
            ),
            (
                "limit: 5/s\nby: ip\nallow: [vip-7]",
                &["[vip-7] `vip-7` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32"],
            ),
            ("limit: 5/s\nallow: [[vip]]", &["[[] `allow` is a text, but this is a list"]),
            (
                "limit: 5/s\nallow: ['0.0.0.0/0', '::/0']",
                &["[allow] `allow` has every address, so no request can reach this rule: leave the rule out"],
            ),
            ("limit: 5/s\ndeny: {a: b}", &["[{] `deny` is a text, but this is a map"]),
            (
                "deny: []",
                &[
                    "[name] rule `a` limits nothing: `limit: 100/s`, or `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            (
                "limit: 5/s\nwait: 5",
                &["[5] `wait` can't be `5`: `5` has no unit; write one of ns, us, ms, s, min, h, day, week or month"],
            ),
            ("concurrent: {limit: 5, until: upstream_done}", &["nothing"]),
            ("concurrent: {limit: 5, until: client_left}", &["nothing"]),
            ("concurrent: {limit: 0}", &["[0] `limit` can't be `0`: a whole number from 1 to 9007199254740992"]),
            (
                "concurrent: {limit: 5, until: upstream}",
                &["[upstream] `until` can't be `upstream`: expected one of `client_left`, `upstream_done`"],
            ),
            (
                "concurrent: {limit: 5, untill: upstream_done}",
                &["[untill] `untill` is no field of `concurrent`: did you mean `until`?"],
            ),
            ("concurrent: {until: upstream_done}", &["[until] `concurrent` has no `limit`"]),
            (
                "match: {call: true}\nconcurrent: {limit: 5, until: upstream_done}",
                &["[concurrent] `until: upstream_done` is for requests, and a call has no upstream: leave it out"],
            ),
            ("limit: 5/s\nqueue: 5", &["[queue] `queue` bounds those who wait, but nobody does: `wait: 2s` beside it"]),
            (
                "limit: 5/s\nalgorithm: leaky_bucket\nqueue: 5",
                &[
                    "[queue] `queue` bounds those who `wait`, but the line of a leaky bucket is its `burst`: `burst` in place of `queue`",
                ],
            ),
            ("bandwidth: 5B/s\ncost: 5", &["[cost] `cost` is what a limit counts, and there is none: leave it out"]),
            (
                "by: ip\nmissing: shared",
                &[
                    "[name] rule `a` limits nothing: `limit: 100/s`, or `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            ("by: account\nmissing: deny", &["nothing"]),
            ("limit: 5/s\nshadow: 'true'", &["nothing"]),
            (
                "limit: 5/s\nwait: 5s\nqueue: 0",
                &["[0] `queue` can't be `0`: a whole number from 1 to 9007199254740992"],
            ),
            ("deny: 10.0.0.1\nwait: 5s", &["[wait] `wait` is for a limit, and there is none: leave it out"]),
            ("limit: 5/s\nover: refuse", &["[refuse] `over` can't be `refuse`: expected one of `deny`, `divert`"]),
            ("limit: 5/s\nover: divert", &["[divert] `divert` does not say where to: {divert: http://127.0.0.1:3001}"]),
            (
                "limit: 5/s\nover: {divert: 'ftp://a'}",
                &["['ftp://a'] `divert` can't be `ftp://a`: a URL such as http://127.0.0.1:3000"],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://a/b'}",
                &[
                    "['http://a/b'] `divert` can't be `http://a/b`: a scheme, a host and perhaps a port, as in http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://a:99999'}",
                &[
                    "['http://a:99999'] `divert` can't be `http://a:99999`: a scheme, a host and perhaps a port, as in http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {divert: 'http://::1'}",
                &[
                    "['http://::1'] `divert` can't be `http://::1`: a scheme, a host and perhaps a port, as in http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {diver: 'http://a'}",
                &["[diver] `diver` is no field of `over`: did you mean `divert`?"],
            ),
            ("limit: 5/s\nover: {}", &["[{] `over` has no `divert`"]),
            ("limit: 5/s\nshadow: 1", &["[1] `shadow` can't be `1`: true or false"]),
            (
                "limit: 5/s\nstatus: 200",
                &["[200] a refusal can't answer `200`: a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nstatus: '0429'",
                &["['0429'] a refusal can't answer `0429`: a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nstatus: teapot",
                &["[teapot] a refusal can't answer `teapot`: a status from 400 to 599, such as 429 or 503"],
            ),
            (
                "limit: 5/s\nmissing: allow",
                &["[allow] `missing` can't be `allow`: expected one of `skip`, `deny`, `shared`"],
            ),
            ("limit: 5/s\nmissing: deny", &["[missing] a rule for everyone misses nothing: leave it out"]),
            ("limit: 5/s\nby: ip\nmissing: denny", &["[denny] `missing` can't be `denny`: did you mean `deny`?"]),
            (
                "limit: 5/s\nstore: shared",
                &[
                    "[shared] there is no store to share: `store: {redis: redis://127.0.0.1:6379}` at the top of the file",
                ],
            ),
            ("limit: 5/s\nstore: redis", &["[redis] `store` can't be `redis`: expected one of `local`, `shared`"]),
            (
                "limit: 5/s\nby: request",
                &[
                    "[by] each request has a count of its own here, so this limit would never refuse one: another `by`; `request` is for `bandwidth`",
                ],
            ),
            (
                "limit: 5/s\nby: [request, ip]",
                &[
                    "[by] each request has a count of its own here, so this limit would never refuse one: another `by`; `request` is for `bandwidth`",
                ],
            ),
            (
                "shadow: true",
                &[
                    "[name] rule `a` limits nothing: `limit: 100/s`, or `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
        ],
        rule,
    );
}

#[test]
fn names_are_short_and_plain() {
    let named = |name: &str| format!("rules: [{{name: {name}, total: 1}}]");
    check(
        &[
            ("''", &["[''] `` is no name of a rule: letters, digits, `.`, `_` and `-`, at most 128 of them"]),
            ("a b", &["[a b] `a b` is no name of a rule: letters, digits, `.`, `_` and `-`, at most 128 of them"]),
            ("[a]", &["[[] `name` is a text, but this is a list"]),
        ],
        named,
    );
    assert_eq!(told(&named(&"a".repeat(128))), ["nothing"]);
    assert!(told(&named(&"a".repeat(129)))[0].contains("is no name of a rule"));
}

#[test]
fn a_parameter_that_no_path_names_is_told() {
    check(
        &[
            (
                "by: param(id)\nlimit: 5/s",
                &["[param(id)] no path of this rule names `{id}`: `match: {path: '/.../{id}'}`"],
            ),
            (
                "by: [ip, param(id)]\nmatch: {path: '/users/{user}'}\nlimit: 5/s",
                &["[param(id)] no path of this rule names `{id}`: `match: {path: '/.../{id}'}`"],
            ),
            (
                "match: {path: /a, when: 'request.params[\"id\"] == \"\"'}\nlimit: 5/s",
                &["['request.params[\"id\"] == \"\"'] no path of this rule names `{id}`: `match: {path: '/.../{id}'}`"],
            ),
            (
                "cost: int(request.params.n)\nby: cel(\"request.params.id\")\nlimit: 5/s",
                &[
                    "[int(request.params.n)] no path of this rule names `{n}`: `match: {path: '/.../{n}'}`",
                    "[cel(\"request.params.id\")] no path of this rule names `{id}`: `match: {path: '/.../{id}'}`",
                ],
            ),
            // One of several paths is enough; the parameters of an invalid path are unknown.
            ("by: param(id)\nmatch: {path: ['/users/{id}', /b]}\nlimit: 5/s", &["nothing"]),
            (
                "by: param(id)\nmatch: {path: 'users/{id}'}\nlimit: 5/s",
                &["['users/{id}'] `users/{id}` is no path: a path begins with `/`, as in `/search/**`"],
            ),
        ],
        rule,
    );
}

#[test]
fn a_rule_for_calls_knows_what_they_tell_and_has_no_place() {
    check(
        &[
            ("match: {call: phone}\nby: phone\nlimit: 5/s", &["nothing"]),
            ("match: {call: true}\nby: account\nlimit: 5/s", &["nothing"]),
            (
                "match: {call: [phone, text], when: 'text != \"\"', ip: 10.0.0.0/8}\nby: [phone, ip]\nlimit: 5/s",
                &["nothing"],
            ),
            (
                "match: {call: phone}\nby: phon\nlimit: 5/s",
                &["[phon] `phon` is nothing that requests are told apart by: did you mean `phone`?"],
            ),
            (
                "match: {call: phone, path: /sms}\nlimit: 5/s",
                &["[/sms] a call has no `path`: leave it out; or leave out `call`, for requests with this `path`"],
            ),
            ("match: {call: [ip]}\nlimit: 5/s", &["[ip] `ip` means something else in a rule: another name"]),
            (
                "match: {call: false}\nlimit: 5/s",
                &["[false] `call` is only for rules that are about calls: leave it out, or `call: true`"],
            ),
            (
                "match: {call: []}\nlimit: 5/s",
                &["[[] `call` names nothing that calls tell: `call: true` for those that tell nothing"],
            ),
        ],
        rule,
    );
    let no = |attribute: &str| {
        format!("a call has no `{attribute}`: what calls tell, as in `call: [phone]` and `by: phone`, or `account`")
    };
    assert_eq!(
        told(&rule("match: {call: true}\nby: header(x)\nlimit: 5/s")),
        [format!("[header(x)] {}", no("header(x)"))]
    );
    assert_eq!(told(&rule("match: {call: true}\nby: method\nlimit: 5/s")), [format!("[method] {}", no("method"))]);
    let when = "'request.host == \"a\"'";
    assert_eq!(
        told(&rule(&format!("match: {{call: true, when: {when}}}\nlimit: 5/s"))),
        [format!("[{when}] {}", no("host"))]
    );
    check(
        &[
            ("match: {call: in}\nlimit: 5/s", &["[in] no call can tell `in`: another name"]),
            (
                "match: {call: true}\nconcurrent: adaptive",
                &["[concurrent] an adaptive limit learns from answers, which calls have none of: a number"],
            ),
            (
                "match: {call: true}\nbandwidth: 5KiB/s",
                &["[bandwidth] a call has no body that could flow: leave it out"],
            ),
        ],
        rule,
    );
    // A call names its rule, so two may be identical; and none of them concerns a gateway.
    let twins = "rules: [{name: a, match: {call: true}, limit: 5/s}, {name: b, match: {call: true}, limit: 5/s}]";
    assert_eq!(told(twins), ["nothing"]);
    let gateway = "gateway: {upstream: http://127.0.0.1:3000}\nrules: [{name: a, match: {call: phone}, by: [account, phone], limit: 5/s}]";
    assert_eq!(told(gateway), ["nothing"]);
}

#[test]
fn what_is_wrong_with_an_expression_is_pointed_at() {
    check(
        &[
            (
                "match: {when: 'request.method == \"GET\" && request.heders.x == \"1\"'}\nlimit: 5/s",
                &["[.heders] `when`: a request has no `heders`: did you mean `headers`?"],
            ),
            (
                "match:\n  when: >-\n    request.heders.x == '1'\nlimit: 5/s",
                &["[.heders] `when`: a request has no `heders`: did you mean `headers`?"],
            ),
            (
                "by: cel(\"e\")\nlimit: 5/s",
                &["[e] `cel`: nothing is called `e`: `request.…`, `account`, `device`, or a text in quotes"],
            ),
            (
                "limit: 5/s\ncost: int(acount)",
                &["[acount] `cost`: nothing is called `acount`: did you mean `account`?"],
            ),
            // With escapes the text differs from the value, so all of it is marked.
            (
                "limit: 5/s\ncost: \"int(\\u0061count)\"",
                &["[\"int(\\u0061count)\"] `cost`: nothing is called `acount`: did you mean `account`?"],
            ),
        ],
        rule,
    );
}

#[test]
fn expressions_without_quotes_are_understood() {
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
