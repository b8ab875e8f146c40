//! Lists of keys and addresses: `allow: [10.0.0.0/8, vip-7]`.

use crate::attributes::Attributes;
use crate::by::{By, KeyBytes};
use crate::document::node::{Node, Value};
use crate::matching::Seen;
use crate::matching::networks::Networks;
use crate::problem::Problem;
use crate::scalar;
use hashbrown::HashSet;

/// Some keys, and some addresses and networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyList {
    pub(crate) networks: Networks,
    keys: HashSet<KeyBytes>,
    written: Vec<String>,
}

impl KeyList {
    /// Reads a list for a rule that counts `by`. What is an address or a network is compared with the client's address, all
    /// else with each part of the rule's key.
    pub(super) fn read(node: &Node, what: &str, by: &By, problems: &mut Vec<Problem>) -> Self {
        let nodes = match &node.value {
            Value::List(items) => items.iter().collect::<Vec<_>>(),
            _ => vec![node],
        };
        let mut list = Self::default();
        for node in nodes {
            let Some(text) = scalar::text(node, what, problems) else { continue };
            list.written.push(text.to_owned());
            if let Some(network) = Networks::read(text) {
                list.networks.insert(network);
            } else if by.is_everyone() || by.is_each_request() {
                let problem =
                    Problem::new(node.span, format!("`{text}` is no address, and a rule by `{by}` has no keys"));
                problems.push(problem.expected("an address or a network, or another `by`"));
            } else {
                list.keys.insert(by.part_of(text));
            }
        }
        list
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// As the file writes them.
    pub fn written(&self) -> &[String] {
        &self.written
    }

    pub(crate) fn contains(&self, by: &By, seen: &Seen<'_>, request: &dyn Attributes) -> bool {
        let by_address =
            || !self.networks.is_empty() && seen.ip().is_some_and(|address| self.networks.contains(address));
        let by_key = || !self.keys.is_empty() && by.any_part(request, |part| self.keys.contains(part));
        by_address() || by_key()
    }
}
