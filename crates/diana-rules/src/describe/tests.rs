//! Descriptions of every algorithm and every option.
#![allow(clippy::panic, reason = "a test that can't go on should stop")]

mod bucket_rates;

use super::*;
use crate::{Document, Registry, RuleFile};
use diana_core::{
    Algorithm, Cost, MaxWait, Outcome, Quota, Receipt, Refund, Status, Timestamp, Total, TotalState, WaitMode,
};

fn file(text: &str, registry: &Registry) -> RuleFile {
    let read = RuleFile::read_with(&Document::new("diana.yaml", text), registry, |_| None);
    read.unwrap_or_else(|problems| panic!("{problems}"))
}

fn described(rule: &str) -> RuleDescription {
    let store = if rule.contains("store: ") { "" } else { "store: local, " };
    let text = format!(
        "identity: {{jwt: {{verify: false}}}}\nstore: {{redis: redis://a}}\nrules: [{{name: a, {store}{rule}}}]"
    );
    super::rule(&file(&text, &Registry::default()).rules[0])
}

#[test]
fn describes_each_algorithm() {
    for (rule, limit) in [
        ("limit: 100/s", "100 a second, up to 100 at once: at most 200 in any second"),
        ("limit: 5/min", "5 a minute, up to 5 at once: at most 10 in any minute"),
        ("limit: 100/s burst 200", "100 a second, up to 200 at once: at most 300 in any second"),
        (
            "limit: [{rate: 100/s, burst: 200}, 20000/h]",
            "100 a second, up to 200 at once: at most 300 in any second, and 20000 an hour, up to 20000 at once: at most \
             40000 in any hour",
        ),
        ("limit: 5/10min", "5 in 10 minutes, up to 5 at once: at most 10 in any 10 minutes"),
        ("limit: 1 per 200ms", "1 in 200ms, up to 1 at once: at most 2 in any 200ms"),
        ("limit: 7/month", "7 a month, up to 7 at once: at most 14 in any month"),
        (
            "limit: 100/min burst 7, refill: {tokens: 100, every: 1min}",
            "100 more every minute, up to 7 at once: at most 14 in any minute",
        ),
        ("limit: 5/s, refill: {every: 1min}", "300 more every minute, up to 300 at once: at most 600 in any minute"),
        ("limit: 500/s, algorithm: leaky_bucket", "one every 2ms"),
        ("limit: 500/s, algorithm: leaky_bucket, burst: 50", "one every 2ms, 50 may be queued"),
        (
            "limit: 1/min, algorithm: leaky_bucket, burst: 5, nodelay: true",
            "one every minute, 5 more at once: at most 7 in any minute",
        ),
        (
            "limit: 3/s, algorithm: leaky_bucket, burst: 50, delay: 8",
            "3 a second, evenly, 50 may be queued, the first 8 of them without delay: at most 12 in any second",
        ),
        ("limit: 1/min, algorithm: fixed_window", "1 in each minute by the clock; up to twice that across an edge"),
        (
            "limit: 1/min, algorithm: fixed_window, opens: first_request",
            "1 in each minute from the first request; up to twice that across an edge",
        ),
        (
            "limit: 9/day, algorithm: fixed_window, time_zone: Europe/Berlin",
            "9 in each day of Europe/Berlin; up to twice that across an edge",
        ),
        (
            "limit: 9/week, algorithm: fixed_window, time_zone: UTC",
            "9 in each week, from Monday on, of UTC; up to twice that across an edge",
        ),
        (
            "limit: 20/s, algorithm: sliding_window",
            "20 in a sliding second, in steps of 100ms; up to twice that across an edge",
        ),
        (
            "limit: 20/5min, algorithm: sliding_window, buckets: 5, edge: weighted",
            "20 in a sliding 5 minutes, in steps of 1 minute, the oldest in proportion",
        ),
        ("limit: 20/s, algorithm: sliding_window, edge: strict", "at most 20 in any second, in steps of 100ms"),
        ("limit: 5/min, algorithm: sliding_log", "at most 5 in any minute"),
        (
            "limit: 5/s, algorithm: smooth_bursty, burst_seconds: 2.5, starts: empty",
            "5 a second, evenly; unused permits are saved for 2.5 s, starts empty, up to 13 at once: at most 18 in any second",
        ),
        (
            "limit: 5/s, algorithm: smooth_warming_up, warm_up: 10s",
            "5 a second, evenly; 3 times slower after a pause, warm after 10 seconds",
        ),
        ("every: 200ms", "at least 200ms apart"),
        ("total: 1000", "1000 in total, until reset"),
        ("concurrent: 4", "4 at a time"),
        ("concurrent: {limit: 5}", "5 at a time"),
        ("concurrent: {limit: 4, burst: 8, delay: 200ms}", "4 at a time, 8 more after a delay (200ms at first)"),
        ("concurrent: adaptive", "an adaptive number at a time, by response latency"),
        ("bandwidth: 512KiB/s", "responses at 512 KiB a second"),
        ("bandwidth: 100Mbit/s", "responses at 12.5 MB a second"),
        (
            "bandwidth: {rate: 1000B/s, burst: 1MiB, after: 10MiB, of: both}",
            "requests and responses together at 1 kB a second (1 MiB at once), after the first 10 MiB of each",
        ),
        (
            "load: {cpu: 85%, memory: 99.5%, connections: 20000, traffic: 800MiB/s}",
            "load of this machine: CPU up to 85%, memory up to 99.5%, up to 20000 connections, 800 MiB a second of traffic",
        ),
        ("deny: 10.0.0.1", "no limit, only denied keys"),
    ] {
        assert_eq!(described(rule).limit, limit, "{rule}");
    }
}

