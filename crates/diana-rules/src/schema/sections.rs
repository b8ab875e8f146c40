//! The sections of the file, outside of the rules.

use super::{flag, object, one_or_more, reference, reference_with, requiring, url, word};
use crate::file::{MAX_RULES, NEWEST_VERSION, store};
use crate::identity::jwt_settings;
use crate::log_level::LOG;
use crate::logged_keys::{LOG_KEYS, TOP_KEYS};
use crate::permissions::{self, ACCESS, FIELDS, RULE_FIELDS};
use crate::registry::Registry;
use serde_json::{Value, json};

/// A top-level field.
pub(super) fn field(name: &str, registry: &Registry) -> Value {
    match name {
        "version" => json!({
            "description": "the version of the rule file format",
            "enum": [NEWEST_VERSION, NEWEST_VERSION.to_string()],
        }),
        "revision" => json!({
            "description": "the revision of the rules, raised with each change, to tell which of two is newer",
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        }),
        "identity" => identity(),
        "store" => object("the store of the counts; this process by default", &store::FIELDS, of_store),
        "log" => word("the level at which denials are logged, unless a rule has its own; info by default", &LOG),
        "log_keys" => word("how logs write the keys of requests: as they are, as a hash, or not at all", &LOG_KEYS),
        "top_keys" => word("whether the heaviest keys of each rule are recorded; on by default", &TOP_KEYS),
        "status" => reference("status", "the status of a denied request, unless its rule has its own; 503 by default"),
        "answer" => reference("answer", "the custom response body of a denied request, unless its rule has its own"),
        "permissions" => of_permissions(),
        "rules" => json!({
            "description": "the rules, in order",
            "type": "array",
            "items": {"$ref": "#/$defs/rule"},
            "maxItems": MAX_RULES,
        }),
        section => match registry.find_section(section) {
            Some(kind) => (kind.schema)(),
            None => json!({"description": "read by another program", "type": "object"}),
        },
    }
}

/// Who may call what.
fn of_permissions() -> Value {
    let text = || json!({"$ref": "#/$defs/text"});
    let rule = object("one permission; other fields are names of `identity`, such as account", &RULE_FIELDS, |field| {
        match field {
            "allow" => flag("whether requests that this rule applies to have permission"),
            "path" => one_or_more(text(), "the paths, such as /admin/**", &["/admin/**"]),
            "method" => one_or_more(text(), "the methods", &["GET"]),
            "host" => one_or_more(text(), "the hosts", &["*.example.com"]),
            _ => one_or_more(text(), "the addresses and networks of clients", &["10.0.0.0/8"]),
        }
    });
    let mut rule = requiring(rule, &["allow"]);
    rule["additionalProperties"] = one_or_more(text(), "the values that this name of `identity` must have", &[]);
    let permissions = object("who may call what; the first rule that applies decides", &FIELDS, |field| match field {
        "default" => word("the decision about requests to which no rule applies; allow by default", &ACCESS),
        "shadow" => flag("whether denials are only logged"),
        _ => {
            json!({"description": "the permissions, in order", "type": "array", "items": rule, "maxItems": permissions::MAX_RULES})
        }
    });
    requiring(permissions, &["rules"])
}

/// The sources of names, and the verification of tokens.
fn identity() -> Value {
    let jwt = object("the verification of tokens, so that their claims can be used", &jwt_settings::FIELDS, |field| {
        match field {
            "secret" => reference_with("text", "the secret shared with the issuer", &["${JWT_SECRET}"]),
            "public_key" => reference("text", "the issuer's public key, as PEM"),
            "verify" => flag("false if another component verifies the tokens"),
            "algorithm" => {
                reference_with("text", "the signature algorithm of the tokens", &["HS256", "RS256", "ES256", "EdDSA"])
            }
            "from" => reference_with(
                "text",
                "the location of the token",
                &["header(authorization)", "cookie(token)", "query(token)"],
            ),
            "issuer" => one_or_more(json!({"$ref": "#/$defs/text"}), "the accepted issuers", &[]),
            "audience" => one_or_more(json!({"$ref": "#/$defs/text"}), "the accepted audiences", &[]),
            "leeway" => reference("duration", "the accepted difference between clocks"),
            _ => json!({}),
        }
    });
    let examples = ["header(x-account-id)", "cookie(session)", "query(key)", "jwt(sub)", "ip", "cel(\"...\")"];
    let source = reference_with("text", "the source of this name", &examples);
    json!({
        "type": "object",
        "description": "the sources of the names that rules count by",
        "properties": {"account": source, "device": source, "jwt": jwt},
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_-]*$"},
        "additionalProperties": source,
    })
}

fn of_store(name: &str) -> Value {
    match name {
        "memory" => reference("bytes", "the maximum memory for the counts of this process"),
        "on_full" => word("the handling of new keys when that memory is full", &["share", "deny", "allow"]),
        "redis" => {
            let examples = [
                "redis://127.0.0.1:6379",
                "rediss://a:6379",
                "redis+cluster://a:1,b:2",
                "redis+sentinel://a:1,b:2/name",
            ];
            url("the Redis that all instances share", &store::SCHEMES, &examples)
        }
        "prefix" => reference_with("text", "the prefix of all keys", &["diana:"]),
        "timeout" => reference("duration", "the timeout of Redis; 20ms by default"),
        "time" => word(
            "the clock of the limits: Redis's by default; or this process's, which is set by Redis's each second, at less cost for Redis",
            &store::TIME,
        ),
        "when_down" => {
            let local = object("local counts", &["local"], |_| {
                word("the share of each instance, or the full limit", &store::LOCAL)
            });
            json!({
                "description": "the handling of requests while Redis is unreachable; local by default, with the share of each instance",
                "anyOf": [{"enum": store::WHEN_DOWN}, {"$ref": "#/$defs/variable"}, requiring(local, &["local"])],
            })
        }
        "lease" => json!({
            "description": "the number of permits that a busy key leases at once",
            "anyOf": [{"enum": ["off", "auto"]}, {"$ref": "#/$defs/count"}],
        }),
        "batching" => flag("whether concurrent requests to Redis are batched"),
        "permits_for" => reference("duration", "the maximum time that a permit of a `concurrent` limit is held"),
        "snapshot" => {
            let help = "the file with the counts of this process that survive a restart";
            reference_with("text", help, &["/var/lib/diana/counts"])
        }
        "snapshot_interval" => reference("duration", "how often the snapshot is written; 10s by default"),
        _ => json!({}),
    }
}
