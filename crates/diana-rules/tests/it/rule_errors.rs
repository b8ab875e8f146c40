//! The problems of a rule's limits and keys, for each field.

use crate::common::{rule, told};

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(told(&file(text)), *expected, "{text}");
    }
}

#[test]
fn by_is_what_requests_are_told_apart_by() {
    check(
        &[
            (
                "by: acount\ntotal: 1",
                &["[acount] `acount` is nothing that requests are told apart by: did you mean `account`?"],
            ),
            (
                "by: header\ntotal: 1",
                &["[header] `header` is nothing that requests are told apart by: did you mean `header(NAME)`?"],
            ),
            ("by: headr(x)\ntotal: 1", &["[headr(x)] `headr` takes no name: did you mean `header(x)`?"]),
            ("by: header()\ntotal: 1", &["[header()] `header()` has no name: `header(NAME)`"]),
            (
                "by: ip/129\ntotal: 1",
                &[
                    "[ip/129] `ip/129` is no share of an address: ip/1 to ip/32, ip/33 to ip/128 of IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: ip/0\ntotal: 1",
                &[
                    "[ip/0] `ip/0` is no share of an address: ip/1 to ip/32, ip/33 to ip/128 of IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: ip/33/48\ntotal: 1",
                &[
                    "[ip/33/48] `ip/33/48` is no share of an address: ip/1 to ip/32, ip/33 to ip/128 of IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: [ip, cel(\"a, b\")]\ntotal: 1",
                &[
                    "[cel(\"a] `cel(\"a` ends too early: put quotes around it all, as in 'cel(\"...\")'",
                    "[b\")] `b\")` is nothing that requests are told apart by: global, account, device, resource, ip, ip/24, host, method, request, header(x), cookie(x), query(x), jwt(x), param(x), cel(\"...\") or a name of `identity`",
                ],
            ),
            ("by: []\ntotal: 1", &["[[] `by` names nobody: `global` is everyone together"]),
            (
                "by: [global, ip]\ntotal: 1",
                &["[global] `global` is everyone together, so nothing can stand beside it: leave it out"],
            ),
            ("by: [ip, ip]\ntotal: 1", &["[ip] `ip` is there twice: leave one out"]),
            ("by: {ip: 24}\ntotal: 1", &["[{] `by` is a text, but this is a map"]),
            (
                "by: user\ntotal: 1",
                &[
                    "[user] `user` is nothing that requests are told apart by: global, account, device, resource, ip, ip/24, host, method, request, header(x), cookie(x), query(x), jwt(x), param(x), cel(\"...\") or a name of `identity`",
                ],
            ),
            ("by: true\ntotal: 1", &["[true] `by` is a text, but this is true or false"]),
        ],
        rule,
    );
}

#[test]
fn a_match_that_matches_nothing_is_told() {
    check(
        &[
            (
                "match: /a\ntotal: 1",
                &["[/a] `match` is a map, but this is a text: fields such as `path`, `method`, `host`"],
            ),
            ("match: {paht: /a}\ntotal: 1", &["[paht] `paht` is no field of `match`: did you mean `path`?"]),
            ("match: {path: a}\ntotal: 1", &["[a] `a` is no path: a path begins with `/`, as in `/search/**`"]),
            (
                "match: {path: '/a?b'}\ntotal: 1",
                &[
                    "['/a?b'] no path has a `?`, so `/a?b` would never match: a path without a query: the query can be told apart in `when`",
                ],
            ),
            (
                "match: {path: []}\ntotal: 1",
                &["[[] `path` is empty, so no request can reach this rule: leave it out for all requests"],
            ),
            ("match: {path: [5, /b]}\ntotal: 1", &["[5] `5` is no path: a path begins with `/`, as in `/search/**`"]),
            (
                "match: {method: get}\ntotal: 1",
                &["[get] methods are told apart by case, so `get` would never match: did you mean `GET`?"],
            ),
            ("match: {method: GTE}\ntotal: 1", &["[GTE] `GTE` is no method: did you mean `GET`?"]),
            ("match: {method: 'G T'}\ntotal: 1", &["['G T'] `G T` is no method: did you mean `GET`?"]),
            (
                "match: {method: []}\ntotal: 1",
                &["[[] `method` is empty, so no request can reach this rule: leave it out for all requests"],
            ),
            (
                "match: {host: 'http://a'}\ntotal: 1",
                &["['http://a'] `http://a` is no host: a name such as `api.example.com` or `*.example.com`"],
            ),
            (
                "match: {host: 'a:80'}\ntotal: 1",
                &[
                    "['a:80'] `a:80` has a port, which hosts are compared without: a name such as `api.example.com` or `*.example.com`",
                ],
            ),
            (
                "match: {header: x}\ntotal: 1",
                &["[x] `header` is a map, but this is a text: values by name, as in {x-plan: free, x-kind: [a, b*]}"],
            ),
            ("match: {header: {'x y': a}}\ntotal: 1", &["['x y'] `x y` is no name of a header: a name such as x-plan"]),
            (
                "match: {header: {x: []}}\ntotal: 1",
                &["[[] header `x` is empty, so no request can reach this rule: leave it out for all requests"],
            ),
            (
                "match: {ip: 10.0.0.0/33}\ntotal: 1",
                &["[10.0.0.0/33] `10.0.0.0/33` is no address and no network: 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32"],
            ),
            ("match: {ip: }\ntotal: 1", &["[ip] `ip` has no value: a value, or leave it out"]),
            ("match: {when: [a]}\ntotal: 1", &["[[] `when` is a text, but this is a list"]),
        ],
        rule,
    );
}

#[test]
fn a_limit_that_is_none_is_told() {
    check(
        &[
            (
                "limit: {rate: 5/s, burst: 7}\nburst: 8",
                &["[8] `burst` stands in the limit and beside it: one of the two"],
            ),
            ("limit:", &["[limit] `limit` has no value: a value, or leave it out"]),
            (
                "limit: 100",
                &["[100] a limit can't be `100`: write a count and a time, as `100/s`, `5/10min` or `1 per 200ms`"],
            ),
            (
                "limit: 0/s",
                &["[0/s] a limit can't be `0/s`: permits 0: must be a whole number from 1 to 9007199254740992"],
            ),
            ("limit: -5/s", &["[-5/s] a limit can't be `-5/s`: the count `-5` is not a whole number above 0"]),
            ("limit: 1.5/s", &["[1.5/s] a limit can't be `1.5/s`: the count `1.5` is not exact; write `3/2s`"]),
            ("limit: 10r/s", &["[10r/s] a limit can't be `10r/s`: write 10/s"]),
            ("limit: 10 rps", &["[10 rps] a limit can't be `10 rps`: write 10/s"]),
            ("limit: 6r/m", &["[6r/m] a limit can't be `6r/m`: write 6/m"]),
            (
                "limit: 5 requests per hour",
                &["[5 requests per hour] a limit can't be `5 requests per hour`: write 5/hour"],
            ),
            ("limit: 1e3/s", &["[1e3/s] a limit can't be `1e3/s`: the count `1e3` is not a whole number above 0"]),
            (
                "limit: 100/sec0nd",
                &[
                    "[100/sec0nd] a limit can't be `100/sec0nd`: `sec0nd` is not a unit of time; write one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            (
                "limit: 99999999999999999999/s",
                &[
                    "[99999999999999999999/s] a limit can't be `99999999999999999999/s`: the count `99999999999999999999` is too large; at most 9007199254740992",
                ],
            ),
            (
                "limit: 18446744073709551615/s",
                &[
                    "[18446744073709551615/s] a limit can't be `18446744073709551615/s`: permits 18446744073709551615: must be a whole number from 1 to 9007199254740992",
                ],
            ),
            ("limit: 5/0s", &["[5/0s] a limit can't be `5/0s`: period 0: must be at least 1ns, as in `5/10min`"]),
            (
                "limit: 5/1.5s",
                &[
                    "[5/1.5s] a limit can't be `5/1.5s`: `1.5s` is not a whole number of units; write `1500ms` for one and a half seconds",
                ],
            ),
            (
                "limit: 5/",
                &["[5/] a limit can't be `5/`: `` has no unit; write one of ns, us, ms, s, min, h, day, week or month"],
            ),
            (
                "limit: 5/s burst 0",
                &[
                    "[5/s burst 0] a limit can't be `5/s burst 0`: burst 0: must be a whole number from 1 to 9007199254740992",
                ],
            ),
            (
                "limit: true",
                &["[true] a limit can't be true or false: 100/s, {rate: 100/s, burst: 200}, or a list of them"],
            ),
            ("limit: []", &["[[] this list of limits is empty: 100/s, or leave it out"]),
            ("limit: [[5/s]]", &["[[] a limit can't be a list: 100/s, {rate: 100/s, burst: 200}, or a list of them"]),
            ("limit: {burst: 5}", &["[{] a limit has no `rate`: as in {rate: 100/s, burst: 200}"]),
            ("limit: {rate: 5/s, burts: 5}", &["[burts] `burts` is no field of a limit: did you mean `burst`?"]),
            ("limit: {rate: 5/s, burst: }", &["[burst] `burst` has no value: a value, or leave it out"]),
            ("limit: {rate: 5/s, burst: 0}", &["[0] `burst` can't be `0`: a whole number from 1 to 9007199254740992"]),
            (
                "limit: {rate: 5/s, burst: 5.5}",
                &["[5.5] `burst` can't be `5.5`: a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: {rate: 5/s, algorithm: token}",
                &[
                    "[token] `token` is no algorithm: expected one of `fixed_window`, `leaky_bucket`, `sliding_log`, `sliding_window`, `smooth_bursty`, `smooth_warming_up`, `token_bucket`",
                ],
            ),
            (
                "limit: {rate: 5/s, algorithm: tokn_bucket}",
                &["[tokn_bucket] `tokn_bucket` is no algorithm: did you mean `token_bucket`?"],
            ),
            ("limit: 5/s\nburst: lots", &["[lots] `burst` can't be `lots`: a whole number from 1 to 9007199254740992"]),
            (
                "limit: [5/s, 5/h]\nburst: 7\nalgorithm: sliding_log",
                &[
                    "[7] `burst` stands beside several limits, and could be meant for any of them: {rate: 100/s, burst: ...}",
                    "[sliding_log] `algorithm` stands beside several limits, and could be meant for any of them: {rate: 100/s, algorithm: ...}",
                ],
            ),
            (
                "every: 5",
                &["[5] `every` can't be `5`: `5` has no unit; write one of ns, us, ms, s, min, h, day, week or month"],
            ),
            ("every: 0s", &["[0s] interval 0: must be at least 1ns, as in `every 200ms`"]),
            (
                "every: 200 ms\nburst: 5\nalgorithm: fixed_window",
                &[
                    "[5] `burst` belongs to a `limit`, and there is none: `limit: 100/s` beside it",
                    "[fixed_window] `algorithm` belongs to a `limit`, and there is none: `limit: 100/s` beside it",
                ],
            ),
            (
                "every: soon",
                &[
                    "[soon] `every` can't be `soon`: `soon` is not a unit of time; write one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("total: 0", &["[0] `total` can't be `0`: a whole number from 1 to 9007199254740992"]),
            ("total: -1", &["[-1] `total` can't be `-1`: a whole number from 1 to 9007199254740992"]),
            ("total: many", &["[many] `total` can't be `many`: a whole number from 1 to 9007199254740992"]),
            ("concurrent: 0", &["[0] `concurrent` can't be `0`: a whole number from 1 to 9007199254740992"]),
            ("concurrent: adaptve", &["[adaptve] `concurrent` can't be `adaptve`: did you mean `adaptive`?"]),
            ("concurrent: {}", &["[{] `concurrent` has no `limit`"]),
            ("concurrent: []", &["[[] `concurrent` can't be a list: a whole number from 1 to 9007199254740992"]),
            ("limit: {rte: 5/s}", &["[rte] `rte` is no field of a limit: did you mean `rate`?"]),
            (
                "limit: 5/h\nalgorithm: fixed_window\nburst: 5",
                &["[5] `fixed_window` has no `burst`: expected one of `rate`, `algorithm`, `opens`, `time_zone`"],
            ),
        ],
        rule,
    );
}

#[test]
fn each_algorithm_tells_what_it_wants() {
    check(
        &[
            (
                "limit: {rate: 5/s, buckets: 5}",
                &["[buckets] `token_bucket` has no `buckets`: expected one of `rate`, `algorithm`, `burst`, `refill`"],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s burst 7",
                &["[5/s burst 7] `fixed_window` has no burst: 100/s, or an algorithm with one, such as `token_bucket`"],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s\nopens: sometime",
                &["[sometime] `opens` can't be `sometime`: expected one of `clock`, `first_request`"],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s\ntime_zone: Europe/Berlin",
                &[
                    "[5/s] a calendar has days, weeks and months, but the limit is 5/s: a limit such as 1000/day, or no `time_zone`",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/day\ntime_zone: Mars/Base",
                &[
                    "[Mars/Base] time zone `Mars/Base`: is not known; an IANA name such as `Europe/Berlin` or `UTC` would do",
                ],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nbuckets: 0",
                &["[0] `buckets` can't be `0`: a whole number from 1 to 9007199254740992"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nbuckets: 3000000",
                &["[3000000] buckets 3000000: must be a whole number from 1 to 131072"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 100ms\nbuckets: 10",
                &["[100ms] `buckets` and `precision` say the same in two ways: one of the two"],
            ),
            (
                "algorithm: leaky_bucket\nlimit: 5/s burst 5",
                &[
                    "[5/s burst 5] the burst of a leaky bucket is its queue, and stands beside the rate: {rate: 100/s, algorithm: leaky_bucket, burst: 50}",
                ],
            ),
            (
                "algorithm: leaky_bucket\nlimit: 5/s\ndelay: 5\nnodelay: true",
                &["[true] `nodelay` and `delay` exclude each other: one of the two"],
            ),
            ("algorithm: leaky_bucket\nlimit: 5/s\nnodelay: yes", &["[yes] `nodelay` can't be `yes`: true or false"]),
            (
                "algorithm: smooth_bursty\nlimit: 5/s\nburst_seconds: -1",
                &["[-1] `burst_seconds` can't be `-1`: a number such as 3 or 2.5"],
            ),
            (
                "algorithm: smooth_bursty\nlimit: 5/s\nstarts: half",
                &["[half] `starts` can't be `half`: expected one of `full`, `empty`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s",
                &["[5/s] `smooth_warming_up` has no `warm_up`: how long it takes to warm up, as in `warm_up: 10s`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 5",
                &[
                    "[5] `warm_up` can't be `5`: `5` has no unit; write one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("algorithm: [a]\nlimit: 5/s", &["[[] `algorithm` is a text, but this is a list"]),
            (
                "limit: 5/s\nrefill: 5",
                &["[5] `refill` is a map, but this is a number: fields such as `tokens`, `every`"],
            ),
            ("limit: 5/s\nrefill: {tokens: 5}", &["[{] `refill` has no `every`"]),
            (
                "limit: 100/s\nburst: 7\nrefill: {tokens: 5, every: 10s}",
                &[
                    "[{] `refill` gives 5 in 10s, but the limit is 100/s: {every: 10s}, which is 1000 at once, or a limit of the same rate",
                ],
            ),
            (
                "limit: 1/min\nrefill: {tokens: 1, every: 1s}",
                &[
                    "[{] `refill` gives 1 in 1s, but the limit is 1/min: a limit of the same rate, such as 100/min with {every: 1min}",
                ],
            ),
            (
                "limit: 3/min\nrefill: {every: 1s}",
                &[
                    "[3/min] 3/min gives no whole number of tokens in 1s: a limit of the same rate, such as 100/min with {every: 1min}",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/day\ntime_zone: UTC\nopens: clock",
                &[
                    "[clock] `opens` and `time_zone` exclude each other: a calendar's days begin at midnight: one of the two",
                ],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 3s",
                &["[3s] `precision` 3s is longer than the window of 1s: a part of the window"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 5s\ncold_factor: 0.5",
                &[
                    "[0.5] with a `cold_factor` of 0.5 a cold start would be quicker than a warm one: a number from 1 on, such as 3",
                ],
            ),
            (
                "limit: 5/s\nrefill: {tokens: 5, every: 1s, evry: 2s}",
                &["[evry] `evry` is no field of `refill`: did you mean `every`?"],
            ),
            (
                "limit: 5/s\nburst_seconds: 5",
                &["[5] `token_bucket` has no `burst_seconds`: expected one of `rate`, `algorithm`, `burst`, `refill`"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 0s",
                &["[0s] precision 0: must be at least 1ns, as in `1s`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 0s",
                &["[5/s] warm-up 0ns: must be from 1µs to 292,000 years; for none at all, use the bursty limiter"],
            ),
        ],
        rule,
    );
}
