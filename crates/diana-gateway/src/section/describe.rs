//! The gateway in words: its listeners, upstreams and other settings. Defaults are not described, except for the
//! addresses.

use super::{AccessLogFormat, Balance, GatewaySection, RetryPolicy, UpstreamGroup};
use diana_rules::describe::{and, duration};
use diana_rules::http_settings::SpellingPolicy;

impl GatewaySection {
    /// Describes the gateway, line by line.
    ///
    /// ```
    /// use diana_gateway::section::GatewaySection;
    ///
    /// let mut gateway = GatewaySection::default();
    /// gateway.upstream = vec!["http://a".parse()?, "http://b".parse()?].into();
    /// assert_eq!(gateway.describe(), ["listens on 127.0.0.1:8080", "all requests go to http://a and http://b in turn"]);
    /// # Ok::<(), diana_rules::upstream_url::InvalidUpstream>(())
    /// ```
    pub fn describe(&self) -> Vec<String> {
        let mut lines = vec![listeners(self)];
        lines.extend(upstreams(self));
        if !self.http.trusted_proxies.is_empty() {
            let how = if self.proxy_protocol { ", in a PROXY header" } else { "" };
            lines.push(format!("trusts client addresses from {}{how}", and(&self.http.trusted_proxies)));
        }
        if let Some(signature) = &self.signature {
            let age = duration(signature.max_age);
            lines.push(format!("requests must be signed in {}, at most {age} ago", signature.header));
        }
        if self.http.escaped_slash == SpellingPolicy::Deny {
            lines.push("paths with an escaped slash are answered with 400".to_owned());
        }
        if self.methods.any_case == SpellingPolicy::Allow {
            lines.push("methods may be written in any letter case".to_owned());
        }
        let headers = self.http.rate_limit_headers;
        match (headers.has_ietf(), headers.has_x()) {
            (true, false) => {}
            (false, true) => lines.push("sends X-RateLimit headers".to_owned()),
            (true, true) => lines.push("sends RateLimit and X-RateLimit headers".to_owned()),
            (false, false) => lines.push("sends no rate limit headers".to_owned()),
        }
        match self.access_log {
            AccessLogFormat::Off => {}
            AccessLogFormat::Text => lines.push(format!("logs each request as text{}", to_file(self))),
            AccessLogFormat::Json => lines.push(format!("logs each request as JSON{}", to_file(self))),
        }
        lines
    }
}

fn to_file(gateway: &GatewaySection) -> String {
    gateway.access_log_file.as_ref().map(|file| format!(" to {}", file.display())).unwrap_or_default()
}

fn listeners(gateway: &GatewaySection) -> String {
    let plain = and(&gateway.listen);
    match &gateway.tls {
        None => format!("listens on {plain}"),
        Some(tls) if plain.is_empty() => format!("listens with TLS on {}", and(&tls.listen)),
        Some(tls) => format!("listens on {plain}; with TLS on {}", and(&tls.listen)),
    }
}

/// Describes the upstreams.
fn upstreams(gateway: &GatewaySection) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(gateway.routes.iter().map(|route| format!("{} goes to {}", route.matches, group(&route.upstream))));
    let rest = if gateway.routes.is_empty() { "all requests go" } else { "other requests go" };
    lines.push(match &*gateway.upstream.endpoints {
        [] if gateway.echo && gateway.routes.is_empty() => {
            "all requests are answered with their own content".to_owned()
        }
        [] if gateway.echo => "other requests are answered with their own content".to_owned(),
        [] if gateway.routes.is_empty() => "no upstream: allowed requests are answered with 204".to_owned(),
        [] => "other requests are answered with 404".to_owned(),
        _ => format!("{rest} to {}", group(&gateway.upstream)),
    });
    lines
}

/// Describes a group of upstreams.
fn group(group: &UpstreamGroup) -> String {
    let has_weights = group.endpoints.iter().any(|endpoint| endpoint.weight != 1);
    let names = group.endpoints.iter().map(|endpoint| match has_weights {
        true => format!("{} (weight {})", endpoint.upstream, endpoint.weight),
        false => endpoint.upstream.to_string(),
    });
    let mut text = and(&names.collect::<Vec<_>>());
    if group.endpoints.len() > 1 {
        text.push_str(match group.balance {
            Balance::RoundRobin => " in turn",
            Balance::LeastRequests => ", the one with the fewest requests",
        });
    }
    if let Some(health) = &group.health {
        text.push_str(&format!("; checked at {} every {}", health.path, duration(health.interval)));
    }
    if let Some(retries) = &group.retries {
        let RetryPolicy { attempts, budget, .. } = retries;
        text.push_str(&format!(
            "; failed requests are retried {attempts} times at most, within {budget} of all requests"
        ));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use diana_rules::{Document, Section};

    fn described(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let section = GatewaySection::parse(&Document::new("diana.yaml", text).parse().unwrap(), &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        section.unwrap().describe()
    }

    #[test]
    fn describes_all_settings_but_defaults() {
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
            described(text),
            [
                "listens with TLS on 0.0.0.0:443 and [::]:443",
                "/v1/**, host b.com goes to http://b, https://c and h2c://d:1 in turn",
                "other requests go to http://a",
                "trusts client addresses from 10.0.0.0/8, in a PROXY header",
                "requests must be signed in x-signature, at most 5 minutes ago",
                "paths with an escaped slash are answered with 400",
                "methods may be written in any letter case",
                "sends no rate limit headers",
                "logs each request as JSON",
            ]
        );
        let text =
            "{upstream: [{url: http://a, weight: 3}, http://b], balance: least_requests, health: /up, retries: {}}";
        assert_eq!(
            described(text)[1],
            "all requests go to http://a (weight 3) and http://b (weight 1), the one with the fewest requests; checked at \
             /up every 5 seconds; failed requests are retried 2 times at most, within 20% of all requests"
        );
        assert_eq!(
            described("{}"),
            ["listens on 127.0.0.1:8080", "no upstream: allowed requests are answered with 204"]
        );
    }
}
