//! Every field of the schema is applied at once or reported as waiting.

use super::*;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// A file that has every field.
const FULL: &str = "
version: 1
revision: 7
gateway:
  listen: 127.0.0.1:8080
  upstream: http://127.0.0.1:3000
  trusted_proxies: [10.0.0.0/8]
  tls: {listen: 127.0.0.1:8443, certificates: {certificate: a.pem, key: a.key}}
  upstream_ca: ca.pem
  routes: [{match: {path: /a}, upstream: http://127.0.0.1:3001}]
  echo: false
  proxy_protocol: false
  rate_limit_headers: ietf
  access_log: {format: text, file: access.log}
  signature: {secret: one-secret-of-the-signer, header: x-one, max_age: 1min}
  filters: [limits, signature, permissions]
  workers: 2
  timeouts: {header: 1s, body: 1s, idle: 1s, accept: 3s, connect: 1s, response: 1s, tunnel: 1s, drain: 1s, stop: 1s}
  bounds: {connections: 100, accept_queue: 10, backlog: 100, header: 16KiB, headers: 50, body: 1MiB, streams: 10, memory: 64MiB}
  paths: {escaped_slash: allow}
  methods: {any_case: deny}
  balance: round_robin
  health: /a
  retries: {attempts: 1}
services:
  envoy: {listen: 127.0.0.1:8081, tls: {certificate: a.pem, key: a.key}}
  resp: {listen: 127.0.0.1:6380, password: one, tls: {certificate: a.pem, key: a.key}}
  http: {listen: 127.0.0.1:8082, tls: {certificate: a.pem, key: a.key}}
  workers: 2
  bounds: {memory: 64MiB}
admin: {listen: 127.0.0.1:9090, token: one, tokens: [{name: a, token: two, role: read}], audit_log: audit.jsonl}
identity: {account: header(x-account)}
store:
  memory: 64MiB
  on_full: share
  redis: redis://127.0.0.1:6379
  prefix: one
  timeout: 10ms
  time: redis
  when_down: {local: share}
  lease: auto
  batching: true
  permits_for: 10s
  snapshot: counts
  snapshot_interval: 30s
remote:
  from: http://127.0.0.1:1234/rules
  token: one
  poll: 10s
  long_poll: 10s
  timeout: 1s
  keep: cache
  format: yaml
  when_down: last_good
log: info
log_keys: full
top_keys: on
status: 503
answer: {type: text/plain, text: slow down}
permissions: {default: allow, rules: []}
rules: [{name: a, limit: 5/s}]
";

/// Another value for each field; `null` removes it. A new field of the schema needs a line here.
const OTHER_VALUES: &[(&str, &str)] = &[
    ("version", "null"),
    ("revision", "8"),
    ("gateway.listen", "127.0.0.1:8079"),
    ("gateway.upstream", "http://127.0.0.1:3009"),
    ("gateway.trusted_proxies", "[10.0.0.0/9]"),
    ("gateway.tls.listen", "127.0.0.1:8444"),
    ("gateway.tls.certificates.certificate", "b.pem"),
    ("gateway.tls.certificates.key", "b.key"),
    ("gateway.upstream_ca", "other.pem"),
    ("gateway.routes", "[]"),
    ("gateway.echo", "true"),
    ("gateway.proxy_protocol", "true"),
    ("gateway.rate_limit_headers", "x"),
    ("gateway.access_log.format", "json"),
    ("gateway.access_log.file", "other.log"),
    ("gateway.signature.secret", "another-secret-of-the-signer"),
    ("gateway.signature.header", "x-two"),
    ("gateway.signature.max_age", "2min"),
    ("gateway.workers", "3"),
    ("gateway.timeouts.header", "2s"),
    ("gateway.timeouts.body", "2s"),
    ("gateway.timeouts.idle", "2s"),
    ("gateway.timeouts.accept", "2s"),
    ("gateway.timeouts.connect", "2s"),
    ("gateway.timeouts.response", "2s"),
    ("gateway.timeouts.tunnel", "2s"),
    ("gateway.timeouts.drain", "2s"),
    ("gateway.timeouts.stop", "2s"),
    ("gateway.bounds.connections", "101"),
    ("gateway.bounds.accept_queue", "11"),
    ("gateway.bounds.backlog", "101"),
    ("gateway.bounds.header", "17KiB"),
    ("gateway.bounds.headers", "51"),
    ("gateway.bounds.body", "2MiB"),
    ("gateway.bounds.streams", "11"),
    ("gateway.bounds.memory", "65MiB"),
    ("gateway.paths.escaped_slash", "deny"),
    ("gateway.methods.any_case", "allow"),
    ("gateway.balance", "least_requests"),
    ("gateway.filters", "[limits, permissions, signature]"),
    ("gateway.health", "/b"),
    ("gateway.retries", "{attempts: 2}"),
    ("services.envoy.listen", "127.0.0.1:8083"),
    ("services.envoy.tls.certificate", "b.pem"),
    ("services.envoy.tls.key", "b.key"),
    ("services.resp.listen", "127.0.0.1:6381"),
    ("services.resp.password", "two"),
    ("services.resp.tls.certificate", "b.pem"),
    ("services.resp.tls.key", "b.key"),
    ("services.http.listen", "127.0.0.1:8084"),
    ("services.http.tls.certificate", "b.pem"),
    ("services.http.tls.key", "b.key"),
    ("services.workers", "3"),
    ("services.bounds.memory", "65MiB"),
    ("admin.listen", "127.0.0.1:9091"),
    ("admin.token", "three"),
    ("admin.tokens", "[{name: a, token: two, role: operate}]"),
    ("admin.audit_log", "other.jsonl"),
    ("identity", "{account: header(x-other)}"),
    ("store.memory", "65MiB"),
    ("store.on_full", "deny"),
    ("store.redis", "redis://127.0.0.1:6378"),
    ("store.prefix", "two"),
    ("store.timeout", "11ms"),
    ("store.time", "local"),
    ("store.when_down.local", "full"),
    ("store.lease", "off"),
    ("store.batching", "false"),
    ("store.permits_for", "11s"),
    ("store.snapshot", "other"),
    ("store.snapshot_interval", "31s"),
    ("remote.from", "http://127.0.0.1:1235/rules"),
    ("remote.token", "two"),
    ("remote.poll", "11s"),
    ("remote.long_poll", "11s"),
    ("remote.timeout", "2s"),
    ("remote.keep", "other"),
    ("remote.format", "toml"),
    ("remote.when_down", "local"),
    ("log", "warn"),
    ("log_keys", "hashed"),
    ("top_keys", "off"),
    ("status", "429"),
    ("answer", "{type: text/plain, text: slower}"),
    ("permissions", "{default: deny, rules: []}"),
    ("rules", "[]"),
];

/// Fields that can't have every value beside the others: the change with which a valid file has the other value.
const ALSO_REMOVED: &[(&str, &str)] = &[("remote.when_down", "remote.keep")];

fn settings_by(options: &ServeOptions, text: &str) -> Settings {
    let document = Document::new("diana.yaml", text);
    let file = options.file(&document).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Settings::new(options, &document, &file).unwrap()
}

fn settings(text: &str) -> Settings {
    settings_by(&ServeOptions::default(), text)
}

/// Compares a file that must be valid.
fn compare(settings: &Settings, text: &str) -> SettingsStatus {
    let document = Document::new("diana.yaml", text);
    RuleFile::read(&document, &crate::registry()).unwrap_or_else(|problems| panic!("{problems}"));
    settings.compare(&document)
}

fn waiting(started: &str, now: &str) -> Vec<String> {
    compare(&settings(started), now).waiting
}

/// A document as JSON, which is also YAML.
fn json_of(node: &Node) -> Json {
    use diana_rules::document::Value;
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(text) => text.parse().map_or_else(|_| Json::String(text.clone()), Json::Number),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.node))).collect(),
    }
}

