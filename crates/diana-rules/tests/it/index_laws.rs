//! Laws of the index: it finds the rules that match, asked one by one, in the order of the file.

use diana_rules::{DescribedRequest, Document, Found, Registry, RuleFile, RuleSet};
use proptest::prelude::*;

/// Few words, so that patterns and paths often meet.
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

fn request() -> impl Strategy<Value = DescribedRequest> {
    let host = prop::sample::select(vec!["a.com", "WWW.a.com:80", "x.y.a.com", "b.org.", "c.net"]);
    let plan = prop::option::of(prop::sample::select(vec!["free", "vip", "foo"]));
    let ip = prop::sample::select(vec!["10.1.2.3", "10.2.2.3", "203.0.113.7", "::ffff:10.1.2.3", "2001:db8::1"]);
    let method = prop::sample::select(vec!["GET", "POST", "PUT"]);
    (method, path(word()), any::<bool>(), prop::option::of(host), plan, ip).prop_map(
        |(method, path, slash, host, plan, ip)| {
            let path = if slash { format!("/{path}/") } else { path };
            let mut request = DescribedRequest::new(method, &path).ip(ip.parse::<std::net::IpAddr>().unwrap());
            if let Some(host) = host {
                request = request.host(host);
            }
            if let Some(plan) = plan {
                request = request.header("x-plan", plan);
            }
            request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_asking_each_rule_finds(
        rules in prop::collection::vec(matching(), 1..12),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        // Each with a limit of its own, since twins are refused.
        let rules = rules.iter().enumerate().map(|(nth, matching)| {
            format!("  - {{name: r{nth}, by: ip/32, match: {}, limit: {}/s}}\n", matching.yaml(), nth + 1)
        });
        let text = format!("rules:\n{}", rules.collect::<String>());
        let document = Document::new("diana.yaml", text.clone());
        let file = RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}"));
        let rules = RuleSet::new(&file);
        let mut found = Found::default();
        for request in requests {
            rules.find(&request, &mut found);
            let indexed = found.applied().iter().map(|applied| applied.rule as usize).collect::<Vec<_>>();
            let explained = rules.explain(&request).found;
            let asked = explained.applied().iter().map(|applied| applied.rule as usize).collect::<Vec<_>>();
            prop_assert_eq!(indexed, asked, "{:?} by\n{}", request, text);
        }
    }
}