#[test]
fn describes_each_key() {
    for (by, key) in [
        ("global", "everyone together"),
        ("account", "each account"),
        ("ip", "each address or IPv6 /64"),
        ("ip/24", "each /24 network or IPv6 /64"),
        ("ip/56", "each address or IPv6 /56"),
        ("ip/128", "each address"),
        ("ip/24/48", "each /24 network or IPv6 /48"),
        ("resource", "each path"),
        ("[account, ip]", "each combination of account and address or IPv6 /64"),
        ("[header(X-Key), cookie(c), query(q)]", "each combination of header x-key, cookie c and query parameter q"),
        ("jwt(sub)", "each sub of the token"),
        ("'param(id)'", "each {id} of the path"),
        ("'cel(\"request.path\")'", "each value of `request.path`"),
    ] {
        let mut rule = format!("by: {by}, total: 1");
        if by.contains("param") {
            rule.push_str(", match: {path: '/users/{id}'}");
        }
        assert_eq!(described(&rule).key, key, "{by}");
    }
    assert_eq!(described("by: request, bandwidth: 5B/s").key, "each request on its own");
}

#[test]
fn describes_the_handling_over_the_limit() {
    for (rule, over_limit) in [
        ("limit: 5/s", "denied with 503"),
        ("limit: 5/s, status: 429", "denied with 429"),
        ("limit: 5/s, wait: 2s", "waits at most 2 seconds, then denied with 503"),
        ("limit: 5/s, wait: 2s, queue: 50", "queued (at most 50), waits at most 2 seconds, then denied with 503"),
        ("limit: 5/s, over: {reroute: 'http://b:1'}", "rerouted to http://b:1"),
        ("limit: 5/s, over: {divert: 'http://b:1'}", "rerouted to http://b:1"),
        ("limit: 5/s, answer: {type: a/b, text: c}", "denied with 503 and a custom response"),
        ("limit: 5/s, shadow: true", "only reported (shadow)"),
        ("bandwidth: 5B/s", "throttled"),
        ("by: account, missing: deny", "denied with 503"),
        ("limit: 5/s, match: {domain: edge}", "denied with 429"),
        ("limit: 5/s, match: {descriptor: {plan: free}}, status: 503", "denied with 429"),
    ] {
        assert_eq!(described(rule).over_limit, over_limit, "{rule}");
    }
}