fn parsed(text: &str) -> Node {
    Document::new("value.yaml", text).parse().unwrap()
}

/// The full file with another value of a field.
fn changed(path: &str, value: &str) -> String {
    let set = |file: &Node, path: &str, value: &str| {
        let (path, value) = (path.split('.').collect::<Vec<_>>(), parsed(value));
        assert!(path.iter().try_fold(file, |node, key| tree::get(node, key)).is_some(), "{path:?} is not in FULL");
        tree::with(file, &path, tree::entries(Some(&value)).is_none_or(|map| !map.is_empty()).then_some(&value))
    };
    let also = ALSO_REMOVED.iter().filter(|(field, _)| *field == path);
    let file = also.fold(parsed(FULL), |file, (_, removed)| set(&file, removed, "null"));
    json_of(&set(&file, path, value)).to_string()
}

/// The paths of all fields of the schema, as deep as a field is a map, but not below live fields.
fn paths(schema: &Json, path: &str, leaves: &mut BTreeSet<String>) {
    let mut fields = Vec::new();
    maps(schema, &mut fields);
    if fields.is_empty() || is_live(path) {
        leaves.insert(path.to_owned());
        return;
    }
    for (name, schema) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        paths(schema, &path, leaves);
    }
}

/// The fields of a schema, in all of its forms that are maps.
fn maps<'a>(schema: &'a Json, fields: &mut Vec<(&'a String, &'a Json)>) {
    fields.extend(schema["properties"].as_object().into_iter().flatten());
    let forms = ["anyOf", "allOf"].into_iter().filter_map(|form| schema[form].as_array());
    forms.flatten().for_each(|form| maps(form, fields));
}

