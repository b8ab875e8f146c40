//! The lists `allow` and `deny` of keys and addresses: `allow: [10.0.0.0/8, vip-7]`.

use super::Rule;
use super::option::{Reader, RuleOption};
use crate::attributes::{Attributes, SEVERAL};
use crate::json_schema::one_or_any;
use crate::key::{KeyBytes, KeySpec};
use crate::matching::RequestView;
use crate::networks::{Networks, parse_network};
use crate::words::some;
use diana_document::{Node, Problem, Value, scalar};
use hashbrown::HashSet;
use serde_json::json;

pub(super) const OPTIONS: &[RuleOption] = &[
    RuleOption {
        with_charges: true,
        describe: |rule| rule.allow.describe("not counted"),
        check: |rule, fields| {
            if rule.allow.networks.is_everything() {
                let what = "`allow` contains every address, so this rule never applies";
                fields.report("allow", what, "remove the rule");
            }
        },
        ..RuleOption::new(
            "allow",
            |_| schema("addresses, networks and keys that this rule does not count"),
            |node, rule, reader| rule.allow = KeyList::read_option(node, "`allow`", rule, reader),
        )
    },
    RuleOption {
        is_limit: true,
        describe: |rule| rule.deny.describe("always denied"),
        ..RuleOption::new(
            "deny",
            |_| schema("addresses, networks and keys that this rule always denies"),
            |node, rule, reader| rule.deny = KeyList::read_option(node, "`deny`", rule, reader),
        )
    },
];

fn schema(description: &str) -> serde_json::Value {
    one_or_any(json!({"$ref": "#/$defs/text"}), description, &["10.0.0.0/8", "vip-7"])
}

/// A list of keys, addresses and networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyList {
    pub(crate) networks: Networks,
    keys: HashSet<KeyBytes>,
    written: Vec<String>,
}

impl KeyList {
    fn read_option(node: &Node, what: &str, rule: &Rule, reader: &mut Reader<'_, '_>) -> Self {
        if reader.has_key { Self::read(node, what, &rule.by, reader.problems) } else { Self::default() }
    }

    fn describe(&self, what: &str) -> Option<String> {
        (!self.is_empty()).then(|| format!("{what}: {}", some(self.written.iter().cloned(), ", ")))
    }

    /// Reads a list for a rule that counts by `by`. Addresses and networks are compared with the client's address, all
    /// other entries with each part of the rule's key.
    fn read(node: &Node, what: &str, by: &KeySpec, problems: &mut Vec<Problem>) -> Self {
        let nodes = match &node.value {
            Value::List(items) => items.iter().collect::<Vec<_>>(),
            _ => vec![node],
        };
        let mut list = Self::default();
        for node in nodes {
            let Some(text) = scalar::text(node, what, problems) else { continue };
            list.written.push(text.to_owned());
            if let Some(network) = parse_network(text) {
                list.networks.insert(network);
            } else if by.is_of_addresses() || looks_like_an_address(text, by) {
                let problem = Problem::new(node.span, format!("invalid address or network `{text}`"));
                problems.push(
                    problem.expected("expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32"),
                );
            } else if by.is_everyone() || by.is_each_request() {
                let problem =
                    Problem::new(node.span, format!("invalid address `{text}`: a rule by `{by}` has no keys"));
                problems.push(problem.expected("expected an address or a network, or another `by`"));
            } else {
                list.keys.insert(by.part_of(text));
            }
        }
        list
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// The entries as written in the file.
    pub fn written(&self) -> &[String] {
        &self.written
    }

    /// Returns `true` if one of these key parts, written as in a file, is in the list.
    pub fn contains_values(&self, by: &KeySpec, values: &[&str]) -> bool {
        by.any_value(values, |address, part| {
            address.is_some_and(|address| self.networks.contains(address)) || self.keys.contains(part)
        })
    }

    /// Returns `true` if a request is in the list, by its key or its address.
    pub fn contains(&self, by: &KeySpec, view: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let by_address =
            || !self.networks.is_empty() && view.ip().is_some_and(|address| self.networks.contains(address));
        let by_key = || !self.keys.is_empty() && by.any_part(request, |part| self.keys.contains(part));
        by_address() || by_key()
    }

    /// Like [`contains`](Self::contains), but also `true` for a request with several values for a part of the key: it
    /// is unknown which value the upstream uses, and one of them may be in the list.
    pub fn may_contain(&self, by: &KeySpec, view: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let is_ambiguous = || !self.keys.is_empty() && by.any_part(request, |part| part == SEVERAL.as_bytes());
        self.contains(by, view, request) || is_ambiguous()
    }
}

/// Returns `true` if the text is most likely a malformed address: `1.2.3.4/99`, `10.0.0.1.5`. Versions (`1.2.3`), times
/// (`12:30`) and MAC addresses (`00:11:22:33:44:55`) are valid keys, unless the rule counts by address.
fn looks_like_an_address(text: &str, by: &KeySpec) -> bool {
    let (address, width) = text.split_once('/').map_or((text, None), |(address, width)| (address, Some(width)));
    let consists_of = |text: &str, known: fn(&u8) -> bool| !text.is_empty() && text.bytes().all(|byte| known(&byte));
    if width.is_some_and(|width| !consists_of(width, u8::is_ascii_digit)) {
        return false;
    }
    let (dots, colons) = (address.matches('.').count(), address.matches(':').count());
    let is_four = consists_of(address, |byte| byte.is_ascii_digit() || *byte == b'.');
    let is_six = consists_of(address, |byte| byte.is_ascii_hexdigit() || b".:".contains(byte));
    let (few_dots, few_colons) = if width.is_some() || by.has_address() { (1, 2) } else { (3, 7) };
    is_four && dots >= few_dots || is_six && colons > 0 && (colons >= few_colons || address.contains("::"))
}
