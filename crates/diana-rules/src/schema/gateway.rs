//! `gateway` and `admin`: listeners and upstreams.

use super::rule::match_field;
use super::{a, any_number, flag, object, one_or_more, requiring, such_as, word};
use crate::file::{AccessLogFormat, RateLimitHeaders, Spelling, admin, gateway};
use crate::matching::parse::PLACE;
use serde_json::{Value, json};

/// `gateway`.
pub(super) fn gateway() -> Value {
    object("what listens, and where requests go", &gateway::GATEWAY, of_gateway)
}

/// `admin`.
pub(super) fn admin() -> Value {
    object("where health, metrics and the active rules are shown", &admin::ADMIN, |name| match name {
        "listen" => listen("127.0.0.1:9090"),
        _ => such_as("text", "what a client must show as a bearer token", &["${ADMIN_TOKEN}"]),
    })
}

fn listen(example: &str) -> Value {
    let address = json!({"type": "string", "pattern": r":[0-9]+$|\$\{"});
    one_or_more(address, "an address and a port", &[example, "[::1]:8080"])
}

fn upstream(description: &str) -> Value {
    let examples = ["http://127.0.0.1:3000", "https://api.example.com", "h2c://127.0.0.1:50051"];
    one_or_more(json!({"$ref": "#/$defs/url"}), description, &examples)
}

fn of_gateway(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8080"),
        "tls" => requiring(object("listening with TLS", &gateway::TLS, of_tls), &gateway::TLS),
        "upstream" => upstream("where requests go that no route is for: to these in turn"),
        "upstream_ca" => {
            such_as("text", "a PEM file of what is trusted besides the system's certificates", &["ca.pem"])
        }
        "routes" => json!({
            "description": "where requests for some hosts and paths go; the first that matches counts",
            "type": "array",
            "items": requiring(object("where some requests go", &gateway::ROUTE, of_route), &gateway::ROUTE),
            "maxItems": gateway::MOST_ROUTES,
        }),
        "trusted_proxies" => any_number(
            json!({"$ref": "#/$defs/network"}),
            "whose word about the client's address is believed; nobody's by default",
            &["10.0.0.0/8"],
        ),
        "echo" => flag("whether requests that would go nowhere are answered with what was asked"),
        "proxy_protocol" => flag("whether every connection begins with a PROXY header (version 1 or 2)"),
        "rate_limit_headers" => {
            word("which fields of a response tell how much is left; ietf by default", &RateLimitHeaders::WORDS)
        }
        "access_log" => word("how the log of requests is written; off by default", &AccessLogFormat::WORDS),
        "signature" => {
            requiring(object("how requests are signed that may pass", &gateway::SIGNATURE, of_signature), &["secret"])
        }
        "workers" => a("count", "how many threads serve; one for each core by default"),
        "timeouts" => object("how long it waits for whom", &gateway::TIMEOUTS, of_timeouts),
        "bounds" => object("how much one client may ask of it", &gateway::BOUNDS, of_bounds),
        "paths" => object("which spellings of paths are accepted", &gateway::PATHS, |_| {
            word("whether paths may contain %2F or %5C; allow by default", &Spelling::WORDS)
        }),
        "methods" => object("which spellings of methods are accepted", &gateway::METHODS, |_| {
            word(
                "whether methods of HTTP may be written in other letter case, such as `post`; deny by default",
                &Spelling::WORDS,
            )
        }),
        _ => json!({}),
    }
}

fn of_tls(name: &str) -> Value {
    match name {
        "listen" => listen("0.0.0.0:8443"),
        _ => {
            let pair = object("a certificate and its key", &gateway::CERTIFICATE, |name| match name {
                "certificate" => such_as("text", "a PEM file: the certificate and its chain", &["cert.pem"]),
                _ => such_as("text", "a PEM file: the private key", &["key.pem"]),
            });
            let pair = requiring(pair, &gateway::CERTIFICATE);
            one_or_more(pair, "what is shown to clients: by the name that they ask for, else the first", &[])
        }
    }
}

fn of_route(name: &str) -> Value {
    match name {
        "match" => {
            let mut place = object("which requests: by host and path", &PLACE, match_field);
            place["minProperties"] = json!(1);
            place
        }
        _ => upstream("where they go: to these in turn"),
    }
}

fn of_signature(name: &str) -> Value {
    match name {
        "secret" => such_as("text", "the secret shared with the signer", &["${SECRET}"]),
        "header" => such_as("text", "the header that has the signature", &["x-signature"]),
        _ => such_as("duration", "how old a signature may be; 5min by default", &["5min"]),
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
    a("duration", what)
}

fn of_bounds(name: &str) -> Value {
    match name {
        "header" => a("bytes", "of a request's head: 8KiB to 1MiB; 32KiB by default"),
        "headers" => a("count", "fields of a request's head; 100 by default"),
        "body" => such_as("bytes", "of a request's body; any number by default", &["100MiB"]),
        "connections" => a("count", "connections that are open at once; 10000 by default"),
        "streams" => a("count", "streams of one HTTP/2 connection that are open at once; 100 by default"),
        _ => such_as("bytes", "that all HTTP/2 connections together may hold; 1GiB by default", &["4GiB"]),
    }
}
