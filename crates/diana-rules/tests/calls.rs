//! Rules that are asked for by name, as functions do: whose a call is, and which rules it gets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on should stop")]

mod common;

use common::good;
use diana_rules::{Attribute, Attributes, Found, RuleSet};
use std::borrow::Cow;
use std::net::IpAddr;

/// What a call tells, by name, and who makes it.
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

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

fn told(told: &'static [(&'static str, &'static str)]) -> Call {
    Call { told, ip: None }
}

/// The key of the one rule that counts the call; else why there is none.
fn key(yaml: &str, rule: &str, call: &Call) -> String {
    let (rules, mut found) = (RuleSet::new(&good(yaml)), Found::default());
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
    assert_eq!(key(FILE, "account", &call), "alice");
    assert_eq!(key(FILE, "everyone", &call), "");
    assert_eq!(key(FILE, "sms", &told(&[("phone", "000")])), "refused: Listed");
    assert_eq!(key(FILE, "sms", &told(&[("phone", "112")])), "not counted");
    assert_eq!(key(FILE, "smss", &call), "no rule in force is called `smss`");
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
    assert_eq!(key(FILE, "sms", &told(&[])), "");
    assert_eq!(key(FILE, "account", &told(&[])), "");
    assert_eq!(key(FILE, "signed", &told(&[])), "refused: Missing");
}

#[test]
fn what_else_a_rule_for_calls_says_must_hold() {
    let here = Some([10, 1, 2, 3].into());
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "7")], ip: here }), "");
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "")], ip: here }), "not counted");
    assert_eq!(key(FILE, "some", &Call { told: &[("size", "7")], ip: Some([192, 0, 2, 1].into()) }), "not counted");

    let (rules, mut found) = (RuleSet::new(&good(FILE)), Found::default());
    rules.find_named("some", &Call { told: &[("size", "7")], ip: here }, &mut found).unwrap();
    assert_eq!(found.applied()[0].cost.get(), 7);
}

#[test]
fn no_request_meets_a_rule_for_calls() {
    let (rules, mut found) = (RuleSet::new(&good(FILE)), Found::default());
    rules.find(&told(&[("phone", "555"), ("account", "alice"), ("size", "1")]), &mut found);
    let names = found.applied().iter().map(|applied| rules.rule(applied.rule).unwrap().rule().name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["everyone"]);
    let explained = rules.explain(&told(&[]));
    assert_eq!(format!("{:?}", explained.rules[1]), "NotAbout(Call)");
}
