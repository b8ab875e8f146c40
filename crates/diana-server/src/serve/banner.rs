//! The start message: the addresses, and what to try.

use super::{ServeOptions, Serving};
use crate::program_log::ProgramLogFormat;
use diana_rules::RuleFile;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

/// Writes the start message to standard error: as text, or as an event if the log is JSON. Standard output is the
/// access log's.
pub(super) fn print(options: &ServeOptions, serving: &Serving, file: &RuleFile) {
    match options.log() {
        Some(mut log) if log.format() == ProgramLogFormat::Text => {
            // Writing to the log never fails.
            let _ = log.write_all(text(options, serving, file).as_bytes());
        }
        _ => {
            let (listen, admin) = (listed(serving.gateway.addresses()), listed(&serving.admin));
            let services = serving.services.addresses().iter().map(|(name, address)| format!("{name} {address}"));
            let services = services.collect::<Vec<_>>().join(", ");
            tracing::info!(listen, services, admin, rules = file.rules.len(), "serving");
        }
    }
}

fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn text(options: &ServeOptions, serving: &Serving, file: &RuleFile) -> String {
    let (mut text, gateway) = (String::new(), &serving.gateway);
    if !gateway.addresses().is_empty() {
        let _ = writeln!(text, "Diana serves on {}", listed(gateway.addresses()));
    }
    for (name, address) in serving.services.addresses() {
        let what = match *name {
            "envoy" => "Envoy's rate limit service and ext_authz (gRPC)",
            "resp" => "the Redis protocol",
            _ => "checks for nginx, Traefik and Caddy (HTTP)",
        };
        let _ = writeln!(text, "Diana serves {what} on {address}");
    }
    if let [admin, ..] = &*serving.admin {
        let _ = writeln!(text, "Dashboard, metrics and active rules: http://{admin}/");
    }
    if let (true, [address, ..]) = (options.is_default(), gateway.addresses()) {
        let _ = writeln!(
            text,
            "
Without a file, these are sample rules and a built-in upstream that echoes requests. Try:

  curl -i http://{address}/hello
  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'x-account-id: alice' http://{address}/; done
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} after %{{time_total}}s\\n' http://{address}/search/shoes & done; wait

The first request is allowed. Of the second batch, ten are allowed at once and then five a second. Of the third, two a second
are allowed, four are queued, and the others are denied. To write your own rules: `diana serve --print-default > diana.yaml`,
then `diana serve --config diana.yaml`.
"
        );
    } else {
        let rules = file.rules.len();
        let _ = writeln!(text, "{rules} active {}\n", if rules == 1 { "rule" } else { "rules" });
    }
    text
}
