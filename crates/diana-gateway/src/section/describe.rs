//! The gateway in words: its listeners, upstreams and other settings. Defaults are not described, except for the
//! addresses.

use super::{AccessLogFormat, GatewaySection};
use diana_rules::describe::{and, duration};
use diana_rules::http_settings::{RateLimitHeaders, Spelling};
use diana_rules::upstream::Upstream;

impl GatewaySection {
    /// Describes the gateway, line by line.
    ///
    /// ```
    /// use diana_gateway::section::GatewaySection;
    ///
    /// let mut gateway = GatewaySection::default();
    /// gateway.upstream = vec!["http://a".parse()?, "http://b".parse()?];
    /// assert_eq!(gateway.describe(), ["listens on 127.0.0.1:8080", "all requests go to http://a and http://b in turn"]);
    /// # Ok::<(), diana_rules::upstream::InvalidUpstream>(())
    /// ```
    pub fn describe(&self) -> Vec<String> {
        let mut said = vec![listening(self)];
        said.extend(going(self));
        if !self.http.trusted_proxies.is_empty() {
            let how = if self.proxy_protocol { ", which begin with a PROXY header" } else { "" };
            said.push(format!("clients' addresses are believed from {}{how}", and(&self.http.trusted_proxies)));
        }
        if let Some(signature) = &self.signature {
            let age = duration(signature.max_age);
            said.push(format!("requests must be signed in {}, at most {age} ago", signature.header));
        }
        if self.http.escaped_slash == Spelling::Deny {
            said.push("paths with an escaped slash are answered with 400".to_owned());
        }
        if self.methods.any_case == Spelling::Allow {
            said.push("methods may be written in any letter case".to_owned());
        }
        match self.http.rate_limit_headers {
            RateLimitHeaders::Ietf => {}
            RateLimitHeaders::X => said.push("X-RateLimit fields tell how much is left".to_owned()),
            RateLimitHeaders::Both => said.push("RateLimit and X-RateLimit fields tell how much is left".to_owned()),
            RateLimitHeaders::Off => said.push("no field tells how much is left".to_owned()),
        }
        match self.access_log {
            AccessLogFormat::Off => {}
            AccessLogFormat::Text => said.push("logs each request as text".to_owned()),
            AccessLogFormat::Json => said.push("logs each request as JSON".to_owned()),
        }
        said
    }
}

fn listening(gateway: &GatewaySection) -> String {
    let plain = and(&gateway.listen);
    match &gateway.tls {
        None => format!("listens on {plain}"),
        Some(tls) if plain.is_empty() => format!("listens with TLS on {}", and(&tls.listen)),
        Some(tls) => format!("listens on {plain}; with TLS on {}", and(&tls.listen)),
    }
}

/// Describes the upstreams.
fn going(gateway: &GatewaySection) -> Vec<String> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;
    use diana_rules::{Document, Section};

    fn said(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let section = GatewaySection::parse(&Document::new("diana.yaml", text).parse().unwrap(), &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        section.unwrap().describe()
    }

    #[test]
    fn all_that_is_unusual_is_said() {
        let text = "
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
            ]
        );
        assert_eq!(said("{}"), ["listens on 127.0.0.1:8080", "all requests go nowhere"]);
    }
}