#[test]
fn describes_other_settings_as_notes() {
    let notes = |rule: &str| described(rule).notes;
    assert_eq!(notes("limit: 5/s"), [""; 0]);
    assert_eq!(notes("concurrent: {limit: 5, until: client_left}"), [""; 0]);
    let log = "`algorithm: sliding_log`, or `sliding_window` with `edge: strict`";
    for (limit, settings) in [
        ("algorithm: fixed_window", Some(log)),
        ("algorithm: fixed_window, opens: first_request", Some(log)),
        ("algorithm: sliding_window", Some(log)),
        ("algorithm: sliding_window, edge: strict", None),
        ("algorithm: sliding_window, edge: weighted", None),
        ("algorithm: sliding_log", None),
    ] {
        let advice = settings.map(|settings| format!("{settings} never allows more than the limit across an edge"));
        assert_eq!(notes(&format!("limit: 5/s, {limit}")), advice.into_iter().collect::<Vec<_>>(), "{limit}");
    }
    assert_eq!(notes("limit: 5/day, algorithm: fixed_window, time_zone: UTC"), [""; 0]);
    let held = "a permit is held until the upstream has responded, even if the client disconnects";
    assert_eq!(notes("concurrent: {limit: 5, until: upstream_done}"), [held]);
    let own = "by: ip, concurrent: 5, overrides: {10.0.0.7: {concurrent: {limit: 9, until: upstream_done}}}";
    assert_eq!(notes(own), [held, "10.0.0.7 has 9 at a time"]);
    assert_eq!(
        notes(
            "by: account, limit: 5/s, cost: 5, allow: [10.0.0.0/8, vip], deny: bad, overrides: {vip: 7/s, big: [9/s, 8/h]}, missing: deny, store: shared"
        ),
        [
            "each request costs 5",
            "not counted: 10.0.0.0/8, vip",
            "always denied: bad",
            "vip has 7 a second, up to 7 at once: at most 14 in any second; \
             big has 9 a second, up to 9 at once: at most 18 in any second, and 8 an hour, up to 8 at once: at most \
             16 in any hour",
            "requests without account are denied",
            "counted for all instances together",
        ]
    );
    assert_eq!(
        notes("by: ip, total: 5, overrides: {'2001:db8::7': {total: 7}, 10.0.0.7: {total: 9}}"),
        ["2001:db8::/64 has 7 in total, until reset; 10.0.0.7 has 9 in total, until reset"]
    );
    assert_eq!(notes("by: [ip, device], total: 5"), ["requests without device are not limited by this rule"]);
    assert_eq!(notes("by: param(id), match: {path: '/users/{id}'}, total: 5"), [""; 0]);
    let cost = |rest: &str| notes(&format!("limit: 5/s, cost: size(request.path){rest}")).join("");
    assert_eq!(cost(""), "the cost of a request is `size(request.path)`; denied with 400 if that fails");
    let (zero, default) = (cost(", cost_min: 0"), cost(", cost_min: 7, cost_default: 9"));
    assert_eq!(
        zero,
        "the cost of a request is `size(request.path)`, not counted if that is 0; denied with 400 if that fails"
    );
    assert_eq!(default, "the cost of a request is `size(request.path)`, at least 7; 9 if that fails");
    assert_eq!(notes("by: method, total: 5, allow: [a, b, c, d, e, f, g]"), ["not counted: a, b, c, d, e, and 2 more"]);
}

#[test]
fn describes_registered_algorithms() {
    let mut registry = Registry::default();
    registry.algorithm("mine", &[], |_, _| Some(Mine(Total::new(5).ok()?, None).into()));
    registry.algorithm("theirs", &[], |_, _| Some(Mine(Total::new(5).ok()?, Some("about as many")).into()));
    let rules = "rules: [{name: a, limit: 20/s, algorithm: mine}, {name: b, limit: 20/s, algorithm: theirs}]";
    let file = file(rules, &registry);
    assert_eq!(rule(&file.rules[0]).limit, "20/s by `mine`");
    assert_eq!(rule(&file.rules[1]).limit, "about as many");
}

