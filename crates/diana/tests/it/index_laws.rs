//! Properties of the index: it finds the same rules as checking them one by one, in the order of the file.

use diana::RuleSet;
use diana::ruleset::{Matches, Purpose};
use diana_rules::attributes::{SEVERAL, SyntheticRequest};
use diana_rules::matching::{Match, first_route};
use diana_rules::{Attribute, Attributes, Document, Registry, RuleFile};
use proptest::prelude::*;
use std::borrow::Cow;
use std::net::IpAddr;

/// A request whose path has several forms.
#[derive(Clone, Debug)]
struct Ambiguous {
    request: SyntheticRequest,
    other_paths: Vec<String>,
}

impl Attributes for Ambiguous {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        self.request.get(attribute)
    }

    fn other_paths(&self) -> &[String] {
        &self.other_paths
    }

    fn ip(&self) -> Option<IpAddr> {
        Attributes::ip(&self.request)
    }
}

/// Few words, so that patterns and paths often match.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", "c.pdf", "users"]).prop_map(str::to_owned)
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => word(),
        2 => Just("*".to_owned()),
        1 => Just("a*".to_owned()),
        1 => Just("*.pdf".to_owned()),
        2 => Just("**".to_owned()),
    ]
}

fn path(segment: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn host_pattern() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a.com", "www.a.com", "*.a.com", "*.com", "b.org", "w*.a.com"])
}

fn list<T: std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(item, 0..3)
}

#[derive(Clone, Debug)]
struct Matching {
    paths: Vec<String>,
    hosts: Vec<&'static str>,
    methods: Vec<&'static str>,
    plans: Vec<&'static str>,
    networks: Vec<&'static str>,
}

