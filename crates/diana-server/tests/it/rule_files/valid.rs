//! Valid files, which every parser must accept: together they have every field and every kind of value.

/// Each is a whole file in YAML.
pub(crate) const VALID: &[&str] = &[
    include_str!("valid/design.yaml"),
    include_str!("valid/every_field.yaml"),
    include_str!("valid/algorithms.yaml"),
    include_str!("valid/matches.yaml"),
    "rules: []\n",
    "rules: [{name: a, limit: 5/s, count: {status: [401, 4xx, 500-504]}}, {name: b, total: 5, count: {status: 5xx, refund: true}}]\n",
    "version: 1\nrules: [{name: a, limit: 5/s}]\n",
    "{\"rules\": [{\"name\": \"a\", \"limit\": [\"5/s\", {\"rate\": \"100/h\", \"burst\": 7}], \"shadow\": true}]}\n",
    "remote: {from: redis://127.0.0.1/0?key=rules, format: json}\n",
    "remote: {from: 'https://config.example.com/rules.toml', token: t, poll: 5s, long_poll: 1min, timeout: 2s, keep: /var/lib/diana, format: toml}\nrules: []\n",
    "store: {memory: 64MiB, on_full: allow}\nrules: [{name: a, deny: 10.0.0.0/8}]\n",
    "services: {envoy: 127.0.0.1:8081, http: [127.0.0.1:8082, '[::1]:8082'], resp: {listen: 127.0.0.1:6380, password: p, tls: {certificate: c.pem, key: k.pem}}, workers: 2}\nrules: []\n",
    "rules: [{name: a, match: {domain: [shop, cart], descriptor: {plan: [free, 'trial-*'], key: }}, by: [descriptor(key), domain], limit: 5/s}, {name: b, match: {domain: shop, descriptor: [{plan: free}, key]}, by: [descriptor(key), domain], charges: a, cost: 2}]\n",
    "store: {redis: 'redis+cluster://a:1,b:2', lease: 100, when_down: deny}\nrules: [{name: a, total: 1_000, store: local}]\n",
];
