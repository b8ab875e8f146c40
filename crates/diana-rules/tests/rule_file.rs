//! Whole rule files: what is read, and what is told about what is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on should stop")]

use diana_rules::{Document, Registry, RuleFile};

fn read(text: &str) -> Result<RuleFile, String> {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, &Registry::default(), |_| None).map_err(|problems| problems.to_string())
}

/// The file of the design, word for word.
const DESIGN: &str = r#"
gateway:
  listen: 0.0.0.0:8080
  upstream: http://127.0.0.1:3000
  trusted_proxies: [10.0.0.0/8]       # whose X-Forwarded-For is believed; nobody's by default

admin:
  listen: 127.0.0.1:9090              # health, metrics, rules in force; never open to the world by default

identity:                             # where the standard keys come from
  account: header(x-account-id)       # header(x) cookie(x) query(x) jwt(claim) or cel("...")
  device: header(x-device-id)

store:                                # leave out: the counts live in this process
  redis: redis://127.0.0.1:6379       # rediss://, several nodes, redis+cluster://, redis+sentinel://
  timeout: 20ms
  when_down: local                    # local | allow | deny

remote:                               # rules from a configuration centre; they win over `rules` below
  from: etcd://127.0.0.1:2379/diana/rules     # http(s)://, etcd://, redis://

status: 503                           # what a refusal answers; each rule may say otherwise

rules:
  - name: everyone
    by: global
    limit: 10000/s

  - name: each-account
    by: account
    limit: [{rate: 100/s, burst: 200}, 20000/h]     # several at once, all or nothing
    overrides: { vip-7: 1000/s }
    status: 429

  - name: each-device
    by: device
    limit: 20/s
    algorithm: sliding_window
    buckets: 10

  - name: search
    by: resource                      # one count for each path
    match: { path: /search/**, method: [GET] }
    limit: 500/s
    algorithm: leaky_bucket
    burst: 50                         # wait in line, at most 50
    over: { divert: http://127.0.0.1:3001 }         # deny (default) | divert to another upstream

  - name: sms
    by: [account, ip]
    match: { path: /sms, when: 'request.headers["x-test"] != "1"' }
    limit: 1/min
    algorithm: fixed_window
    shadow: true                      # count and report, refuse nobody

  - name: uploads
    by: ip
    concurrent: 4
    wait: 2s                          # in line for a place; queue: n bounds the line

  - name: downloads
    by: ip                            # by: request limits each one on its own, as nginx's limit_rate
    bandwidth: 512KiB/s

  - name: overload
    by: global
    load: { cpu: 85%, memory: 90%, connections: 20000, traffic: 800MiB/s }
"#;

#[test]
fn the_file_of_the_design_is_good() {
    let file = read(DESIGN).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(file.rules.len(), 8);
    assert_eq!(file.rules[1].limits.len(), 2);
    assert_eq!(file.rules[1].status, 429);
    assert_eq!(file.rules[0].status, 503);
    assert_eq!(file.rules[6].bandwidth.as_ref().unwrap().rate.permits(), 512 << 10);
}
