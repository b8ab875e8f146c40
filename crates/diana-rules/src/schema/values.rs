//! Single values: rates, durations, counts, amounts of data; and the options of the built-in algorithms.

use super::{flag, object, reference, reference_with, requiring, word};
use crate::algorithm::built_in::{EDGES, REFILL};
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

/// The options of the built-in algorithms.
pub(crate) fn option(name: &str) -> Option<Value> {
    Some(match name {
        "burst" => reference("count_or_none", "the maximum number at once; of a leaky bucket, the queue length"),
        "refill" => requiring(
            object("adds several tokens at once, rather than one by one", &REFILL, |field| match field {
                "tokens" => reference("count", "the number of tokens of one refill; derived from the rate by default"),
                _ => reference("duration", "the time between two refills"),
            }),
            &["every"],
        ),
        "delay" => reference("count_or_none", "the number of queued requests that are not delayed"),
        "nodelay" => flag("whether queued requests are not delayed, so that only their number is limited"),
        "opens" => {
            word("when a window starts: aligned to the clock, or at the first request", &["clock", "first_request"])
        }
        "time_zone" => reference_with(
            "text",
            "the time zone of the days, weeks or months",
            &["UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York"],
        ),
        "buckets" => reference("count", "the number of steps of the sliding window; 10 by default"),
        "precision" => reference("duration", "the length of a step of the sliding window"),
        "edge" => word(
            "how the oldest step counts, which the window covers in part: not at all, in proportion, or fully",
            &EDGES,
        ),
        "burst_seconds" => {
            reference("number", "the number of seconds for which unused permits are saved; 1 by default")
        }
        "starts" => word("whether a new key starts with all permits that could be saved, or none", &["full", "empty"]),
        "warm_up" => reference("duration", "the warm-up time after a pause"),
        "cold_factor" => reference("number", "the slowdown factor when cold; 3 by default"),
        _ => return None,
    })
}
