//! `charges`: a rule without limits of its own, which charges another one.

use super::option::{Combination, RuleOption, rule_options};
use super::{Missing, Rule};
use crate::json_schema::reference_with;
use crate::limit::LIMITS;
use diana_document::scalar;

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    is_limit: true,
    with_charges: true,
    ..RuleOption::new(
        "charges",
        |_| {
            let what = "the rule whose counts this one charges, even over the limit; this one denies no request";
            reference_with("text", what, &["tokens"])
        },
        |node, rule, reader| rule.charges = scalar::text(node, "`charges`", reader.problems).map(str::to_owned),
    )
    // Such a rule limits nothing, and is not compared.
    .without_effect_on_decisions(|rule| rule.charges = None)
}];

/// Reports the fields that have no meaning for a rule that only charges another one.
pub(super) fn check_fields(rule: &Rule, fields: &mut Combination<'_>) {
    let options = rule_options().filter(|option| !option.with_charges).map(|option| option.name);
    for name in LIMITS.into_iter().chain(options) {
        if fields.has(&[name]) {
            let what = format!("`{name}` cannot be combined with `charges`: the rule only charges another one");
            fields.report(name, what, "remove one of the two");
        }
    }
    if rule.missing == Missing::Deny {
        let what = "`missing: deny` cannot be combined with `charges`: the rule never denies";
        fields.report("missing", what, "remove it");
    }
}
