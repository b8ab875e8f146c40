//! One rule: its own fields, its limits, and the registered algorithms.

use super::{flag, object, one_or_any, one_or_more, reference, reference_with, requiring, word};
use crate::key::parse::{WITH_NAME, WORDS};
use crate::limit::{COMMON, LIMITS, LimitRule, concurrent};
use crate::matching;
use crate::registry::Registry;
use crate::rule::{Override, overload, parse};
use crate::scope::STANDARD;
use serde_json::{Map, Value, json};

/// `rule` and its parts.
pub(super) fn definitions(registry: &Registry) -> Map<String, Value> {
    let of_limit = |field: &str| limit_field(field, registry);
    let fields = parse::FIELDS.into_iter().chain(LimitRule::fields(registry)).collect::<Vec<_>>();
    let mut rule = requiring(object("one rule", &fields, |field| rule_field(field, registry)), &["name"]);
    let limiting = parse::LIMITING.map(|field| json!({"required": [field]}));
    let denies = json!({
        "description": "who lacks what `by` asks for is refused",
        "anyOf": [{"const": "deny"}, {"type": "object", "required": parse::MISSING}, {"$ref": "#/$defs/variable"}],
    });
    let denies = json!({"required": ["missing"], "properties": {"missing": denies}});
    rule["anyOf"] = limiting.into_iter().chain([denies]).collect();
    let options = COMMON.into_iter().chain(registry.options()).collect::<Vec<_>>();
    let limit = requiring(object("a rate, and how it is kept", &options, of_limit), &["rate"]);
    let instead = object("the limits of this key", &LimitRule::fields(registry), of_limit);
    let of_key = requiring(object("the limits of one key", &Override::fields(registry), of_limit), &["key"]);
    let definitions = [
        ("rule", rule),
        ("limit", json!({"anyOf": [{"$ref": "#/$defs/rate"}, limit]})),
        ("limits", one_or_more(json!({"$ref": "#/$defs/limit"}), "how much is allowed", &["100/s"])),
        ("override", json!({"anyOf": [{"$ref": "#/$defs/limits"}, instead]})),
        ("override_of_key", of_key),
        ("by", by(registry)),
    ];
    definitions.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn rule_field(name: &str, registry: &Registry) -> Value {
    match name {
        "name" => json!({
            "description": "what people and stores know the rule by; counts are kept by it",
            "type": ["string", "number"],
            "pattern": r"^[^\s/]{1,128}$|\$\{",
        }),
        "by" => one_or_more(
            json!({"$ref": "#/$defs/by"}),
            "whom it counts: everyone together (global), or each account, address ...; of several, each combination",
            &["account", "ip", "ip/24", "header(x-api-key)"],
        ),
        "match" => {
            let fields = matching::parse::FIELDS.into_iter().chain(registry.matchers()).collect::<Vec<_>>();
            object("which requests it is about; without it, all", &fields, match_field)
        }
        "bandwidth" => {
            let map = object("how fast bodies flow", &parse::BANDWIDTH, bandwidth_field);
            let any_of = json!([{"$ref": "#/$defs/byte_rate"}, requiring(map, &["rate"])]);
            json!({"description": "how fast bodies flow", "anyOf": any_of, "examples": ["512KiB/s"]})
        }
        "load" => {
            let mut load =
                object("how busy the machine may be before requests are refused", &overload::FIELDS, load_field);
            load["minProperties"] = json!(1);
            load
        }
        "cost" => json!({
            "description": "what a request costs: a number, or an expression",
            "anyOf": [{"$ref": "#/$defs/count"}, {"type": "string"}],
            "examples": [1, "size(request.path)"],
        }),
        "cost_default" => {
            reference("count", "what a request costs whose `cost` fails; without it, such a request is denied with 400")
        }
        "cost_min" => {
            reference("count_or_none", "the least that a request costs whose `cost` is an expression; 1 by default")
        }
        "allow" => keys("addresses, networks and keys that this rule does not count"),
        "deny" => keys("addresses, networks and keys that this rule refuses at once"),
        "overrides" => json!({
            "description": "other limits for single keys",
            "anyOf": [
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/override"}},
                {"type": "array", "items": {"$ref": "#/$defs/override_of_key"}},
            ],
            "examples": [{"vip-7": "1000/s"}],
        }),
        "wait" => reference_with(
            "duration",
            "how long a request waits for its turn, rather than being refused at once",
            &["2s"],
        ),
        "queue" => reference("count", "how many wait at once"),
        "over" => {
            let divert = object("where it goes instead", &parse::OVER, |_| reference("url", "another upstream"));
            json!({
                "description": "what becomes of a request that is over the limit",
                "anyOf": [{"enum": ["deny"]}, {"$ref": "#/$defs/variable"}, requiring(divert, &parse::OVER)],
            })
        }
        "shadow" => flag("whether it only counts and reports, and refuses nobody"),
        "status" => reference("status", "what a refusal answers"),
        "answer" => reference("answer", "what a refusal says in your own words"),
        "missing" => {
            let denied = object("denied with a status of its own", &parse::MISSING, |_| {
                reference("status", "what it is answered")
            });
            json!({
                "description": "what becomes of a request that lacks what `by` asks for",
                "anyOf": [
                    {"enum": ["skip", "deny", "shared"]},
                    {"$ref": "#/$defs/variable"},
                    requiring(denied, &parse::MISSING),
                ],
            })
        }
        "store" => word("where its counts are", &["local", "shared"]),
        _ => limit_field(name, registry),
    }
}

fn keys(description: &str) -> Value {
    one_or_any(json!({"$ref": "#/$defs/text"}), description, &["10.0.0.0/8", "vip-7"])
}

/// The limit fields, and the options of algorithms.
fn limit_field(name: &str, registry: &Registry) -> Value {
    match name {
        "limit" => reference("limits", "how much is allowed; of several, all at once"),
        "every" => reference_with("duration", "at least so long between two requests", &["200ms"]),
        "total" => reference("count", "so many in all, until somebody resets it"),
        "concurrent" => {
            let map = object(
                "so many at a time, a few more after a wait, and until when each holds its place",
                &concurrent::FIELDS,
                concurrent_field,
            );
            json!({
                "description": "so many at a time; `adaptive` lets in what the latency of the answers allows",
                "anyOf": [{"$ref": "#/$defs/count"}, {"enum": ["adaptive"]}, requiring(map, &["limit"])],
            })
        }
        "rate" => reference("rate", "how many in a time"),
        "key" => one_or_more(
            json!({"$ref": "#/$defs/text"}),
            "whose limits these are: one part for each of `by`",
            &["vip-7"],
        ),
        "algorithm" => {
            let known = registry.each_algorithm().map(|(name, kind)| {
                json!({"const": name, "description": kind.description.unwrap_or("registered by this program")})
            });
            let known = known.chain([json!({"$ref": "#/$defs/variable"})]).collect::<Vec<_>>();
            json!({"description": "how the rate is kept; token_bucket by default", "anyOf": known})
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
            let said = schema.get("description").and_then(Value::as_str).unwrap_or("an option");
            schema["description"] = json!(format!("{said} (of {of})"));
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
                "examples": ["ip/24", "ip/24/48", "header(x-api-key)", "cookie(session)", "query(q)", "jwt(sub)", "param(id)", "cel(\"...\")"],
            },
        ],
    })
}

