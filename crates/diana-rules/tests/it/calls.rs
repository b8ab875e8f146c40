//! Rules that functions look up by name: the key of a call, and the rules that apply to it.

use crate::common::good;
use diana_rules::ruleset::Matches;
use diana_rules::{Attribute, Attributes, RuleSet};
use std::borrow::Cow;
use std::net::IpAddr;

/// The arguments of a call, by name, and its client address.
#[derive(Default)]
struct Call {
    told: &'static [(&'static str, &'static str)],
    ip: Option<IpAddr>,
}

impl Attributes for Call {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let Attribute::Named(name) = attribute else { return None };
        self.told.iter().find(|(known, _)| *known == &**name).map(|(_, value)| Cow::Borrowed(*value))
    }

    fn told_in_vain(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.told.iter().map(|(name, _)| *name).filter(|name| *name != "account").find(|name| !is_asked(name))
    }

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

fn told(told: &'static [(&'static str, &'static str)]) -> Call {
    Call { told, ip: None }
}

/// The key of a call, in bytes.
fn found(yaml: &str, rule: &str, call: &Call) -> Vec<u8> {
    let (rules, mut found) = (RuleSet::new(&good(yaml)), Matches::default());
    rules.find_named(rule, call, &mut found).unwrap();
    found.key(&found.applied()[0]).to_vec()
}

/// The same, human-readable.
fn shown(yaml: &str, rule: &str, call: &Call) -> String {
    good(yaml).rules.iter().find(|known| known.name == rule).unwrap().by.shown(&found(yaml, rule, call))
}

/// The key of the one rule that counts the call; else why there is none.
fn key(yaml: &str, rule: &str, call: &Call) -> String {
    let (rules, mut found) = (RuleSet::new(&good(yaml)), Matches::default());
    if let Err(unknown) = rules.find_named(rule, call, &mut found) {
        return unknown.to_string();
    }
    match (found.applied(), found.refused()) {
        ([applied], []) => String::from_utf8_lossy(found.key(applied)).into_owned(),
        ([], [refused]) => format!("refused: {:?}", refused.why),
        ([], []) => "not counted".to_owned(),
        more => panic!("{more:?}"),
    }
}

const FILE: &str = "
identity: {account: header(x-account), tenant: 'cel(\"request.host\")'}
rules:
  - {name: everyone, limit: 100/s}
  - {name: sms, match: {call: phone}, by: phone, deny: ['000'], allow: ['112'], limit: 1/min}
  - {name: account, match: {call: true}, by: account, limit: 5/s}
  - {name: requests, match: {path: /a/**, method: GET, host: b.com, header: {x: y}}, by: account, limit: 5/s}
  - {name: signed, by: tenant, missing: deny, limit: 5/s}
  - {name: some, match: {call: size, ip: 10.0.0.0/8, when: 'size != \"\"'}, cost: int(size), limit: 500/s}
";

#[test]
fn a_call_is_whose_it_tells() {
    let call = told(&[("phone", "555"), ("account", "alice")]);
    assert_eq!(key(FILE, "sms", &call), "555");
    assert_eq!(key(FILE, "account", &told(&[("account", "alice")])), "alice");
    assert_eq!(key(FILE, "everyone", &call), "");
    assert_eq!(key(FILE, "sms", &told(&[("phone", "000")])), "refused: Listed");
    assert_eq!(key(FILE, "sms", &told(&[("phone", "112")])), "not counted");
    assert_eq!(key(FILE, "smss", &call), "no active rule is named `smss`");
}

#[test]
fn what_identity_finds_in_requests_a_call_knows_itself() {
    let call = told(&[("account", "alice"), ("tenant", "acme")]);
    assert_eq!(key(FILE, "requests", &call), "alice");
    assert_eq!(key(FILE, "signed", &call), "acme");
}

#[test]
fn what_a_call_tells_is_meant_whatever_identity_calls_so() {
    let file = "
identity: {client: ip}
rules:
  - {name: told, match: {call: client}, by: client, limit: 1/h}
";
    let call = Call { told: &[("client", "alice")], ip: Some([192, 0, 2, 1].into()) };
    assert_eq!(key(file, "told", &call), "alice");
}

#[test]
fn a_call_that_does_not_tell_whose_it_is_counts_with_its_like() {
    assert_eq!(shown(FILE, "sms", &told(&[])), "(nobody)");
    assert_eq!(shown(FILE, "account", &told(&[])), "(nobody)");
    assert_eq!(key(FILE, "signed", &told(&[])), "refused: Missing");
    // Known parts stay separate; an empty argument is known too, and no argument can equal the placeholder.
    let pairs = "rules: [{name: pair, match: {call: [a, b]}, by: [a, b], limit: 1/h}]";
    let keys = [
        told(&[]),
        told(&[("a", "x")]),
        told(&[("b", "x")]),
        told(&[("a", "x"), ("b", "")]),
        told(&[("a", ""), ("b", "x")]),
        told(&[("a", "(nobody)"), ("b", "x")]),
        told(&[("a", "\u{FE}"), ("b", "x")]),
    ];
    let keys = keys.map(|call| found(pairs, "pair", &call));
    for (nth, one) in keys.iter().enumerate() {
        assert!(keys[nth + 1..].iter().all(|other| other != one), "{keys:?}");
    }
    assert_eq!(shown(pairs, "pair", &told(&[("b", "x")])), "(nobody), x");
}

#[test]
fn what_else_a_rule_for_calls_says_must_hold() {
    let here = Some([10, 1, 2, 3].into());
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "7")], ip: here }), "");
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "")], ip: here }), "not counted");
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "7")], ip: Some([192, 0, 2, 1].into()) }), "not counted");

    let (rules, mut found) = (RuleSet::new(&good(FILE)), Matches::default());
    rules.find_named("some", &Call { told: &[("size", "7")], ip: here }, &mut found).unwrap();
    assert_eq!(found.applied()[0].cost.get(), 7);
}

#[test]
fn what_a_rule_does_not_ask_for_is_not_told_to_it() {
    let wrong = "the rule `sms` does not ask for `phon`; its `match` says `call: [phone]`";
    assert_eq!(key(FILE, "sms", &told(&[("phon", "555")])), wrong);
    let wrong = "the rule `account` does not ask for `phone`; its `match` says `call: true`";
    assert_eq!(key(FILE, "account", &told(&[("phone", "555")])), wrong);
}

#[test]
fn no_request_meets_a_rule_for_calls() {
    let (rules, mut found) = (RuleSet::new(&good(FILE)), Matches::default());
    rules.find(&told(&[("phone", "555"), ("account", "alice"), ("size", "1")]), &mut found);
    let names = found.applied().iter().map(|applied| rules.rule(applied.rule).unwrap().rule().name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["everyone"]);
    let explained = rules.explain(&told(&[]));
    assert_eq!(format!("{:?}", explained.rules[1]), "NotAbout(Call)");
}
