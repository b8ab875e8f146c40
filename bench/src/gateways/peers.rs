//! The gateways that Diana is compared with, each configured as its users would for a limit by client address.
//!
//! | | limit | |
//! |---|---|---|
//! | nginx | `limit_req`, a zone for each limit | `keepalive` to the upstream |
//! | HAProxy | a stick table with `http_req_rate` for each limit, and `http-request deny` | `http-reuse always`, as nginx does |
//! | Envoy | `local_ratelimit`, with a descriptor for each address | its defaults, such as `x-request-id` |
//!
//! All of them have one worker and no access log, and add the forwarding headers that Diana adds. Denials have the
//! default page of each.

use super::{Gateway, Ports, Stage};
use diana_testing::{EnvoyServer, HaproxyServer, NginxServer, Port};
use std::io;

/// A gateway that Diana is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Nginx,
    Haproxy,
    Envoy,
}

/// Where gateways read the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// The connection's.
    Connection,
    /// `X-Forwarded-For`, as behind a load balancer.
    ForwardedFor,
}

impl Peer {
    pub const ALL: [Self; 3] = [Self::Nginx, Self::Haproxy, Self::Envoy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Envoy => "Envoy",
        }
    }

    /// Returns its version. Fails if it is not installed.
    pub fn version(self) -> io::Result<String> {
        match self {
            Self::Nginx => NginxServer::version(),
            Self::Haproxy => HaproxyServer::version(),
            Self::Envoy => EnvoyServer::version(),
        }
    }
}

impl Stage {
    /// Starts a peer. Fails if it rejects its configuration.
    pub fn peer(&self, peer: Peer, address: ClientAddress) -> io::Result<Gateway> {
        let claimed = [Port::claim()?, Port::claim()?];
        let [h2c, tls] = [0, 1].map(|index: usize| claimed[index].number());
        let prefix: Vec<&str> = self.prefix.iter().map(String::as_str).collect();
        let upstream = self.upstream.port();
        let fill = |template: &str, http1: u16| {
            let ports = [("H2C_PORT", h2c), ("TLS_PORT", tls), ("HTTP_PORT", http1), ("UPSTREAM_PORT", upstream)];
            let files = [
                ("CERTIFICATE_AND_KEY", &self.certificate_and_key),
                ("CERTIFICATE", &self.tls.certificate),
                ("KEY_FILE", &self.tls.key),
            ];
            let text =
                ports.iter().fold(template.to_owned(), |text, (name, port)| text.replace(name, &port.to_string()));
            files.iter().fold(text, |text, (name, path)| text.replace(name, &path.display().to_string()))
        };
        let behind_load_balancer = address == ClientAddress::ForwardedFor;
        let (http1, pid, process): (u16, u32, Box<dyn std::any::Any>) = match peer {
            Peer::Nginx => {
                let real_ip = "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;";
                let template = NGINX.replace("REAL_IP", if behind_load_balancer { real_ip } else { "" });
                let server = NginxServer::start_under(&prefix, |port| fill(&template, port))?;
                (server.port(), server.workers()?[0], Box::new(server))
            }
            Peer::Haproxy => {
                let set_source = "http-request set-src hdr(x-forwarded-for)";
                let template = HAPROXY.replace("SET_SOURCE", if behind_load_balancer { set_source } else { "" });
                let server = HaproxyServer::start_under(&prefix, |port| fill(&template, port))?;
                (server.port(), server.pid(), Box::new(server))
            }
            Peer::Envoy => {
                let hops = if behind_load_balancer { "1" } else { "0" };
                let template = envoy().replace("TRUSTED_HOPS", hops);
                let server = EnvoyServer::start_under(&prefix, |port| fill(&template, port))?;
                (server.port(), server.pid(), Box::new(server))
            }
        };
        let ports = Ports { http1, h2c, tls };
        Ok(Gateway { name: peer.name(), pid, ports, _resources: Box::new((process, claimed)) })
    }
}

