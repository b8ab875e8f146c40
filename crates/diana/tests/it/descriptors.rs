//! Rules for requests from Envoy: `domain`, `descriptor`, `charges`, and how many requests one stands for.

use crate::common::{check, problems_of};
use diana::RuleSet;
use diana::ruleset::{Matches, Purpose};
use diana_core::Cost;
use diana_rules::attributes::DescriptorEntry;
use diana_rules::{Attribute, Attributes, Document, Registry, RuleFile};
use std::borrow::Cow;

/// The entries of a descriptor.
type Entries = &'static [(&'static str, &'static str)];

/// A request from Envoy.
struct Descriptor {
    domain: &'static str,
    entries: Vec<DescriptorEntry>,
    hits: u64,
}

impl Descriptor {
    fn new(domain: &'static str, entries: &[(&str, &str)]) -> Self {
        let entry =
            |(key, value): &(&str, &str)| DescriptorEntry { key: (*key).to_owned(), value: (*value).to_owned() };
        Self { domain, entries: entries.iter().map(entry).collect(), hits: 1 }
    }
}

impl Attributes for Descriptor {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let entry = |key: &str| self.entries.iter().find(|entry| entry.key == key).map(|entry| (&*entry.value).into());
        match attribute {
            Attribute::Domain => Some(self.domain.into()),
            Attribute::Descriptor(key) => entry(key),
            Attribute::Named(name) => entry(name),
            _ => None,
        }
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        &self.entries
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn passes_names(&self) -> bool {
        true
    }
}

fn rules(text: &str) -> RuleSet {
    RuleSet::new(&RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap())
}

/// Returns the names and keys of the rules that count a request.
fn matched(rules: &RuleSet, request: &Descriptor) -> Vec<String> {
    let mut matches = Matches::default();
    rules.find(&[request], Purpose::Charge, &mut matches);
    let explained = rules.explain(request);
    let shown = |matches: &Matches| {
        let each = matches.matched().iter().map(|matched| {
            let name = &rules.rule(matched.rule).unwrap().rule().name;
            format!("{name}={}", String::from_utf8_lossy(matches.key(matched)))
        });
        each.collect::<Vec<_>>()
    };
    // The index finds what checking each rule finds.
    assert_eq!(shown(&matches).len(), explained.matches.matched().len());
    shown(&matches)
}

const RULES: &str = "
rules:
  - {name: domain, match: {domain: shop}, limit: 1/h}
  - {name: has, match: {domain: shop, descriptor: {plan: [free, 'trial-*'], api_key: }}, by: descriptor(api_key), limit: 1/h}
  - {name: exactly, match: {descriptor: [{plan: free}, api_key]}, limit: 1/h}
  - {name: twice, match: {descriptor: {generic_key: b}}, by: descriptor(generic_key), limit: 1/h}
  - {name: other, match: {descriptor: [{tier: {is: ['*x', c], not: [a, 'b*']}}]}, by: descriptor(tier), limit: 1/h}
  - {name: when, match: {when: 'request.domain == \"shop\" && request.descriptor.plan == \"vip\"'}, by: domain, limit: 1/h}
";

