//! `name`, `by` and `match`: which rule it is, what it counts by, and which requests it matches. They are read before all
//! other options, which depend on them.

use super::option::RuleOption;
use crate::json_schema::{object, one_or_more};
use crate::matching;
use crate::matching::schema::match_field;
use diana_document::{Node, Problem, scalar};
use serde_json::json;

/// The maximum length of a rule's name.
const MAX_NAME_LENGTH: usize = 128;

pub(super) const OPTIONS: &[RuleOption] = &[
    RuleOption {
        with_charges: true,
        ..RuleOption::new(
            "name",
            |_| {
                json!({
                    "description": "the name of the rule; counts are stored by name",
                    "type": ["string", "number"],
                    "pattern": r"^[^\s/]{1,128}$|\$\{",
                })
            },
            |_, _, _| {},
        )
        .without_effect_on_decisions(|rule| (rule.name, rule.span) = Default::default())
    },
    RuleOption {
        with_charges: true,
        check: |rule, fields| {
            if fields.is_whole && rule.by.is_each_request() && fields.has_limit() {
                let what = "`by: request` counts each request separately, so this limit never denies a request";
                fields.report("by", what, "use another `by`; `request` is for `bandwidth`");
            }
        },
        ..RuleOption::new(
            "by",
            |_| {
                one_or_more(
                    json!({"$ref": "#/$defs/by"}),
                    "the key to count by: all requests (global), or each account, address ...; of several, each combination",
                    &["account", "ip", "ip/24", "header(x-api-key)"],
                )
            },
            |_, _, _| {},
        )
    },
    RuleOption {
        with_charges: true,
        ..RuleOption::new(
            "match",
            |registry| {
                let fields = matching::parse::FIELDS.into_iter().chain(registry.matchers()).collect::<Vec<_>>();
                object("the requests that the rule matches; all by default", &fields, match_field)
            },
            |_, _, _| {},
        )
    },
];

/// Reads the name of a rule.
pub(super) fn read_name(node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    let name = scalar::text(node, "`name`", problems)?;
    let is_valid = |character: char| character.is_alphanumeric() || "._-".contains(character);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_valid) {
        let problem = Problem::new(node.span, format!("invalid rule name `{name}`"));
        problems.push(problem.expected("expected at most 128 letters, digits, `.`, `_` and `-`"));
        return None;
    }
    Some(name.to_owned())
}
