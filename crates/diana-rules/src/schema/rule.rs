//! One rule: its own fields, its limits, and the registered algorithms.

use super::{flag, object, one_or_any, one_or_more, reference, reference_with, requiring, word};
use crate::key::parse::{WITH_NAME, WORDS};
use crate::limit::{COMMON, LIMITS, LimitRule, concurrent};
use crate::logged_keys::LOG;
use crate::matching;
use crate::names_in_scope::STANDARD;
use crate::registry::Registry;
use crate::rule::{Override, count, max_load, parse};
use serde_json::{Map, Value, json};

/// `rule` and its parts.
pub(super) fn definitions(registry: &Registry) -> Map<String, Value> {
    let of_limit = |field: &str| limit_field(field, registry);
    let fields = parse::FIELDS.into_iter().chain(LimitRule::fields(registry)).collect::<Vec<_>>();
    let mut rule = requiring(object("one rule", &fields, |field| rule_field(field, registry)), &["name"]);
    let limiting = parse::LIMITING.map(|field| json!({"required": [field]}));
    let denies = json!({
        "description": "requests without the key of `by` are denied",
        "anyOf": [{"const": "deny"}, {"type": "object", "required": parse::MISSING}, {"$ref": "#/$defs/variable"}],
    });
    let denies = json!({"required": ["missing"], "properties": {"missing": denies}});
    rule["anyOf"] = limiting.into_iter().chain([denies]).collect();
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

fn rule_field(name: &str, registry: &Registry) -> Value {
    match name {
        "name" => json!({
            "description": "the name of the rule; counts are stored by name",
            "type": ["string", "number"],
            "pattern": r"^[^\s/]{1,128}$|\$\{",
        }),
        "by" => one_or_more(
            json!({"$ref": "#/$defs/by"}),
            "the key to count by: all requests (global), or each account, address ...; of several, each combination",
            &["account", "ip", "ip/24", "header(x-api-key)"],
        ),
        "match" => {
            let fields = matching::parse::FIELDS.into_iter().chain(registry.matchers()).collect::<Vec<_>>();
            object("the requests that the rule matches; all by default", &fields, match_field)
        }
        "bandwidth" => {
            let map = object("the bandwidth of bodies", &parse::BANDWIDTH, bandwidth_field);
            let any_of = json!([{"$ref": "#/$defs/byte_rate"}, requiring(map, &["rate"])]);
            json!({"description": "the bandwidth of bodies", "anyOf": any_of, "examples": ["512KiB/s"]})
        }
        "load" => {
            let mut load =
                object("the load of the machine over which requests are denied", &max_load::FIELDS, load_field);
            load["minProperties"] = json!(1);
            load
        }
        "charges" => reference_with(
            "text",
            "the rule whose counts this one charges, even over the limit; this one denies no request",
            &["tokens"],
        ),
        "count" => {
            let map = object("the responses that are counted", &count::FIELDS, count_field);
            requiring(map, &["status"])
        }
        "cost" => json!({
            "description": "the cost of a request: a number or an expression",
            "anyOf": [{"$ref": "#/$defs/count"}, {"type": "string"}],
            "examples": [1, "size(request.path)"],
        }),
        "cost_default" => reference(
            "count",
            "the cost of a request whose `cost` fails; without it, such a request is denied with 400",
        ),
        "cost_min" => reference("count_or_none", "the minimum cost if `cost` is an expression; 1 by default"),
        "allow" => keys("addresses, networks and keys that this rule does not count"),
        "deny" => keys("addresses, networks and keys that this rule always denies"),
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
            "the maximum time that a request over the limit waits before it is denied",
            &["2s"],
        ),
        "queue" => reference("count", "the maximum number of waiting requests"),
        "over" => {
            let mut reroute = object("another upstream for requests over the limit", &parse::OVER, |_| {
                reference("url", "the upstream")
            });
            reroute["oneOf"] = parse::OVER.iter().map(|word| json!({"required": [word]})).collect();
            json!({
                "description": "the handling of a request over the limit",
                "anyOf": [{"enum": ["deny"]}, {"$ref": "#/$defs/variable"}, reroute],
            })
        }
        "memory" => reference_with(
            "bytes",
            "the maximum memory of its keys in this process, as the size of a zone in nginx; part of the store's, which is the default",
            &["10MiB"],
        ),
        "shadow" => flag("whether the rule only counts and reports, and denies no request"),
        "log" => word("the level at which its denials are logged; delays are logged one level lower", &LOG),
        "status" => reference("status", "the status of a denied request"),
        "answer" => reference("answer", "the custom response body of a denied request"),
        "missing" => {
            let denied = object("denied with its own status", &parse::MISSING, |_| {
                reference("status", "the status of the response")
            });
            json!({
                "description": "the handling of a request without the key of `by`",
                "anyOf": [
                    {"enum": ["skip", "deny", "shared"]},
                    {"$ref": "#/$defs/variable"},
                    requiring(denied, &parse::MISSING),
                ],
            })
        }
        "store" => word("the store of its counts", &["local", "shared"]),
        _ => limit_field(name, registry),
    }
}

fn keys(description: &str) -> Value {
    one_or_any(json!({"$ref": "#/$defs/text"}), description, &["10.0.0.0/8", "vip-7"])
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

pub(super) fn match_field(name: &str) -> Value {
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
                object("some values, without others", &matching::descriptor::VALUES, |field| {
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

fn bandwidth_field(name: &str) -> Value {
    match name {
        "rate" => reference("byte_rate", "bytes per time"),
        "burst" => reference("bytes", "the bytes that may be sent at once; those of 20 ms of the rate by default"),
        "after" => reference("bytes", "the first bytes of each body that are sent at full speed"),
        "of" => word("the bodies to throttle", &["response", "request", "both"]),
        _ => json!({}),
    }
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

fn count_field(name: &str) -> Value {
    match name {
        "status" => {
            let status = json!({"anyOf": [
                {"type": "integer", "minimum": 200, "maximum": 599},
                {"type": "string", "pattern": r"^[2-5]([0-9]{2}|xx|XX)$|^[2-5][0-9]{2} *- *[2-5][0-9]{2}$|\$\{"},
            ]});
            one_or_more(status, "statuses, classes or ranges of responses", &["401", "4xx", "500-504"])
        }
        "refund" => flag("whether each request is charged, and refunded if its response has one of the statuses"),
        _ => json!({}),
    }
}

fn load_field(name: &str) -> Value {
    match name {
        "cpu" => reference("percent", "the usage of all processors"),
        "memory" => reference("percent", "the usage of all memory"),
        "connections" => reference("count", "the number of open connections; over it, every request is denied"),
        "traffic" => reference("byte_rate", "the network traffic"),
        _ => json!({}),
    }
}
