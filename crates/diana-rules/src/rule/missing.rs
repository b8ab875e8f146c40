//! `missing`: what happens to a request without the key of `by`.

use super::Rule;
use super::option::{Combination, RuleOption};
use super::over_limit::read_status;
use crate::json_schema::{object, reference, requiring};
use diana_document::map_reader::MapReader;
use diana_document::{Node, Problem, Value, scalar};
use serde_json::json;

/// The fields of `missing`, if it is a map.
pub(crate) const FIELDS: [&str; 1] = ["deny"];
/// The values of `missing`, if it is a word.
const WORDS: [&str; 3] = ["skip", "deny", "shared"];

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    with_charges: true,
    describe,
    check,
    ..RuleOption::new(
        "missing",
        |_| schema(),
        |node, rule, reader| {
            (rule.missing, rule.missing_status) = read(node, reader.problems).unwrap_or_default();
        },
    )
    .without_effect_on_decisions(|rule| rule.missing_status = None)
}];

/// The handling of a request whose key is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The rule does not apply to the request.
    #[default]
    Skip,
    /// The request is denied.
    Deny,
    /// All such requests share one count.
    Shared,
}

/// Reads `skip`, `deny` or `shared`; or `{deny: 401}` with its own status.
fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<(Missing, Option<u16>)> {
    if matches!(node.value, Value::Map(_)) {
        let mut fields = MapReader::of(node, "`missing`", FIELDS, problems)?;
        let status = fields.require("deny", problems).and_then(|node| read_status(node, problems));
        fields.finish(problems);
        return Some((Missing::Deny, status));
    }
    let missing = match scalar::word(node, "`missing`", &WORDS, problems)? {
        1 => Missing::Deny,
        2 => Missing::Shared,
        _ => Missing::Skip,
    };
    Some((missing, None))
}

fn describe(rule: &Rule) -> Option<String> {
    let paths = &rule.matches.paths;
    let is_in_path = |name: &str| !paths.is_empty() && paths.iter().all(|path| path.has_parameter(name));
    let missing = rule.by.may_be_missing(is_in_path)?;
    Some(match (rule.missing, rule.missing_status) {
        (Missing::Skip, _) => format!("requests without {missing} are not limited by this rule"),
        (Missing::Deny, Some(status)) if !rule.matches.is_for_envoy() => {
            format!("requests without {missing} are denied with {status}")
        }
        (Missing::Deny, _) => format!("requests without {missing} are denied"),
        (Missing::Shared, _) => format!("requests without {missing} are counted together"),
    })
}

fn check(rule: &Rule, fields: &mut Combination<'_>) {
    if fields.is_whole && rule.missing != Missing::Skip && rule.by.is_everyone() {
        let what = "`missing` has no effect: a rule by `global` has no key";
        fields.report("missing", what, "remove `missing`");
    }
}

fn schema() -> serde_json::Value {
    let denied = object("denied with its own status", &FIELDS, |_| reference("status", "the status of the response"));
    json!({
        "description": "the handling of a request without the key of `by`",
        "anyOf": [{"enum": WORDS}, {"$ref": "#/$defs/variable"}, requiring(denied, &FIELDS)],
    })
}
