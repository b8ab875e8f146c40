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
use crate::matching::parse::ROUTE_FIELDS;
use crate::registry::Registry;
pub(crate) use rule::match_field;
use serde_json::{Map, Value, json};
pub(crate) use values::option;

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

/// A map with exactly these fields.
pub fn object(description: &str, fields: &[&str], schema_of: impl Fn(&str) -> Value) -> Value {
    let properties = fields.iter().map(|field| ((*field).to_owned(), schema_of(field))).collect::<Map<_, _>>();
    json!({"type": "object", "description": description, "properties": properties, "additionalProperties": false})
}

/// Adds required fields.
pub fn requiring(mut schema: Value, fields: &[&str]) -> Value {
    schema["required"] = json!(fields);
    schema
}

/// A reference to a definition, with its own description.
pub fn reference(definition: &str, description: &str) -> Value {
    json!({"$ref": format!("#/$defs/{definition}"), "description": description})
}

/// A reference to a definition, with its own description and examples.
pub fn reference_with(definition: &str, description: &str, examples: &[&str]) -> Value {
    let mut schema = reference(definition, description);
    schema["examples"] = json!(examples);
    schema
}

/// An enumeration of words.
pub fn word(description: &str, words: &[&str]) -> Value {
    json!({"description": description, "anyOf": [{"enum": words}, {"$ref": "#/$defs/variable"}]})
}

/// `true` or `false`.
pub fn flag(description: &str) -> Value {
    // A variable is a text.
    json!({"description": description, "anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}, {"$ref": "#/$defs/variable"}]})
}

/// One value, or a list of at least one.
pub fn one_or_more(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of, "minItems": 1});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}

/// One value, or a list that may be empty.
pub fn one_or_any(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}

/// The addresses of `listen`; see [`scalar::listen`](diana_document::scalar::listen).
pub fn listen(example: &str) -> Value {
    let address = json!({"type": "string", "pattern": r":[0-9]+$|\$\{"});
    one_or_more(address, "an address and a port", &[example, "[::1]:8080"])
}

/// A URL with one of these schemes, such as `redis://`.
pub fn url(description: &str, schemes: &[&str], examples: &[&str]) -> Value {
    let schemes = schemes.iter().map(|scheme| scheme.replace('+', r"\+")).collect::<Vec<_>>().join("|");
    json!({
        "description": description,
        "type": "string",
        "pattern": format!(r"^({schemes})[\s\S]|\$\{{"),
        "examples": examples,
    })
}

/// A `match` by host and path; see [`Match::parse_route`](crate::matching::Match::parse_route).
pub fn place() -> Value {
    let mut place = object("the requests, by host and path", &ROUTE_FIELDS, match_field);
    place["minProperties"] = json!(1);
    place
}
