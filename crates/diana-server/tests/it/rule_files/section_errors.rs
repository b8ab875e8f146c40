//! The problems of the sections of a file, for each field.

use crate::common::told;

/// Checks the exact problems: the marked text, the problem and the expected value.
fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(told(&file(text)), *expected, "{text}");
    }
}

#[test]
fn there_is_one_version() {
    check(
        &[
            (
                "version: 2",
                &["[2] this program knows version 1 of the rule file, not `2`: a newer program, or version 1"],
            ),
            (
                "version: 0",
                &["[0] this program knows version 1 of the rule file, not `0`: `version: 1`, or no version"],
            ),
            (
                "version: '01'",
                &["['01'] this program knows version 1 of the rule file, not `01`: `version: 1`, or no version"],
            ),
            (
                "version: [1]",
                &["[[] this program knows version 1 of the rule file, not a list: `version: 1`, or no version"],
            ),
            ("status: 200", &["[200] a refusal can't answer `200`: a status from 400 to 599, such as 429 or 503"]),
            ("status: 600", &["[600] a refusal can't answer `600`: a status from 400 to 599, such as 429 or 503"]),
            ("status: []", &["[[] a refusal can't answer a list: a status from 400 to 599, such as 429 or 503"]),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn a_gateway_listens_and_asks_somebody() {
    check(
        &[
            (
                "gateway: 8080",
                &[
                    "[8080] `gateway` is a map, but this is a number: fields such as `listen`, `upstream`, `trusted_proxies`",
                ],
            ),
            (
                "gateway: {listen: 8080, upstream: http://127.0.0.1:3000}",
                &["[8080] `listen` can't be `8080`: an address and a port, as in 127.0.0.1:8080 or [::]:8080"],
            ),
            (
                "gateway: {listen: [], upstream: []}",
                &["[[] `listen` is empty: at least one", "[[] `upstream` is empty: at least one"],
            ),
            (
                "gateway: {listen: '[::]:8080', upstream: 127.0.0.1:3000}",
                &["[127.0.0.1:3000] `upstream` can't be `127.0.0.1:3000`: a URL such as http://127.0.0.1:3000"],
            ),
            (
                "gateway: {listen: 0.0.0.0:80, upstream: [http://a, https://b/c]}",
                &[
                    "[https://b/c] `upstream` can't be `https://b/c`: a scheme, a host and perhaps a port, as in http://127.0.0.1:3000",
                ],
            ),
            (
                "gateway: {listen: 0.0.0.0:80, upstream: http://a, trusted_proxies: [10.0.0.0/8, everyone]}",
                &["[everyone] a trusted proxy can't be `everyone`: an address or a network, such as 10.0.0.0/8"],
            ),
            (
                "gateway: {lissen: 0.0.0.0:80, upstream: http://a}",
                &["[lissen] `lissen` is no field of `gateway`: did you mean `listen`?"],
            ),
            (
                "admin: {listen: localhost}",
                &[
                    "[localhost] `listen` can't be `localhost`: an address and a port, as in 127.0.0.1:8080 or [::]:8080",
                ],
            ),
            (
                "admin: {listen: 127.0.0.1:9090, password: x}",
                &["[password] `password` is no field of `admin`: expected one of `listen`, `token`"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn a_store_is_in_memory_or_a_redis() {
    check(
        &[
            (
                "store: redis://127.0.0.1:6379",
                &[
                    "[redis://127.0.0.1:6379] `store` is a map, but this is a text: fields such as `memory`, `on_full`, `redis`",
                ],
            ),
            (
                "store: {redis: '127.0.0.1:6379'}",
                &[
                    "['127.0.0.1:6379'] this is no address of a Redis: redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            (
                "store: {redis: 'redis://'}",
                &[
                    "['redis://'] this is no address of a Redis: redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            (
                "store: {timeout: 20ms, lease: auto}",
                &[
                    "[timeout] `timeout` is about Redis, and there is none: `redis: redis://127.0.0.1:6379` beside it",
                    "[lease] `lease` is about Redis, and there is none: `redis: redis://127.0.0.1:6379` beside it",
                ],
            ),
            (
                "store: {redis: 'redis+cluster://,,'}",
                &[
                    "['redis+cluster://,,'] this address names no host: redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name",
                ],
            ),
            ("store: {redis: redis://a, timeout: 0ms}", &["[0ms] `timeout` can't be 0: a time such as 20ms"]),
            (
                "store: {redis: redis://a, timeout: 20}",
                &[
                    "[20] `timeout` can't be `20`: `20` has no unit; write one of ns, us, ms, s, min, h, day, week or month",
                ],
            ),
            (
                "store: {redis: redis://a, when_down: locl}",
                &["[locl] `when_down` can't be `locl`: did you mean `local`?"],
            ),
            (
                "store: {redis: redis://a, lease: sometimes}",
                &["[sometimes] `lease` can't be `sometimes`: `off`, `auto` or a number such as 100"],
            ),
            (
                "store: {redis: redis://a, lease: 0}",
                &["[0] `lease` can't be `0`: a whole number from 1 to 9007199254740992"],
            ),
            ("store: {redis: redis://a, batching: on}", &["[on] `batching` can't be `on`: true or false"]),
            (
                "store: {redis: redis://a, prefix: 'x{y}'}",
                &[
                    "['x{y}'] `prefix` can't be `x{y}`: a text without `{` and `}`, which would put all keys of a cluster on one node",
                ],
            ),
            ("store: {redis: redis://a, permits_for: 0s}", &["[0s] `permits_for` can't be 0: a time such as 20ms"]),
            (
                "store: {redis: redis://a, tiemout: 5ms}",
                &["[tiemout] `tiemout` is no field of `store`: did you mean `timeout`?"],
            ),
            (
                "store: {memory: 64}",
                &[
                    "[64] `memory` can't be `64`: `64` has no unit; write one of B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit",
                ],
            ),
            (
                "store: {memory: 64MiB, on_full: drop}",
                &["[drop] `on_full` can't be `drop`: expected one of `share`, `deny`, `allow`"],
            ),
            ("store: {memory: }", &["[memory] `memory` has no value: a value, or leave it out"]),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn a_remote_is_a_configuration_centre() {
    check(
        &[
            (
                "remote: etcd://a/b",
                &["[etcd://a/b] `remote` is a map, but this is a text: fields such as `from`, `token`, `poll`"],
            ),
            ("remote: {}", &["[{] `remote` has no `from`"]),
            (
                "remote: {from: ftp://a}",
                &[
                    "[ftp://a] this is no address of a config server: http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: 'http://'}",
                &[
                    "['http://'] this is no address of a config server: http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: etcd://a/b, poll: 5s, long_poll: 1min}",
                &[
                    "[poll] `poll` is for web servers; this one tells its news by itself: leave it out",
                    "[long_poll] `long_poll` is for web servers; this one tells its news by itself: leave it out",
                ],
            ),
            ("remote: {from: http://a, poll: 0s}", &["[0s] `poll` can't be 0: a time such as 20ms"]),
            (
                "remote: {from: etcd://a}",
                &[
                    "[etcd://a] this address names no key of the etcd: http(s)://host/path, etcd://host:2379/key or redis://host:6379",
                ],
            ),
            (
                "remote: {from: http://a, token: \"x\\ny\"}",
                &["[…] `token` can't be sent in a header: a text on one line"],
            ),
            (
                "remote: {from: http://a, when_down: lokal}",
                &["[lokal] `when_down` can't be `lokal`: did you mean `local`?"],
            ),
            (
                "remote: {from: http://a, when_down: local, keep: /tmp}",
                &[
                    "[/tmp] nothing is kept where the local rules apply instead: leave it out, or `when_down: last_good`",
                ],
            ),
            ("remote: {from: http://a, token: [x]}", &["[…] `token` is a text, but this is a list"]),
            (
                "remote: {from: http://a, format: xml}",
                &["[xml] `format` can't be `xml`: expected one of `yaml`, `json`, `toml`"],
            ),
            (
                "remote: {from: http://a, formt: yaml}",
                &["[formt] `formt` is no field of `remote`: did you mean `format`?"],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}

#[test]
fn rules_are_a_list_of_maps() {
    check(
        &[
            ("rules: {}", &["[{] `rules` is a list, but this is a map: rules, each with `- name: ...` in front"]),
            ("rules: 5", &["[5] `rules` is a list, but this is a number: rules, each with `- name: ...` in front"]),
            ("rules: [5]", &["[5] a rule is a map, but this is a number: fields such as `name`, `by`, `match`"]),
            ("rules:", &["[rules] `rules` has no value: a value, or leave it out"]),
            (
                "rules: [{}]",
                &[
                    "[{] a rule has no `name`",
                    "[{] this rule limits nothing: `limit: 100/s`, or `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`",
                ],
            ),
            ("ruls: []", &["[ruls] `ruls` is no field of a rule file: did you mean `rules`?"]),
            ("{}", &["[{] a rule file has no `rules`"]),
            ("5", &["[5] a rule file is a map, but this is a number: fields such as `version`, `revision`, `gateway`"]),
            ("- a", &["[-] a rule file is a map, but this is a list: fields such as `version`, `revision`, `gateway`"]),
        ],
        str::to_owned,
    );
}

#[test]
fn no_password_is_shown() {
    for text in [
        "store:\n  redis: redis//:hunter2@10.0.0.7:6379\nrules: []\n",
        "store: {redis: ':hunter2@10.0.0.7:6379', timeout: 5}\nrules: []\n",
        "remote: {from: 'ftp://me:hunter2@centre/rules', token: hunter2, polll: 5s}\nrules: []\n",
        "identity: {jwt: {secret: hunter2, algorithm: RS256, leway: 5s}}\nrules: []\n",
        "gateway: {upstream: 'http://me:hunter2@10.0.0.1'}\nrules: []\n",
        "gateway: {signature: {secret: hunter2, headr: x}}\nrules: []\n",
        "admin: {listen: [0.0.0.0:1], token: hunter2, lisen: 5}\nrules: []\n",
        "remote:\n  token: \"hunter2\" x\nrules: []\n",
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
diana.yaml:1:16: this is no address of a Redis
  1 | store: {redis: …, timeout: 5}
    |                ^ redis://127.0.0.1:6379, rediss://, redis+cluster://a:1,b:2 or redis+sentinel://a:1,b:2/name
diana.yaml:1:46: `timeout` can't be `5`
  1 | store: {redis: …, timeout: 5}
    |                            ^ `5` has no unit; write one of ns, us, ms, s, min, h, day, week or month
"
    );
}

#[test]
fn identity_says_where_each_name_comes_from() {
    check(
        &[
            ("identity: {account: }", &["[account] `account` has no value: a value, or leave it out"]),
            ("identity: {account: header(x), jwt: }", &["[jwt] `jwt` has no value: a value, or leave it out"]),
            (
                "identity: {jwt: {secret: }}",
                &[
                    "[{] `jwt` does not say how tokens are verified: one of `secret`, `public_key` and `verify: false`",
                    "[secret] `secret` has no value: a value, or leave it out",
                ],
            ),
            ("identity: {tenant: 'cel(\"request.hots\")'}", &["[.hots] a request has no `hots`: did you mean `host`?"]),
            (
                "identity: {tenant: 'cel(\"request.params.id\")'}",
                &[
                    "['cel(\"request.params.id\")'] `param(id)` is known to the rule whose path names it, and not to `identity`: `by: param(NAME)` in a rule",
                ],
            ),
        ],
        |text| format!("{text}\nrules: []\n"),
    );
}
