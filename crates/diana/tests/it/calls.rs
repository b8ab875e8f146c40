//! Rules that functions look up by name: the key of a call, and the rules that apply to it.

use crate::common::good;
use diana::RuleSet;
use diana::ruleset::{Matches, Purpose};
use diana_rules::{Attribute, Attributes};
use std::borrow::Cow;
use std::net::IpAddr;

/// The arguments of a call, by name, and its client address.
#[derive(Default)]
struct Call {
    arguments: &'static [(&'static str, &'static str)],
    ip: Option<IpAddr>,
}

impl Attributes for Call {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let Attribute::Named(name) = attribute else { return None };
        self.arguments.iter().find(|(known, _)| *known == &**name).map(|(_, value)| Cow::Borrowed(*value))
    }

    fn unknown_argument(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.arguments.iter().map(|(name, _)| *name).filter(|name| *name != "account").find(|name| !is_asked(name))
    }

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

fn call(arguments: &'static [(&'static str, &'static str)]) -> Call {
    Call { arguments, ip: None }
}

/// The key of a call, in bytes.
fn key_bytes(yaml: &str, rule: &str, call: &Call) -> Vec<u8> {
    let (rules, mut matches) = (RuleSet::new(&good(yaml)), Matches::default());
    rules.find_named(rule, call, Purpose::Charge, &mut matches).unwrap();
    matches.key(&matches.matched()[0]).to_vec()
}

/// The same, human-readable.
fn shown(yaml: &str, rule: &str, call: &Call) -> String {
    good(yaml).rules.iter().find(|known| known.name == rule).unwrap().by.shown(&key_bytes(yaml, rule, call))
}

/// The key of the one rule that counts the call; else why there is none.
fn key(yaml: &str, rule: &str, call: &Call) -> String {
    let (rules, mut matches) = (RuleSet::new(&good(yaml)), Matches::default());
    if let Err(unknown) = rules.find_named(rule, call, Purpose::Charge, &mut matches) {
        return unknown.to_string();
    }
    match (matches.matched(), matches.denied()) {
        ([applied], []) => String::from_utf8_lossy(matches.key(applied)).into_owned(),
        ([], [denied]) => format!("denied: {:?}", denied.why),
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
fn a_calls_key_is_its_argument() {
    let alice = call(&[("phone", "555"), ("account", "alice")]);
    assert_eq!(key(FILE, "sms", &alice), "555");
    assert_eq!(key(FILE, "account", &call(&[("account", "alice")])), "alice");
    assert_eq!(key(FILE, "everyone", &alice), "");
    assert_eq!(key(FILE, "sms", &call(&[("phone", "000")])), "denied: Listed");
    assert_eq!(key(FILE, "sms", &call(&[("phone", "112")])), "not counted");
    assert_eq!(key(FILE, "smss", &alice), "unknown rule `smss`");
}

#[test]
fn a_call_passes_the_names_of_identity_itself() {
    let alice = call(&[("account", "alice"), ("tenant", "acme")]);
    assert_eq!(key(FILE, "requests", &alice), "alice");
    assert_eq!(key(FILE, "signed", &alice), "acme");
}

#[test]
fn an_argument_overrides_the_identity_of_the_same_name() {
    let file = "
identity: {client: ip}
rules:
  - {name: by-client, match: {call: client}, by: client, limit: 1/h}
";
    let call = Call { arguments: &[("client", "alice")], ip: Some([192, 0, 2, 1].into()) };
    assert_eq!(key(file, "by-client", &call), "alice");
}

#[test]
fn calls_without_a_key_part_share_a_count() {
    assert_eq!(shown(FILE, "sms", &call(&[])), "(unknown)");
    assert_eq!(shown(FILE, "account", &call(&[])), "(unknown)");
    assert_eq!(key(FILE, "signed", &call(&[])), "denied: Missing");
    // Known parts stay separate; an empty argument is known too, and no argument can equal the placeholder.
    let pairs = "rules: [{name: pair, match: {call: [a, b]}, by: [a, b], limit: 1/h}]";
    let keys = [
        call(&[]),
        call(&[("a", "x")]),
        call(&[("b", "x")]),
        call(&[("a", "x"), ("b", "")]),
        call(&[("a", ""), ("b", "x")]),
        call(&[("a", "(unknown)"), ("b", "x")]),
        call(&[("a", "\u{FE}"), ("b", "x")]),
    ];
    let keys = keys.map(|call| key_bytes(pairs, "pair", &call));
    for (index, one) in keys.iter().enumerate() {
        assert!(keys[index + 1..].iter().all(|other| other != one), "{keys:?}");
    }
    assert_eq!(shown(pairs, "pair", &call(&[("b", "x")])), "(unknown), x");
}

#[test]
fn a_call_must_match_the_rest_of_its_rule() {
    let local = Some([10, 1, 2, 3].into());
    assert_eq!(key(FILE, "some", &Call { arguments: &[("size", "7")], ip: local }), "");
    assert_eq!(key(FILE, "some", &Call { arguments: &[("size", "")], ip: local }), "not counted");
    assert_eq!(
        key(FILE, "some", &Call { arguments: &[("size", "7")], ip: Some([192, 0, 2, 1].into()) }),
        "not counted"
    );

    let (rules, mut matches) = (RuleSet::new(&good(FILE)), Matches::default());
    rules.find_named("some", &Call { arguments: &[("size", "7")], ip: local }, Purpose::Charge, &mut matches).unwrap();
    assert_eq!(matches.matched()[0].cost.get(), 7);
}

#[test]
fn rejects_arguments_that_the_rule_does_not_list() {
    let expected = "unknown argument `phon` for rule `sms`; its `match` has `call: [phone]`";
    assert_eq!(key(FILE, "sms", &call(&[("phon", "555")])), expected);
    let expected = "unknown argument `phone` for rule `account`; its `match` has `call: true`";
    assert_eq!(key(FILE, "account", &call(&[("phone", "555")])), expected);
}

#[test]
fn requests_do_not_match_rules_for_calls() {
    let (rules, mut matches) = (RuleSet::new(&good(FILE)), Matches::default());
    rules.find(&[&call(&[("phone", "555"), ("account", "alice"), ("size", "1")])], Purpose::Charge, &mut matches);
    let names = matches.matched().iter().map(|applied| rules.rule(applied.rule).unwrap().rule().name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["everyone"]);
    let explained = rules.explain(&call(&[]));
    assert_eq!(format!("{:?}", explained.rules[1]), "NoMatch(Call)");
}
