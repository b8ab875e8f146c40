//! Single values: rates, durations, counts, amounts of data; and the options of the built-in algorithms.

use super::{object, reference_with, requiring};
use crate::response;
use diana_core::MAX_PERMITS;
use serde_json::{Map, Value, json};

/// A text that matches `pattern`, or contains a variable.
fn text_like(pattern: &str, examples: &[&str]) -> Value {
    json!({"type": "string", "pattern": format!(r"{pattern}|\$\{{"), "examples": examples})
}

/// The value types, defined once for all fields.
pub(super) fn definitions() -> Map<String, Value> {
    let count = |min: u64| {
        let number = json!({"type": "integer", "minimum": min, "maximum": MAX_PERMITS});
        json!({"anyOf": [number, text_like(r"^[0-9_]+$", &[])]})
    };
    let definitions = [
        ("variable", json!({"type": "string", "pattern": r"\$\{", "examples": ["${NAME}"]})),
        // A number is also a valid text: `name: 7`.
        ("text", json!({"type": ["string", "number"]})),
        (
            "rate",
            text_like(r"^\s*[0-9_]+(\.[0-9_]+)?\s*(/|per )", &["100/s", "5/10min", "1000/day", "100/s burst 200"]),
        ),
        ("duration", text_like(r"^\s*[0-9]*\s*[A-Za-zµ]+\s*$", &["200ms", "10s", "5min", "1h"])),
        ("count", count(1)),
        ("count_or_none", count(0)),
        ("number", json!({"anyOf": [{"type": "number", "minimum": 0}, text_like(r"^[0-9.eE+-]+$", &[])]})),
        ("bytes", text_like(r"^\s*[0-9_]+\s*[A-Za-z]+\s*$", &["512KiB", "10MB"])),
        ("byte_rate", text_like(r"^\s*[0-9_]+\s*[A-Za-z]+\s*/\s*[0-9]*\s*[A-Za-zµ]+\s*$", &["512KiB/s", "100Mbit/s"])),
        ("percent", text_like(r"^\s*[0-9]+(\.[0-9])?\s*%\s*$", &["85%", "99.5%"])),
        (
            "status",
            json!({"anyOf": [{"type": "integer", "minimum": 400, "maximum": 599}, text_like("^[45][0-9][0-9]$", &[])]}),
        ),
        ("url", text_like("^([Hh][Tt][Tt][Pp][Ss]?|[Hh]2[Cc])://", &["http://127.0.0.1:3000"])),
        (
            "answer",
            requiring(
                object("the response body of a denied request", &response::FIELDS, |field| match field {
                    "type" => {
                        let examples = ["text/plain; charset=utf-8", "application/json", "text/html"];
                        let mut own = text_like(r"^[^/\s]+/[^/\s]", &examples);
                        own["description"] = json!("the `Content-Type`");
                        own
                    }
                    _ => reference_with("text", "the body, at most 64 KiB", &["slow down"]),
                }),
                &response::FIELDS,
            ),
        ),
        ("network", text_like(r"^[0-9A-Fa-f.:]+(/[0-9]+)?$", &["10.0.0.0/8", "10.0.0.7", "2001:db8::/32"])),
    ];
    definitions.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
