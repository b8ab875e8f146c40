//! The JSON Schema of the fields of `match`.

use super::descriptor;
use crate::json_schema::{object, one_or_more, reference_with};
use serde_json::{Value, json};

/// Returns the schema of a field of `match`.
pub(crate) fn match_field(name: &str) -> Value {
    let text = || json!({"$ref": "#/$defs/text"});
    match name {
        "path" => {
            let path = json!({"type": "string", "pattern": r"^/|\$\{"});
            let what = "* matches any characters within a segment, ** any number of segments, {name} one segment";
            one_or_more(path, what, &["/search/**", "/users/{id}", "/files/*.pdf"])
        }
        "method" => one_or_more(text(), "the method, as in GET", &["GET", "POST", "PUT", "DELETE"]),
        "host" => one_or_more(text(), "the host, without its port", &["api.example.com", "*.example.com"]),
        "header" => {
            let values = one_or_more(text(), "one of these values; * matches any characters", &["free", "b*"]);
            json!({"description": "headers, by name", "type": "object", "additionalProperties": values})
        }
        "ip" => one_or_more(json!({"$ref": "#/$defs/network"}), "the client's address", &["10.0.0.0/8"]),
        "domain" => one_or_more(text(), "the domain of requests from Envoy", &["shop"]),
        "descriptor" => {
            let value = json!({"anyOf": [
                one_or_more(text(), "one of these values; * matches any characters", &["free", "b*"]),
                {"type": "null", "description": "any value"},
                object("some values, without others", &descriptor::VALUES, |field| {
                    let what = if field == "is" { "one of these values" } else { "none of these values" };
                    one_or_more(text(), &format!("{what}; * matches any characters"), &["free", "b*"])
                }),
            ]});
            let has = json!({
                "description": "entries that the descriptor has, by key",
                "type": "object",
                "minProperties": 1,
                "additionalProperties": value,
            });
            let mut entry = has.clone();
            entry["maxProperties"] = json!(1);
            let exactly = json!({
                "description": "exactly the entries of the descriptor, in their order",
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [text(), entry]},
            });
            json!({
                "description": "the descriptor of requests from Envoy",
                "anyOf": [has, exactly],
                "examples": [{"plan": "free"}],
            })
        }
        "when" => reference_with("text", "a condition (CEL)", &["request.headers[\"x-test\"] != \"1\""]),
        "call" => {
            let names = one_or_more(text(), "the arguments of calls", &["phone"]);
            let what = "the rule is for calls that name it, not for requests; the names of their arguments";
            json!({"description": what, "anyOf": [{"const": true}, names]})
        }
        _ => json!({"description": "registered by this program"}),
    }
}