#[test]
fn every_field_of_the_schema_applies_at_once_or_is_reported_as_waiting() {
    let (mut fields, started) = (BTreeSet::new(), settings(FULL));
    paths(&diana_rules::schema::rule_file(&crate::registry()), "", &mut fields);
    let known = OTHER_VALUES.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(fields.symmetric_difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(LIVE_FIELDS.iter().all(|live| fields.contains(*live)));
    assert_eq!(compare(&started, FULL), SettingsStatus::default());
    for (path, value) in OTHER_VALUES {
        let status = compare(&started, &changed(path, value));
        let also = ALSO_REMOVED.iter().filter(|(field, _)| field == path).map(|(_, also)| *also);
        let mut expected = SettingsStatus::default();
        match is_live(path) {
            true if OF_RULES.contains(path) => {}
            true => expected.applied.push((*path).to_owned()),
            false => expected.waiting = std::iter::once(*path).chain(also).map(str::to_owned).collect(),
        }
        let sorted = |mut status: SettingsStatus| {
            status.waiting.sort_unstable();
            status
        };
        assert_eq!(sorted(status), sorted(expected), "{path}: {value}");
        assert_eq!(compare(&started, FULL), SettingsStatus::default(), "{path} changed back");
    }
}

#[test]
fn a_removed_field_waits_unless_it_had_its_default() {
    let defaults = [
        "admin.listen",
        "gateway.echo",
        "gateway.proxy_protocol",
        "gateway.rate_limit_headers",
        "gateway.access_log.format",
        "gateway.paths.escaped_slash",
        "gateway.methods.any_case",
        "remote.when_down",
    ];
    let (started, mut removed) = (settings(FULL), 0);
    for (path, _) in OTHER_VALUES.iter().filter(|(path, _)| !is_live(path)) {
        let without = tree::with(&parsed(FULL), &path.split('.').collect::<Vec<_>>(), None);
        let document = Document::new("diana.yaml", json_of(&without).to_string());
        // Some fields are required.
        let Ok(_) = RuleFile::read(&document, &crate::registry()) else { continue };
        removed += 1;
        let waiting = started.compare(&document).waiting;
        let expected = (!defaults.contains(path)).then(|| (*path).to_owned());
        assert_eq!(waiting, expected.into_iter().collect::<Vec<_>>(), "{path}");
    }
    assert!(removed > 40, "{removed}");
}

#[test]
fn another_spelling_of_the_same_value_does_not_wait() {
    let started = "{gateway: {listen: '127.0.0.1:80', timeouts: {body: 60s}}, rules: []}";
    for same in [
        "{gateway: {timeouts: {body: 1min}, listen: ['127.0.0.1:80']}, rules: []}",
        "{gateway: {timeouts: {body: 60s, header: 10s}, listen: '127.0.0.1:80', echo: false}, rules: []}",
        "{gateway: {listen: '127.0.0.1:80', timeouts: {body: 60s}}, admin: {listen: '127.0.0.1:9090'}, rules: []}",
    ] {
        assert_eq!(compare(&settings(started), same), SettingsStatus::default(), "{same}");
    }
}

#[test]
fn a_field_that_the_command_line_overrides_does_not_wait() {
    let options = ServeOptions::default().listen(vec!["127.0.0.1:1".parse().unwrap()]);
    let options = options.admin(Some("127.0.0.1:2".parse().unwrap()));
    let started = settings_by(&options, "{gateway: {listen: '127.0.0.1:80'}, rules: []}");
    let now = "{gateway: {listen: '127.0.0.1:81', workers: 1}, admin: {listen: '127.0.0.1:9'}, rules: []}";
    assert_eq!(compare(&started, now).waiting, ["gateway.workers"]);
}

#[test]
fn a_map_that_is_valid_only_as_a_whole_is_one_field() {
    let tls = "{gateway: {listen: '127.0.0.1:80', tls: {listen: '127.0.0.1:443', certificates: {certificate: a, key: b}}}, rules: []}";
    let plain = "{gateway: {listen: '127.0.0.1:80'}, rules: []}";
    assert_eq!(waiting(plain, tls), ["gateway.tls"]);
    assert_eq!(waiting(tls, plain), ["gateway.tls"]);
    let resp = "{gateway: {listen: '127.0.0.1:80'}, services: {resp: {listen: '127.0.0.1:1', password: a}}, rules: []}";
    assert_eq!(waiting(plain, resp), ["services.resp"]);
    assert_eq!(waiting(resp, plain), ["services.resp"]);
    assert_eq!(
        waiting(plain, "{gateway: {listen: '127.0.0.1:80', timeouts: {body: 5s}}, rules: []}"),
        ["gateway.timeouts.body"]
    );
}

#[test]
fn a_removed_gateway_waits_with_its_upstreams() {
    let started = "{gateway: {upstream: 'http://127.0.0.1:1', workers: 1}, rules: []}";
    let status = compare(&settings(started), "rules: []");
    assert_eq!(
        (status.waiting, status.applied.len()),
        (vec!["gateway.upstream".to_owned(), "gateway.workers".to_owned()], 0)
    );
    // A file with only services has no listener of its own, until it has a gateway.
    let services = "{services: {resp: '127.0.0.1:1'}, rules: []}";
    let both = "{services: {resp: '127.0.0.1:1'}, gateway: {upstream: 'http://127.0.0.1:1'}, rules: []}";
    let status = compare(&settings(services), both);
    assert_eq!((status.waiting, status.applied), (vec!["gateway".to_owned()], vec!["gateway.upstream".to_owned()]));
}

#[test]
fn an_address_and_the_token_that_it_needs_may_change_together() {
    let status = compare(&settings("rules: []"), "{admin: {listen: '0.0.0.0:9090', token: a}, rules: []}");
    assert_eq!((status.waiting, status.applied), (vec!["admin.listen".to_owned()], vec!["admin.token".to_owned()]));
}
