//! The problems of a rule's limits and keys, for each field.

use crate::common::{check, rule};

#[test]
fn reports_invalid_keys() {
    check(
        &[
            ("by: acount\ntotal: 1", &["[acount] unknown key `acount`: did you mean `account`?"]),
            ("by: header\ntotal: 1", &["[header] unknown key `header`: did you mean `header(NAME)`?"]),
            ("by: headr(x)\ntotal: 1", &["[headr(x)] unknown key `headr(x)`: did you mean `header(x)`?"]),
            ("by: header()\ntotal: 1", &["[header()] missing name in `header()`: expected `header(NAME)`"]),
            (
                "by: ip/129\ntotal: 1",
                &[
                    "[ip/129] invalid prefix length `ip/129`: expected ip/1 to ip/32, ip/33 to ip/128 for IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: ip/0\ntotal: 1",
                &[
                    "[ip/0] invalid prefix length `ip/0`: expected ip/1 to ip/32, ip/33 to ip/128 for IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: ip/33/48\ntotal: 1",
                &[
                    "[ip/33/48] invalid prefix length `ip/33/48`: expected ip/1 to ip/32, ip/33 to ip/128 for IPv6, or both as in ip/24/48",
                ],
            ),
            (
                "by: [ip, cel(\"a, b\")]\ntotal: 1",
                &[
                    "[cel(\"a] unterminated `cel(\"a`: put quotes around the whole value, as in 'cel(\"...\")'",
                    "[b\")] unknown key `b\")`: expected global, account, device, resource, ip, ip/24, host, method, domain, request, header(x), cookie(x), query(x), jwt(x), param(x), descriptor(x), cel(\"...\") or a name of `identity`",
                ],
            ),
            ("by: []\ntotal: 1", &["[[] `by` is empty: use `global` to count all requests together"]),
            ("by: [global, ip]\ntotal: 1", &["[global] `global` cannot be combined with other keys: remove it"]),
            ("by: [ip, ip]\ntotal: 1", &["[ip] duplicate key `ip`: remove one of the two"]),
            ("by: {ip: 24}\ntotal: 1", &["[{] invalid `by`: expected a string, found a map"]),
            (
                "by: planet\ntotal: 1",
                &[
                    "[planet] unknown key `planet`: expected global, account, device, resource, ip, ip/24, host, method, domain, request, header(x), cookie(x), query(x), jwt(x), param(x), descriptor(x), cel(\"...\") or a name of `identity`",
                ],
            ),
            ("by: true\ntotal: 1", &["[true] invalid `by`: expected a string, found a boolean"]),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_matches() {
    check(
        &[
            (
                "match: /a\ntotal: 1",
                &[
                    "[/a] invalid `match`: expected a map, found a string: expected fields such as `path`, `method`, `host`",
                ],
            ),
            ("match: {paht: /a}\ntotal: 1", &["[paht] unknown `match` field `paht`: did you mean `path`?"]),
            ("match: {path: a}\ntotal: 1", &["[a] invalid path `a`: expected a leading `/`, as in `/search/**`"]),
            (
                "match: {path: '/a?b'}\ntotal: 1",
                &["['/a?b'] path `/a?b` never matches: a path has no `?`: remove the query, and match it in `when`"],
            ),
            (
                "match: {path: []}\ntotal: 1",
                &["[[] `path` is empty, so this rule never applies: remove it to match all requests"],
            ),
            ("match: {path: [5, /b]}\ntotal: 1", &["[5] invalid path `5`: expected a leading `/`, as in `/search/**`"]),
            (
                "match: {method: get}\ntotal: 1",
                &["[get] method `get` never matches: methods are case-sensitive: did you mean `GET`?"],
            ),
            ("match: {method: GTE}\ntotal: 1", &["[GTE] invalid method `GTE`: did you mean `GET`?"]),
            ("match: {method: 'G T'}\ntotal: 1", &["['G T'] invalid method `G T`: did you mean `GET`?"]),
            (
                "match: {method: []}\ntotal: 1",
                &["[[] `method` is empty, so this rule never applies: remove it to match all requests"],
            ),
            (
                "match: {host: 'http://a'}\ntotal: 1",
                &["['http://a'] invalid host `http://a`: expected a name such as `api.example.com` or `*.example.com`"],
            ),
            (
                "match: {host: 'a:80'}\ntotal: 1",
                &[
                    "['a:80'] invalid host `a:80`: hosts are compared without a port: expected a name such as `api.example.com` or `*.example.com`",
                ],
            ),
            (
                "match: {header: x}\ntotal: 1",
                &[
                    "[x] invalid `header`: expected a map, found a string: expected values by name, such as {x-plan: free, x-kind: [a, b*]}",
                ],
            ),
            (
                "match: {header: {'x y': a}}\ntotal: 1",
                &["['x y'] invalid header name `x y`: expected a name such as x-plan"],
            ),
            (
                "match: {header: {x: []}}\ntotal: 1",
                &["[[] header `x` is empty, so this rule never applies: remove it to match all requests"],
            ),
            (
                "match: {ip: 10.0.0.0/33}\ntotal: 1",
                &[
                    "[10.0.0.0/33] invalid address or network `10.0.0.0/33`: expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
                ],
            ),
            ("match: {ip: }\ntotal: 1", &["[ip] missing value for `ip`: add a value, or remove it"]),
            ("match: {when: [a]}\ntotal: 1", &["[[] invalid `when`: expected a string, found a list"]),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_limits() {
    check(
        &[
            (
                "limit: {rate: 5/s, burst: 7}\nburst: 8",
                &["[8] duplicate `burst`: it is set in the limit and beside it: remove one of the two"],
            ),
            ("limit:", &["[limit] missing value for `limit`: add a value, or remove it"]),
            (
                "limit: 100",
                &["[100] invalid limit `100`: expected a count per time, such as `100/s`, `5/10min` or `1 per 200ms`"],
            ),
            (
                "limit: 0/s",
                &["[0/s] invalid limit `0/s`: permits 0: must be a whole number from 1 to 9007199254740992"],
            ),
            ("limit: -5/s", &["[-5/s] invalid limit `-5/s`: the count `-5` is not a whole number above 0"]),
            ("limit: 1.5/s", &["[1.5/s] invalid limit `1.5/s`: the count `1.5` is not exact; write `3/2s`"]),
            ("limit: 10r/s", &["[10r/s] invalid limit `10r/s`: did you mean `10/s`?"]),
            ("limit: 10 rps", &["[10 rps] invalid limit `10 rps`: did you mean `10/s`?"]),
            ("limit: 6r/m", &["[6r/m] invalid limit `6r/m`: did you mean `6/m`?"]),
            (
                "limit: 5 requests per hour",
                &["[5 requests per hour] invalid limit `5 requests per hour`: did you mean `5/hour`?"],
            ),
            ("limit: 1e3/s", &["[1e3/s] invalid limit `1e3/s`: the count `1e3` is not a whole number above 0"]),
            (
                "limit: 100/sec0nd",
                &[
                    "[100/sec0nd] invalid limit `100/sec0nd`: unknown unit of time `sec0nd`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            (
                "limit: 99999999999999999999/s",
                &[
                    "[99999999999999999999/s] invalid limit `99999999999999999999/s`: the count `99999999999999999999` is too large; expected at most 9007199254740992",
                ],
            ),
            (
                "limit: 18446744073709551615/s",
                &[
                    "[18446744073709551615/s] invalid limit `18446744073709551615/s`: permits 18446744073709551615: must be a whole number from 1 to 9007199254740992",
                ],
            ),
            ("limit: 5/0s", &["[5/0s] invalid limit `5/0s`: period 0: must be at least 1ns, as in `5/10min`"]),
            (
                "limit: 5/1.5s",
                &[
                    "[5/1.5s] invalid limit `5/1.5s`: `1.5s` is not a whole number of units; write `1500ms` for one and a half seconds",
                ],
            ),
            (
                "limit: 5/",
                &[
                    "[5/] invalid limit `5/`: missing unit in ``; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            (
                "limit: 5/s burst 0",
                &[
                    "[5/s burst 0] invalid limit `5/s burst 0`: burst 0: must be a whole number from 1 to 9007199254740992",
                ],
            ),
            (
                "limit: true",
                &[
                    "[true] invalid limit: found a boolean: expected 100/s, {rate: 100/s, burst: 200}, or a list of them",
                ],
            ),
            ("limit: []", &["[[] the list of limits is empty: expected a limit such as 100/s, or remove it"]),
            (
                "limit: [[5/s]]",
                &["[[] invalid limit: found a list: expected 100/s, {rate: 100/s, burst: 200}, or a list of them"],
            ),
            ("limit: {burst: 5}", &["[{] missing `rate` in limit: expected {rate: 100/s, burst: 200}"]),
            ("limit: {rate: 5/s, burts: 5}", &["[burts] unknown limit field `burts`: did you mean `burst`?"]),
            ("limit: {rate: 5/s, burst: }", &["[burst] missing value for `burst`: add a value, or remove it"]),
            (
                "limit: {rate: 5/s, burst: 0}",
                &["[0] invalid value `0` for `burst`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: {rate: 5/s, burst: 5.5}",
                &["[5.5] invalid value `5.5` for `burst`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: {rate: 5/s, algorithm: token}",
                &[
                    "[token] unknown algorithm `token`: expected one of `fixed_window`, `leaky_bucket`, `sliding_log`, `sliding_window`, `smooth_bursty`, `smooth_warming_up`, `token_bucket`",
                ],
            ),
            (
                "limit: {rate: 5/s, algorithm: tokn_bucket}",
                &["[tokn_bucket] unknown algorithm `tokn_bucket`: did you mean `token_bucket`?"],
            ),
            (
                "limit: 5/s\nburst: lots",
                &["[lots] invalid value `lots` for `burst`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "limit: [5/s, 5/h]\nburst: 7\nalgorithm: sliding_log",
                &[
                    "[7] `burst` is ambiguous beside several limits: move it into a limit, such as {rate: 100/s, burst: ...}",
                    "[sliding_log] `algorithm` is ambiguous beside several limits: move it into a limit, such as {rate: 100/s, algorithm: ...}",
                ],
            ),
            (
                "every: 5",
                &[
                    "[5] invalid value `5` for `every`: missing unit in `5`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("every: 0s", &["[0s] interval 0: must be at least 1ns, as in `every 200ms`"]),
            (
                "every: 200 ms\nburst: 5\nalgorithm: fixed_window",
                &[
                    "[5] `burst` needs a `limit`: add a `limit`, such as `limit: 100/s`",
                    "[fixed_window] `algorithm` needs a `limit`: add a `limit`, such as `limit: 100/s`",
                ],
            ),
            (
                "every: soon",
                &[
                    "[soon] invalid value `soon` for `every`: unknown unit of time `soon`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("total: 0", &["[0] invalid value `0` for `total`: expected a whole number from 1 to 9007199254740992"]),
            ("total: -1", &["[-1] invalid value `-1` for `total`: expected a whole number from 1 to 9007199254740992"]),
            (
                "total: many",
                &["[many] invalid value `many` for `total`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "concurrent: 0",
                &["[0] invalid value `0` for `concurrent`: expected a whole number from 1 to 9007199254740992"],
            ),
            ("concurrent: adaptve", &["[adaptve] invalid value `adaptve` for `concurrent`: did you mean `adaptive`?"]),
            ("concurrent: {}", &["[{] missing `limit` in `concurrent`"]),
            (
                "concurrent: []",
                &["[[] invalid `concurrent`: found a list: expected a whole number from 1 to 9007199254740992"],
            ),
            ("limit: {rte: 5/s}", &["[rte] unknown limit field `rte`: did you mean `rate`?"]),
            (
                "limit: 5/h\nalgorithm: fixed_window\nburst: 5",
                &[
                    "[5] `fixed_window` has no option `burst`: expected one of `rate`, `algorithm`, `opens`, `time_zone`",
                ],
            ),
        ],
        rule,
    );
}

#[test]
fn reports_invalid_algorithm_options() {
    check(
        &[
            (
                "limit: {rate: 5/s, buckets: 5}",
                &[
                    "[buckets] `token_bucket` has no option `buckets`: expected one of `rate`, `algorithm`, `burst`, `refill`",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s burst 7",
                &[
                    "[5/s burst 7] `fixed_window` does not support a burst: remove the burst, or use an algorithm with one, such as `token_bucket`",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s\nopens: sometime",
                &["[sometime] invalid value `sometime` for `opens`: expected one of `clock`, `first_request`"],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/s\ntime_zone: Europe/Berlin",
                &[
                    "[5/s] `time_zone` needs a limit per day, week or month, found 5/s: use a limit such as 1000/day, or remove `time_zone`",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/day\ntime_zone: Mars/Base",
                &["[Mars/Base] unknown time zone `Mars/Base`; expected an IANA name such as `Europe/Berlin` or `UTC`"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nbuckets: 0",
                &["[0] invalid value `0` for `buckets`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nbuckets: 3000000",
                &["[3000000] buckets 3000000: must be a whole number from 1 to 131072"],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 100ms\nbuckets: 10",
                &["[100ms] `buckets` and `precision` cannot be used together: remove one of the two"],
            ),
            (
                "algorithm: leaky_bucket\nlimit: 5/s burst 5",
                &[
                    "[5/s burst 5] the burst of a leaky bucket is its queue length, and not part of the rate: expected {rate: 100/s, algorithm: leaky_bucket, burst: 50}",
                ],
            ),
            (
                "algorithm: leaky_bucket\nlimit: 5/s\ndelay: 5\nnodelay: true",
                &["[true] `nodelay` and `delay` cannot be used together: remove one of the two"],
            ),
            (
                "algorithm: leaky_bucket\nlimit: 5/s\nnodelay: yes",
                &["[yes] invalid value `yes` for `nodelay`: expected true or false"],
            ),
            (
                "algorithm: smooth_bursty\nlimit: 5/s\nburst_seconds: -1",
                &["[-1] invalid value `-1` for `burst_seconds`: expected a number such as 3 or 2.5"],
            ),
            (
                "algorithm: smooth_bursty\nlimit: 5/s\nstarts: half",
                &["[half] invalid value `half` for `starts`: expected one of `full`, `empty`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s",
                &["[5/s] `smooth_warming_up` needs a `warm_up`: add the warm-up time, such as `warm_up: 10s`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 5",
                &[
                    "[5] invalid value `5` for `warm_up`: missing unit in `5`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            ("algorithm: [a]\nlimit: 5/s", &["[[] invalid `algorithm`: expected a string, found a list"]),
            (
                "limit: 5/s\nrefill: 5",
                &["[5] invalid `refill`: expected a map, found a number: expected fields such as `tokens`, `every`"],
            ),
            ("limit: 5/s\nrefill: {tokens: 5}", &["[{] missing `every` in `refill`"]),
            (
                "limit: 100/s\nburst: 7\nrefill: {tokens: 5, every: 10s}",
                &[
                    "[{] `refill` of 5 per 10s does not match the limit 100/s: use {every: 10s}, which adds 1000 at once, or a limit of the same rate",
                ],
            ),
            (
                "limit: 1/min\nrefill: {tokens: 1, every: 1s}",
                &[
                    "[{] `refill` of 1 per 1s does not match the limit 1/min: expected a limit of the same rate, such as 100/min with {every: 1min}",
                ],
            ),
            (
                "limit: 3/min\nrefill: {every: 1s}",
                &[
                    "[3/min] 3/min is not a whole number of tokens per 1s: expected a limit of the same rate, such as 100/min with {every: 1min}",
                ],
            ),
            (
                "algorithm: fixed_window\nlimit: 5/day\ntime_zone: UTC\nopens: clock",
                &[
                    "[clock] `opens` and `time_zone` cannot be used together: calendar days start at midnight: remove one of the two",
                ],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 3s",
                &["[3s] `precision` 3s is longer than the window of 1s: expected a part of the window"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 5s\ncold_factor: 0.5",
                &[
                    "[0.5] `cold_factor` 0.5 is out of range: a cold start would be faster than a warm one: expected a number of at least 1, such as 3",
                ],
            ),
            (
                "limit: 5/s\nrefill: {tokens: 5, every: 1s, evry: 2s}",
                &["[evry] unknown `refill` field `evry`: did you mean `every`?"],
            ),
            (
                "limit: 5/s\nburst_seconds: 5",
                &[
                    "[5] `token_bucket` has no option `burst_seconds`: expected one of `rate`, `algorithm`, `burst`, `refill`",
                ],
            ),
            (
                "algorithm: sliding_window\nlimit: 5/s\nprecision: 0s",
                &["[0s] precision 0: must be at least 1ns, as in `1s`"],
            ),
            (
                "algorithm: smooth_warming_up\nlimit: 5/s\nwarm_up: 0s",
                &["[5/s] warm-up 0ns: must be from 1µs to 292,000 years; for no warm-up, use the bursty limiter"],
            ),
        ],
        rule,
    );
}
