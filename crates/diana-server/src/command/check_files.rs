//! Opens the TLS files that a rule file names, as `diana serve` will: certificates, keys, and those of authorities.

use diana::{Clock, SystemClock};
use diana_net::tls::{TlsFileError, check_authorities, check_pair};
use diana_rules::Problem;
use diana_rules::document::{Node, Value};
use std::path::Path;

/// Returns what is wrong with the files, each at its path. Paths for which `is_checked` is false are left out.
pub(super) fn problems(tree: &Node, is_checked: impl Fn(&Node) -> bool) -> Vec<Problem> {
    let now = SystemClock.now();
    let mut problems = Vec::new();
    let gateway = field(tree, "gateway");
    let certificates = gateway.and_then(|gateway| field(field(gateway, "tls")?, "certificates"));
    let services = field(tree, "services").map(entries).into_iter().flatten();
    let of_services = services.filter_map(|service| field(service, "tls"));
    for pair in certificates.into_iter().flat_map(items).chain(of_services) {
        let Some((certificate, key)) = file(pair, "certificate").zip(file(pair, "key")) else { continue };
        if is_checked(certificate.0) && is_checked(key.0) {
            let (of_certificate, of_key) = check_pair(certificate.1, key.1, now);
            problems.extend(of_certificate.map(|error| problem(certificate.0, "certificate", &error)));
            problems.extend(of_key.map(|error| problem(key.0, "key", &error)));
        }
    }
    let authorities = gateway.and_then(|gateway| file(gateway, "upstream_ca"));
    if let Some((node, path)) = authorities.filter(|(node, _)| is_checked(node)) {
        problems.extend(check_authorities(path, now).map(|error| problem(node, "upstream_ca", &error)));
    }
    problems
}

fn problem(node: &Node, field: &str, error: &TlsFileError) -> Problem {
    let expected = match error {
        TlsFileError::Unreadable(_) => "add the file; or check without files, with `--no-files`",
        TlsFileError::OtherKey => "use the private key with which the certificate was requested",
        TlsFileError::Expired(_) => "renew it",
        _ if field == "key" => "expected a PEM file with a private key",
        _ => "expected a PEM file with certificates",
    };
    Problem::new(node.span, format!("`{field}` {error}")).expected(expected)
}

/// Returns a path and its location. Empty paths are reported as such already.
fn file<'a>(map: &'a Node, name: &str) -> Option<(&'a Node, &'a Path)> {
    let node = field(map, name)?;
    let path =
        node.text().filter(|path| !path.is_empty() && !path.contains('\0') && !path.starts_with("-----BEGIN"))?;
    Some((node, Path::new(path)))
}

fn field<'a>(map: &'a Node, name: &str) -> Option<&'a Node> {
    match &map.value {
        Value::Map(entries) => entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node),
        _ => None,
    }
}

fn entries(map: &Node) -> impl Iterator<Item = &Node> {
    let entries = match &map.value {
        Value::Map(entries) => &**entries,
        _ => &[],
    };
    entries.iter().map(|entry| &entry.node)
}

/// Returns the items of a list, or the value itself.
fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}
