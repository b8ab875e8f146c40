//! Descriptions of a gateway: its listeners, upstreams and other settings.
//!
//! Defaults are not described, except for the addresses of the gateway and of the admin API.

use super::units;
use crate::file::{AccessLogFormat, Admin, Gateway, RateLimitHeaders, RuleFile, Spelling, Upstream};
use std::fmt::Display;

/// Describes the gateway of a file, line by line; empty if it has none.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile, describe_gateway};
///
/// let document = Document::new("diana.yaml", "{gateway: {listen: 0.0.0.0:80, upstream: [http://a, http://b]}, rules: []}");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(describe_gateway(&file), [
///     "listens on 0.0.0.0:80",
///     "all requests go to http://a and http://b in turn",
///     "admin on 127.0.0.1:9090",
/// ]);
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn describe_gateway(file: &RuleFile) -> Vec<String> {
    let Some(gateway) = &file.gateway else { return Vec::new() };
    let mut said = vec![listening(gateway)];
    said.extend(going(gateway));
    if !gateway.trusted_proxies.is_empty() {
        let how = if gateway.proxy_protocol { ", which begin with a PROXY header" } else { "" };
        said.push(format!("clients' addresses are believed from {}{how}", and(&gateway.trusted_proxies)));
    }
    if let Some(signature) = &gateway.signature {
        let age = units::time(signature.max_age);
        said.push(format!("requests must be signed in {}, at most {age} ago", signature.header));
    }
    if gateway.paths.escaped_slash == Spelling::Deny {
        said.push("paths with an escaped slash are answered with 400".to_owned());
    }
    if gateway.methods.any_case == Spelling::Allow {
        said.push("methods may be written in any letter case".to_owned());
    }
    match gateway.rate_limit_headers {
        RateLimitHeaders::Ietf => {}
        RateLimitHeaders::X => said.push("X-RateLimit fields tell how much is left".to_owned()),
        RateLimitHeaders::Both => said.push("RateLimit and X-RateLimit fields tell how much is left".to_owned()),
        RateLimitHeaders::Off => said.push("no field tells how much is left".to_owned()),
    }
    match gateway.access_log {
        AccessLogFormat::Off => {}
        AccessLogFormat::Text => said.push("logs each request as text".to_owned()),
        AccessLogFormat::Json => said.push("logs each request as JSON".to_owned()),
    }
    let admin = file.admin.clone().unwrap_or_default();
    let Admin { listen, token } = &admin;
    let token = if token.is_some() { ", with a token" } else { "" };
    said.push(format!("admin on {}{token}", and(listen)));
    said
}

fn listening(gateway: &Gateway) -> String {
    let plain = and(&gateway.listen);
    match &gateway.tls {
        None => format!("listens on {plain}"),
        Some(tls) if plain.is_empty() => format!("listens with TLS on {}", and(&tls.listen)),
        Some(tls) => format!("listens on {plain}; with TLS on {}", and(&tls.listen)),
    }
}

/// Describes the upstreams.
fn going(gateway: &Gateway) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(gateway.routes.iter().map(|route| format!("{} goes to {}", route.matches, in_turn(&route.upstream))));
    let rest = if gateway.routes.is_empty() { "all requests go" } else { "all else goes" };
    said.push(match &*gateway.upstream {
        [] if gateway.echo && gateway.routes.is_empty() => "all requests are answered with what was asked".to_owned(),
        [] if gateway.echo => "all else is answered with what was asked".to_owned(),
        [] => format!("{rest} nowhere"),
        upstream => format!("{rest} to {}", in_turn(upstream)),
    });
    said
}

fn in_turn(upstream: &[Upstream]) -> String {
    let turn = if upstream.len() > 1 { " in turn" } else { "" };
    format!("{}{turn}", and(upstream))
}

/// `a`, `a and b`, `a, b and c`.
fn and(values: &[impl Display]) -> String {
    let texts = values.iter().map(ToString::to_string).collect::<Vec<_>>();
    match &*texts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;
    use crate::{Document, Registry};

    fn said(text: &str) -> Vec<String> {
        describe_gateway(&RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap())
    }

    #[test]
    fn all_that_is_unusual_is_said() {
        let text = "
gateway:
  tls: {listen: ['0.0.0.0:443', '[::]:443'], certificates: {certificate: a, key: b}}
  upstream: http://a
  routes: [{match: {host: b.com, path: /v1/**}, upstream: [http://b, https://c, 'h2c://d:1']}]
  trusted_proxies: 10.0.0.0/8
  proxy_protocol: true
  rate_limit_headers: off
  access_log: json
  signature: {secret: s}
  paths: {escaped_slash: deny}
  methods: {any_case: allow}
admin: {listen: 0.0.0.0:1, token: t}
rules: []
";
        assert_eq!(
            said(text),
            [
                "listens with TLS on 0.0.0.0:443 and [::]:443",
                "/v1/**, host b.com goes to http://b, https://c and h2c://d:1 in turn",
                "all else goes to http://a",
                "clients' addresses are believed from 10.0.0.0/8, which begin with a PROXY header",
                "requests must be signed in x-signature, at most 5 minutes ago",
                "paths with an escaped slash are answered with 400",
                "methods may be written in any letter case",
                "no field tells how much is left",
                "logs each request as JSON",
                "admin on 0.0.0.0:1, with a token",
            ]
        );
        assert_eq!(
            said("{gateway: {}, rules: []}"),
            ["listens on 127.0.0.1:8080", "all requests go nowhere", "admin on 127.0.0.1:9090"]
        );
        assert!(said("rules: []").is_empty());
    }
}
