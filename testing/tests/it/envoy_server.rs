//! An Envoy forwards to an upstream, restarts on its ports, and reports errors in its configuration.

use crate::get;
use diana_testing::{EnvoyServer, HttpServer};

/// A bootstrap configuration that forwards all requests to `upstream`. Its admin port is in use.
fn config(port: u16, upstream: &HttpServer) -> String {
    let upstream = upstream.port();
    format!(
        r#"
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: upstream}}}}]}}
          http_filters:
          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: upstream
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
"#
    )
}

#[test]
fn forwards_also_after_a_restart() {
    let upstream = HttpServer::start().unwrap();
    upstream.serve("hello");
    let mut envoy = EnvoyServer::start(|port| config(port, &upstream)).unwrap();
    let (port, pid) = (envoy.port(), envoy.pid());
    let answer = get(port, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello"), "{answer}\n{}", envoy.log());
    envoy.kill().unwrap();
    assert!(get(port, "").is_err());
    envoy.restart().unwrap();
    assert_eq!(envoy.port(), port);
    assert_ne!(envoy.pid(), pid);
    let answer = get(port, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello"), "{answer}\n{}", envoy.log());
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn several_run_at_the_same_time() {
    let upstream = HttpServer::start().unwrap();
    let [one, other] = [(), ()].map(|()| EnvoyServer::start(|port| config(port, &upstream)).unwrap());
    for envoy in [&one, &other] {
        assert!(get(envoy.port(), "").unwrap().starts_with("HTTP/1.1 200 OK\r\n"), "{}", envoy.log());
        let admin = get(envoy.admin_port(), "").unwrap();
        assert!(admin.starts_with("HTTP/1.1 404 ") && admin.contains("admin commands are:"), "{admin}");
    }
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn an_invalid_configuration_is_reported() {
    let error = EnvoyServer::start(|_| "static_resources: {no_such_thing: 1}".to_owned()).unwrap_err().to_string();
    assert!(error.contains("no_such_thing"), "{error}");
}
