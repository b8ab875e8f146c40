//! The rule file as a JSON Schema, for editors: completion, what each field means, and red lines while one types.
//!
//! # What always holds (tests/it/schema.rs)
//! - It has the fields that the parser knows, no more and no fewer: both go by the same lists.
//! - What the parser accepts, the schema accepts. What only the parser can know (whether a time zone exists, whether two fields
//!   make sense together) is left to it; an unknown field and a value of the wrong kind are refused by both.
//!
//! A text may have `${VARIABLES}` in it, which the editor does not know, so such a text may be anything.

mod gateway;
mod rule;
mod sections;
mod values;

use crate::file;
use crate::registry::Registry;
use serde_json::{Map, Value, json};
pub(crate) use values::option;

/// The JSON Schema (2020-12) of a rule file whose rules may name what is registered.
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
    // With a configuration centre, the rules may come from there.
    schema["anyOf"] = json!([{"required": ["rules"]}, {"required": ["remote"]}]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The rule file of Diana");
    let mut definitions = values::definitions();
    definitions.extend(rule::definitions(registry));
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// A map with these fields and no others.
fn object(description: &str, fields: &[&str], schema_of: impl Fn(&str) -> Value) -> Value {
    let properties = fields.iter().map(|field| ((*field).to_owned(), schema_of(field))).collect::<Map<_, _>>();
    json!({"type": "object", "description": description, "properties": properties, "additionalProperties": false})
}

/// The same with fields that must be there.
fn requiring(mut schema: Value, fields: &[&str]) -> Value {
    schema["required"] = json!(fields);
    schema
}

/// Something that is defined once, described for the place where it is used.
fn a(definition: &str, description: &str) -> Value {
    json!({"$ref": format!("#/$defs/{definition}"), "description": description})
}

/// The same with examples.
fn such_as(definition: &str, description: &str, examples: &[&str]) -> Value {
    let mut schema = a(definition, description);
    schema["examples"] = json!(examples);
    schema
}

/// One of a few words.
fn word(description: &str, words: &[&str]) -> Value {
    json!({"description": description, "anyOf": [{"enum": words}, {"$ref": "#/$defs/variable"}]})
}

/// `true` or `false`.
fn flag(description: &str) -> Value {
    // As a text it is what a variable says.
    json!({"description": description, "anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}, {"$ref": "#/$defs/variable"}]})
}

/// One, or a list of at least one.
fn one_or_more(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of, "minItems": 1});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}

/// One, or a list that may be empty.
fn any_number(of: Value, description: &str, examples: &[&str]) -> Value {
    let list = json!({"type": "array", "items": of});
    json!({"description": description, "anyOf": [of, list], "examples": examples})
}
