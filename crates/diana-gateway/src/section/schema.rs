//! The JSON Schema of `gateway`.

use super::{
    ACCESS_LOG, AccessLogFormat, Certificate, FIELDS, METHODS, client_bounds, route, signed_requests, timeouts, tls,
};
use diana_rules::http_settings::{HttpSettings, SpellingPolicy};
use diana_rules::schema::{flag, listen, object, one_or_more, place, reference, reference_with, requiring, word};
use serde_json::{Value, json};

/// `gateway`.
pub(super) fn gateway() -> Value {
    object("listeners and upstreams", &FIELDS, of_gateway)
}

fn upstream(description: &str) -> Value {
    let examples = ["http://127.0.0.1:3000", "https://api.example.com", "h2c://127.0.0.1:50051"];
    one_or_more(json!({"$ref": "#/$defs/url"}), description, &examples)
}

fn of_gateway(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8080"),
        "tls" => requiring(object("listeners with TLS", &tls::FIELDS, of_tls), &tls::FIELDS),
        "upstream" => upstream("upstreams of requests that match no route, used in turn"),
        "upstream_ca" => reference_with(
            "text",
            "a PEM file of certificates that are trusted for upstreams, in addition to the system's",
            &["ca.pem"],
        ),
        "routes" => json!({
            "description": "upstreams for some hosts and paths; the first matching route is used",
            "type": "array",
            "items": requiring(object("upstreams for some hosts and paths", &route::FIELDS, of_route), &route::FIELDS),
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
        "workers" => reference("count", "number of worker threads; one per core by default"),
        "timeouts" => object("timeouts", &timeouts::FIELDS, of_timeouts),
        "bounds" => object("bounds on what one client may send", &client_bounds::FIELDS, of_bounds),
        "methods" => object("which spellings of methods are accepted", &METHODS, |_| {
            word(
                "whether HTTP methods in another letter case, such as `post`, are accepted; deny by default",
                &SpellingPolicy::WORDS,
            )
        }),
        field => HttpSettings::schema_of(field),
    }
}

fn of_tls(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8443"),
        _ => one_or_more(Certificate::schema(), "certificates, chosen by SNI; the first is the default", &[]),
    }
}

impl Certificate {
    /// Returns the JSON Schema of a certificate and its key.
    pub fn schema() -> Value {
        let pair = object("a certificate and its key", &tls::CERTIFICATE, |name| match name {
            "certificate" => reference_with("text", "a PEM file: the certificate and its chain", &["cert.pem"]),
            _ => reference_with("text", "a PEM file: the private key", &["key.pem"]),
        });
        requiring(pair, &tls::CERTIFICATE)
    }
}

fn of_route(name: &str) -> Value {
    match name {
        "match" => place(),
        _ => upstream("upstreams, used in turn"),
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
        "body" => "for the next chunk of a body; 30s by default",
        "idle" => "for the next request on a connection; 60s by default",
        "connect" => "for a connection to an upstream; 3s by default",
        "response" => "for the head of an upstream's response; 60s by default",
        "tunnel" => "for the next byte of a tunnel, such as a WebSocket; 1h by default",
        _ => "for requests in flight during shutdown; 30s by default",
    };
    reference("duration", description)
}

fn of_bounds(name: &str) -> Value {
    match name {
        "header" => reference("bytes", "maximum size of a request's head: 8KiB to 1MiB; 32KiB by default"),
        "headers" => reference("count", "maximum number of headers of a request; 100 by default"),
        "body" => reference_with("bytes", "maximum size of a request's body; unlimited by default", &["100MiB"]),
        "connections" => reference("count", "maximum number of open connections; 10000 by default"),
        "streams" => {
            reference("count", "maximum number of concurrent streams on one HTTP/2 connection; 100 by default")
        }
        _ => reference_with("bytes", "maximum memory of all HTTP/2 connections together; 1GiB by default", &["4GiB"]),
    }
}
