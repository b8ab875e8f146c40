//! The JSON Schema of the rule file, for editors: completion, field documentation, and errors while typing.
//!
//! # What always holds (`diana-server/tests/it/rule_files/schema.rs`)
//! - It has exactly the fields that the parser knows: both use the same lists.
//! - The schema accepts everything that the parser accepts. Checks that only the parser can do (whether a time zone
//!   exists, whether two fields make sense together) are left to it; both reject unknown fields and values of the wrong
//!   type.
//!
//! The other functions build the schemas of [sections](crate::Section), from the definitions that the file's schema
//! has: `text`, `count` (at least 1), `count_or_none`, `number`, `duration`, `rate`, `bytes`, `byte_rate`, `percent`,
//! `status`, `url`, `network`, `answer` and `variable`.
//!
//! A text may contain `${VARIABLES}`, which the editor can't resolve, so such a text is accepted everywhere.

mod rule;
mod sections;
mod values;

use crate::file;
pub use crate::json_schema::{
    flag, listen, object, one_or_any, one_or_more, reference, reference_with, requiring, url, word,
};
use crate::matching::parse::ROUTE_FIELDS;
use crate::matching::schema::match_field;
use crate::registry::Registry;
use serde_json::{Value, json};

/// Returns the JSON Schema (2020-12) of a rule file, including everything in the registry.
///
/// ```
/// use diana_rules::{Registry, schema};
///
/// let schema = schema::rule_file(&Registry::default());
/// assert_eq!(schema["properties"]["rules"]["items"]["$ref"], "#/$defs/rule");
/// assert!(schema["$defs"]["rule"]["properties"]["limit"]["description"].is_string());
/// ```
pub fn rule_file(registry: &Registry) -> Value {
    let mut schema = object("a rule file", &file::fields(registry), |name| sections::field(name, registry));
    // With a config server, the rules may be remote.
    schema["anyOf"] = json!([{"required": ["rules"]}, {"required": ["remote"]}]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The rule file of Diana");
    let mut definitions = values::definitions();
    definitions.extend(rule::definitions(registry));
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// A `match` by host and path; see [`Match::parse_route`](crate::matching::Match::parse_route).
pub fn place() -> Value {
    let mut place = object("the requests, by host and path", &ROUTE_FIELDS, match_field);
    place["minProperties"] = json!(1);
    place
}
