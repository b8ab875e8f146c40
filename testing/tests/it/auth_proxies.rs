//! nginx, Traefik and Caddy forward a request if the server that they ask first allows it, and report errors in their
//! configuration.

use crate::get;
use diana_testing::{CaddyServer, HttpServer, Misbehave, NginxServer, TraefikServer};

/// The server that is asked, and the one that requests are forwarded to.
fn auth_and_upstream() -> (HttpServer, HttpServer) {
    let (auth, upstream) = (HttpServer::start().unwrap(), HttpServer::start().unwrap());
    upstream.serve("hello");
    (auth, upstream)
}

#[track_caller]
fn assert_asks_before_it_forwards(port: u16, auth: &HttpServer, upstream: &HttpServer) {
    let answer = get(port, "X-Key: one\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello"), "{answer}");
    assert_eq!((auth.requests(), upstream.requests()), (1, 1));
    assert_eq!(auth.last_header("x-key").as_deref(), Some("one"));
    auth.misbehave(Misbehave::Status(403));
    let answer = get(port, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    assert_eq!((auth.requests(), upstream.requests()), (2, 1));
}

#[test]
fn nginx_asks_before_it_forwards() {
    let (auth, upstream) = auth_and_upstream();
    let nginx = NginxServer::start(|port| {
        format!(
            "server {{
                listen 127.0.0.1:{port};
                location / {{ auth_request /auth; proxy_pass http://127.0.0.1:{}; }}
                location = /auth {{ internal; proxy_pass http://127.0.0.1:{}; }}
            }}",
            upstream.port(),
            auth.port()
        )
    })
    .unwrap();
    assert_asks_before_it_forwards(nginx.port(), &auth, &upstream);
}

/// Asks `auth` with all headers of the request, and forwards it to `upstream`.
fn traefik_config(auth: &HttpServer, upstream: &HttpServer) -> String {
    format!(
        "http:
           routers: {{all: {{rule: PathPrefix(`/`), middlewares: [auth], service: upstream}}}}
           middlewares: {{auth: {{forwardAuth: {{address: 'http://127.0.0.1:{}/'}}}}}}
           services: {{upstream: {{loadBalancer: {{servers: [{{url: 'http://127.0.0.1:{}'}}]}}}}}}",
        auth.port(),
        upstream.port()
    )
}

#[test]
fn traefik_asks_before_it_forwards() {
    let (auth, upstream) = auth_and_upstream();
    let traefik = TraefikServer::start(&traefik_config(&auth, &upstream)).unwrap();
    assert_asks_before_it_forwards(traefik.port(), &auth, &upstream);
    assert!(traefik.log().contains("Traefik version"), "{}", traefik.log());
}

/// Returns a static configuration whose entry point has these options besides its address.
fn traefik_static(port: u16, options: &str) -> String {
    format!(
        "entryPoints: {{web: {{address: '127.0.0.1:{port}', {options}}}}}\nproviders: {{file: {{directory: dynamic}}}}\n"
    )
}

#[test]
fn traefik_takes_static_configuration_too() {
    let (auth, upstream) = auth_and_upstream();
    let config = traefik_config(&auth, &upstream);
    let spoofed = "X-Forwarded-Proto: https\r\n";
    let suspicious = TraefikServer::start(&config).unwrap();
    get(suspicious.port(), spoofed).unwrap();
    assert_eq!(upstream.last_header("x-forwarded-proto").as_deref(), Some("http"));
    let file = |port| traefik_static(port, "forwardedHeaders: {trustedIPs: [127.0.0.1]}");
    let trusting = TraefikServer::start_file(file, &config).unwrap();
    get(trusting.port(), spoofed).unwrap();
    assert_eq!(upstream.last_header("x-forwarded-proto").as_deref(), Some("https"));
}

#[test]
fn errors_in_the_configuration_of_traefik_are_reported() {
    let unknown_field = TraefikServer::start("http: {no_such_thing: {}}").unwrap_err().to_string();
    assert!(unknown_field.contains("no_such_thing"), "{unknown_field}");
    let unknown_service = "http: {routers: {all: {rule: PathPrefix(`/`), service: nowhere}}}";
    let unknown_service = TraefikServer::start(unknown_service).unwrap_err().to_string();
    assert!(unknown_service.contains("nowhere"), "{unknown_service}");
    let file = |port| traefik_static(port, "no_such_thing: 1");
    let unknown_option = TraefikServer::start_file(file, "http: {}").unwrap_err().to_string();
    assert!(unknown_option.contains("no_such_thing"), "{unknown_option}");
}

#[test]
fn caddy_asks_before_it_forwards() {
    let (auth, upstream) = auth_and_upstream();
    let caddy = CaddyServer::start(|port| {
        format!(
            "http://:{port} {{
                forward_auth 127.0.0.1:{} {{
                    uri /auth
                }}
                reverse_proxy 127.0.0.1:{}
            }}",
            auth.port(),
            upstream.port()
        )
    })
    .unwrap();
    assert_asks_before_it_forwards(caddy.port(), &auth, &upstream);
    assert!(caddy.log().contains("serving initial configuration"), "{}", caddy.log());
}

#[test]
fn an_error_in_a_caddyfile_is_reported() {
    let error = CaddyServer::start(|port| format!("http://:{port} {{\n no_such_thing\n}}")).unwrap_err().to_string();
    assert!(error.contains("no_such_thing"), "{error}");
}