#[test]
fn describes_a_file_as_a_table() {
    let text = "
rules:
  - {name: everyone, limit: 10000/s}
  - name: each-account
    by: account
    match: {path: [/search/**, '/a/very/long/path/that/fits/into/no/column'], method: [GET], host: api.example.com}
    limit: [{rate: 100/s, burst: 200}, 20000/h]
    overrides: {vip-7: 1000/s}
    status: 429
";
    assert_eq!(
        table(&file(text, &Registry::default())),
        "\
rule          key                match                             limit             over limit
------------  -----------------  --------------------------------  ----------------  ---------------
everyone      everyone together  all requests                      10000 a second,   denied with 503
                                                                   up to 10000 at
                                                                   once: at most
                                                                   20000 in any
                                                                   second
each-account  each account       GET /search/** or                 100 a second, up  denied with 429
                                 /a/very/long/path/that/fits/      to 200 at once:
                                 into/no/column, host              at most 300 in
                                 api.example.com                   any second, and
                                                                   20000 an hour,
                                                                   up to 20000 at
                                                                   once: at most
                                                                   40000 in any
                                                                   hour
              - vip-7 has 1000 a second, up to 1000 at once: at most 2000 in any second
              - requests without account are not limited by this rule
"
    );
    for line in table(&file(text, &Registry::default())).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn breaks_words_only_if_they_do_not_fit() {
    let table_of = |name: &str, path: &str| {
        let text = format!(
            "rules: [{{name: {name}, by: [ip, resource], match: {{path: '{path}', method: POST}}, limit: [20/h burst 5, 100/day], wait: 2s}}]"
        );
        table(&file(&text, &Registry::default()))
    };
    let path = "/accounts/{name}/password-reset";
    let shown = table_of("password-reset-of-an-account", path);
    for word in [path, "password-reset-of-an-account", "combination", "resource"] {
        assert_eq!(shown.contains(word), word != "resource", "{word}:\n{shown}");
    }
    // Longer words are broken after a separator.
    let shown = table_of("a", &"/segment-of-a-path".repeat(8));
    let lines = shown.lines().filter(|line| line.contains("segment"));
    assert!(lines.clone().count() > 1 && lines.clone().all(|line| !line.contains("segme ")), "{shown}");
    // Words without a separator still fit into the table.
    for line in table_of(&"x".repeat(100), &format!("/{}", "y".repeat(200))).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

/// A registered algorithm that behaves like `total`.
#[derive(Clone, Debug, PartialEq)]
struct Mine(Total, Option<&'static str>);

impl Algorithm for Mine {
    type State = TotalState;

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        self.1.map(str::to_owned)
    }

    fn fresh(&self, now: Timestamp) -> TotalState {
        self.0.fresh(now)
    }

    fn take(&self, state: &mut TotalState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        self.0.take(state, now, cost, max_wait)
    }

    fn status(&self, state: &TotalState, now: Timestamp) -> Status {
        self.0.status(state, now)
    }

    fn charge(&self, state: &mut TotalState, now: Timestamp, cost: Cost) {
        self.0.charge(state, now, cost);
    }

    fn refund(&self, state: &mut TotalState, now: Timestamp, receipt: &Receipt) -> Refund {
        self.0.refund(state, now, receipt)
    }

    fn is_fresh(&self, state: &TotalState, now: Timestamp) -> bool {
        self.0.is_fresh(state, now)
    }

    fn rescale(&self, state: &mut TotalState, old: &Self, now: Timestamp) {
        self.0.rescale(state, &old.0, now);
    }

    fn wait_mode(&self) -> WaitMode {
        self.0.wait_mode()
    }
}
