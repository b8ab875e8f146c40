//! `cost`, `cost_default` and `cost_min`: how many permits a request takes.

use super::Rule;
use super::option::{Combination, Reader, RuleOption};
use crate::expression::Expression;
use crate::json_schema::reference;
use crate::names_in_scope::Wanted;
use diana_core::Cost;
use diana_document::{Node, Value, scalar};
use serde_json::json;

/// The default of `cost_min`, so that no client can make its requests free.
pub(super) const MIN_COST: u64 = 1;

pub(super) const OPTIONS: &[RuleOption] = &[
    RuleOption {
        with_charges: true,
        describe,
        check: |_, fields| {
            if fields.has(&["cost"]) && !fields.has_limit() {
                fields.report("cost", "`cost` needs a `limit`", "remove `cost`, or add a `limit`");
            }
        },
        ..RuleOption::new(
            "cost",
            |_| {
                json!({
                    "description": "the cost of a request: a number or an expression",
                    "anyOf": [{"$ref": "#/$defs/count"}, {"type": "string"}],
                    "examples": [1, "size(request.path)"],
                })
            },
            |node, rule, reader| rule.cost = read(node, reader).unwrap_or_default(),
        )
    },
    RuleOption {
        with_charges: true,
        check: |rule, fields| {
            check_needs_expression(rule, "cost_default", fields);
            check_needs_expression(rule, "cost_min", fields);
            if rule.cost_default.is_some_and(|cost| cost.get() < rule.cost_min) {
                let what = "`cost_default` is less than `cost_min`";
                fields.report("cost_default", what, "expected at least `cost_min`");
            }
        },
        ..RuleOption::new(
            "cost_default",
            |_| {
                let what = "the cost of a request whose `cost` fails; without it, such a request is denied with 400";
                reference("count", what)
            },
            |node, rule, reader| {
                let cost = scalar::count(node, "`cost_default`", 1, reader.problems);
                rule.cost_default = cost.and_then(|cost| Cost::new(cost).ok());
            },
        )
    },
    RuleOption {
        with_charges: true,
        ..RuleOption::new(
            "cost_min",
            |_| reference("count_or_none", "the minimum cost if `cost` is an expression; 1 by default"),
            |node, rule, reader| {
                rule.cost_min = scalar::count(node, "`cost_min`", 0, reader.problems).unwrap_or(MIN_COST);
            },
        )
    },
];

/// The cost of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostOf {
    /// 1, because the rule has no `cost`.
    #[default]
    Request,
    /// A fixed cost.
    Fixed(Cost),
    /// The value of an expression, with the rule's `cost_min` and `cost_default`.
    Expression(Expression),
}

fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Option<CostOf> {
    let is_number = node.text().is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_'));
    if is_number || !matches!(node.value, Value::Text(_)) {
        let count = scalar::count(node, "`cost`", 1, reader.problems)?;
        return Cost::new(count).ok().map(CostOf::Fixed);
    }
    reader.scope.expression(node, "`cost`", Wanted::Number, reader.problems).map(CostOf::Expression)
}

fn describe(rule: &Rule) -> Option<String> {
    match &rule.cost {
        CostOf::Request => None,
        CostOf::Fixed(cost) if cost.get() == 1 => None,
        CostOf::Fixed(cost) => Some(format!("each request costs {}", cost.get())),
        CostOf::Expression(expression) => {
            let minimum = match rule.cost_min {
                0 => ", not counted if that is 0".to_owned(),
                1 => String::new(),
                minimum => format!(", at least {minimum}"),
            };
            let failed = match rule.cost_default {
                Some(cost) => format!("{} if that fails", cost.get()),
                None => "denied with 400 if that fails".to_owned(),
            };
            Some(format!("the cost of a request is `{expression}`{minimum}; {failed}"))
        }
    }
}

/// Reports a setting of an expression without one.
fn check_needs_expression(rule: &Rule, name: &str, fields: &mut Combination<'_>) {
    // A problem with the cost itself has been reported already.
    let is_invalid = || fields.entry("cost").is_some_and(|entry| entry.node.text().is_some());
    match rule.cost {
        _ if !fields.has(&[name]) => {}
        CostOf::Expression(_) => {}
        CostOf::Request if is_invalid() => {}
        CostOf::Request => fields.report(name, format!("`{name}` needs a `cost`"), "remove it, or add a `cost`"),
        CostOf::Fixed(_) => {
            let what = format!("`{name}` needs a `cost` that is an expression: a number cannot fail");
            fields.report(name, what, "remove it");
        }
    }
}
