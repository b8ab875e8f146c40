//! The JSON Schema of the rule file, for editors: completion, field documentation, and errors while typing.
//!
//! # What always holds (tests/it/schema.rs)
//! - It has exactly the fields that the parser knows: both use the same lists.
//! - The schema accepts everything that the parser accepts. Checks that only the parser can do (whether a time zone
//!   exists, whether two fields make sense together) are left to it; both reject unknown fields and values of the wrong
//!   type.
//!
//! A text may contain `${VARIABLES}`, which the editor can't resolve, so such a text is accepted everywhere.

mod gateway;
mod rule;
mod sections;
mod values;

use crate::file;
use crate::registry::Registry;
use serde_json::{Map, Value, json};
pub(crate) use values::option;

/// Returns the JSON Schema (2020-12) of a rule file, including everything in the registry.
///
/// ```
/// use diana_rules::{Registry, schema};
///
/// let schema = schema(&Registry::default());
/// assert_eq!(schema["properties"]["rules"]["items"]["$ref"], "#/$defs/rule");
/// assert!(schema["$defs"]["rule"]["properties"]["limit"]["description"].is_string());
/// ```
pub fn schema(registry: &Registry) -> Value {
    let mut schema = object("a rule file", &file::FIELDS, sections::field);
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
fn object(description: &str, fields: &[&str], schema_of: impl Fn(&str) -> Value) -> Value {
    let properties = fields.iter().map(|field| ((*field).to_owned(), schema_of(field))).collect::<Map<_, _>>();
    json!({"type": "object", "description": description, "properties": properties, "additionalProperties": false})
}

/// Adds required fields.
fn requiring(mut schema: Value, fields: &[&str]) -> Value {
    schema["required"] = json!(fields);
    schema
}

/// A reference to a definition, with its own description.
fn a(definition: &str, description: &str) -> Value {
    json!({"$ref": format!("#/$defs/{definition}"), "description": description})
}

/// The same with examples.
fn such_as(definition: &str, description: &str, examples: &[&str]) -> Value {
    let mut schema = a(definition, description);
    schema["examples"] = json!(examples);
    schema
}

/// An enumeration of words.
fn word(description: &str, words: &[&str]) -> Value {
    json!({"description": description, "anyOf": [{"enum": words}, {"$ref": "#/$defs/variable"}]})
}

/// `true` or `false`.
fn flag(description: &str) -> Value {
    // A variable is a text.
    json!({"description": description, "anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}, {"$ref": "#/$defs/variable"}]})
}

/// One value, or a list of at least one.
fn one_or_more(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of, "minItems": 1});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}

/// One value, or a list that may be empty.
fn any_number(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}
