//! The JSON Schema of `gateway`.

use super::{
    ACCESS_LOG, AccessLogFormat, Balance, ClientBounds, FIELDS, METHODS, RetryOn, Timeouts, health_check, retry_policy,
    route, signed_requests, upstream_group,
};
use diana_net::tls::Tls;
use diana_rules::http_settings::{HttpSettings, SpellingPolicy};
use diana_rules::schema::{flag, listen, object, one_or_more, place, reference, reference_with, requiring, word};
use serde_json::{Value, json};

/// Returns the schema of `gateway`.
pub(super) fn gateway() -> Value {
    object("listeners and upstreams", &FIELDS, of_gateway)
}

fn upstream(description: &str) -> Value {
    let examples = ["http://127.0.0.1:3000", "https://api.example.com", "h2c://127.0.0.1:50051"];
    let weighted = object("an upstream with a weight", &upstream_group::ENDPOINT, |field| match field {
        "url" => reference("url", "the upstream"),
        _ => {
            let maximum = upstream_group::MAX_WEIGHT;
            let description = "share of the requests, relative to the other weights: 1 to 1000; 1 by default";
            json!({"description": description, "allOf": [{"$ref": "#/$defs/count"}, {"maximum": maximum}]})
        }
    });
    let upstream = json!({"anyOf": [{"$ref": "#/$defs/url"}, requiring(weighted, &["url"])]});
    one_or_more(upstream, description, &examples)
}

fn text() -> Value {
    json!({"$ref": "#/$defs/text"})
}

/// Returns the schema of a field beside `upstream` that belongs to it.
fn of_group(name: &str) -> Value {
    match name {
        "balance" => word("how an upstream is chosen for a request; round_robin by default", &Balance::WORDS),
        "health" => {
            let check = object("how each upstream is checked", &health_check::FIELDS, of_health_check);
            json!({
                "description": "requests each upstream at intervals; one that fails gets no requests until it passes again",
                "anyOf": [{"type": "string", "pattern": r"^/|\$\{"}, requiring(check, &["path"])],
                "examples": ["/healthz"],
            })
        }
        _ => object("which failed requests are sent to another upstream", &retry_policy::FIELDS, of_retry_policy),
    }
}

fn of_health_check(name: &str) -> Value {
    match name {
        "path" => reference_with("text", "the path that is requested with GET", &["/healthz"]),
        "host" => reference_with("text", "the Host of the request; the upstream's by default", &["api.example.com"]),
        "interval" => reference("duration", "time between two checks of an upstream, at least 100ms; 5s by default"),
        "timeout" => reference("duration", "for the whole check; 1s by default"),
        "healthy" => reference("count", "checks in a row that pass until it gets requests again; 2 by default"),
        "unhealthy" => reference("count", "checks in a row that fail until it gets no requests; 3 by default"),
        _ => {
            let status = json!({"anyOf": [
                {"type": "integer", "minimum": 200, "maximum": 599},
                {"type": "string", "pattern": r"^[2-5]([0-9][0-9]|xx)$|\$\{"},
            ]});
            one_or_more(status, "statuses that pass; 2xx and 3xx by default", &["200", "2xx"])
        }
    }
}

fn of_retry_policy(name: &str) -> Value {
    match name {
        "on" => {
            let words = RetryOn::WORDS;
            let failure = json!({"anyOf": [
                {"enum": words},
                {"type": "integer", "minimum": 500, "maximum": 599},
                {"type": "string", "pattern": r"^5[0-9][0-9]$|\$\{"},
            ]});
            one_or_more(
                failure,
                "failures after which a request is retried; connect_failure, reset, 502, 503 and 504 by default",
                &["connect_failure", "503"],
            )
        }
        "attempts" => reference("count", "maximum number of retries of a request: 1 to 10; 2 by default"),
        "budget" => reference("percent", "share of the requests in 10 seconds that may be retries; 20% by default"),
        _ => reference("count_or_none", "retries a second that are allowed in addition to the budget; 3 by default"),
    }
}

