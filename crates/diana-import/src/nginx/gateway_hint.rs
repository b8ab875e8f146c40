//! The listen addresses and upstreams of nginx, as a suggestion for `gateway`.
//!
//! Diana may run in front of nginx, behind it or in its place, which the importer can't know. So this is written as a
//! comment, and no rule depends on it.

use super::syntax::Directive;
use crate::yaml::scalar;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum number of suggested values.
const MAX_COUNT: usize = 8;

/// The collected directives.
#[derive(Default)]
struct GatewayHint<'a> {
    listen: Vec<SocketAddr>,
    tls_listen: Vec<SocketAddr>,
    certificate: Option<&'a str>,
    key: Option<&'a str>,
    /// Scheme and authority of each `proxy_pass`.
    proxy_passes: Vec<(&'a str, &'a str)>,
    /// The servers of each `upstream`.
    upstreams: BTreeMap<&'a str, Vec<&'a str>>,
}

/// Returns the fields of `gateway`, line by line.
pub(super) fn suggested(directives: &[Directive]) -> Vec<String> {
    let mut hint = GatewayHint::default();
    hint.read(directives);
    let mut fields = Vec::new();
    if hint.listen.is_empty() && hint.tls_listen.is_empty() {
        hint.listen.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
    }
    if !hint.listen.is_empty() {
        fields.push(format!("listen: {}", list(&hint.listen)));
    }
    if !hint.tls_listen.is_empty() {
        let certificate = scalar(hint.certificate.unwrap_or("/etc/diana/certificate.pem"));
        let key = scalar(hint.key.unwrap_or("/etc/diana/key.pem"));
        fields.push("tls:".to_owned());
        fields.push(format!("  listen: {}", list(&hint.tls_listen)));
        fields.push(format!("  certificates: {{certificate: {certificate}, key: {key}}}"));
    }
    let (first, others) =
        hint.proxy_passes.split_first().map_or((Vec::new(), &[][..]), |(first, others)| (hint.servers(*first), others));
    fields.push(match first.is_empty() {
        true => format!("upstream: {}", scalar("http://127.0.0.1:3000")),
        false => format!("upstream: {}", list(&first)),
    });
    if !others.is_empty() {
        let others = others.iter().map(|(scheme, authority)| format!("{scheme}://{authority}")).collect::<Vec<_>>();
        fields.push(format!("# nginx also sends requests to {}: see `routes`", others.join(", ")));
    }
    fields
}

impl<'a> GatewayHint<'a> {
    fn read(&mut self, directives: &'a [Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                // These sections are not about HTTP.
                "stream" | "mail" => continue,
                "upstream" => {
                    let servers = directive.inside().iter().filter(|inner| inner.name == "server");
                    let servers =
                        servers.filter(|server| !server.args.iter().any(|arg| arg == "down" || arg == "backup"));
                    self.upstreams
                        .insert(directive.arg(0), servers.map(|server| server.arg(0)).take(MAX_COUNT).collect());
                    continue;
                }
                "server" if directive.block.is_some() => {
                    let has_no_listen = !directive.inside().iter().any(|inner| inner.name == "listen");
                    if has_no_listen {
                        add(&mut self.listen, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80)));
                    }
                }
                "listen" => {
                    let is = |word: &str| directive.args.iter().any(|arg| arg == word);
                    if let Some(address) = address(directive.arg(0)).filter(|_| !is("quic")) {
                        add(if is("ssl") { &mut self.tls_listen } else { &mut self.listen }, address);
                    }
                }
                "ssl_certificate" => _ = self.certificate.get_or_insert(directive.arg(0)),
                "ssl_certificate_key" => _ = self.key.get_or_insert(directive.arg(0)),
                "proxy_pass" | "grpc_pass" => {
                    if let Some((scheme, rest)) = directive.arg(0).split_once("://") {
                        let authority = rest.split('/').next().unwrap_or_default();
                        if !rest.contains('$') && matches!(scheme, "http" | "https") && !authority.is_empty() {
                            add(&mut self.proxy_passes, (scheme, authority));
                        }
                    }
                }
                _ => {}
            }
            self.read(directive.inside());
        }
    }

    /// Returns the addresses that a `proxy_pass` refers to.
    fn servers(&self, (scheme, authority): (&str, &str)) -> Vec<String> {
        let address = [authority];
        let servers = self.upstreams.get(authority).filter(|servers| !servers.is_empty());
        let servers = servers.map_or(&address[..], Vec::as_slice).iter();
        servers.filter(|server| !server.starts_with("unix:")).map(|server| format!("{scheme}://{server}")).collect()
    }
}

fn add<T: PartialEq>(values: &mut Vec<T>, value: T) {
    if values.len() < MAX_COUNT && !values.contains(&value) {
        values.push(value);
    }
}

/// Parses `80`, `*:80`, `127.0.0.1`, `127.0.0.1:80`, `[::]:80`; not `unix:/path`.
fn address(text: &str) -> Option<SocketAddr> {
    let text = text.replacen("*:", "0.0.0.0:", 1);
    let port = || Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, text.parse().ok()?)));
    let bare = || Some(SocketAddr::from((text.parse::<IpAddr>().ok()?, 80)));
    let in_brackets = || {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        Some(SocketAddr::from((inner.parse::<Ipv6Addr>().ok()?, 80)))
    };
    text.parse().ok().or_else(port).or_else(bare).or_else(in_brackets)
}

fn list(values: &[impl ToString]) -> String {
    let values = values.iter().map(|value| scalar(&value.to_string())).collect::<Vec<_>>();
    match &*values {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::syntax::parse;

    fn suggested(text: &str) -> Vec<String> {
        super::suggested(&parse(text, 0).unwrap_or_else(|problem| panic!("{}", problem.what())))
    }

    #[test]
    fn suggests_listen_addresses_and_upstreams() {
        let conf = "http {
            upstream app { server 10.0.0.1:3000; server 10.0.0.2:3000; server 10.0.0.3:3000 down; }
            server { listen 80; listen [::]:80; location / { proxy_pass http://app; } }
            server {
                listen 443 ssl; ssl_certificate /etc/a.pem; ssl_certificate_key /etc/a.key;
                location /b/ { proxy_pass https://b.internal/x; } location /c/ { proxy_pass http://$host; }
            }
        }
        stream { server { listen 9000; proxy_pass http://not-http; } }";
        assert_eq!(
            suggested(conf),
            [
                "listen: ['0.0.0.0:80', '[::]:80']",
                "tls:",
                "  listen: '0.0.0.0:443'",
                "  certificates: {certificate: /etc/a.pem, key: /etc/a.key}",
                "upstream: ['http://10.0.0.1:3000', 'http://10.0.0.2:3000']",
                "# nginx also sends requests to https://b.internal: see `routes`",
            ]
        );
    }

    #[test]
    fn suggests_an_example_without_directives() {
        assert_eq!(suggested(""), ["listen: '0.0.0.0:8080'", "upstream: 'http://127.0.0.1:3000'"]);
        assert_eq!(suggested("server { }"), ["listen: '0.0.0.0:80'", "upstream: 'http://127.0.0.1:3000'"]);
        assert_eq!(
            suggested("server { listen unix:/run/x; listen 127.0.0.1; listen *:81; listen localhost:1; }"),
            ["listen: ['127.0.0.1:80', '0.0.0.0:81']", "upstream: 'http://127.0.0.1:3000'"]
        );
    }
}
