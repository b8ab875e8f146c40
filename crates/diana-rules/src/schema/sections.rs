//! The sections of the file, outside of the rules.

use super::{a, flag, gateway, object, one_or_more, requiring, such_as, word};
use crate::file::{self, MOST_RULES, NEWEST_VERSION, remote, store};
use crate::identity::settings;
use serde_json::{Value, json};

/// A top-level field.
pub(super) fn field(name: &str) -> Value {
    debug_assert!(file::FIELDS.contains(&name), "`{name}` is no section");
    match name {
        "version" => json!({
            "description": "by which version of the rule file this one is read",
            "enum": [NEWEST_VERSION, NEWEST_VERSION.to_string()],
        }),
        "revision" => json!({
            "description": "which state of the rules this is: raised with each change, so that of two gateways the newer one counts",
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        }),
        "gateway" => gateway::gateway(),
        "admin" => gateway::admin(),
        "identity" => identity(),
        "store" => object("where the counts are; without it, in this process", &store::FIELDS, of_store),
        "remote" => {
            requiring(object("rules from a config server, which win over these", &remote::FIELDS, of_remote), &["from"])
        }
        "status" => a("status", "what a refusal answers, unless its rule says otherwise; 503 by default"),
        "answer" => a("answer", "what a refusal says in your own words, unless its rule says otherwise"),
        "rules" => json!({
            "description": "the rules, in order",
            "type": "array",
            "items": {"$ref": "#/$defs/rule"},
            "maxItems": MOST_RULES,
        }),
        _ => json!({}),
    }
}

/// The sources of names, and the verification of tokens.
fn identity() -> Value {
    let jwt =
        object(
            "how tokens are verified, so that their claims can be believed",
            &settings::FIELDS,
            |field| match field {
                "secret" => such_as("text", "the secret shared with the issuer", &["${JWT_SECRET}"]),
                "public_key" => a("text", "the issuer's public key, as PEM"),
                "verify" => flag("false if somebody before us verifies tokens"),
                "algorithm" => such_as("text", "how tokens are signed", &["HS256", "RS256", "ES256", "EdDSA"]),
                "from" => {
                    such_as("text", "where the token is", &["header(authorization)", "cookie(token)", "query(token)"])
                }
                "issuer" => one_or_more(json!({"$ref": "#/$defs/text"}), "whose tokens are believed", &[]),
                "audience" => one_or_more(json!({"$ref": "#/$defs/text"}), "for whom a token must be", &[]),
                "leeway" => a("duration", "how far clocks may be off"),
                _ => json!({}),
            },
        );
    let examples = ["header(x-account-id)", "cookie(session)", "query(key)", "jwt(sub)", "ip", "cel(\"...\")"];
    let source = such_as("text", "where this name comes from", &examples);
    json!({
        "type": "object",
        "description": "where the names come from that rules count by",
        "properties": {"account": source, "device": source, "jwt": jwt},
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_-]*$"},
        "additionalProperties": source,
    })
}

/// A URL with one of these schemes.
fn address(description: &str, schemes: &[&str], examples: &[&str]) -> Value {
    let schemes = schemes.iter().map(|scheme| scheme.replace('+', r"\+")).collect::<Vec<_>>().join("|");
    json!({
        "description": description,
        "type": "string",
        "pattern": format!(r"^({schemes})[\s\S]|\$\{{"),
        "examples": examples,
    })
}

fn of_store(name: &str) -> Value {
    match name {
        "memory" => a("bytes", "the most memory that the counts of this process take"),
        "on_full" => word("what becomes of new keys beyond that", &["share", "deny", "allow"]),
        "redis" => {
            let examples = [
                "redis://127.0.0.1:6379",
                "rediss://a:6379",
                "redis+cluster://a:1,b:2",
                "redis+sentinel://a:1,b:2/name",
            ];
            address("the Redis that all instances share", &store::SCHEMES, &examples)
        }
        "prefix" => such_as("text", "what the names of all keys begin with", &["diana:"]),
        "timeout" => a("duration", "how long a request waits for Redis; 20ms by default"),
        "when_down" => word("what is answered while Redis is unreachable", &["local", "allow", "deny"]),
        "lease" => json!({
            "description": "how many permits a busy key takes at once",
            "anyOf": [{"enum": ["off", "auto"]}, {"$ref": "#/$defs/count"}],
        }),
        "batching" => flag("whether the requests of one moment travel together"),
        "permits_for" => a("duration", "for how long a permit of a `concurrent` limit is held at most"),
        _ => json!({}),
    }
}

fn of_remote(name: &str) -> Value {
    match name {
        "from" => {
            let examples = [
                "etcd://127.0.0.1:2379/diana/rules",
                "https://config.example.com/rules.yaml",
                "redis://127.0.0.1:6379/0",
            ];
            address("where the document of rules is", &remote::SCHEMES, &examples)
        }
        "token" => such_as("text", "what is shown as a bearer token", &["${TOKEN}"]),
        "when_down" => word("which rules apply while the config server is unreachable", &remote::WHEN_DOWN),
        "poll" => a("duration", "how often a web server is asked"),
        "long_poll" => a("duration", "how long a web server may hold its answer until there is news"),
        "timeout" => a("duration", "how long one question may take"),
        "keep" => a("text", "the folder in which the last good document is kept"),
        "format" => word("how the document is written, where its name does not tell", &["yaml", "json", "toml"]),
        _ => json!({}),
    }
}
