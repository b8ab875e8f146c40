//! `concurrent` as a map: `concurrent: {limit: 5, until: upstream_done}`.

use crate::document::node::{Node, Value};
use crate::fields::Fields;
use crate::problem::Problem;
use crate::rule::HeldUntil;
use crate::scalar;

/// The fields of the map.
pub(crate) const CONCURRENT: [&str; 2] = ["limit", "until"];
/// Until when a place is held.
pub(crate) const UNTIL: [&str; 2] = ["client_left", "upstream_done"];

/// The number: the value itself, or the map's `limit`.
pub(super) fn limit<'a>(node: &'a Node, problems: &mut Vec<Problem>) -> Option<&'a Node> {
    if !matches!(node.value, Value::Map(_)) {
        return Some(node);
    }
    let mut fields = Fields::of(node, "`concurrent`", CONCURRENT, problems)?;
    let limit = fields.require("limit", problems);
    if let Some(until) = fields.take("until") {
        scalar::word(until, "`until`", &UNTIL, problems);
    }
    fields.finish(problems);
    limit
}

/// Until when places are held: the latest that a `concurrent` says, here or in an override. ([`limit`] reports problems.)
pub(crate) fn held_until<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> HeldUntil {
    let says = |node: &Node| match &node.value {
        Value::Map(entries) => entries.iter().any(|entry| entry.key == "until" && entry.node.text() == Some(UNTIL[1])),
        _ => false,
    };
    if nodes.into_iter().any(says) { HeldUntil::UpstreamDone } else { HeldUntil::ClientLeft }
}

/// Every `concurrent` in `overrides`, whichever way they are written.
pub(crate) fn of_overrides(overrides: &Node) -> Vec<&Node> {
    let each: Vec<&Node> = match &overrides.value {
        Value::Map(entries) => entries.iter().map(|entry| &entry.node).collect(),
        Value::List(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let fields =
        each.into_iter().filter_map(|own| if let Value::Map(fields) = &own.value { Some(fields) } else { None });
    fields.flatten().filter(|field| field.key == "concurrent").map(|field| &field.node).collect()
}