#[test]
fn a_rule_matches_a_domain_and_the_entries_of_a_descriptor() {
    let rules = rules(RULES);
    let cases: [(&'static str, Entries, &[&str]); 11] = [
        ("other", &[("tier", "bx")], &[]),
        ("other", &[("tier", "c")], &["other=c"]),
        ("other", &[("tier", "d")], &[]),
        ("shop", &[("plan", "free"), ("api_key", "k")], &["domain=", "has=k", "exactly="]),
        // The order matters for exactly these entries only.
        ("shop", &[("api_key", "k"), ("plan", "free")], &["domain=", "has=k"]),
        ("shop", &[("plan", "free"), ("api_key", "k"), ("more", "1")], &["domain=", "has=k"]),
        ("other", &[("plan", "free"), ("api_key", "k")], &["exactly="]),
        ("shop", &[("plan", "trial-7"), ("api_key", "k")], &["domain=", "has=k"]),
        ("shop", &[("plan", "free")], &["domain="]),
        ("other", &[("generic_key", "a"), ("generic_key", "b")], &["twice=a"]),
        ("shop", &[("plan", "vip")], &["domain=", "when=shop"]),
    ];
    for (domain, entries, expected) in cases {
        assert_eq!(matched(&rules, &Descriptor::new(domain, entries)), expected, "{domain} {entries:?}");
    }
}

/// One rule of a thousand is found by the value of an entry.
#[test]
fn many_rules_are_told_apart_by_their_entries() {
    let each = (0..1_000).map(|number| {
        format!("  - {{name: r{number}, match: {{domain: shop, descriptor: [{{k: v{number}}}]}}, limit: 1/h}}\n")
    });
    let rules = rules(&format!("rules:\n{}", each.collect::<String>()));
    assert_eq!(matched(&rules, &Descriptor::new("shop", &[("k", "v77")])), ["r77="]);
    assert_eq!(matched(&rules, &Descriptor::new("cart", &[("k", "v77")])), [""; 0]);
}

#[test]
fn entries_are_the_names_of_identity() {
    let rules = rules(
        "
identity: {account: header(x-account-id), tenant: 'cel(\"size(request.path) > 0 ? request.host : request.host\")'}
rules:
  - {name: each-account, by: account, limit: 1/h}
  - {name: each-tenant, by: tenant, limit: 1/h}
",
    );
    let request = Descriptor::new("shop", &[("account", "alice"), ("tenant", "acme")]);
    assert_eq!(matched_without_explain(&rules, &request), ["each-account=alice", "each-tenant=acme"]);
}

fn matched_without_explain(rules: &RuleSet, request: &Descriptor) -> Vec<String> {
    let mut matches = Matches::default();
    rules.find(&[request], Purpose::Charge, &mut matches);
    let name = |number| &rules.rule(number).unwrap().rule().name;
    let each = matches.matched().iter();
    each.map(|matched| format!("{}={}", name(matched.rule), String::from_utf8_lossy(matches.key(matched)))).collect()
}

#[test]
fn hits_multiply_the_cost() {
    let rules = rules("rules: [{name: one, limit: 9/h}, {name: five, limit: 9/h, cost: 5}]");
    let costs = |hits: u64, peek: bool| {
        let (mut matches, request) = (Matches::default(), Descriptor { hits, ..Descriptor::new("shop", &[]) });
        rules.find(&[&request], if peek { Purpose::Peek } else { Purpose::Charge }, &mut matches);
        matches.matched().iter().map(|matched| matched.cost.get()).collect::<Vec<_>>()
    };
    assert_eq!([costs(1, false), costs(3, false)], [[1, 5], [3, 15]]);
    assert_eq!(costs(u64::MAX, false), [Cost::MAX.get(); 2]);
    assert_eq!((costs(0, false), costs(0, true)), (vec![], vec![0, 0]));
}

#[test]
fn a_rule_that_matches_several_requests_with_the_same_key_is_charged_once() {
    let rules = rules(
        "rules: [{name: all, limit: 9/h}, {name: each, by: descriptor(k), limit: 9/h}, {name: no, by: descriptor(k), deny: [bad]}]",
    );
    let (one, other) =
        (Descriptor::new("d", &[("k", "a")]), Descriptor { hits: 7, ..Descriptor::new("d", &[("k", "a")]) });
    let (third, bad) = (Descriptor::new("d", &[("k", "b")]), Descriptor::new("d", &[("k", "bad")]));
    let mut matches = Matches::default();
    rules.find(&[&one, &other, &third, &bad], Purpose::Charge, &mut matches);
    let keys = matches.matched().iter().map(|matched| (matched.rule, matches.key(matched), matched.cost.get()));
    let keys = keys.collect::<Vec<_>>();
    assert_eq!(keys, [(0, &b""[..], 7), (1, b"a", 7), (2, b"a", 7), (1, b"b", 1), (2, b"b", 1), (1, b"bad", 1)]);
    let matched_by = |request| (0..6).filter(|index| matches.is_matched_by(request, *index)).collect::<Vec<_>>();
    assert_eq!([matched_by(0), matched_by(1)], [[0, 1, 2], [0, 1, 2]]);
    assert_eq!((matched_by(2), matched_by(3)), (vec![0, 3, 4], vec![0, 5]));
    assert!(matched_by(4).is_empty());
    assert_eq!([0, 1, 2, 3].map(|part| matches.denied_of(part).len()), [0, 0, 0, 1]);
}

#[test]
fn a_rule_with_charges_names_a_rule_and_has_its_key() {
    let rules = rules(
        "rules: [{name: tokens, by: descriptor(key), limit: 9/h}, {name: used, match: {descriptor: {done: }}, charges: tokens, cost: 2}]",
    );
    let request = Descriptor { hits: 3, ..Descriptor::new("llm", &[("done", ""), ("key", "k")]) };
    let mut matches = Matches::default();
    rules.find(&[&request], Purpose::Charge, &mut matches);
    let [charged] = matches.charged() else { panic!("{matches:?}") };
    assert_eq!((charged.rule, charged.by, charged.cost.get(), matches.charged_key(charged)), (0, 1, 6, &b"k"[..]));
    assert!(
        rules.explain(&request).rules.iter().any(|rule| format!("{rule:?}").contains("Charges { rule: \"tokens\""))
    );
}

#[test]
fn reports_invalid_descriptors_and_charges() {
    let file = |rule: &str| {
        format!(
            "rules:\n- {{name: a, by: [ip, method], limit: 1/s}}\n- {{name: c, concurrent: 1}}\n- {{name: b, {rule}}}"
        )
    };
    check(
        &[
            (
                "limit: 1/s, match: {domain: ''}",
                &["[''] `domain` is empty, so this rule never applies: remove it to match every domain"],
            ),
            (
                "limit: 1/s, match: {descriptor: plan}",
                &[
                    "[plan] invalid `descriptor`: expected a map or a list, found a string: expected entries by key, such as {plan: free, api_key: }, or a list of all entries, such as [{plan: free}, api_key]",
                ],
            ),
            (
                "limit: 1/s, match: {descriptor: [{a: b, c: d}]}",
                &[
                    "[{] invalid entry of `descriptor`: expected a key, such as api_key, or a key with its value, such as {plan: free}",
                ],
            ),
            ("charges: aa", &["[aa] unknown rule `aa`: did you mean `a`?"]),
            (
                "charges: b",
                &["[b] rule `b` has no limit that can be charged: expected a rule with `limit`, `every` or `total`"],
            ),
            (
                "charges: c",
                &["[c] rule `c` has no limit that can be charged: expected a rule with `limit`, `every` or `total`"],
            ),
            (
                "charges: a, by: ip",
                &[
                    "[ip] rule `a` counts by `ip, method`, which has another number of parts: use a key for each of its parts, or remove `by`",
                ],
            ),
            (
                "charges: a, wait: 2s",
                &[
                    "[wait] `wait` cannot be combined with `charges`: the rule only charges another one: remove one of the two",
                ],
            ),
        ],
        file,
    );
    assert_eq!(problems_of(&file("charges: a")), ["nothing"]);
}
