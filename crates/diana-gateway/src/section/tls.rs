//! TLS listeners: `tls: {listen: ..., certificates: [{certificate: cert.pem, key: key.pem}]}`.

use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, scalar};
use std::net::SocketAddr;
use std::path::PathBuf;

/// TLS listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The addresses that they listen on.
    pub listen: Vec<SocketAddr>,
    /// The certificates, chosen by SNI; the first is the default. There is at least one.
    pub certificates: Vec<Certificate>,
}

/// A certificate and its key. Both are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// The certificate chain, as PEM.
    pub certificate: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

pub(super) const FIELDS: [&str; 2] = ["listen", "certificates"];
pub(super) const CERTIFICATE: [&str; 2] = ["certificate", "key"];

impl Tls {
    /// Creates listeners on these addresses with one certificate.
    pub fn new(listen: Vec<SocketAddr>, certificate: Certificate) -> Self {
        Self { listen, certificates: vec![certificate] }
    }

    pub(super) fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`tls`", FIELDS, problems)?;
        let listen = fields.require("listen", problems).map(|node| scalar::listen(node, problems)).unwrap_or_default();
        let certificates = fields.require("certificates", problems).map(|node| {
            let nodes = scalar::at_least_one(node, "`certificates`", problems).into_iter();
            nodes.filter_map(|node| Certificate::parse(node, problems)).collect()
        });
        fields.finish(problems);
        Some(Self { listen, certificates: certificates.unwrap_or_default() })
    }
}

impl Certificate {
    /// Parses `{certificate: cert.pem, key: key.pem}`.
    pub fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "certificate", CERTIFICATE, problems)?;
        let [certificate, key] =
            CERTIFICATE.map(|name| fields.require(name, problems).and_then(|node| path(node, name, problems)));
        fields.finish(problems);
        Some(Self { certificate: certificate?, key: key? })
    }
}

/// Reads the path of a file.
pub(super) fn path(node: &Node, name: &str, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let is_path = |text: &str| !text.is_empty() && !text.contains('\0') && !text.starts_with("-----BEGIN");
    let read =
        |text: &str| is_path(text).then(|| text.into()).ok_or_else(|| "expected the path of a PEM file".to_owned());
    let field = format!("`{name}`");
    match node.text() {
        // An inline key is not shown, since it would end up in a log.
        Some(text) if text.starts_with("-----BEGIN") => {
            problems.push(
                Problem::new(node.span, format!("invalid {field}: found PEM text"))
                    .expected("expected the path of a PEM file"),
            );
            None
        }
        _ => scalar::parsed(node, &field, read, problems),
    }
}
