//! The problems of the sections of a file, for each field.

use crate::common::problems_of;

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(problems_of(&file(text)), *expected, "{text}");
    }
}

#[test]
fn only_version_1_is_supported() {
    check(
        &[
            (
                "version: 2",
                &[
                    "[2] unsupported rule file version `2`: this program supports version 1: use a newer program, or version 1",
                ],
            ),
            (
                "version: 0",
                &[
                    "[0] unsupported rule file version `0`: this program supports version 1: expected `version: 1`, or no version",
                ],
            ),
            (
                "version: '01'",
                &[
                    "['01'] unsupported rule file version `01`: this program supports version 1: expected `version: 1`, or no version",
                ],
            ),
            (
                "version: [1]",
                &[
                    "[[] unsupported rule file version a list: this program supports version 1: expected `version: 1`, or no version",
                ],
            ),
            ("status: 200", &["[200] invalid status `200`: expected a status from 400 to 599, such as 429 or 503"]),
            ("status: 600", &["[600] invalid status `600`: expected a status from 400 to 599, such as 429 or 503"]),
            (
                "status: []",
                &["[[] invalid status: found a list: expected a status from 400 to 599, such as 429 or 503"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn gateway_addresses_are_validated() {
    check(
        &[
            (
                "gateway: 8080",
                &[
                    "[8080] invalid `gateway`: expected a map, found a number: expected fields such as `listen`, `upstream`, `trusted_proxies`",
                ],
            ),
            (
                "gateway: {listen: 8080, upstream: http://127.0.0.1:3000}",
                &[
                    "[8080] invalid value `8080` for `listen`: expected an address and a port, such as 127.0.0.1:8080 or [::]:8080",
                ],
            ),
            (
                "gateway: {listen: [], upstream: []}",
                &["[[] `listen` is empty: expected at least one", "[[] `upstream` is empty: expected at least one"],
            ),
            (
                "gateway: {listen: '[::]:8080', upstream: 127.0.0.1:3000}",
                &[
                    "[127.0.0.1:3000] invalid value `127.0.0.1:3000` for `upstream`: expected a URL such as http://127.0.0.1:3000",
                ],
            ),
            (
                "gateway: {listen: 0.0.0.0:80, upstream: [http://a, https://b/c]}",
                &[
                    "[https://b/c] invalid value `https://b/c` for `upstream`: expected a scheme, a host and an optional port, such as http://127.0.0.1:3000",
                ],
            ),
            (
                "gateway: {listen: 0.0.0.0:80, upstream: http://a, trusted_proxies: [10.0.0.0/8, everyone]}",
                &["[everyone] invalid trusted proxy `everyone`: expected an address or a network, such as 10.0.0.0/8"],
            ),
            (
                "gateway: {lissen: 0.0.0.0:80, upstream: http://a}",
                &["[lissen] unknown `gateway` field `lissen`: did you mean `listen`?"],
            ),
            (
                "admin: {listen: localhost}",
                &[
                    "[localhost] invalid value `localhost` for `listen`: expected an address and a port, such as 127.0.0.1:8080 or [::]:8080",
                ],
            ),
            (
                "admin: {listen: 127.0.0.1:9090, password: x}",
                &[
                    "[password] unknown `admin` field `password`: expected one of `listen`, `token`, `tokens`, `audit_log`",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn store_problems() {
    check(
        &[
            (
                "store: redis://127.0.0.1:6379",
                &[
                    "[redis://127.0.0.1:6379] invalid `store`: expected a map, found a string: expected fields such as `memory`, `on_full`, `redis`",
                ],
            ),
            (
                "store: {redis: '127.0.0.1:6379'}",
                &[
                    "['127.0.0.1:6379'] invalid Redis address: expected redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            (
                "store: {redis: 'redis://'}",
                &[
                    "['redis://'] invalid Redis address: expected redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            (
                "store: {timeout: 20ms, lease: auto}",
                &[
                    "[timeout] `timeout` needs `redis`: add `redis: redis://127.0.0.1:6379`",
                    "[lease] `lease` needs `redis`: add `redis: redis://127.0.0.1:6379`",
                ],
            ),
            (
                "store: {redis: 'redis+cluster://,,'}",
                &[
                    "['redis+cluster://,,'] missing host in the Redis address: expected redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            (
                "store: {redis: redis://a, timeout: 0ms}",
                &["[0ms] `timeout` must be greater than 0: expected a time such as 20ms"],
            ),
            (
                "store: {redis: redis://a, timeout: 20}",
                &[
                    "[20] invalid value `20` for `timeout`: missing unit in `20`; expected one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            (
                "store: {redis: redis://a, when_down: locl}",
                &["[locl] invalid value `locl` for `when_down`: did you mean `local`?"],
            ),
            (
                "store: {redis: redis://a, lease: sometimes}",
                &["[sometimes] invalid value `sometimes` for `lease`: expected `off`, `auto` or a number such as 100"],
            ),
            (
                "store: {redis: redis://a, lease: 0}",
                &["[0] invalid value `0` for `lease`: expected a whole number from 1 to 9007199254740992"],
            ),
            (
                "store: {redis: redis://a, batching: on}",
                &["[on] invalid value `on` for `batching`: expected true or false"],
            ),
            (
                "store: {redis: redis://a, prefix: 'x{y}'}",
                &[
                    "['x{y}'] invalid value `x{y}` for `prefix`: expected a text without `{` and `}`, which would put all keys of a cluster on one node",
                ],
            ),
            (
                "store: {redis: redis://a, permits_for: 0s}",
                &["[0s] `permits_for` must be greater than 0: expected a time such as 20ms"],
            ),
            (
                "store: {redis: redis://a, tiemout: 5ms}",
                &["[tiemout] unknown `store` field `tiemout`: did you mean `timeout`?"],
            ),
            (
                "store: {memory: 64}",
                &[
                    "[64] invalid value `64` for `memory`: missing unit in `64`; expected one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            (
                "store: {memory: 64MiB, on_full: drop}",
                &["[drop] invalid value `drop` for `on_full`: expected one of `share`, `deny`, `allow`"],
            ),
            (
                "store: {snapshot_interval: 10s}",
                &["[snapshot_interval] `snapshot_interval` needs `snapshot`: add `snapshot: /var/lib/diana/counts`"],
            ),
            (
                "store: {snapshot: counts, snapshot_interval: 0s}",
                &["[0s] `snapshot_interval` must be greater than 0: expected a time such as 20ms"],
            ),
            (
                "store: {snapshot: ''}",
                &["[''] invalid value `` for `snapshot`: expected the path of a file such as /var/lib/diana/counts"],
            ),
            (
                "store: {snapshot: /var/lib/diana/}",
                &[
                    "[/var/lib/diana/] invalid value `/var/lib/diana/` for `snapshot`: expected the path of a file, not of a folder",
                ],
            ),
            ("store: {memory: }", &["[memory] missing value for `memory`: add a value, or remove it"]),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn remote_problems() {
    check(
        &[
            (
                "remote: etcd://a/b",
                &[
                    "[etcd://a/b] invalid `remote`: expected a map, found a string: expected fields such as `from`, `token`, `poll`",
                ],
            ),
            ("remote: {}", &["[{] missing `from` in `remote`"]),
            (
                "remote: {from: ftp://a}",
                &[
                    "[ftp://a] invalid config server URL: expected http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: 'http://'}",
                &[
                    "['http://'] invalid config server URL: expected http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: etcd://a/b, poll: 5s, long_poll: 1min}",
                &[
                    "[poll] `poll` needs an HTTP config server: remove it; changes on etcd and Redis are pushed",
                    "[long_poll] `long_poll` needs an HTTP config server: remove it; changes on etcd and Redis are pushed",
                ],
            ),
            (
                "remote: {from: http://a, poll: 0s}",
                &["[0s] `poll` must be greater than 0: expected a time such as 20ms"],
            ),
            (
                "remote: {from: etcd://a}",
                &[
                    "[etcd://a] invalid config server URL: missing key: expected http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: http://a, token: \"x\\ny\"}",
                &["[…] invalid `token`: it cannot be sent in a header: expected a text on one line"],
            ),
            (
                "remote: {from: http://a, when_down: lokal}",
                &["[lokal] invalid value `lokal` for `when_down`: did you mean `local`?"],
            ),
            (
                "remote: {from: http://a, when_down: local, keep: /tmp}",
                &["[/tmp] `keep` has no effect with `when_down: local`: remove it, or write `when_down: last_good`"],
            ),
            ("remote: {from: http://a, token: [x]}", &["[…] invalid `token`: expected a string, found a list"]),
            (
                "remote: {from: http://a, format: xml}",
                &["[xml] invalid value `xml` for `format`: expected one of `yaml`, `json`, `toml`"],
            ),
            (
                "remote: {from: http://a, formt: yaml}",
                &["[formt] unknown `remote` field `formt`: did you mean `format`?"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn rules_must_be_a_list_of_maps() {
    check(
        &[
            (
                "rules: {}",
                &["[{] invalid `rules`: expected a list, found a map: expected rules that start with `- name: ...`"],
            ),
            (
                "rules: 5",
                &["[5] invalid `rules`: expected a list, found a number: expected rules that start with `- name: ...`"],
            ),
            (
                "rules: [5]",
                &["[5] invalid rule: expected a map, found a number: expected fields such as `name`, `by`, `match`"],
            ),
            ("rules:", &["[rules] missing value for `rules`: add a value, or remove it"]),
            (
                "rules: [{}]",
                &[
                    "[{] missing `name` in rule",
                    "[{] this rule has no limit: add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            ("ruls: []", &["[ruls] unknown rule file field `ruls`: did you mean `rules`?"]),
            ("{}", &["[{] missing `rules` in rule file"]),
            (
                "5",
                &[
                    "[5] invalid rule file: expected a map, found a number: expected fields such as `version`, `revision`, `gateway`",
                ],
            ),
            (
                "- a",
                &[
                    "[-] invalid rule file: expected a map, found a list: expected fields such as `version`, `revision`, `gateway`",
                ],
            ),
        ],
        str::to_owned,
    );
}

#[test]
fn passwords_are_redacted() {
    for text in [
        "store:\n  redis: redis//:hunter2@10.0.0.7:6379\nrules: []\n",
        "store: {redis: ':hunter2@10.0.0.7:6379', timeout: 5}\nrules: []\n",
        "remote: {from: 'ftp://me:hunter2@config.example.com/rules', token: hunter2, polll: 5s}\nrules: []\n",
        "identity: {jwt: {secret: hunter2, algorithm: RS256, leway: 5s}}\nrules: []\n",
        "gateway: {upstream: 'http://me:hunter2@10.0.0.1'}\nrules: []\n",
        "gateway: {signature: {secret: hunter2, headr: x}}\nrules: []\n",
        "admin: {listen: [0.0.0.0:1], token: hunter2, lisen: 5}\nrules: []\n",
        "remote:\n  token: \"hunter2\" x\nrules: []\n",
        "admin: {tokens: [{name: a, token: hunter2, role: read}, {name: b, token: hunter2, role: read}]}\nrules: []\n",
    ] {
        let document = diana_rules::Document::new("diana.yaml", text);
        let problems = diana_rules::RuleFile::read(&document, &diana_server::registry());
        let problems = problems.err().unwrap_or_else(|| panic!("{text}"));
        assert!(!problems.to_string().contains("hunter2") && problems.to_string().contains('…'), "{problems}");
        assert!(!format!("{problems:?} {document:?}").contains("hunter2"), "{problems:?} {document:?}");
    }
    assert_eq!(
        crate::common::read("store: {redis: ':hunter2@10.0.0.7', timeout: 5}\nrules: []\n").err().unwrap_or_default(),
        "\
diana.yaml:1:16: invalid Redis address
  1 | store: {redis: …, timeout: 5}
    |                ^ expected redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name
diana.yaml:1:46: invalid value `5` for `timeout`
  1 | store: {redis: …, timeout: 5}
    |                            ^ missing unit in `5`; expected one of ns, us, ms, s, min, h, day, week or month
"
    );
}

#[test]
fn identity_problems() {
    check(
        &[
            ("identity: {account: }", &["[account] missing value for `account`: add a value, or remove it"]),
            ("identity: {account: header(x), jwt: }", &["[jwt] missing value for `jwt`: add a value, or remove it"]),
            (
                "identity: {jwt: {secret: }}",
                &[
                    "[{] missing key to verify tokens with: add one of `secret`, `public_key` and `verify: false`",
                    "[secret] missing value for `secret`: add a value, or remove it",
                ],
            ),
            (
                "identity: {tenant: 'cel(\"request.hots\")'}",
                &["[.hots] unknown request field `hots`: did you mean `host`?"],
            ),
            (
                "identity: {tenant: 'cel(\"request.params.id\")'}",
                &[
                    "['cel(\"request.params.id\")'] `param(id)` is not available in `identity`: use `by: param(NAME)` in a rule",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn services_are_validated() {
    check(
        &[
            (
                "services: 8081",
                &[
                    "[8081] invalid `services`: expected a map, found a number: expected fields such as `envoy`, `resp`, `http`",
                ],
            ),
            ("services: {envoi: 127.0.0.1:8081}", &["[envoi] unknown `services` field `envoi`: did you mean `envoy`?"]),
            (
                "services: {envoy: localhost}",
                &[
                    "[localhost] invalid value `localhost` for `listen`: expected an address and a port, such as 127.0.0.1:8080 or [::]:8080",
                ],
            ),
            ("services: {envoy: {tls: {certificate: a, key: b}}}", &["[tls] missing `listen` in service"]),
            (
                "services: {envoy: {listen: 127.0.0.1:8081, password: p}}",
                &["[p] `password` is not supported by `envoy`: remove it; only `resp` has a password"],
            ),
            (
                "services: {resp: {listen: 127.0.0.1:8081, password: ''}}",
                &["[''] `password` is empty: remove it, or use another one"],
            ),
            (
                "services: {envoy: 127.0.0.1:8081, http: 127.0.0.1:8081}",
                &["[{] two services listen on 127.0.0.1:8081: use another address for one of them"],
            ),
            (
                "services: {workers: 0}",
                &["[0] invalid value `0` for `workers`: expected a whole number from 1 to 1024"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}