fn of_gateway(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8080"),
        "tls" => requiring(object("listeners with TLS", &Tls::FIELDS, Tls::schema_of), &Tls::FIELDS),
        "upstream" => upstream("upstreams of requests that match no route"),
        "upstream_ca" => reference_with(
            "text",
            "a PEM file of certificates that are trusted for upstreams, in addition to the system's",
            &["ca.pem"],
        ),
        "routes" => json!({
            "description": "upstreams for some hosts and paths; the first matching route is used",
            "type": "array",
            "items": requiring(object("upstreams for some hosts and paths", &route::FIELDS, of_route), &route::REQUIRED),
            "maxItems": route::MAX_ROUTES,
        }),
        "echo" => flag("whether requests without an upstream are answered with their own content"),
        "proxy_protocol" => flag("whether every connection begins with a PROXY header (version 1 or 2)"),
        "access_log" => {
            let file = object("the format of the access log, and its file", &ACCESS_LOG, |field| match field {
                "format" => word("the format; text by default", &AccessLogFormat::WORDS),
                _ => reference_with("text", "the file", &["/var/log/diana/access.log"]),
            });
            json!({
                "description": "the format of the access log; off by default",
                "anyOf": [
                    {"enum": AccessLogFormat::WORDS},
                    {"$ref": "#/$defs/variable"},
                    requiring(file, &["file"]),
                ],
            })
        }
        "signature" => {
            requiring(object("how requests must be signed", &signed_requests::FIELDS, of_signature), &["secret"])
        }
        "filters" => {
            let description = "the order of the filters: limits (first by default), signature, permissions, and those of a program; \
                               those that are not named run last";
            json!({"description": description, "anyOf": [text(), {"type": "array", "items": text(), "minItems": 1}]})
        }
        "workers" => reference("count", "number of worker threads; one per core by default"),
        "timeouts" => object("timeouts", &Timeouts::FIELDS, of_timeouts),
        "bounds" => object("bounds on what one client may send", &ClientBounds::FIELDS, of_bounds),
        "methods" => object("which spellings of methods are accepted", &METHODS, |_| {
            word(
                "whether HTTP methods in another letter case, such as `post`, are accepted; deny by default",
                &SpellingPolicy::WORDS,
            )
        }),
        "balance" | "health" | "retries" => of_group(name),
        field => HttpSettings::schema_of(field),
    }
}

fn of_route(name: &str) -> Value {
    match name {
        "match" => place(),
        "upstream" => upstream("upstreams of these requests"),
        field => of_group(field),
    }
}

fn of_signature(name: &str) -> Value {
    match name {
        "secret" => reference_with("text", "the secret shared with the signer", &["${SECRET}"]),
        "header" => reference_with("text", "the header with the signature", &["x-signature"]),
        _ => reference_with("duration", "maximum age of a signature; 5min by default", &["5min"]),
    }
}

fn of_timeouts(name: &str) -> Value {
    let description = match name {
        "header" => "for the head of a request; 10s by default",
        "body" => "for all parts of a request's body together, and for a client to accept bytes; 30s by default",
        "idle" => "for the next request on a connection; 60s by default",
        "accept" => "for another connection to be closed, when too many are open; 1s by default",
        "connect" => "for a connection to an upstream; 3s by default",
        "response" => "for the head of an upstream's response, and each pause in its body; 60s by default",
        "tunnel" => "for the next byte of a tunnel, such as a WebSocket; 1h by default",
        "drain" => "from the stop signal until the listeners are closed, for load balancers to notice; 0s by default",
        _ => "for requests in flight during shutdown, after `drain`; 30s by default",
    };
    reference("duration", description)
}

fn of_bounds(name: &str) -> Value {
    match name {
        "header" => reference("bytes", "maximum size of a request's head: 8KiB to 1MiB; 32KiB by default"),
        "headers" => reference("count", "maximum number of headers of a request; 100 by default"),
        "body" => reference_with("bytes", "maximum size of a request's body; unlimited by default", &["100MiB"]),
        "connections" => reference("count", "maximum number of open connections; 10000 by default"),
        "accept_queue" => reference(
            "count_or_none",
            "how many further connections wait for one to be closed, for `timeouts.accept`, and then get 503; 100 by default",
        ),
        "backlog" => reference(
            "count",
            "how many connections of each worker the system keeps until they are accepted; 4096 by default",
        ),
        "streams" => {
            reference("count", "maximum number of concurrent streams on one HTTP/2 connection; 100 by default")
        }
        _ => reference_with("bytes", "maximum memory of all HTTP/2 connections together; 1GiB by default", &["4GiB"]),
    }
}