/// The zone of `/shut` is large enough for half a million addresses.
const NGINX: &str = r#"
limit_req_zone $binary_remote_addr zone=open:10m rate=1000000r/s;
limit_req_zone $binary_remote_addr zone=shut:64m rate=1r/m;
keepalive_requests 1000000000;
keepalive_timeout 300s;
REAL_IP
upstream service {
    server 127.0.0.1:UPSTREAM_PORT;
    keepalive 1024;
    keepalive_requests 1000000000;
}
server {
    listen 127.0.0.1:HTTP_PORT backlog=4096;
    listen 127.0.0.1:H2C_PORT http2 backlog=4096;
    listen 127.0.0.1:TLS_PORT ssl backlog=4096;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate CERTIFICATE;
    ssl_certificate_key KEY_FILE;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header Forwarded "for=$remote_addr;proto=$scheme";
    location /open { limit_req zone=open burst=1000000 nodelay; proxy_pass http://service; }
    location /shut { limit_req zone=shut; proxy_pass http://service; }
}
"#;

const HAPROXY: &str = "
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    timeout http-keep-alive 300s
backend open_rates
    stick-table type ip size 1m expire 10s store http_req_rate(1s)
backend shut_rates
    stick-table type ip size 1m expire 2m store http_req_rate(60s)
frontend clients
    bind 127.0.0.1:HTTP_PORT backlog 4096
    bind 127.0.0.1:H2C_PORT proto h2 backlog 4096
    bind 127.0.0.1:TLS_PORT ssl crt CERTIFICATE_AND_KEY ssl-min-ver TLSv1.2 alpn http/1.1 backlog 4096
    SET_SOURCE
    acl is_open path_beg /open
    acl is_shut path_beg /shut
    http-request track-sc0 src table open_rates if is_open
    http-request track-sc0 src table shut_rates if is_shut
    http-request deny deny_status 429 if is_open { sc_http_req_rate(0) gt 1000000 }
    http-request deny deny_status 429 if is_shut { sc_http_req_rate(0) gt 1 }
    option forwardfor
    http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header Forwarded for=%[src];proto=%[ssl_fc,iif(https,http)]
    default_backend service
backend service
    http-reuse always
    server upstream 127.0.0.1:UPSTREAM_PORT
";

/// Returns the bootstrap of Envoy: three listeners with the same routes, each route with its own limit.
fn envoy() -> String {
    let listener = |name, transport: &str| {
        let port = format!("{name}_PORT");
        ENVOY_LISTENER.replace("LISTENER_PORT", &port).replace("TRANSPORT", transport).replace("LISTENER_NAME", name)
    };
    let routes = [
        ("open", "{max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s}"),
        ("shut", "{max_tokens: 1, tokens_per_fill: 1, fill_interval: 60s}"),
    ]
    .map(|(name, bucket)| ENVOY_ROUTE.replace("ROUTE_NAME", name).replace("TOKEN_BUCKET", bucket));
    let listeners = [listener("HTTP", ""), listener("H2C", ""), listener("TLS", ENVOY_TLS)].concat();
    format!("static_resources:\n  listeners:{}\n{ENVOY_CLUSTERS}", listeners.replace("ROUTES", &routes.concat()))
}

const ENVOY_LISTENER: &str = r#"
  - name: LISTENER_NAME
    address: {socket_address: {address: 127.0.0.1, port_value: LISTENER_PORT}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          use_remote_address: true
          xff_num_trusted_hops: TRUSTED_HOPS
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              request_headers_to_add:
              - {header: {key: x-forwarded-host, value: "%REQ(:AUTHORITY)%"}}
              - {header: {key: forwarded, value: "for=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%;proto=%REQ(X-FORWARDED-PROTO)%"}}
              routes:ROUTES
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}TRANSPORT"#;

/// A descriptor without a value has a token bucket for each value. The bucket of the whole route is never empty.
const ENVOY_ROUTE: &str = r#"
              - match: {prefix: /ROUTE_NAME}
                route: {cluster: upstream}
                typed_per_filter_config:
                  envoy.filters.http.local_ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
                    stat_prefix: ROUTE_NAME
                    filter_enabled: {default_value: {numerator: 100}}
                    filter_enforced: {default_value: {numerator: 100}}
                    token_bucket: {max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s}
                    max_dynamic_descriptors: 1000000
                    rate_limits: [{actions: [{remote_address: {}}]}]
                    descriptors: [{entries: [{key: remote_address}], token_bucket: TOKEN_BUCKET}]"#;

const ENVOY_TLS: &str = r#"
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [http/1.1]
            tls_certificates: [{certificate_chain: {filename: CERTIFICATE}, private_key: {filename: KEY_FILE}}]"#;

const ENVOY_CLUSTERS: &str = "
  clusters:
  - name: upstream
    type: STATIC
    load_assignment:
      cluster_name: upstream
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM_PORT}}}}]}]
";
