//! The problems of fields that cannot be used together.

use crate::common::{check, rule};

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
                &["[refuse] invalid value `refuse` for `over`: expected one of `deny`, `reroute`"],
            ),
            (
                "limit: 5/s\nover: reroute",
                &["[reroute] missing upstream of `reroute`: expected {reroute: http://127.0.0.1:3001}"],
            ),
            (
                "limit: 5/s\nover: {reroute: 'ftp://a'}",
                &["['ftp://a'] invalid value `ftp://a` for `reroute`: expected a URL such as http://127.0.0.1:3000"],
            ),
            (
                "limit: 5/s\nover: {reroute: 'http://a/b'}",
                &[
                    "['http://a/b'] invalid value `http://a/b` for `reroute`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {reroute: 'http://a:99999'}",
                &[
                    "['http://a:99999'] invalid value `http://a:99999` for `reroute`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {reroute: 'http://::1'}",
                &[
                    "['http://::1'] invalid value `http://::1` for `reroute`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "limit: 5/s\nover: {rerout: 'http://a'}",
                &["[rerout] unknown `over` field `rerout`: did you mean `reroute`?"],
            ),
            ("limit: 5/s\nover: {}", &["[{] missing `reroute` in `over`"]),
            (
                "limit: 5/s\nover: {reroute: 'http://a', divert: 'http://b'}",
                &["[reroute] `reroute` and `divert` are the same field: remove one of them"],
            ),
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
fn reports_problems_of_count() {
    const EXPECTED: &str =
        "expected a status from 200 to 599 such as 401, a class such as 4xx, or a range such as 500-504";
    let invalid = |shown: &str| format!("[{shown}] invalid status `{shown}`: {EXPECTED}");
    let invalid = ["600", "199", "6xx", "1xx", "xx", "4x", "teapot", "500-600", "500-", "-1", "+40"].map(|text| {
        let rule = format!("limit: 5/s\ncount: {{status: [{text}]}}");
        (rule, invalid(text))
    });
    for (text, problem) in &invalid {
        check(&[(text, &[problem])], rule);
    }
    check(
        &[
            ("limit: 5/s\ncount: {status: []}", &["[[] `status` of `count` is empty: expected at least one"]),
            ("limit: 5/s\ncount: {status: 401}", &["nothing"]),
            ("limit: 5/s\ncount: {status: [401, 5xx, 402-404], refund: true}", &["nothing"]),
            ("limit: 5/s\ncount: {status: [401, 403, 401]}", &["[401] `401` is listed twice: remove it"]),
            ("limit: 5/s\ncount: {status: [4xx, 404]}", &["[404] `404` is listed twice: remove it"]),
            ("limit: 5/s\ncount: {status: [504-500]}", &["[504-500] the range `504-500` is empty: expected `500-504`"]),
            (
                "limit: 5/s\ncount: {status: 401, refund: maybe}",
                &["[maybe] invalid value `maybe` for `refund`: expected true or false"],
            ),
            ("limit: 5/s\ncount: {refund: true}", &["[refund] missing `status` in `count`"]),
            (
                "limit: 5/s\ncount: {statuses: 401, status: 403}",
                &["[statuses] unknown `count` field `statuses`: did you mean `status`?"],
            ),
            (
                "limit: 5/s\ncount: 401",
                &["[401] invalid `count`: expected a map, found a number: expected fields such as `status`, `refund`"],
            ),
            (
                "bandwidth: 5KiB/s\ncount: {status: 401}",
                &["[count] `count` needs a `limit`: remove `count`, or add a `limit`"],
            ),
            (
                "limit: 5/s\nwait: 2s\ncount: {status: 401}",
                &[
                    "[wait] `wait` cannot be combined with `count`: what is counted is known only after the response: remove one of the two",
                ],
            ),
            (
                "limit: 5/s\nconcurrent: 2\ncount: {status: 401}",
                &[
                    "[concurrent] `concurrent` cannot be combined with `count`: a permit is held until the response is sent: use another rule for `concurrent`",
                ],
            ),
            (
                "by: ip\nlimit: 5/s\ncount: {status: 401}\noverrides: {10.0.0.1: {limit: 5/s, concurrent: 3}}",
                &[
                    "[overrides] `concurrent` cannot be combined with `count`: a permit is held until the response is sent: use another rule for `concurrent`",
                ],
            ),
            (
                "limit: 5/s\nalgorithm: leaky_bucket\ncount: {status: 401}",
                &["[count] a leaky bucket cannot be combined with `count`: it delays requests: use another algorithm"],
            ),
            ("every: 5s\ncount: {status: 401}", &["nothing"]),
            (
                "every: 5s\ncount: {status: 401, refund: true}",
                &[
                    "[count] `every` cannot be combined with `refund: true`: an interval is not refunded: use `limit`, or remove `refund`",
                ],
            ),
            (
                "limit: 5/s\nmatch: {call: true}\ncount: {status: 401}",
                &["[count] `count` is not supported for calls: they have no status: remove `count`"],
            ),
        ],
        rule,
    );
}
