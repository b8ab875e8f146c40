//! The sections of the file, outside of the rules.

use super::{flag, object, one_or_more, reference, reference_with, url, word};
use crate::file::{MOST_RULES, NEWEST_VERSION, store};
use crate::identity::settings;
use crate::registry::Registry;
use serde_json::{Value, json};

/// A top-level field.
pub(super) fn field(name: &str, registry: &Registry) -> Value {
    match name {
        "version" => json!({
            "description": "by which version of the rule file this one is read",
            "enum": [NEWEST_VERSION, NEWEST_VERSION.to_string()],
        }),
        "revision" => json!({
            "description": "which state of the rules this is: raised with each change, so that of two gateways the newer one counts",
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        }),
        "identity" => identity(),
        "store" => object("where the counts are; without it, in this process", &store::FIELDS, of_store),
        "status" => reference("status", "what a refusal answers, unless its rule says otherwise; 503 by default"),
        "answer" => reference("answer", "what a refusal says in your own words, unless its rule says otherwise"),
        "rules" => json!({
            "description": "the rules, in order",
            "type": "array",
            "items": {"$ref": "#/$defs/rule"},
            "maxItems": MOST_RULES,
        }),
        section => match registry.find_section(section) {
            Some(kind) => (kind.schema)(),
            None => json!({"description": "read by another program", "type": "object"}),
        },
    }
}

/// The sources of names, and the verification of tokens.
fn identity() -> Value {
    let jwt =
        object(
            "how tokens are verified, so that their claims can be believed",
            &settings::FIELDS,
            |field| match field {
                "secret" => reference_with("text", "the secret shared with the issuer", &["${JWT_SECRET}"]),
                "public_key" => reference("text", "the issuer's public key, as PEM"),
                "verify" => flag("false if somebody before us verifies tokens"),
                "algorithm" => reference_with("text", "how tokens are signed", &["HS256", "RS256", "ES256", "EdDSA"]),
                "from" => reference_with(
                    "text",
                    "where the token is",
                    &["header(authorization)", "cookie(token)", "query(token)"],
                ),
                "issuer" => one_or_more(json!({"$ref": "#/$defs/text"}), "whose tokens are believed", &[]),
                "audience" => one_or_more(json!({"$ref": "#/$defs/text"}), "for whom a token must be", &[]),
                "leeway" => reference("duration", "how far clocks may be off"),
                _ => json!({}),
            },
        );
    let examples = ["header(x-account-id)", "cookie(session)", "query(key)", "jwt(sub)", "ip", "cel(\"...\")"];
    let source = reference_with("text", "where this name comes from", &examples);
    json!({
        "type": "object",
        "description": "where the names come from that rules count by",
        "properties": {"account": source, "device": source, "jwt": jwt},
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_-]*$"},
        "additionalProperties": source,
    })
}

fn of_store(name: &str) -> Value {
    match name {
        "memory" => reference("bytes", "the most memory that the counts of this process take"),
        "on_full" => word("what becomes of new keys beyond that", &["share", "deny", "allow"]),
        "redis" => {
            let examples = [
                "redis://127.0.0.1:6379",
                "rediss://a:6379",
                "redis+cluster://a:1,b:2",
                "redis+sentinel://a:1,b:2/name",
            ];
            url("the Redis that all instances share", &store::SCHEMES, &examples)
        }
        "prefix" => reference_with("text", "what the names of all keys begin with", &["diana:"]),
        "timeout" => reference("duration", "how long a request waits for Redis; 20ms by default"),
        "when_down" => word("what is answered while Redis is unreachable", &["local", "allow", "deny"]),
        "lease" => json!({
            "description": "how many permits a busy key takes at once",
            "anyOf": [{"enum": ["off", "auto"]}, {"$ref": "#/$defs/count"}],
        }),
        "batching" => flag("whether the requests of one moment travel together"),
        "permits_for" => reference("duration", "for how long a permit of a `concurrent` limit is held at most"),
        _ => json!({}),
    }
}
