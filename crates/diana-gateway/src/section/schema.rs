//! The JSON Schema of `gateway`.

use super::{AccessLogFormat, FIELDS, METHODS, limits, route, signature, timeouts, tls};
use diana_rules::http_settings::{HttpSettings, Spelling};
use diana_rules::schema::{flag, listen, object, one_or_more, place, reference, reference_with, requiring, word};
use serde_json::{Value, json};

/// `gateway`.
pub(super) fn gateway() -> Value {
    object("what listens, and where requests go", &FIELDS, of_gateway)
}

fn upstream(description: &str) -> Value {
    let examples = ["http://127.0.0.1:3000", "https://api.example.com", "h2c://127.0.0.1:50051"];
    one_or_more(json!({"$ref": "#/$defs/url"}), description, &examples)
}

fn of_gateway(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8080"),
        "tls" => requiring(object("listening with TLS", &tls::FIELDS, of_tls), &tls::FIELDS),
        "upstream" => upstream("where requests go that no route is for: to these in turn"),
        "upstream_ca" => {
            reference_with("text", "a PEM file of what is trusted besides the system's certificates", &["ca.pem"])
        }
        "routes" => json!({
            "description": "where requests for some hosts and paths go; the first that matches counts",
            "type": "array",
            "items": requiring(object("where some requests go", &route::FIELDS, of_route), &route::FIELDS),
            "maxItems": route::MOST_ROUTES,
        }),
        "echo" => flag("whether requests that would go nowhere are answered with what was asked"),
        "proxy_protocol" => flag("whether every connection begins with a PROXY header (version 1 or 2)"),
        "access_log" => word("how the log of requests is written; off by default", &AccessLogFormat::WORDS),
        "signature" => {
            requiring(object("how requests are signed that may pass", &signature::FIELDS, of_signature), &["secret"])
        }
        "workers" => reference("count", "how many threads serve; one for each core by default"),
        "timeouts" => object("how long it waits for whom", &timeouts::FIELDS, of_timeouts),
        "bounds" => object("how much one client may ask of it", &limits::FIELDS, of_bounds),
        "methods" => object("which spellings of methods are accepted", &METHODS, |_| {
            word(
                "whether methods of HTTP may be written in other letter case, such as `post`; deny by default",
                &Spelling::WORDS,
            )
        }),
        field => HttpSettings::schema_of(field),
    }
}

fn of_tls(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8443"),
        _ => {
            let pair = object("a certificate and its key", &tls::CERTIFICATE, |name| match name {
                "certificate" => reference_with("text", "a PEM file: the certificate and its chain", &["cert.pem"]),
                _ => reference_with("text", "a PEM file: the private key", &["key.pem"]),
            });
            let pair = requiring(pair, &tls::CERTIFICATE);
            one_or_more(pair, "what is shown to clients: by the name that they ask for, else the first", &[])
        }
    }
}

fn of_route(name: &str) -> Value {
    match name {
        "match" => place(),
        _ => upstream("where they go: to these in turn"),
    }
}

fn of_signature(name: &str) -> Value {
    match name {
        "secret" => reference_with("text", "the secret shared with the signer", &["${SECRET}"]),
        "header" => reference_with("text", "the header that has the signature", &["x-signature"]),
        _ => reference_with("duration", "how old a signature may be; 5min by default", &["5min"]),
    }
}

fn of_timeouts(name: &str) -> Value {
    let what = match name {
        "header" => "for the head of a request; 10s by default",
        "body" => "for the next piece of a body; 30s by default",
        "idle" => "for the next request on a connection; 60s by default",
        "connect" => "for a connection to an upstream; 3s by default",
        "response" => "for the head of an upstream's response; 60s by default",
        "tunnel" => "for the next byte of a tunnel, such as a WebSocket; 1h by default",
        _ => "for requests in progress when the program stops; 30s by default",
    };
    reference("duration", what)
}

fn of_bounds(name: &str) -> Value {
    match name {
        "header" => reference("bytes", "of a request's head: 8KiB to 1MiB; 32KiB by default"),
        "headers" => reference("count", "fields of a request's head; 100 by default"),
        "body" => reference_with("bytes", "of a request's body; any number by default", &["100MiB"]),
        "connections" => reference("count", "connections that are open at once; 10000 by default"),
        "streams" => reference("count", "streams of one HTTP/2 connection that are open at once; 100 by default"),
        _ => reference_with("bytes", "that all HTTP/2 connections together may hold; 1GiB by default", &["4GiB"]),
    }
}
