//! The parts of a JSON Schema, for the schema of each field beside its parser.

use serde_json::{Map, Value, json};

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
