//! One rule: its own fields, its limits, and the registered algorithms.

use super::{object, one_or_more, reference, reference_with, requiring, word};
use crate::key::parse::{WITH_NAME, WORDS};
use crate::limit::{COMMON, LIMITS, LimitRule, concurrent};
use crate::names_in_scope::STANDARD;
use crate::registry::Registry;
use crate::rule::{Override, Rule, missing, option};
use serde_json::{Map, Value, json};

/// `rule` and its parts.
pub(super) fn definitions(registry: &Registry) -> Map<String, Value> {
    let of_limit = |field: &str| limit_field(field, registry);
    let mut rule = requiring(object("one rule", &LimitRule::fields(registry), of_limit), &["name"]);
    for option in option::rule_options() {
        rule["properties"][option.name] = (option.schema)(registry);
    }
    let limiting = Rule::limiting_fields().map(|field| json!({"required": [field]}));
    let denies = json!({
        "description": "requests without the key of `by` are denied",
        "anyOf": [{"const": "deny"}, {"type": "object", "required": missing::FIELDS}, {"$ref": "#/$defs/variable"}],
    });
    let denies = json!({"required": ["missing"], "properties": {"missing": denies}});
    rule["anyOf"] = limiting.chain([denies]).collect();
    let options = COMMON.into_iter().chain(registry.options()).collect::<Vec<_>>();
    let limit = requiring(object("a rate and its algorithm", &options, of_limit), &["rate"]);
    let instead = object("the limits of this key", &LimitRule::fields(registry), of_limit);
    let of_key = requiring(object("the limits of one key", &Override::fields(registry), of_limit), &["key"]);
    let definitions = [
        ("rule", rule),
        ("limit", json!({"anyOf": [{"$ref": "#/$defs/rate"}, limit]})),
        ("limits", one_or_more(json!({"$ref": "#/$defs/limit"}), "one limit or several", &["100/s"])),
        ("override", json!({"anyOf": [{"$ref": "#/$defs/limits"}, instead]})),
        ("override_of_key", of_key),
        ("by", by(registry)),
    ];
    definitions.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// The limit fields, and the options of algorithms.
fn limit_field(name: &str, registry: &Registry) -> Value {
    match name {
        "limit" => reference("limits", "the limit; of several, all apply"),
        "every" => reference_with("duration", "the minimum time between two requests", &["200ms"]),
        "total" => reference("count", "the maximum number in total, until it is reset"),
        "concurrent" => {
            let map = object(
                "the maximum number of concurrent requests, a delayed burst, and when a permit is released",
                &concurrent::FIELDS,
                concurrent_field,
            );
            json!({
                "description": "the maximum number of concurrent requests; `adaptive` adapts it to the latency",
                "anyOf": [{"$ref": "#/$defs/count"}, {"enum": ["adaptive"]}, requiring(map, &["limit"])],
            })
        }
        "rate" => reference("rate", "a count per time"),
        "key" => one_or_more(
            json!({"$ref": "#/$defs/text"}),
            "the key that has these limits: one part for each of `by`",
            &["vip-7"],
        ),
        "algorithm" => {
            let known = registry.each_algorithm().map(|(name, kind)| {
                json!({"const": name, "description": kind.description.unwrap_or("registered by this program")})
            });
            let known = known.chain([json!({"$ref": "#/$defs/variable"})]).collect::<Vec<_>>();
            json!({"description": "the algorithm; token_bucket by default", "anyOf": known})
        }
        option => {
            debug_assert!(!LIMITS.contains(&option), "`{option}` is a limit without a schema");
            of_option(option, registry)
        }
    }
}

/// An option, for all algorithms that have it.
fn of_option(name: &str, registry: &Registry) -> Value {
    let having = registry.each_algorithm().filter(|(_, kind)| kind.options.contains(&name)).collect::<Vec<_>>();
    let of = having.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut schemas = having.iter().map(|(_, kind)| (kind.schema)(name)).collect::<Vec<_>>();
    schemas.dedup();
    match &mut *schemas {
        [Some(schema)] => {
            let text = schema.get("description").and_then(Value::as_str).unwrap_or("an option");
            schema["description"] = json!(format!("{text} (of {of})"));
            schema.take()
        }
        // If an algorithm has no schema, or the schemas differ, any value is accepted.
        _ => json!({"description": format!("an option of {of}")}),
    }
}

/// One part of a key.
fn by(registry: &Registry) -> Value {
    let words = WORDS.into_iter().chain(STANDARD).chain(registry.keys()).collect::<Vec<_>>();
    let with_name = WITH_NAME.join("|");
    json!({
        "anyOf": [
            {"enum": words},
            {
                "type": "string",
                "pattern": format!(r"^\s*(ip/[0-9]+(/[0-9]+)?|({with_name})\s*\([\s\S]*\)|[A-Za-z_][A-Za-z0-9_-]*)\s*$|\$\{{"),
                "examples": ["ip/24", "ip/24/48", "header(x-api-key)", "cookie(session)", "query(q)", "jwt(sub)", "param(id)", "descriptor(api_key)", "cel(\"...\")"],
            },
        ],
    })
}

fn concurrent_field(name: &str) -> Value {
    match name {
        "limit" => reference("count", "the number of concurrent requests without a delay"),
        "burst" => reference("count", "the number of further requests after a delay; needs `delay`"),
        "delay" => reference_with("duration", "the assumed duration of a request until one has finished", &["200ms"]),
        "until" => word("when a permit is released; client_left by default", &concurrent::UNTIL),
        _ => json!({}),
    }
}