impl Matching {
    fn yaml(&self) -> String {
        let quoted = |values: &[String]| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        let owned = |values: &[&str]| quoted(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
        let mut parts = Vec::new();
        let mut part = |name: &str, values: String| {
            if !values.is_empty() {
                parts.push(format!("{name}: [{values}]"));
            }
        };
        part("path", quoted(&self.paths));
        part("host", owned(&self.hosts));
        part("method", owned(&self.methods));
        part("ip", owned(&self.networks));
        if !self.plans.is_empty() {
            parts.push(format!("header: {{x-plan: [{}]}}", owned(&self.plans)));
        }
        format!("{{{}}}", parts.join(", "))
    }
}

fn matching() -> impl Strategy<Value = Matching> {
    let methods = prop::sample::select(vec!["GET", "POST"]);
    let plans = prop::sample::select(vec!["free", "vip", "f*"]);
    let networks = prop::sample::select(vec!["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "203.0.113.7"]);
    (list(path(segment())), list(host_pattern()), list(methods), list(plans), list(networks))
        .prop_map(|(paths, hosts, methods, plans, networks)| Matching { paths, hosts, methods, plans, networks })
}

fn request() -> impl Strategy<Value = Ambiguous> {
    let host = prop::sample::select(vec!["a.com", "WWW.a.com:80", "x.y.a.com", "b.org.", "c.net"]);
    let plan = prop::option::of(prop::sample::select(vec!["free", "vip", "foo", SEVERAL]));
    let ip = prop::sample::select(vec!["10.1.2.3", "10.2.2.3", "203.0.113.7", "::ffff:10.1.2.3", "2001:db8::1"]);
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT"]);
    let others = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(path(word()), 1..4)];
    (method, path(word()), any::<bool>(), prop::option::of(host), plan, ip, others).prop_map(
        |(method, path, slash, host, plan, ip, other_paths)| {
            let path = if slash { format!("/{path}/") } else { path };
            let mut request = SyntheticRequest::new(method, &path).ip(ip.parse::<IpAddr>().unwrap());
            if let Some(host) = host {
                request = request.host(host);
            }
            if let Some(plan) = plan {
                request = request.header("x-plan", plan);
            }
            Ambiguous { request, other_paths }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_the_same_rules_as_a_scan(
        rules in prop::collection::vec(matching(), 1..12),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        // Each with its own limit, since identical rules are rejected.
        let rules = rules.iter().enumerate().map(|(index, matching)| {
            format!("  - {{name: r{index}, by: ip/32, match: {}, limit: {}/s}}\n", matching.yaml(), index + 1)
        });
        let text = format!("rules:\n{}", rules.collect::<String>());
        let document = Document::new("diana.yaml", text.clone());
        let file = RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}"));
        let rules = RuleSet::new(&file);
        let mut matches = Matches::default();
        for request in requests {
            matches.clear();
            rules.find(&[&request], Purpose::Charge, &mut matches);
            let indexed = matches.matched().iter().map(|applied| applied.rule as usize).collect::<Vec<_>>();
            let explained = rules.explain(&request).matches;
            let scanned = explained.matched().iter().map(|applied| applied.rule as usize).collect::<Vec<_>>();
            prop_assert_eq!(indexed, scanned, "{:?} by\n{}", request, text);
            // A peek takes no shortcut for simple rules.
            let mut peeked = Matches::default();
            rules.find(&[&request], Purpose::Peek, &mut peeked);
            let shown = |matches: &Matches| {
                let all = matches.matched().iter().map(|applied| (applied.clone(), matches.key(applied).to_vec()));
                all.map(|(applied, key)| format!("{} {:?} {:?} {key:?}", applied.rule, applied.cost, applied.mode)).collect::<Vec<_>>()
            };
            prop_assert_eq!((shown(&matches), matches.needs()), (shown(&peeked), peeked.needs()));
        }
    }
}

fn rules(text: &str) -> RuleSet {
    let document = Document::new("diana.yaml", text);
    RuleSet::new(&RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}")))
}

/// The keys by which a request is counted, if it is not denied.
fn counted(rules: &RuleSet, path: &str, other_paths: &[&str]) -> Option<Vec<String>> {
    let other_paths = other_paths.iter().map(|path| (*path).to_owned()).collect();
    let request = Ambiguous { request: SyntheticRequest::new("GET", path), other_paths };
    let mut matches = Matches::default();
    rules.find(&[&request], Purpose::Charge, &mut matches);
    let key = |applied| String::from_utf8_lossy(matches.key(applied)).into_owned();
    matches.denied().is_empty().then(|| matches.matched().iter().map(key).collect())
}

/// A path with several forms is limited by every form, denied by any, and exempt only by all of them.
#[test]
fn any_form_of_a_path_limits_and_all_forms_exempt() {
    let projects = rules("rules: [{name: a, match: {path: '/projects/{id}'}, by: param(id), limit: 1/s}]");
    assert_eq!(counted(&projects, "/projects/a/b", &["/projects/a%2Fb"]).unwrap(), ["a%2Fb"]);
    assert_eq!(counted(&projects, "/projects/a", &["/projects/a;x"]).unwrap(), ["a"]);
    assert!(counted(&projects, "/x/a/b", &["/x/a%2Fb"]).unwrap().is_empty());

    let listed = rules("rules: [{name: a, by: resource, allow: [/ok, /fine], deny: /bad, limit: 1/s}]");
    assert!(counted(&listed, "/ok", &["/fine"]).unwrap().is_empty());
    assert_eq!(counted(&listed, "/ok", &["/ok", "/other"]).unwrap(), ["/ok"]);
    assert_eq!(counted(&listed, "/ok", &["/other", "/bad"]), None);

    let when = rules("rules: [{name: a, match: {when: 'request.path != \"/ok\"'}, by: resource, limit: 1/s}]");
    assert!(counted(&when, "/ok", &["/ok"]).unwrap().is_empty());
    assert_eq!(counted(&when, "/ok", &["/other"]).unwrap(), ["/ok"]);
}

/// Routes use the path as written.
#[test]
fn a_route_compares_one_form() {
    let node = Document::new("match.yaml", "{path: /v1/**}").parse().unwrap();
    let matches = Match::parse_route(&node, &mut Vec::new()).unwrap();
    let route = |path: &str, other: &[&str]| {
        let other_paths = other.iter().map(|path| (*path).to_owned()).collect();
        let request = Ambiguous { request: SyntheticRequest::new("GET", path), other_paths };
        first_route(&request, [&matches].into_iter())
    };
    assert_eq!(route("/v1/users", &[]), Some(0));
    assert_eq!(route("/v1/users", &["/v1%2Fusers", "/v1/users"]), None);
    assert_eq!(route("/v1/users", &["/v1/users%2F"]), Some(0));
}