pub(super) fn match_field(name: &str) -> Value {
    let text = || json!({"$ref": "#/$defs/text"});
    match name {
        "path" => {
            let path = json!({"type": "string", "pattern": r"^/|\$\{"});
            let what = "* is anything within a segment, ** any number of segments, {name} one segment";
            one_or_more(path, what, &["/search/**", "/users/{id}", "/files/*.pdf"])
        }
        "method" => one_or_more(text(), "the method, as in GET", &["GET", "POST", "PUT", "DELETE"]),
        "host" => one_or_more(text(), "the host, without its port", &["api.example.com", "*.example.com"]),
        "header" => {
            let values = one_or_more(text(), "one of these values; * is anything", &["free", "b*"]);
            json!({"description": "headers, by name", "type": "object", "additionalProperties": values})
        }
        "ip" => one_or_more(json!({"$ref": "#/$defs/network"}), "the client's address", &["10.0.0.0/8"]),
        "when" => {
            reference_with("text", "an expression that must hold (CEL)", &["request.headers[\"x-test\"] != \"1\""])
        }
        "call" => {
            let names = one_or_more(text(), "what calls tell", &["phone"]);
            let what = "for no request, but for functions that name the rule; the names of what they tell";
            json!({"description": what, "anyOf": [{"const": true}, names]})
        }
        _ => json!({"description": "registered by this program"}),
    }
}

fn bandwidth_field(name: &str) -> Value {
    match name {
        "rate" => reference("byte_rate", "so much in a time"),
        "burst" => reference("bytes", "what may go at once"),
        "after" => reference("bytes", "so much of each body goes at full speed first"),
        "of" => word("which bodies", &["response", "request", "both"]),
        _ => json!({}),
    }
}

fn concurrent_field(name: &str) -> Value {
    match name {
        "limit" => reference("count", "so many at a time without a wait"),
        "burst" => reference("count", "so many more after a wait; needs `delay`"),
        "delay" => reference_with("duration", "how long a request is taken to last until one has ended", &["200ms"]),
        "until" => word("until when a request holds its place; client_left by default", &concurrent::UNTIL),
        _ => json!({}),
    }
}

fn load_field(name: &str) -> Value {
    match name {
        "cpu" => reference("percent", "of all processors"),
        "memory" => reference("percent", "of all memory"),
        "connections" => reference("count", "how many connections are open"),
        "traffic" => reference("byte_rate", "how much data flows"),
        _ => json!({}),
    }
}
