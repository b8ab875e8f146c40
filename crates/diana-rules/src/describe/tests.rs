//! Descriptions of every algorithm and every option.
#![allow(clippy::panic, reason = "a test that can't go on should stop")]

use super::*;
use crate::algorithm::Configured;
use crate::{Document, Registry, RuleFile};
use diana_core::{
    Algorithm, Cost, MaxWait, Outcome, Receipt, Refund, Status, Timestamp, TokenBucket, Total, TotalState, Waiting,
};

fn file(text: &str, registry: &Registry) -> RuleFile {
    let read = RuleFile::read_with(&Document::new("diana.yaml", text), registry, |_| None);
    read.unwrap_or_else(|problems| panic!("{problems}"))
}

fn words(rule: &str) -> RuleDescription {
    let home = if rule.contains("store: ") { "" } else { "store: local, " };
    let text = format!(
        "identity: {{jwt: {{verify: false}}}}\nstore: {{redis: redis://a}}\nrules: [{{name: a, {home}{rule}}}]"
    );
    super::rule(&file(&text, &Registry::default()).rules[0])
}

#[test]
fn each_algorithm_says_what_it_allows() {
    for (rule, limit) in [
        ("limit: 100/s", "at most 100 a second"),
        ("limit: 100/s burst 200", "at most 100 a second (200 at once)"),
        (
            "limit: [{rate: 100/s, burst: 200}, 20000/h]",
            "at most 100 a second (200 at once), and at most 20000 an hour",
        ),
        ("limit: 5/10min", "at most 5 in 10 minutes"),
        ("limit: 1 per 200ms", "at most 1 in 200ms"),
        ("limit: 7/month", "at most 7 a month"),
        ("limit: 100/min burst 7, refill: {tokens: 100, every: 1min}", "100 more every minute, at most 7 at once"),
        ("limit: 5/s, refill: {every: 1min}", "300 more every minute, at most 300 at once"),
        ("limit: 500/s, algorithm: leaky_bucket", "one every 2ms"),
        ("limit: 500/s, algorithm: leaky_bucket, burst: 50", "one every 2ms, 50 may wait in line"),
        ("limit: 1/min, algorithm: leaky_bucket, burst: 5, nodelay: true", "one every minute, 5 more may come at once"),
        (
            "limit: 3/s, algorithm: leaky_bucket, burst: 50, delay: 8",
            "3 a second, evenly, 50 may wait in line, the first 8 of them at once",
        ),
        ("limit: 1/min, algorithm: fixed_window", "1 in each minute by the clock"),
        ("limit: 1/min, algorithm: fixed_window, opens: first_request", "1 in each minute from the first request on"),
        ("limit: 9/day, algorithm: fixed_window, time_zone: Europe/Berlin", "9 in each day of Europe/Berlin"),
        ("limit: 9/week, algorithm: fixed_window, time_zone: UTC", "9 in each week, from Monday on, of UTC"),
        (
            "limit: 20/s, algorithm: sliding_window",
            "20 in a sliding second, in steps of 100ms; over an edge up to twice that",
        ),
        (
            "limit: 20/5min, algorithm: sliding_window, buckets: 5, edge: weighted",
            "20 in a sliding 5 minutes, in steps of 1 minute, the oldest in proportion",
        ),
        ("limit: 20/s, algorithm: sliding_window, edge: strict", "at most 20 in any second, in steps of 100ms"),
        ("limit: 5/min, algorithm: sliding_log", "at most 5 in any minute"),
        (
            "limit: 5/s, algorithm: smooth_bursty, burst_seconds: 2.5, starts: empty",
            "5 a second, evenly; what is unused for 2.5 s is saved up, nothing at the start",
        ),
        (
            "limit: 5/s, algorithm: smooth_warming_up, warm_up: 10s",
            "5 a second, evenly; after a pause 3 times slower, warm after 10 seconds",
        ),
        ("every: 200ms", "at least 200ms apart"),
        ("total: 1000", "1000 in all, until reset"),
        ("concurrent: 4", "4 at a time"),
        ("concurrent: {limit: 5}", "5 at a time"),
        ("concurrent: {limit: 4, burst: 8, delay: 200ms}", "4 at a time, 8 more after a wait (200ms at first)"),
        ("concurrent: adaptive", "as many at a time as the latency of the answers allows"),
        ("bandwidth: 512KiB/s", "responses at 512 KiB a second"),
        ("bandwidth: 100Mbit/s", "responses at 12.5 MB a second"),
        (
            "bandwidth: {rate: 1000B/s, burst: 1MiB, after: 10MiB, of: both}",
            "requests and responses together at 1 kB a second (1 MiB at once), after the first 10 MiB of each",
        ),
        (
            "load: {cpu: 85%, memory: 99.5%, connections: 20000, traffic: 800MiB/s}",
            "this machine busy: processors up to 85%, memory up to 99.5%, 20000 connections, 800 MiB a second of traffic",
        ),
        ("deny: 10.0.0.1", "no limit, only who is refused at once"),
    ] {
        assert_eq!(words(rule).limit, limit, "{rule}");
    }
}

#[test]
fn each_key_says_whom_it_counts() {
    for (by, who) in [
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
        assert_eq!(words(&rule).who, who, "{by}");
    }
    assert_eq!(words("by: request, bandwidth: 5B/s").who, "each request on its own");
}

#[test]
fn what_happens_beyond_is_said() {
    for (rule, beyond) in [
        ("limit: 5/s", "refused with 503"),
        ("limit: 5/s, status: 429", "refused with 429"),
        ("limit: 5/s, wait: 2s", "waits, at most 2 seconds; then refused with 503"),
        ("limit: 5/s, wait: 2s, queue: 50", "waits in line, at most 50 for 2 seconds; then refused with 503"),
        ("limit: 5/s, over: {divert: 'http://b:1'}", "goes to http://b:1"),
        ("limit: 5/s, answer: {type: a/b, text: c}", "refused with 503, in your own words"),
        ("limit: 5/s, shadow: true", "only reported (shadow)"),
        ("bandwidth: 5B/s", "slowed down"),
        ("by: account, missing: deny", "refused with 503"),
    ] {
        assert_eq!(words(rule).beyond, beyond, "{rule}");
    }
}

#[test]
fn what_else_is_to_be_known_is_said() {
    let notes = |rule: &str| words(rule).notes;
    assert_eq!(notes("limit: 5/s"), [""; 0]);
    assert_eq!(notes("concurrent: {limit: 5, until: client_left}"), [""; 0]);
    let held = "a place is held until the upstream is done, even if the client leaves";
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
            "refused at once: bad",
            "vip has at most 7 a second; big has at most 9 a second, and at most 8 an hour",
            "requests without account are refused",
            "counted for all instances together",
        ]
    );
    assert_eq!(
        notes("by: ip, total: 5, overrides: {'2001:db8::7': {total: 7}, 10.0.0.7: {total: 9}}"),
        ["2001:db8::/64 has 7 in all, until reset; 10.0.0.7 has 9 in all, until reset"]
    );
    assert_eq!(notes("by: [ip, device], total: 5"), ["requests without device are not limited by this rule"]);
    assert_eq!(notes("by: param(id), match: {path: '/users/{id}'}, total: 5"), [""; 0]);
    let cost = |rest: &str| notes(&format!("limit: 5/s, cost: size(request.path){rest}")).join("");
    assert_eq!(cost(""), "a request costs what `size(request.path)` says; refused with 400 if that fails");
    let (zero, default) = (cost(", cost_min: 0"), cost(", cost_min: 7, cost_default: 9"));
    assert_eq!(
        zero,
        "a request costs what `size(request.path)` says, and is not counted if that is 0; refused with 400 if that fails"
    );
    assert_eq!(default, "a request costs what `size(request.path)` says, at least 7; 9 if that fails");
    assert_eq!(notes("by: method, total: 5, allow: [a, b, c, d, e, f, g]"), ["not counted: a, b, c, d, e, and 2 more"]);
}

#[test]
fn algorithms_of_others_are_said_as_they_are_written_or_in_their_own_words() {
    let mut registry = Registry::default();
    registry.algorithm("mine", &[], |_, _| Some(Configured::new(Mine(Total::new(5).ok()?))));
    registry
        .algorithm("theirs", &[], |quota, _| Some(Configured::new(TokenBucket::new(quota)).describe("about as many")));
    let rules = "rules: [{name: a, limit: 20/s, algorithm: mine}, {name: b, limit: 20/s, algorithm: theirs}]";
    let file = file(rules, &registry);
    assert_eq!(rule(&file.rules[0]).limit, "20/s by `mine`");
    assert_eq!(rule(&file.rules[1]).limit, "about as many");
}

#[test]
fn a_whole_file_is_a_table() {
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
rule          who                what                              limit            beyond
------------  -----------------  --------------------------------  ---------------  ----------------
everyone      everyone together  all requests                      at most 10000 a  refused with 503
                                                                   second
each-account  each account       GET /search/** or                 at most 100 a    refused with 429
                                 /a/very/long/path/that/fits/      second (200 at
                                 into/no/column, host              once), and at
                                 api.example.com                   most 20000 an
                                                                   hour
              - vip-7 has at most 1000 a second
              - requests without account are not limited by this rule
"
    );
    for line in table(&file(text, &Registry::default())).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn words_are_broken_only_where_they_must_be() {
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
struct Mine(Total);

impl Algorithm for Mine {
    type State = TotalState;

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

    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
}
